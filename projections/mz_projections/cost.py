"""Cost of each agent call: estimated, reported, computed and charged; and totals. Unknown is None, never zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallSettled,
    ReplyRead,
)
from mz_events.envelope import Recorded

from mz_projections.readmodel import Key, ReadModel


class CallCost(msgspec.Struct, frozen=True, gc=False):
    """One call. Money in nano-dollars, tokens as in `Usage`."""

    key: str
    run: str
    feature: str
    phase: str
    unit: str
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    requested_at_us: int
    estimated_tokens: int
    estimated_nanousd: int | None
    outcome: Literal["open", "replied", "failed", "lost"] = "open"
    input: int | None = None
    """Cache reads and writes included."""
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reported_nanousd: int | None = None
    """By the agent."""
    computed_nanousd: int | None = None
    """Tokens of each request by the price then in force; 0 for a call rejected by the provider."""
    settled_nanousd: int | None = None
    """Amount charged to the budget."""
    ended_at_us: int | None = None
    """Time of the outcome, which determines the prices."""
    terminal: str = ""
    """End of the agent's output: success, error, no-terminal; empty: not parsed."""
    unpriced: tuple[str, ...] = ()
    """Models without a price."""
    prices: str = ""
    """Name, version and digest of the price table."""


class Totals(msgspec.Struct, frozen=True):
    """Sums of the known values over some calls; None if none is known."""

    calls: int
    open: int
    """Calls that have not ended."""
    unpriced: int
    """Ended calls missing in the computed sum: no price, or unknown token counts."""
    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    estimated_nanousd: int | None
    reported_nanousd: int | None
    computed_nanousd: int | None
    settled_nanousd: int | None
    difference_nanousd: int | None
    """Reported minus computed, over the calls with both."""
    missed_nanousd: int | None
    """Paid minus estimated, over the calls with both."""


def totals(calls: Iterable[CallCost]) -> Totals:
    """Return the totals of some calls."""
    listed = tuple(calls)

    def total(amount: Callable[[CallCost], int | None]) -> int | None:
        known = [value for value in map(amount, listed) if value is not None]
        return sum(known) if known else None

    return Totals(
        calls=len(listed),
        open=sum(call.outcome == "open" for call in listed),
        unpriced=sum(call.computed_nanousd is None and call.outcome != "open" for call in listed),
        input=total(lambda call: call.input),
        output=total(lambda call: call.output),
        cache_read=total(lambda call: call.cache_read),
        cache_write=total(lambda call: call.cache_write),
        estimated_nanousd=total(lambda call: call.estimated_nanousd),
        reported_nanousd=total(lambda call: call.reported_nanousd),
        computed_nanousd=total(lambda call: call.computed_nanousd),
        settled_nanousd=total(lambda call: call.settled_nanousd),
        difference_nanousd=total(difference),
        missed_nanousd=total(missed),
    )


def difference(call: CallCost) -> int | None:
    """Return reported minus computed; None if one is unknown."""
    reported, computed = call.reported_nanousd, call.computed_nanousd
    return None if reported is None or computed is None else reported - computed


def missed(call: CallCost) -> int | None:
    """Return paid minus estimated; None if one is unknown."""
    paid = paid_nanousd(call)
    return None if paid is None or call.estimated_nanousd is None else paid - call.estimated_nanousd


def paid_nanousd(call: CallCost) -> int | None:
    """Return the computed cost, or the reported one if nothing was computed.

    A successful call reported as free, with unknown tokens or price, has an unknown cost: its reservation is kept too.
    """
    if call.computed_nanousd is not None:
        return call.computed_nanousd
    return None if call.terminal == "success" and not call.reported_nanousd else call.reported_nanousd


def was_refused(call: CallCost) -> bool:
    """Return True if the provider rejected the call before any work: money was reserved and nothing was charged at its
    end.

    Without a price for the model nothing is reserved, so this is False.
    """
    untold = call.input is None and not call.unpriced and not call.computed_nanousd and call.terminal != "success"
    return untold and bool(call.estimated_nanousd) and call.settled_nanousd == 0


def costs(events: Iterable[Recorded[Event]]) -> tuple[CallCost, ...]:
    """Return the calls of these events (a feature's stream or a whole log) in the order of their requests."""
    calls: dict[Key, CallCost] = {}
    for recorded in events:
        if call := evolve(calls.get, recorded):
            calls[call.key,] = call
    return tuple(calls.values())


def evolve(find: Callable[[Key], CallCost | None], recorded: Recorded[Event]) -> CallCost | None:
    """Return the call that the event starts or changes; None for an event of no known call."""
    if recorded.copied:
        return None  # Paid in the original run.
    event = recorded.event
    change = CHANGES.get(type(event))
    if change is not None:
        known = find((_key(event),))
        if known is None:
            return None
        changed = change(known, event)
        return replace(changed, ended_at_us=recorded.observed_at_us) if type(event) in ENDINGS else changed
    return _requested(event, recorded) if isinstance(event, AgentRequested) else None


def _key(event: Any) -> str:
    key: str = event.key if type(event) in KEYED else event.ref.key
    return key


def _requested(event: AgentRequested, recorded: Recorded[Event]) -> CallCost:
    _, run, feature = recorded.stream.split("/", 2)
    ref = event.ref
    return CallCost(
        ref.key,
        run,
        feature,
        ref.phase,
        ref.unit,
        ref.iteration,
        ref.attempt,
        ref.role,
        event.agent,
        event.model,
        recorded.observed_at_us,
        event.estimated_tokens,
        event.estimated_nanousd,
    )


def _read(call: CallCost, event: ReplyRead) -> CallCost:
    usage = event.usage
    if not usage:
        return replace(
            call,
            input=None,
            output=None,
            cache_read=None,
            cache_write=None,
            reported_nanousd=event.reported_nanousd,
            terminal=event.terminal,
        )
    return replace(
        call,
        input=sum(each.input for each in usage),
        output=sum(each.output for each in usage),
        cache_read=sum(each.cache_read for each in usage),
        cache_write=sum(each.cache_write_5m + each.cache_write_1h for each in usage),
        reported_nanousd=event.reported_nanousd,
        terminal=event.terminal,
    )


def _priced(call: CallCost, event: CallPriced) -> CallCost:
    return replace(call, computed_nanousd=event.computed_nanousd, unpriced=event.unpriced, prices=event.prices)


def _settled(call: CallCost, event: CallSettled) -> CallCost:
    settled = replace(call, settled_nanousd=event.nanousd)
    return replace(settled, computed_nanousd=0) if was_refused(settled) else settled


CHANGES: dict[type[Event], Callable[[CallCost, Any], CallCost]] = {
    AgentReplied: lambda call, _: replace(call, outcome="replied"),
    AgentFailed: lambda call, _: replace(call, outcome="failed"),
    AgentLost: lambda call, _: replace(call, outcome="lost"),
    ReplyRead: _read,
    CallPriced: _priced,
    CallSettled: _settled,
}

ENDINGS: frozenset[type[Event]] = frozenset((AgentReplied, AgentFailed, AgentLost))

KEYED: frozenset[type[Event]] = frozenset((CallPriced, CallSettled))
"""Events that contain only the key; others contain the full call ref."""

COSTS = ReadModel(
    name="costs",
    row=CallCost,
    key=("key",),
    types=(AgentRequested, *CHANGES),
    evolve=evolve,
)
"""Over all runs: one row per call."""
