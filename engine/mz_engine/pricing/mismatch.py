"""Explain why the cost that an agent reported differs from the cost computed from its tokens.

Nothing is stored: the tokens are priced again by every known counting rule of agents, and the first rule that gives the
reported cost within the tolerance is the cause; pairs of rules are tried where no single one fits. So old logs profit
from rules added later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, combinations
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.cost.totals import CauseCode
from mz_projections.feature.calls import Call

from mz_engine.pricing.models import base_name
from mz_engine.pricing.rate_card import RateCard, total_input_tokens, usage_cost, writes_as_1h, writes_as_5m
from mz_engine.pricing.table import GenaiPrices

SERVICE_TIERS = ("batch", "flex", "priority", "fast")
PAIR_ENTRIES_MAX = 100_000
"""Entries priced for the pairs of one call: a quarter of a second. Calls with more entries get no pairs."""
LONG_REQUEST_TOKENS = 10**12
"""Tokens of a request above every step."""
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

UsageEntries: TypeAlias = tuple[Usage, ...]
SizeRule: TypeAlias = Callable[[UsageEntries], Callable[[Usage], int]]
"""Given all entries, the size at which each one is priced."""


class CostBreakdown(msgspec.Struct, frozen=True):
    """Usage of a call, and how it is priced."""

    usage: UsageEntries
    size_rule: SizeRule | None = None
    """None: each entry at its own size."""
    cards: tuple[tuple[str, RateCard], ...] = ()
    """Models priced by another card than the one in force."""

    def nanousd(self, at_us: int, prices: GenaiPrices) -> int | None:
        """Return the total; None if an entry has no price."""
        size, cards, total = self.size_rule(self.usage) if self.size_rule else None, dict(self.cards), 0
        for entry in self.usage:
            card = cards[entry.model] if entry.model in cards else prices.card(entry.model, at_us, entry.tier)
            nanousd = None if card is None else usage_cost(card, entry, size(entry) if size else None)
            if nanousd is None:
                return None
            total += nanousd
        return total


class CountingRule(msgspec.Struct, frozen=True):
    """One alternative counting rule."""

    cause: CauseCode
    kind: Literal["table", "lifetime", "service", "size", "price", "part"]
    """The rules of a pair have different kinds."""
    description: str
    apply: Callable[[CostBreakdown], CostBreakdown]
    may_pair: bool = True
    """The call shows evidence for the rule, so it may be part of a pair: two guesses would explain too much."""


def explain_mismatch(call: Call, usage: UsageEntries, prices: GenaiPrices) -> tuple[CauseCode, str]:
    """Return the cause, and details in words. `usage`: the call's, entry by entry."""
    reported, computed = call.reported_nanousd, call.computed_nanousd
    if reported is not None and computed is not None and is_within_tolerance(reported, computed):
        return "match", ""
    if reported is None and call.was_rejected:
        return "unknown", NEVER_BEGAN
    is_unfinished = call.status in UNFINISHED_OUTCOMES
    if was_cut_off(call):
        return "killed", ZERO_AFTER_ERROR if call.ending == "error" and not is_unfinished else ENDED_EARLY
    if reported is None or computed is None or not reported:
        return "unknown", _missing_cost_reason(call)
    at_us = call.requested_at_us if call.ended_at_us is None else call.ended_at_us
    singles = (
        (rule.apply(CostBreakdown(usage)).nanousd(at_us, prices), (rule,))
        for rule in counting_rules(usage, call.model, at_us, prices)
    )
    for nanousd, rules in chain(singles, likely_pairs(usage, call.model, at_us, prices)):
        if nanousd is not None and is_within_tolerance(reported, nanousd):
            return rules[0].cause, ", and ".join(rule.description for rule in rules)
    return ("killed", ENDED_EARLY) if is_unfinished else ("unexplained", "")


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


def likely_pairs(
    usage: UsageEntries, model: str, at_us: int, prices: GenaiPrices
) -> Iterator[tuple[int | None, tuple[CountingRule, ...]]]:
    """Yield the costs by pairs of counting rules; nothing if there are so many for so small a cost that one would often
    fit by chance, or if pricing them takes too long."""
    base = CostBreakdown(usage)
    likely = [rule for rule in counting_rules(usage, model, at_us, prices) if rule.may_pair]
    pairs = [(first, second) for first, second in combinations(likely, 2) if first.kind != second.kind]
    computed = base.nanousd(at_us, prices)
    amounts_max = 0 if computed is None else computed // ((2 * TOLERANCE_NANOUSD + 1) * CHANCE_ODDS)
    if not amounts_max or len(pairs) * len(usage) > PAIR_ENTRIES_MAX:
        return
    priced = [(second.apply(first.apply(base)).nanousd(at_us, prices), (first, second)) for first, second in pairs]
    if len({nanousd for nanousd, _ in priced}) <= amounts_max:
        yield from priced


def _missing_cost_reason(call: Call) -> str:
    if call.unpriced:
        return f"no price for {', '.join(call.unpriced)}"
    if call.computed_nanousd is None:
        return "the agent reported no tokens" if call.status == "replied" else ""
    return "the agent reported no cost" if call.reported_nanousd is None else NO_CHARGE


def counting_rules(usage: UsageEntries, model: str, at_us: int, prices: GenaiPrices) -> Iterator[CountingRule]:
    """Yield the rules in the order of evaluation. `model`: the one that the call requested."""
    yield CountingRule("promotion", "table", "today's price table gives the reported cost", lambda base: base, False)
    long_writes, short_writes = sum(entry.cache_write_1h for entry in usage), sum(e.cache_write_5m for e in usage)
    if long_writes:
        description = f"it priced {long_writes:,} one-hour cache writes as five-minute ones"
        yield CountingRule("cache-lifetime", "lifetime", description, partial(_map_entries, writes_as_5m))
    if short_writes:
        description = f"it priced {short_writes:,} five-minute cache writes as one-hour ones"
        yield CountingRule("cache-lifetime", "lifetime", description, partial(_map_entries, writes_as_1h))
    yield from _service_tier_rules(("",), usage)
    yield from _size_rules(usage, at_us, prices)
    yield from _service_tier_rules(SERVICE_TIERS, usage)
    for name in dict.fromkeys(entry.model for entry in usage):
        description = f"it used another price of {name}: a listed one, or that of another day"
        for card in prices.history(name):
            yield CountingRule("promotion", "price", description, partial(replace, cards=((name, card),)))
    yield from _exclusion_rules(usage, model)


def _service_tier_rules(tiers: Iterable[str], usage: UsageEntries) -> Iterator[CountingRule]:
    reported_tiers = {"", *(entry.tier for entry in usage)}
    for tier in tiers:
        if any(entry.tier != tier for entry in usage):
            description = f"it used the prices of the {tier or 'standard'} service tier"
            apply = partial(_map_entries, partial(replace, tier=tier))
            yield CountingRule("tier", "service", description, apply, tier in reported_tiers)


def _map_entries(change: Callable[[Usage], Usage], breakdown: CostBreakdown) -> CostBreakdown:
    return replace(breakdown, usage=tuple(map(change, breakdown.usage)))


def _size_rules(usage: UsageEntries, at_us: int, prices: GenaiPrices) -> Iterator[CountingRule]:
    size_rules: tuple[tuple[str, SizeRule], ...] = (
        ("it priced no request as a long one", lambda _: lambda _: 0),
        ("it priced every request as a long one", lambda _: lambda _: LONG_REQUEST_TOKENS),
        ("it priced all requests to a model as one", _model_sums),
        ("it priced a sum of requests as one", lambda _: total_input_tokens),
    )
    for description, size_rule in size_rules:
        apply = partial(replace, size_rule=size_rule)
        yield CountingRule("tier", "size", description, apply, _may_have_long_requests(usage, at_us, prices))


def _model_sums(entries: UsageEntries) -> Callable[[Usage], int]:
    sums: dict[str, int] = {}
    for entry in entries:
        sums[entry.model] = sums.get(entry.model, 0) + entry.input
    return lambda entry: sums[entry.model]


def _may_have_long_requests(usage: UsageEntries, at_us: int, prices: GenaiPrices) -> bool:
    """Return True if all requests to some model, added up, are above one of its steps."""
    for model in {entry.model for entry in usage}:
        card = prices.card(model, at_us)
        tokens = sum(total_input_tokens(entry) for entry in usage if entry.model == model)
        if card is not None and any(tokens > above for above in card.step_sizes):
            return True
    return False


def _exclusion_rules(usage: UsageEntries, model: str) -> Iterator[CountingRule]:
    def without(description: str, excludes: Callable[[Usage], bool]) -> CountingRule:
        def keep_others(breakdown: CostBreakdown) -> CostBreakdown:
            return replace(breakdown, usage=tuple(entry for entry in breakdown.usage if not excludes(entry)))

        return CountingRule("sub-agent", "part", description, keep_others)

    parts = [part for part in dict.fromkeys(entry.subagent for entry in usage) if part]
    if parts:
        yield without("it left out its sub-agents", lambda entry: bool(entry.subagent))
    for part in parts if len(parts) > 1 else ():
        yield without(f"it left out its sub-agent {part}", partial(_has_value, "subagent", part))
    models = tuple(dict.fromkeys(entry.model for entry in usage))
    if len(models) > 1:
        yield without(f"it counted only {model}", lambda entry: base_name(entry.model) != base_name(model))
        for other in models:
            yield without(f"it left out {other}", partial(_has_value, "model", other))


def _has_value(field: str, value: str, entry: Usage) -> bool:
    return bool(getattr(entry, field) == value)
