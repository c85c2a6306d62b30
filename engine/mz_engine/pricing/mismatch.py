"""Explain why the cost that an agent reported differs from the cost computed from its tokens.

Nothing is stored: the tokens are priced again by every known counting rule of agents, and the first rule that gives the
reported cost within the tolerance is the cause; then an agent that leaves out calls, and prices the others by another
rule. So old logs profit from rules added later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TypeAlias

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.cost.totals import CauseCode
from mz_projections.feature.calls import Call

from mz_engine.pricing.models import base_name
from mz_engine.pricing.table import GenaiPrices, RateCard, total_input_tokens, usage_cost, writes_as_1h, writes_as_5m

SERVICE_TIERS = ("batch", "flex", "priority", "fast")
PAIRED_PARTS_MAX = 2
"""Parts for which pairs are tried, so that a call of many sub-agents takes no longer."""
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
RuleCost: TypeAlias = tuple[CauseCode, str, int | None]
"""Cause, description, and the cost by the rule; None: an entry has no price."""


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
    rules = CountingRules(usage, call.model, at_us, prices)
    for cause, description, nanousd in chain(rules.costs(), rules.pair_costs()):
        if nanousd is not None and is_within_tolerance(reported, nanousd):
            return cause, description
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
    reports_zero = call.reported_nanousd == 0 and bool(call.input_tokens or call.output_tokens)
    has_missing_cost = call.status in UNFINISHED_OUTCOMES and (call.computed_nanousd is None or reports_zero)
    return has_missing_cost or (call.ending == "error" and reports_zero)


def _missing_cost_reason(call: Call) -> str:
    if call.unpriced:
        return f"no price for {', '.join(call.unpriced)}"
    if call.computed_nanousd is None:
        return "the agent reported no tokens" if call.status == "replied" else ""
    return "the agent reported no cost" if call.reported_nanousd is None else NO_CHARGE


class CountingRules(msgspec.Struct, frozen=True):
    """The costs of one call by the rules that agents count by."""

    usage: UsageEntries
    model: str
    """The one that the call requested."""
    at_us: int
    prices: GenaiPrices

    def costs(self) -> Iterator[RuleCost]:
        """Yield the costs in the order of evaluation."""
        yield "promotion", "today's price table gives the reported cost", self._total(self.usage)
        yield from self._likely_costs()
        for tier in SERVICE_TIERS:
            yield from self._service_tier_costs(tier)
        for name in dict.fromkeys(entry.model for entry in self.usage):
            description = f"it used another price of {name}: a listed one, or that of another day"
            for card in self.prices.history(name):
                yield "promotion", description, self._total(self.usage, cards={name: card})
        for description, counted in self._parts():
            yield "sub-agent", description, self._total(counted)

    def pair_costs(self) -> Iterator[RuleCost]:
        """Yield the costs of a part of the entries by another rule; none if they are so many, for so small a cost, that
        one would often fit by chance."""
        pairs = [
            (cause, f"{description}, and {left_out}", nanousd)
            for left_out, counted in islice(self._parts(), PAIRED_PARTS_MAX)
            for cause, description, nanousd in replace(self, usage=counted)._likely_costs()
        ]
        amounts, computed = len({nanousd for *_, nanousd in pairs}), self._total(self.usage) or 0
        if amounts * (2 * TOLERANCE_NANOUSD + 1) * CHANCE_ODDS <= computed:
            yield from pairs

    def _likely_costs(self) -> Iterator[RuleCost]:
        """Yield the costs by rules for which the entries show evidence."""
        usage = self.usage
        long_writes, short_writes = sum(e.cache_write_1h for e in usage), sum(e.cache_write_5m for e in usage)
        if long_writes:
            description = f"it priced {long_writes:,} one-hour cache writes as five-minute ones"
            yield "cache-lifetime", description, self._total(map(writes_as_5m, usage))
        if short_writes:
            description = f"it priced {short_writes:,} five-minute cache writes as one-hour ones"
            yield "cache-lifetime", description, self._total(map(writes_as_1h, usage))
        yield from self._service_tier_costs("")
        usage, sums = self.usage, Counter[str]()
        for entry in usage:
            sums[entry.model] += entry.input
        yield "tier", "it priced no request as a long one", self._total(usage, lambda _: 0)
        yield "tier", "it priced every request as a long one", self._total(usage, lambda _: LONG_REQUEST_TOKENS)
        yield "tier", "it priced all requests to a model as one", self._total(usage, lambda entry: sums[entry.model])
        yield "tier", "it priced a sum of requests as one", self._total(usage, total_input_tokens)

    def _total(
        self,
        usage: Iterable[Usage],
        size: Callable[[Usage], int] | None = None,
        cards: Mapping[str, RateCard] | None = None,
    ) -> int | None:
        """Return the total; None if an entry has no price. `size` tells the size at which an entry is priced; `cards`
        replace those in force, by model."""
        total = 0
        for entry in usage:
            card = (cards or {}).get(entry.model) or self.prices.card(entry.model, self.at_us, entry.tier)
            nanousd = None if card is None else usage_cost(card, entry, size(entry) if size else None)
            if nanousd is None:
                return None
            total += nanousd
        return total

    def _service_tier_costs(self, tier: str) -> Iterator[RuleCost]:
        if any(entry.tier != tier for entry in self.usage):
            description = f"it used the prices of the {tier or 'standard'} service tier"
            yield "tier", description, self._total(replace(entry, tier=tier) for entry in self.usage)

    def _parts(self) -> Iterator[tuple[str, UsageEntries]]:
        """Yield parts of the entries that an agent may have counted, with what it left out."""

        def without(description: str, field: str, values: Collection[str]) -> tuple[str, UsageEntries]:
            return description, tuple(entry for entry in self.usage if getattr(entry, field) not in values)

        models, own = tuple(dict.fromkeys(entry.model for entry in self.usage)), base_name(self.model)
        parts = [part for part in dict.fromkeys(entry.subagent for entry in self.usage) if part]
        if parts:
            yield without("it left out its sub-agents", "subagent", parts)
        if len(models) > 1:
            others = [model for model in models if base_name(model) != own]
            yield without(f"it counted only {self.model}", "model", others)
        for part in parts if len(parts) > 1 else ():
            yield without(f"it left out its sub-agent {part}", "subagent", (part,))
        for other in models if len(models) > 1 else ():
            yield without(f"it left out {other}", "model", (other,))
