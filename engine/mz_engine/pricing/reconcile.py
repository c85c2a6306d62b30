"""Explain why the cost that an agent reported differs from the cost computed from its tokens.

Nothing is stored: the tokens are priced again by every known counting rule of agents, and the first rule that gives the
reported cost within the tolerance is the cause; pairs of rules are tried where no single one fits. So old logs profit
from rules added later."""

from __future__ import annotations

from collections.abc import Iterator

from mz_projections.cost import CallCost, was_refused
from mz_projections.spending import Why

from mz_engine.pricing.deviations import Account, Pricer, Usages, Way, pairs, ways

TOLERANCE_NANOUSD = 1_000
"""A millionth of a dollar: agents add binary fractions and print six decimals or more, while the lowest price of a
token is a tenth of that; a larger difference means different counting."""
BY_CHANCE = 1_000
"""A pair of rules may fit by chance: this bounds the probability to one in so many."""
STOPPED = frozenset({"failed", "lost"})
"""Outcomes of calls that mz ended, or whose end nobody saw."""
ENDED_BY_US = "the call ended before the agent reported its cost"
NEVER_BEGAN = "the call did not begin, or was rejected before any work"
BROKE_OFF = (
    "the call ended in an error, and the agent reported tokens but a cost of 0: it stopped before it computed the "
    "cost, or it computes none (a subscription, a gateway)"
)
NO_CHARGE = "the agent reported tokens but a cost of 0: a subscription, a gateway, or a model that it has no price for"


def explain(call: CallCost, usage: Usages, prices: Pricer) -> tuple[Why, str]:
    """Return the cause, and details in words. `usage`: the call's, entry by entry."""
    reported, computed = call.reported_nanousd, call.computed_nanousd
    if reported is not None and computed is not None and agrees(reported, computed):
        return "agree", ""
    if reported is None and was_refused(call):
        return "unknown", NEVER_BEGAN
    if was_killed(call):
        return "killed", BROKE_OFF if call.terminal == "error" and call.outcome not in STOPPED else ENDED_BY_US
    if reported is None or computed is None or not reported:
        return "unknown", _missing(call)
    at_us = call.requested_at_us if call.ended_at_us is None else call.ended_at_us
    for way in _tried(usage, call.model, at_us, prices):
        if way.nanousd is not None and agrees(reported, way.nanousd):
            return way.why, way.say()
    return ("killed", ENDED_BY_US) if call.outcome in STOPPED else ("unexplained", "")


def _tried(usage: Usages, model: str, at_us: int, prices: Pricer) -> Iterator[Way]:
    yield from ways(usage, model, at_us, prices)
    yield from likely_pairs(usage, model, at_us, prices)


def agrees(reported: int, computed: int) -> bool:
    return abs(reported - computed) <= TOLERANCE_NANOUSD


def was_killed(call: CallCost) -> bool:
    """Return True without a terminal event; or if mz ended the call and one of the figures is missing; or for an error
    that reports zero after tokens were used. For a model without a price, zero or a missing computed cost prove
    nothing."""
    if call.terminal == "no-terminal" or (call.outcome in STOPPED and call.reported_nanousd is None):
        return True
    if call.unpriced:
        return False
    zeros = call.reported_nanousd == 0 and bool(call.input or call.output)
    stopped = call.outcome in STOPPED and (call.computed_nanousd is None or zeros)
    return stopped or (call.terminal == "error" and zeros)


def likely_pairs(usage: Usages, model: str, at_us: int, prices: Pricer) -> tuple[Way, ...]:
    """Return pairs of counting rules; none if there are so many for so small a cost that one would often fit by
    chance."""
    computed = Account(usage).nanousd(at_us, prices)
    amounts_max = 0 if computed is None else computed // ((2 * TOLERANCE_NANOUSD + 1) * BY_CHANCE)
    found: list[Way] = []
    amounts: set[int | None] = set()
    for way in pairs(usage, model, at_us, prices, TOLERANCE_NANOUSD) if amounts_max else ():
        found.append(way)
        amounts.add(way.nanousd)
        if len(amounts) > amounts_max:
            return ()
    return tuple(found)


def _missing(call: CallCost) -> str:
    if call.unpriced:
        return f"no price for {', '.join(call.unpriced)}"
    if call.computed_nanousd is None:
        return "the agent reported no tokens" if call.outcome == "replied" else ""
    return "the agent reported no cost" if call.reported_nanousd is None else NO_CHARGE
