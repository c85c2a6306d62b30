"""Pure: the ways in which agents are known to count otherwise than by each request's price: one at a time, and two."""

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
"""That are priced for the pairs of one call: a quarter of a second. Of a call with more there are none."""
LONGEST = 10**12
"""Tokens of a request that is above every step."""

Usages: TypeAlias = tuple[Usage, ...]
Sizes: TypeAlias = Callable[[Usages], Callable[[Usage], int]]
"""From all entries: at which size each one is priced."""
Shares: TypeAlias = dict[tuple[str, str], int | None]
"""Nano-dollars by sub-agent and model; None: an entry has no price."""


class Pricer(Protocol):
    """See `mz_engine.adapters.prices.GenaiPrices`."""

    def entry(self, usage: Usage, at_us: int) -> int | None: ...

    def card(self, model: str, at_us: int, tier: str = "") -> Card | None: ...

    def history(self, model: str) -> tuple[Card, ...]: ...


class Account(msgspec.Struct, frozen=True):
    """How a call is counted."""

    usage: Usages
    sizes: Sizes | None = None
    """None: each entry at its own size."""
    cards: tuple[tuple[str, Card], ...] = ()
    """Models that are priced by another card than the one in force."""

    def nanousd(self, at_us: int, prices: Pricer) -> int | None:
        """What it comes to; None where an entry has no price."""
        return _sum(self._amounts(at_us, prices))

    def shares(self, at_us: int, prices: Pricer) -> Shares:
        """The same, by sub-agent and model."""
        found: dict[tuple[str, str], int | None] = {}
        for each, nanousd in zip(self.usage, self._amounts(at_us, prices), strict=True):
            before = found.get((each.part, each.model), 0)
            found[each.part, each.model] = None if before is None or nanousd is None else before + nanousd
        return found

    def _amounts(self, at_us: int, prices: Pricer) -> Iterator[int | None]:
        """Entry by entry."""
        if self.sizes is None and not self.cards:
            return (prices.entry(each, at_us) for each in self.usage)
        size, others = self.sizes(self.usage) if self.sizes else None, dict(self.cards)

        def entry(each: Usage) -> int | None:
            card = others[each.model] if each.model in others else prices.card(each.model, at_us, each.tier)
            return None if card is None else cost(card, each, size(each) if size else None)

        return map(entry, self.usage)


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """One way to count otherwise."""

    why: Why
    kind: Literal["lifetime", "service", "size", "price", "part"]
    """Of two at once, each is of a kind of its own."""
    say: Callable[[Usages], str]
    """In words, of the entries that it is about."""
    change: Callable[[Account], Account]
    left_out: Callable[[str, str], bool] | None = None
    """Whether it leaves out what a sub-agent asked of a model; None: it leaves out nothing."""
    paired: bool = True
    """Whether the call shows what it is about, so that it may be one of two: two guesses would explain too much."""


class Way(msgspec.Struct, frozen=True):
    """A reason, more of it in words, and what the tokens come to by it."""

    why: Why
    say: Callable[[], str]
    nanousd: int | None


def deviations(usage: Usages, model: str, at_us: int, prices: Pricer) -> Iterator[Deviation]:
    """In the order in which they are tried. `model`: the one that the call was for."""
    yield from _lifetimes(usage)
    yield from _service_tiers(("",), usage)
    yield from _sizes(usage, at_us, prices)
    yield from _service_tiers(TIERS, usage)
    yield from _other_prices(usage, prices)
    yield from _parts(usage, model)


def ways(usage: Usages, model: str, at_us: int, prices: Pricer) -> Iterator[Way]:
    """One deviation at a time, in the order in which they are tried."""
    base = Account(usage)
    shares = base.shares(at_us, prices)
    yield Way("promotion", lambda: "today's price table says what the agent said", _sum(shares.values()))
    for each in deviations(usage, model, at_us, prices):
        yield Way(each.why, partial(each.say, usage), _deviating(each, base, shares, at_us, prices))


def _deviating(one: Deviation, account: Account, shares: Shares, at_us: int, prices: Pricer) -> int | None:
    """What the account comes to with the deviation. `shares`: its own; empty where the price of an entry depends on the
    others."""
    if one.left_out is None or not shares:
        return one.change(account).nanousd(at_us, prices)
    return _sum(nanousd for key, nanousd in shares.items() if not one.left_out(*key))


def pairs(usage: Usages, model: str, at_us: int, prices: Pricer, apart: int) -> Iterator[Way]:
    """Two deviations at once, named after the one that is tried first. Each of them makes a difference of more than
    `apart` nano-dollars beside the other: else there is but one."""
    base = Account(usage)
    likely = [each for each in deviations(usage, model, at_us, prices) if each.paired]
    if _entries(likely, usage) > ENTRIES_MAX:
        return
    shares = base.shares(at_us, prices)
    alone = [_deviating(each, base, shares, at_us, prices) for each in likely]
    for at, first in enumerate(likely):
        changed, others = first.change(base), [to for to in range(at + 1, len(likely)) if likely[to].kind != first.kind]
        if alone[at] is None or not others:
            continue
        parted = {} if changed.sizes is _of_models else changed.shares(at_us, prices)
        for to in others:
            second, beside = likely[to], (alone[at], alone[to])
            nanousd = None if None in beside else _deviating(second, changed, parted, at_us, prices)
            if nanousd is not None and min(abs(nanousd - each) for each in beside if each is not None) > apart:
                yield Way(first.why, partial(_both, first, second, base), nanousd)


def _entries(likely: Sequence[Deviation], usage: Usages) -> int:
    """How many must be priced for all pairs: a part that is left out is known from the shares, except where all
    requests to a model are priced as one."""
    parts = sum(each.kind == "part" for each in likely)
    others = len(likely) - parts
    joint = parts if any(each.kind == "size" for each in likely) else 0
    return (others * (others + 1) // 2 + joint) * len(usage)


def _both(first: Deviation, second: Deviation, base: Account) -> str:
    return f"{first.say(second.change(base).usage)}, and {second.say(base.usage)}"


# the kinds ------------------------------------------------------------------------------------------------------------
def _lifetimes(usage: Usages) -> Iterator[Deviation]:
    def short(one: Usages) -> str:
        return f"it priced {sum(each.cache_write_1h for each in one):,} cache writes for an hour as for five minutes"

    def hour(one: Usages) -> str:
        return f"it priced {sum(each.cache_write_5m for each in one):,} cache writes for five minutes as for an hour"

    if any(each.cache_write_1h for each in usage):
        yield Deviation(why="cache-lifetime", kind="lifetime", say=short, change=_each(all_short))
    if any(each.cache_write_5m for each in usage):
        yield Deviation(why="cache-lifetime", kind="lifetime", say=hour, change=_each(all_hour))


def _service_tiers(tiers: Iterable[str], usage: Usages) -> Iterator[Deviation]:
    told = {"", *(each.tier for each in usage)}
    for tier in tiers:
        if any(each.tier != tier for each in usage):
            words = f"it priced the service tier {tier}" if tier else "it priced the standard service tier"
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
    """Whether all requests to some model, taken together, are above one of its steps."""
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
            words = f"it went by another price of {model}: listed, or of another day"
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
        yield without(f"it counted {model} alone", lambda _, other: other in others)
        for other in models:
            yield without(f"it left out {other}", of_model(other))


def _said(words: str) -> Callable[[Usages], str]:
    return lambda _: words


def _each(change: Callable[[Usage], Usage]) -> Callable[[Account], Account]:
    return lambda account: replace(account, usage=tuple(map(change, account.usage)))


def total(usage: Iterable[Usage], at_us: int, prices: Pricer) -> int | None:
    """Of all entries; None where one has no price."""
    return _sum(prices.entry(each, at_us) for each in usage)


def _sum(amounts: Iterable[int | None]) -> int | None:
    found = 0
    for amount in amounts:
        if amount is None:
            return None
        found += amount
    return found
