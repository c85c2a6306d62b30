"""Pure: what a budget counts for a call: the worst of what is known of it.

Reported and computed are known where an agent told them, and the higher one counts. The reservation counts where they
may both be too low: the call did not end, so that more was used than was told; tokens were used that have no price; or
a reply came of which nobody said what it took, or that tells nothing but zeros. A call that the other side refused
took nothing, unless it says so, or had worked before.
"""

from __future__ import annotations

from mz_events.catalog.call import ProblemClass

from mz_engine.ports import Price, Reading

REFUSED = frozenset({ProblemClass.TRANSIENT, ProblemClass.FATAL})
"""Rate limits, lost connections, logins: calls that most often did not begin."""


def worst_of(reading: Reading, price: Price) -> int | None:
    """The higher of what the agent reported and what its usage comes to; None where nothing is known of a call that
    must have cost something."""
    told = (reading.reported_nanousd, price.nanousd if reading.usage else None)
    known = [amount for amount in told if amount is not None]
    silent = reading.terminal == "success" and not reading.usage and not reading.reported_nanousd
    if known and not silent:
        return max(known)
    refused = reading.problem is not None and reading.problem.kind in REFUSED
    nothing = refused and not reading.untold and not reading.usage
    return 0 if reading.terminal != "no-terminal" and nothing else None


def may_be_more(reading: Reading, price: Price) -> bool:
    """Whether what is known may be too low, so that the reservation counts where it is more."""
    unpriced = bool(reading.usage) and price.nanousd is None and not reading.reported_nanousd
    stepped = price.may_be_more and reading.reported_nanousd is None
    return reading.terminal == "no-terminal" or reading.untold or unpriced or stepped
