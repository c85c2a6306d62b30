"""Explain why the cost that an agent reported differs from the cost computed from its tokens.

Nothing is stored: the tokens are priced again by every known counting rule of agents, and the first rule that gives the
reported cost within the tolerance is the cause; pairs of rules are tried where no single one fits. So old logs profit
from rules added later."""

from __future__ import annotations

from collections.abc import Iterator

from mz_projections.cost import CallCost, was_rejected
from mz_projections.spending import CauseCode

from mz_engine.pricing.deviations import (
    CostBreakdown,
    MismatchCause,
    Pricer,
    UsageEntries,
    cause_pairs,
    mismatch_causes,
)

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


def explain_mismatch(call: CallCost, usage: UsageEntries, prices: Pricer) -> tuple[CauseCode, str]:
    """Return the cause, and details in words. `usage`: the call's, entry by entry."""
    reported, computed = call.reported_nanousd, call.computed_nanousd
    if reported is not None and computed is not None and is_within_tolerance(reported, computed):
        return "match", ""
    if reported is None and was_rejected(call):
        return "unknown", NEVER_BEGAN
    if was_cut_off(call):
        return "killed", ZERO_AFTER_ERROR if call.ending == "error" and call.status not in UNFINISHED_OUTCOMES else ENDED_EARLY
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


def was_cut_off(call: CallCost) -> bool:
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


def _missing_cost_reason(call: CallCost) -> str:
    if call.unpriced:
        return f"no price for {', '.join(call.unpriced)}"
    if call.computed_nanousd is None:
        return "the agent reported no tokens" if call.status == "replied" else ""
    return "the agent reported no cost" if call.reported_nanousd is None else NO_CHARGE
