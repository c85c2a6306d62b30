"""Counting rules of agents that differ from pricing each request: single ones, and pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.spending import Why

from mz_engine.pricing.card import Card, all_hour, all_short, cost, tokens_in
from mz_engine.pricing.names import bare

TIERS = ("batch", "flex", "priority", "fast")
ENTRIES_MAX = 100_000
"""Entries priced for the pairs of one call: a quarter of a second. Calls with more entries get no pairs."""
LONGEST = 10**12
"""Tokens of a request above every step."""

Usages: TypeAlias = tuple[Usage, ...]
Sizes: TypeAlias = Callable[[Usages], Callable[[Usage], int]]
"""Given all entries, the size at which each one is priced."""
Shares: TypeAlias = dict[tuple[str, str], int | None]
"""Nano-dollars by subagent and model; None: an entry has no price."""


class Pricer(Protocol):
    """See `mz_engine.adapters.prices.GenaiPrices`."""

    def entry(self, usage: Usage, at_us: int) -> int | None: ...

    def card(self, model: str, at_us: int, tier: str = "") -> Card | None: ...

    def history(self, model: str) -> tuple[Card, ...]: ...


class Account(msgspec.Struct, frozen=True):
    """Usage of a call, and how it is priced."""

    usage: Usages
    sizes: Sizes | None = None
    """None: each entry at its own size."""
    cards: tuple[tuple[str, Card], ...] = ()
    """Models priced by another card than the one in force."""

    def nanousd(self, at_us: int, prices: Pricer) -> int | None:
        """Return the total; None if an entry has no price."""
        return _sum(self._amounts(at_us, prices))

    def shares(self, at_us: int, prices: Pricer) -> Shares:
        """Return the total by subagent and model."""
        shares: dict[tuple[str, str], int | None] = {}
        for entry, nanousd in zip(self.usage, self._amounts(at_us, prices), strict=True):
            share = shares.get((entry.part, entry.model), 0)
            shares[entry.part, entry.model] = None if share is None or nanousd is None else share + nanousd
        return shares

    def _amounts(self, at_us: int, prices: Pricer) -> Iterator[int | None]:
        """Yield the cost of each entry."""
        if self.sizes is None and not self.cards:
            return (prices.entry(entry, at_us) for entry in self.usage)
        size, cards = self.sizes(self.usage) if self.sizes else None, dict(self.cards)

        def entry_cost(entry: Usage) -> int | None:
            card = cards[entry.model] if entry.model in cards else prices.card(entry.model, at_us, entry.tier)
            return None if card is None else cost(card, entry, size(entry) if size else None)

        return map(entry_cost, self.usage)


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """One alternative counting rule."""

    why: Why
    kind: Literal["lifetime", "service", "size", "price", "part"]
    """The rules of a pair have different kinds."""
    say: Callable[[Usages], str]
    """Describe the rule for the entries that it affects."""
    change: Callable[[Account], Account]
    left_out: Callable[[str, str], bool] | None = None
    """Returns True for (subagent, model) that the rule leaves out; None: it leaves out nothing."""
    paired: bool = True
    """The call shows evidence for the rule, so it may be part of a pair: two guesses would explain too much."""


class Way(msgspec.Struct, frozen=True):
    """A possible cause of a mismatch: its description, and the cost by it."""

    why: Why
    say: Callable[[], str]
    nanousd: int | None


def deviations(usage: Usages, model: str, at_us: int, prices: Pricer) -> Iterator[Deviation]:
    """Yield the rules in the order of evaluation. `model`: the one that the call requested."""
    yield from _lifetimes(usage)
    yield from _service_tiers(("",), usage)
    yield from _sizes(usage, at_us, prices)
    yield from _service_tiers(TIERS, usage)
    yield from _other_prices(usage, prices)
    yield from _parts(usage, model)


def ways(usage: Usages, model: str, at_us: int, prices: Pricer) -> Iterator[Way]:
    """Yield the causes with one rule each, in the order of evaluation."""
    base = Account(usage)
    shares = base.shares(at_us, prices)
    yield Way("promotion", lambda: "today's price table gives the reported cost", _sum(shares.values()))
    for rule in deviations(usage, model, at_us, prices):
        yield Way(rule.why, partial(rule.say, usage), _deviating(rule, base, shares, at_us, prices))


def _deviating(one: Deviation, account: Account, shares: Shares, at_us: int, prices: Pricer) -> int | None:
    """Return the cost under the rule. `shares`: those of the breakdown; empty if the price of an entry depends on
    others."""
    if one.left_out is None or not shares:
        return one.change(account).nanousd(at_us, prices)
    return _sum(nanousd for key, nanousd in shares.items() if not one.left_out(*key))


def pairs(usage: Usages, model: str, at_us: int, prices: Pricer, apart: int) -> Iterator[Way]:
    """Yield causes with two rules, labelled by the first. Each changes the cost by more than `apart` nano-dollars
    beside the other: else one alone explains it."""
    base = Account(usage)
    likely = [rule for rule in deviations(usage, model, at_us, prices) if rule.paired]
    if _entries(likely, usage) > ENTRIES_MAX:
        return
    shares = base.shares(at_us, prices)
    costs = [_deviating(rule, base, shares, at_us, prices) for rule in likely]
    for index, first in enumerate(likely):
        changed = first.change(base)
        partners = [i for i in range(index + 1, len(likely)) if likely[i].kind != first.kind]
        if costs[index] is None or not partners:
            continue
        changed_shares = {} if changed.sizes is _of_models else changed.shares(at_us, prices)
        for partner in partners:
            second, single_costs = likely[partner], (costs[index], costs[partner])
            nanousd = None if None in single_costs else _deviating(second, changed, changed_shares, at_us, prices)
            if (
                nanousd is not None
                and min(abs(nanousd - single) for single in single_costs if single is not None) > apart
            ):
                yield Way(first.why, partial(_both, first, second, base), nanousd)


def _entries(likely: Sequence[Deviation], usage: Usages) -> int:
    """Count the entries to price for all pairs: a part that is left out is known from the shares, except where all
    requests to a model are priced as one."""
    parts = sum(rule.kind == "part" for rule in likely)
    others = len(likely) - parts
    joint = parts if any(rule.kind == "size" for rule in likely) else 0
    return (others * (others + 1) // 2 + joint) * len(usage)


def _both(first: Deviation, second: Deviation, base: Account) -> str:
    return f"{first.say(second.change(base).usage)}, and {second.say(base.usage)}"


# the kinds ------------------------------------------------------------------------------------------------------------
def _lifetimes(usage: Usages) -> Iterator[Deviation]:
    def short(one: Usages) -> str:
        return f"it priced {sum(entry.cache_write_1h for entry in one):,} one-hour cache writes as five-minute ones"

    def hour(one: Usages) -> str:
        return f"it priced {sum(entry.cache_write_5m for entry in one):,} five-minute cache writes as one-hour ones"

    if any(entry.cache_write_1h for entry in usage):
        yield Deviation(why="cache-lifetime", kind="lifetime", say=short, change=_each(all_short))
    if any(entry.cache_write_5m for entry in usage):
        yield Deviation(why="cache-lifetime", kind="lifetime", say=hour, change=_each(all_hour))


def _service_tiers(tiers: Iterable[str], usage: Usages) -> Iterator[Deviation]:
    told = {"", *(each.tier for each in usage)}
    for tier in tiers:
        if any(each.tier != tier for each in usage):
            words = f"it used the prices of the {tier or 'standard'} service tier"
            yield Deviation(
                why="tier", kind="service", say=_said(words), change=_each(_of_tier(tier)), paired=tier in told
            )


def _of_tier(tier: str) -> Callable[[Usage], Usage]:
    return lambda each: replace(each, tier=tier)


def _sizes(usage: Usages, at_us: int, prices: Pricer) -> Iterator[Deviation]:
    ways: tuple[tuple[str, Sizes], ...] = (
        ("it priced no request as a long one", lambda _: lambda _: 0),
        ("it priced every request as a long one", lambda _: lambda _: LONGEST),
        ("it priced all requests to a model as one", _of_models),
        ("it priced a sum of requests as one", lambda _: tokens_in),
    )
    long = _may_be_long(usage, at_us, prices)
    for words, sizes in ways:
        yield Deviation(why="tier", kind="size", say=_said(words), change=_sized(sizes), paired=long)


def _of_models(listed: Usages) -> Callable[[Usage], int]:
    sums: dict[str, int] = {}
    for each in listed:
        sums[each.model] = sums.get(each.model, 0) + each.input
    return lambda each: sums[each.model]


def _may_be_long(usage: Usages, at_us: int, prices: Pricer) -> bool:
    """Return True if all requests to some model, added up, are above one of its steps."""
    for model in {each.model for each in usage}:
        card = prices.card(model, at_us)
        tokens = sum(tokens_in(each) for each in usage if each.model == model)
        if card is not None and any(tokens > above for above in card.steps):
            return True
    return False


def _sized(sizes: Sizes) -> Callable[[Account], Account]:
    return lambda account: replace(account, sizes=sizes)


def _other_prices(usage: Usages, prices: Pricer) -> Iterator[Deviation]:
    for model in dict.fromkeys(each.model for each in usage):
        for card in prices.history(model):
            words = f"it used another price of {model}: a listed one, or that of another day"
            yield Deviation(why="promotion", kind="price", say=_said(words), change=_carded(model, card))


def _carded(model: str, card: Card) -> Callable[[Account], Account]:
    return lambda account: replace(account, cards=((model, card),))


def _parts(usage: Usages, model: str) -> Iterator[Deviation]:
    def without(words: str, left_out: Callable[[str, str], bool]) -> Deviation:
        def change(account: Account) -> Account:
            kept = tuple(each for each in account.usage if not left_out(each.part, each.model))
            return replace(account, usage=kept)

        return Deviation(why="sub-agent", kind="part", say=_said(words), change=change, left_out=left_out)

    def of_part(named: str) -> Callable[[str, str], bool]:
        return lambda part, _: part == named

    def of_model(named: str) -> Callable[[str, str], bool]:
        return lambda _, model: model == named

    parts = [part for part in dict.fromkeys(each.part for each in usage) if part]
    if parts:
        yield without("it left out its sub-agents", lambda part, _: bool(part))
        for part in parts if len(parts) > 1 else ():
            yield without(f"it left out its sub-agent {part}", of_part(part))
    models = tuple(dict.fromkeys(each.model for each in usage))
    if len(models) > 1:
        others = frozenset(each for each in models if bare(each) != bare(model))
        yield without(f"it counted only {model}", lambda _, other: other in others)
        for other in models:
            yield without(f"it left out {other}", of_model(other))


def _said(words: str) -> Callable[[Usages], str]:
    return lambda _: words


def _each(change: Callable[[Usage], Usage]) -> Callable[[Account], Account]:
    return lambda account: replace(account, usage=tuple(map(change, account.usage)))


def total(usage: Iterable[Usage], at_us: int, prices: Pricer) -> int | None:
    """Return the cost of all entries; None if one has no price."""
    return _sum(prices.entry(each, at_us) for each in usage)


def _sum(amounts: Iterable[int | None]) -> int | None:
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
