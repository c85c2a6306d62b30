"""Cost that a budget charges for a call: an upper estimate.

The higher of the reported and the computed cost counts, where known. The reservation counts where both may be too low:
the call did not end normally, so that more tokens were used than reported; tokens have no price; or a successful reply
reported no usage, or only zeros. A call that the provider rejected cost nothing, unless it reports a cost or had worked
before."""

from __future__ import annotations

from mz_events.catalog.call import ProblemClass

from mz_engine.ports import Price, Reading

REFUSED = frozenset({ProblemClass.TRANSIENT, ProblemClass.FATAL})
"""Rate limits, lost connections, logins: calls that usually did not begin."""


def worst_of(reading: Reading, price: Price) -> int | None:
    """Return the higher of reported and computed cost; None if nothing is known of a call that must have cost
    something."""
    told = (reading.reported_nanousd, price.nanousd if reading.usage else None)
    known = [amount for amount in told if amount is not None]
    silent = reading.terminal == "success" and not reading.usage and not reading.reported_nanousd
    if known and not silent:
        return max(known)
    refused = reading.problem is not None and reading.problem.kind in REFUSED
    nothing = refused and not reading.untold and not reading.usage
    return 0 if reading.terminal != "no-terminal" and nothing else None


def may_be_more(reading: Reading, price: Price) -> bool:
    """Return True if the known cost may be too low, so that the reservation counts if it is higher."""
    unpriced = bool(reading.usage) and price.nanousd is None and not reading.reported_nanousd
    stepped = price.may_be_more and reading.reported_nanousd is None
    return reading.terminal == "no-terminal" or reading.untold or unpriced or stepped
