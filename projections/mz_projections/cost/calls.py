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
    ReplyParsed,
)
from mz_events.envelope import Recorded

from mz_projections.read_models.model import Key, ReadModel
from mz_projections.usage import sum_known


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
    status: Literal["open", "replied", "failed", "lost"] = "open"
    input: int | None = None
    """Cache reads and writes included."""
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reported_nanousd: int | None = None
    """By the agent."""
    computed_nanousd: int | None = None
    """Tokens of each request by the price then in force; 0 for a call rejected by the provider."""
    charged_nanousd: int | None = None
    """Amount charged to the budget."""
    ended_at_us: int | None = None
    """Time of the outcome, which determines the prices."""
    ending: str = ""
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
    charged_nanousd: int | None
    difference_nanousd: int | None
    """Reported minus computed, over the calls with both."""
    underestimate_nanousd: int | None
    """Paid minus estimated, over the calls with both."""


def totals(calls: Iterable[CallCost]) -> Totals:
    """Return the totals of some calls."""
    call_list = tuple(calls)

    def total(amount: Callable[[CallCost], int | None]) -> int | None:
        return sum_known(map(amount, call_list))

    return Totals(
        calls=len(call_list),
        open=sum(call.status == "open" for call in call_list),
        unpriced=sum(call.computed_nanousd is None and call.status != "open" for call in call_list),
        input=total(lambda call: call.input),
        output=total(lambda call: call.output),
        cache_read=total(lambda call: call.cache_read),
        cache_write=total(lambda call: call.cache_write),
        estimated_nanousd=total(lambda call: call.estimated_nanousd),
        reported_nanousd=total(lambda call: call.reported_nanousd),
        computed_nanousd=total(lambda call: call.computed_nanousd),
        charged_nanousd=total(lambda call: call.charged_nanousd),
        difference_nanousd=total(difference),
        underestimate_nanousd=total(underestimate),
    )


def difference(call: CallCost) -> int | None:
    """Return reported minus computed; None if one is unknown."""
    reported, computed = call.reported_nanousd, call.computed_nanousd
    return None if reported is None or computed is None else reported - computed


def underestimate(call: CallCost) -> int | None:
    """Return paid minus estimated; None if one is unknown."""
    paid = paid_nanousd(call)
    return None if paid is None or call.estimated_nanousd is None else paid - call.estimated_nanousd


def paid_nanousd(call: CallCost) -> int | None:
    """Return the computed cost, or the reported one if nothing was computed.

    A successful call reported as free, with unknown tokens or price, has an unknown cost: its reservation is kept too.
    """
    if call.computed_nanousd is not None:
        return call.computed_nanousd
    return None if call.ending == "success" and not call.reported_nanousd else call.reported_nanousd


def was_rejected(call: CallCost) -> bool:
    """Return True if the provider rejected the call before any work: money was reserved and nothing was charged at its
    end.

    Without a price for the model nothing is reserved, so this is False.
    """
    is_usage_unknown = (
        call.input is None and not call.unpriced and not call.computed_nanousd and call.ending != "success"
    )
    return is_usage_unknown and bool(call.estimated_nanousd) and call.charged_nanousd == 0


def call_costs(events: Iterable[Recorded[Event]]) -> tuple[CallCost, ...]:
    """Return the calls of these events (a feature's stream or a whole log) in the order of their requests."""
    calls_by_key: dict[Key, CallCost] = {}
    for recorded in events:
        if call := evolve(calls_by_key.get, recorded):
            calls_by_key[call.key,] = call
    return tuple(calls_by_key.values())


def evolve(find: Callable[[Key], CallCost | None], recorded: Recorded[Event]) -> CallCost | None:
    """Return the call that the event starts or changes; None for an event of no known call."""
    if recorded.is_forked_copy:
        return None  # Paid in the original run.
    event = recorded.event
    handler = HANDLERS.get(type(event))
    if handler is not None:
        call = find((_call_key(event),))
        if call is None:
            return None
        changed_call = handler(call, event)
        return replace(changed_call, ended_at_us=recorded.observed_at_us) if type(event) in END_EVENTS else changed_call
    return _new_call(event, recorded) if isinstance(event, AgentRequested) else None


def _call_key(event: Any) -> str:
    key: str = event.key if type(event) in KEY_ONLY_EVENTS else event.ref.key
    return key


def _new_call(event: AgentRequested, recorded: Recorded[Event]) -> CallCost:
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


def _on_reply_parsed(call: CallCost, event: ReplyParsed) -> CallCost:
    usage = event.usage
    if not usage:
        return replace(
            call,
            input=None,
            output=None,
            cache_read=None,
            cache_write=None,
            reported_nanousd=event.reported_nanousd,
            ending=event.ending,
        )
    return replace(
        call,
        input=sum(requests.input for requests in usage),
        output=sum(requests.output for requests in usage),
        cache_read=sum(requests.cache_read for requests in usage),
        cache_write=sum(requests.cache_write_5m + requests.cache_write_1h for requests in usage),
        reported_nanousd=event.reported_nanousd,
        ending=event.ending,
    )


def _on_call_priced(call: CallCost, event: CallPriced) -> CallCost:
    return replace(call, computed_nanousd=event.computed_nanousd, unpriced=event.unpriced, prices=event.prices)


def _on_call_settled(call: CallCost, event: CallSettled) -> CallCost:
    charged = replace(call, charged_nanousd=event.nanousd)
    return replace(charged, computed_nanousd=0) if was_rejected(charged) else charged


HANDLERS: dict[type[Event], Callable[[CallCost, Any], CallCost]] = {
    AgentReplied: lambda call, _: replace(call, status="replied"),
    AgentFailed: lambda call, _: replace(call, status="failed"),
    AgentLost: lambda call, _: replace(call, status="lost"),
    ReplyParsed: _on_reply_parsed,
    CallPriced: _on_call_priced,
    CallSettled: _on_call_settled,
}

END_EVENTS: frozenset[type[Event]] = frozenset((AgentReplied, AgentFailed, AgentLost))

KEY_ONLY_EVENTS: frozenset[type[Event]] = frozenset((CallPriced, CallSettled))
"""Events that contain only the key; others contain the full call ref."""

COSTS = ReadModel(
    name="costs",
    row=CallCost,
    key=("key",),
    types=(AgentRequested, *HANDLERS),
    evolve=evolve,
)
"""Over all runs: one row per call."""
