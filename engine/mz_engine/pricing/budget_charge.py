"""Cost and tokens that a budget charges for a call: an upper estimate.

The higher of the reported and the computed cost counts, where known. The reservation counts where both may be too low:
the call did not end normally, so that more tokens were used than reported; tokens have no price; or a successful reply
reported no usage, or only zeros. A call that the provider rejected cost nothing, unless it reports a cost or had worked
before. A negative amount is none."""

from __future__ import annotations

from mz_events.catalog.call import ProblemClass

from mz_engine.ports import ParsedReply, Price

REJECTED_CLASSES = frozenset({ProblemClass.TRANSIENT, ProblemClass.FATAL})
"""Rate limits, lost connections, logins: calls that usually did not begin."""


def known_cost(reading: ParsedReply, price: Price) -> int | None:
    """Return the higher of reported and computed cost; None if nothing is known of a call that must have cost
    something."""
    amounts = (reading.reported_nanousd, price.nanousd if reading.usage else None)
    reported_amounts = [amount for amount in amounts if amount is not None and amount >= 0]
    reports_nothing = reading.ending == "success" and not reading.usage and not reading.reported_nanousd
    if reported_amounts and not reports_nothing:
        return max(reported_amounts)
    return 0 if _was_free(reading) else None


def known_tokens(reading: ParsedReply) -> int | None:
    """Return the tokens of input and output; None if nothing is known of a call that must have used some."""
    tokens = sum(max(0, usage.input) + max(0, usage.output) for usage in reading.usage)
    return tokens or (0 if _was_free(reading) else None)


def _was_free(reading: ParsedReply) -> bool:
    was_rejected = reading.problem is not None and reading.problem.kind in REJECTED_CLASSES
    return was_rejected and not tokens_may_be_higher(reading) and not reading.usage


def may_be_higher(reading: ParsedReply, price: Price) -> bool:
    """Return True if the known cost may be too low, so that the reservation counts if it is higher."""
    is_unpriced = bool(reading.usage) and price.nanousd is None and not reading.reported_nanousd
    may_cross_step = price.may_be_higher and reading.reported_nanousd is None
    return tokens_may_be_higher(reading) or is_unpriced or may_cross_step


def tokens_may_be_higher(reading: ParsedReply) -> bool:
    """Return True if the call ended before it reported all its tokens."""
    return reading.ending == "no-terminal" or reading.usage_incomplete


def final_charge(known_nanousd: int | None, may_be_higher: bool, reserved_nanousd: int) -> int:
    """Return the amount that the budget counts from now on, instead of the reservation."""
    if known_nanousd is None:
        return reserved_nanousd
    return max(known_nanousd, reserved_nanousd) if may_be_higher else known_nanousd
