"""Counting rules of agents that differ from pricing each request: single ones, and pairs.

Explain why the cost that an agent reported differs from the cost computed from its tokens.

Nothing is stored: the tokens are priced again by every known counting rule of agents, and the first rule that gives the
reported cost within the tolerance is the cause; pairs of rules are tried where no single one fits. So old logs profit
from rules added later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.cost.totals import CauseCode
from mz_projections.feature.calls import Call

from mz_engine.pricing.models import base_name
from mz_engine.pricing.rate_card import RateCard, total_input_tokens, usage_cost, writes_as_1h, writes_as_5m

SERVICE_TIERS = ("batch", "flex", "priority", "fast")
PAIR_ENTRIES_MAX = 100_000
"""Entries priced for the pairs of one call: a quarter of a second. Calls with more entries get no pairs."""
LONG_REQUEST_TOKENS = 10**12
"""Tokens of a request above every step."""

UsageEntries: TypeAlias = tuple[Usage, ...]
SizeRule: TypeAlias = Callable[[UsageEntries], Callable[[Usage], int]]
"""Given all entries, the size at which each one is priced."""
CostShares: TypeAlias = dict[tuple[str, str], int | None]
"""Nano-dollars by subagent and model; None: an entry has no price."""


class Pricer(Protocol):
    """See `mz_engine.pricing.table.GenaiPrices`."""

    def entry(self, usage: Usage, at_us: int) -> int | None: ...

    def card(self, model: str, at_us: int, tier: str = "") -> RateCard | None: ...

    def history(self, model: str) -> tuple[RateCard, ...]: ...


class CostBreakdown(msgspec.Struct, frozen=True):
    """Usage of a call, and how it is priced."""

    usage: UsageEntries
    size_rule: SizeRule | None = None
    """None: each entry at its own size."""
    cards: tuple[tuple[str, RateCard], ...] = ()
    """Models priced by another card than the one in force."""

    def nanousd(self, at_us: int, prices: Pricer) -> int | None:
        """Return the total; None if an entry has no price."""
        return _sum(self._entry_costs(at_us, prices))

    def shares(self, at_us: int, prices: Pricer) -> CostShares:
        """Return the total by subagent and model."""
        shares: dict[tuple[str, str], int | None] = {}
        for entry, nanousd in zip(self.usage, self._entry_costs(at_us, prices), strict=True):
            share = shares.get((entry.subagent, entry.model), 0)
            shares[entry.subagent, entry.model] = None if share is None or nanousd is None else share + nanousd
        return shares

    def _entry_costs(self, at_us: int, prices: Pricer) -> Iterator[int | None]:
        """Yield the cost of each entry."""
        if self.size_rule is None and not self.cards:
            return (prices.entry(entry, at_us) for entry in self.usage)
        size, cards = self.size_rule(self.usage) if self.size_rule else None, dict(self.cards)

        def entry_cost(entry: Usage) -> int | None:
            card = cards[entry.model] if entry.model in cards else prices.card(entry.model, at_us, entry.tier)
            return None if card is None else usage_cost(card, entry, size(entry) if size else None)

        return map(entry_cost, self.usage)


class CountingRule(msgspec.Struct, frozen=True, kw_only=True):
    """One alternative counting rule."""

    cause: CauseCode
    kind: Literal["lifetime", "service", "size", "price", "part"]
    """The rules of a pair have different kinds."""
    describe: Callable[[UsageEntries], str]
    """Describe the rule for the entries that it affects."""
    apply: Callable[[CostBreakdown], CostBreakdown]
    excludes: Callable[[str, str], bool] | None = None
    """Returns True for (subagent, model) that the rule leaves out; None: it leaves out nothing."""
    may_pair: bool = True
    """The call shows evidence for the rule, so it may be part of a pair: two guesses would explain too much."""


class MismatchCause(msgspec.Struct, frozen=True):
    """A possible cause of a mismatch: its description, and the cost by it."""

    cause: CauseCode
    describe: Callable[[], str]
    nanousd: int | None


def counting_rules(usage: UsageEntries, model: str, at_us: int, prices: Pricer) -> Iterator[CountingRule]:
    """Yield the rules in the order of evaluation. `model`: the one that the call requested."""
    yield from _lifetime_rules(usage)
    yield from _service_tier_rules(("",), usage)
    yield from _size_rules(usage, at_us, prices)
    yield from _service_tier_rules(SERVICE_TIERS, usage)
    yield from _other_price_rules(usage, prices)
    yield from _exclusion_rules(usage, model)


def mismatch_causes(usage: UsageEntries, model: str, at_us: int, prices: Pricer) -> Iterator[MismatchCause]:
    """Yield the causes with one rule each, in the order of evaluation."""
    base = CostBreakdown(usage)
    shares = base.shares(at_us, prices)
    yield MismatchCause("promotion", lambda: "today's price table gives the reported cost", _sum(shares.values()))
    for rule in counting_rules(usage, model, at_us, prices):
        yield MismatchCause(
            rule.cause, partial(rule.describe, usage), _cost_under_rule(rule, base, shares, at_us, prices)
        )


def _cost_under_rule(
    rule: CountingRule, breakdown: CostBreakdown, shares: CostShares, at_us: int, prices: Pricer
) -> int | None:
    """Return the cost under the rule. `shares`: those of the breakdown; empty if the price of an entry depends on
    others."""
    if rule.excludes is None or not shares:
        return rule.apply(breakdown).nanousd(at_us, prices)
    return _sum(nanousd for key, nanousd in shares.items() if not rule.excludes(*key))


def cause_pairs(
    usage: UsageEntries, model: str, at_us: int, prices: Pricer, difference_min: int
) -> Iterator[MismatchCause]:
    """Yield causes with two rules, labelled by the first. Each changes the cost by more than `apart` nano-dollars
    beside the other: else one alone explains it."""
    base = CostBreakdown(usage)
    likely = [rule for rule in counting_rules(usage, model, at_us, prices) if rule.may_pair]
    if _pair_entries(likely, usage) > PAIR_ENTRIES_MAX:
        return
    shares = base.shares(at_us, prices)
    costs = [_cost_under_rule(rule, base, shares, at_us, prices) for rule in likely]
    for index, first in enumerate(likely):
        changed = first.apply(base)
        partners = [i for i in range(index + 1, len(likely)) if likely[i].kind != first.kind]
        if costs[index] is None or not partners:
            continue
        changed_shares = {} if changed.size_rule is _model_sums else changed.shares(at_us, prices)
        for partner in partners:
            second, single_costs = likely[partner], (costs[index], costs[partner])
            nanousd = None if None in single_costs else _cost_under_rule(second, changed, changed_shares, at_us, prices)
            if (
                nanousd is not None
                and min(abs(nanousd - single) for single in single_costs if single is not None) > difference_min
            ):
                yield MismatchCause(first.cause, partial(_describe_pair, first, second, base), nanousd)


def _pair_entries(likely: Sequence[CountingRule], usage: UsageEntries) -> int:
    """Count the entries to price for all pairs: a part that is left out is known from the shares, except where all
    requests to a model are priced as one."""
    parts = sum(rule.kind == "part" for rule in likely)
    others = len(likely) - parts
    joint = parts if any(rule.kind == "size" for rule in likely) else 0
    return (others * (others + 1) // 2 + joint) * len(usage)


def _describe_pair(first: CountingRule, second: CountingRule, base: CostBreakdown) -> str:
    return f"{first.describe(second.apply(base).usage)}, and {second.describe(base.usage)}"


# the kinds ------------------------------------------------------------------------------------------------------------
def _lifetime_rules(usage: UsageEntries) -> Iterator[CountingRule]:
    def priced_as_5m(entries: UsageEntries) -> str:
        return f"it priced {sum(entry.cache_write_1h for entry in entries):,} one-hour cache writes as five-minute ones"

    def priced_as_1h(entries: UsageEntries) -> str:
        return f"it priced {sum(entry.cache_write_5m for entry in entries):,} five-minute cache writes as one-hour ones"

    if any(entry.cache_write_1h for entry in usage):
        yield CountingRule(
            cause="cache-lifetime", kind="lifetime", describe=priced_as_5m, apply=_map_entries(writes_as_5m)
        )
    if any(entry.cache_write_5m for entry in usage):
        yield CountingRule(
            cause="cache-lifetime", kind="lifetime", describe=priced_as_1h, apply=_map_entries(writes_as_1h)
        )


def _service_tier_rules(tiers: Iterable[str], usage: UsageEntries) -> Iterator[CountingRule]:
    reported_tiers = {"", *(entry.tier for entry in usage)}
    for tier in tiers:
        if any(entry.tier != tier for entry in usage):
            description = f"it used the prices of the {tier or 'standard'} service tier"
            yield CountingRule(
                cause="tier",
                kind="service",
                describe=_constant_description(description),
                apply=_map_entries(_with_tier(tier)),
                may_pair=tier in reported_tiers,
            )


def _with_tier(tier: str) -> Callable[[Usage], Usage]:
    return lambda entry: replace(entry, tier=tier)


def _size_rules(usage: UsageEntries, at_us: int, prices: Pricer) -> Iterator[CountingRule]:
    size_rules: tuple[tuple[str, SizeRule], ...] = (
        ("it priced no request as a long one", lambda _: lambda _: 0),
        ("it priced every request as a long one", lambda _: lambda _: LONG_REQUEST_TOKENS),
        ("it priced all requests to a model as one", _model_sums),
        ("it priced a sum of requests as one", lambda _: total_input_tokens),
    )
    long = _may_have_long_requests(usage, at_us, prices)
    for description, size_rule in size_rules:
        yield CountingRule(
            cause="tier",
            kind="size",
            describe=_constant_description(description),
            apply=_with_sizes(size_rule),
            may_pair=long,
        )


def _model_sums(entries: UsageEntries) -> Callable[[Usage], int]:
    sums: dict[str, int] = {}
    for entry in entries:
        sums[entry.model] = sums.get(entry.model, 0) + entry.input
    return lambda entry: sums[entry.model]


def _may_have_long_requests(usage: UsageEntries, at_us: int, prices: Pricer) -> bool:
    """Return True if all requests to some model, added up, are above one of its steps."""
    for model in {entry.model for entry in usage}:
        card = prices.card(model, at_us)
        tokens = sum(total_input_tokens(entry) for entry in usage if entry.model == model)
        if card is not None and any(tokens > above for above in card.step_sizes):
            return True
    return False


def _with_sizes(size_rule: SizeRule) -> Callable[[CostBreakdown], CostBreakdown]:
    return lambda breakdown: replace(breakdown, size_rule=size_rule)


def _other_price_rules(usage: UsageEntries, prices: Pricer) -> Iterator[CountingRule]:
    for model in dict.fromkeys(entry.model for entry in usage):
        for card in prices.history(model):
            description = f"it used another price of {model}: a listed one, or that of another day"
            yield CountingRule(
                cause="promotion",
                kind="price",
                describe=_constant_description(description),
                apply=_with_card(model, card),
            )


def _with_card(model: str, card: RateCard) -> Callable[[CostBreakdown], CostBreakdown]:
    return lambda breakdown: replace(breakdown, cards=((model, card),))


def _exclusion_rules(usage: UsageEntries, model: str) -> Iterator[CountingRule]:
    def without(description: str, left_out: Callable[[str, str], bool]) -> CountingRule:
        def change(account: CostBreakdown) -> CostBreakdown:
            kept = tuple(entry for entry in account.usage if not left_out(entry.subagent, entry.model))
            return replace(account, usage=kept)

        return CountingRule(
            cause="sub-agent", kind="part", describe=_constant_description(description), apply=change, excludes=left_out
        )

    def of_part(named: str) -> Callable[[str, str], bool]:
        return lambda part, _: part == named

    def of_model(named: str) -> Callable[[str, str], bool]:
        return lambda _, model: model == named

    parts = [part for part in dict.fromkeys(entry.subagent for entry in usage) if part]
    if parts:
        yield without("it left out its sub-agents", lambda part, _: bool(part))
        for part in parts if len(parts) > 1 else ():
            yield without(f"it left out its sub-agent {part}", of_part(part))
    models = tuple(dict.fromkeys(entry.model for entry in usage))
    if len(models) > 1:
        others = frozenset(entry for entry in models if base_name(entry) != base_name(model))
        yield without(f"it counted only {model}", lambda _, other: other in others)
        for other in models:
            yield without(f"it left out {other}", of_model(other))


def _constant_description(description: str) -> Callable[[UsageEntries], str]:
    return lambda _: description


def _map_entries(change: Callable[[Usage], Usage]) -> Callable[[CostBreakdown], CostBreakdown]:
    return lambda breakdown: replace(breakdown, usage=tuple(map(change, breakdown.usage)))


def entries_cost(usage: Iterable[Usage], at_us: int, prices: Pricer) -> int | None:
    """Return the cost of all entries; None if one has no price."""
    return _sum(prices.entry(entry, at_us) for entry in usage)


def _sum(amounts: Iterable[int | None]) -> int | None:
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


TOLERANCE_NANOUSD = 1_000
"""A millionth of a dollar: agents add binary fractions and print six decimals or more, while the lowest price of a
token is a tenth of that; a larger difference means different counting."""
CHANCE_ODDS = 1_000
"""A pair of rules may fit by chance: this bounds the probability to one in so many."""
UNFINISHED_OUTCOMES = frozenset({"failed", "lost"})
"""Outcomes of calls that mz ended, or whose end nobody saw."""
ENDED_EARLY = "the call ended before the agent reported its cost"
NEVER_BEGAN = "the call did not begin, or was rejected before any work"
ZERO_AFTER_ERROR = (
    "the call ended in an error, and the agent reported tokens but a cost of 0: it stopped before it computed the "
    "cost, or it computes none (a subscription, a gateway)"
)
NO_CHARGE = "the agent reported tokens but a cost of 0: a subscription, a gateway, or a model that it has no price for"


def explain_mismatch(call: Call, usage: UsageEntries, prices: Pricer) -> tuple[CauseCode, str]:
    """Return the cause, and details in words. `usage`: the call's, entry by entry."""
    reported, computed = call.reported_nanousd, call.computed_nanousd
    if reported is not None and computed is not None and is_within_tolerance(reported, computed):
        return "match", ""
    if reported is None and call.was_rejected:
        return "unknown", NEVER_BEGAN
    if was_cut_off(call):
        return (
            "killed",
            ZERO_AFTER_ERROR if call.ending == "error" and call.status not in UNFINISHED_OUTCOMES else ENDED_EARLY,
        )
    if reported is None or computed is None or not reported:
        return "unknown", _missing_cost_reason(call)
    at_us = call.requested_at_us if call.ended_at_us is None else call.ended_at_us
    for cause in _possible_causes(usage, call.model, at_us, prices):
        if cause.nanousd is not None and is_within_tolerance(reported, cause.nanousd):
            return cause.cause, cause.describe()
    return ("killed", ENDED_EARLY) if call.status in UNFINISHED_OUTCOMES else ("unexplained", "")


def _possible_causes(usage: UsageEntries, model: str, at_us: int, prices: Pricer) -> Iterator[MismatchCause]:
    yield from mismatch_causes(usage, model, at_us, prices)
    yield from likely_pairs(usage, model, at_us, prices)


def is_within_tolerance(reported: int, computed: int) -> bool:
    return abs(reported - computed) <= TOLERANCE_NANOUSD


def was_cut_off(call: Call) -> bool:
    """Return True without a terminal event; or if mz ended the call and one of the figures is missing; or for an error
    that reports zero after tokens were used. For a model without a price, zero or a missing computed cost prove
    nothing."""
    if call.ending == "no-terminal" or (call.status in UNFINISHED_OUTCOMES and call.reported_nanousd is None):
        return True
    if call.unpriced:
        return False
    reports_zero = call.reported_nanousd == 0 and bool(call.input or call.output)
    has_missing_cost = call.status in UNFINISHED_OUTCOMES and (call.computed_nanousd is None or reports_zero)
    return has_missing_cost or (call.ending == "error" and reports_zero)


def likely_pairs(usage: UsageEntries, model: str, at_us: int, prices: Pricer) -> tuple[MismatchCause, ...]:
    """Return pairs of counting rules; none if there are so many for so small a cost that one would often fit by
    chance."""
    computed = CostBreakdown(usage).nanousd(at_us, prices)
    amounts_max = 0 if computed is None else computed // ((2 * TOLERANCE_NANOUSD + 1) * CHANCE_ODDS)
    causes: list[MismatchCause] = []
    amounts: set[int | None] = set()
    for cause in cause_pairs(usage, model, at_us, prices, TOLERANCE_NANOUSD) if amounts_max else ():
        causes.append(cause)
        amounts.add(cause.nanousd)
        if len(amounts) > amounts_max:
            return ()
    return tuple(causes)


def _missing_cost_reason(call: Call) -> str:
    if call.unpriced:
        return f"no price for {', '.join(call.unpriced)}"
    if call.computed_nanousd is None:
        return "the agent reported no tokens" if call.status == "replied" else ""
    return "the agent reported no cost" if call.reported_nanousd is None else NO_CHARGE
