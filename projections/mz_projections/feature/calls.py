"""The calls of a feature, folded from its stream: what each cost, and what became of its reply.

Views, costs and audits read these; none of them interprets the stream again. Money in nano-dollars, tokens as in
`Usage`; unknown is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

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
    Usage,
)
from mz_events.catalog.delivery import CommitRequested
from mz_events.catalog.feature import (
    FeatureCancelled,
    FeatureFailed,
    FeatureRetried,
    PhaseSkipped,
    PhaseStarted,
    RolledBack,
    UnitCompleted,
)
from mz_events.catalog.validation import ArtifactValidated, GateChecked
from mz_events.names import BUILDER
from mz_events.store import FEATURE_DEPTH, Recorded

from mz_projections.feature.state import track_phases
from mz_projections.read_models.model import Key, ReadModel
from mz_projections.usage import sum_known

CallOutcome = Literal["open", "kept", "rejected", "failed", "lost", "superseded"]
WASTED: tuple[CallOutcome, ...] = ("rejected", "failed", "lost", "superseded")
"""Outcomes of wasted calls, in the order of reports."""


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    tier: str = ""
    """Tier that a condition or routing asked for; empty: the phase's own."""
    card: str = ""
    """Card whose persona headed the prompt."""
    requested_at_us: int
    estimated_tokens: int
    estimated_nanousd: int | None
    keeps_session: bool = False
    """It started or continued a session for later calls."""
    continued_prompt: tuple[int, int] | None = None
    """Estimated tokens of a prompt that continued a session, as sent and in full."""
    is_forked_copy: bool = False
    """The call was made and paid in the run that this one was forked from."""
    status: Literal["open", "replied", "failed", "lost"] = "open"
    ended_at_us: int | None = None
    """Time of the outcome, which determines the prices."""
    ending: str = ""
    """End of the agent's output: success, error, no-terminal; empty: not parsed."""
    usage: tuple[Usage, ...] = ()
    """Empty: unknown."""
    reported_nanousd: int | None = None
    """By the agent."""
    computed_nanousd: int | None = None
    """Tokens of each request by the price then in force; 0 for a call rejected by the provider."""
    charged_nanousd: int | None = None
    """Amount charged to the budget."""
    priced: bool = False
    """The price table was applied; `computed_nanousd` is its result."""
    unpriced: tuple[str, ...] = ()
    """Models without a price."""
    prices: str = ""
    """Name, version and digest of the price table."""
    flaw: Literal["failed", "rejected"] | None = None
    """Of the reply: a problem of the agent, or broken rules or a failed gate. A rejected reply that a person approved
    has none: the last reply of a unit's builder is what is committed."""
    is_superseded: bool = False
    """By a rollback or a retry, or by the feature's end before its work was accepted."""
    is_accepted: bool = False
    """Its work was committed, or its unit completed."""

    @property
    def outcome(self) -> CallOutcome:
        if self.status != "replied":
            return self.status
        return "superseded" if self.is_superseded else self.flaw or "kept"

    @property
    def duration_us(self) -> int | None:
        """Time from the request to the outcome; None for an open call."""
        return None if self.ended_at_us is None else self.ended_at_us - self.requested_at_us

    @property
    def input_tokens(self) -> int | None:
        """Cache reads and writes included."""
        return sum_known(usage.input for usage in self.usage)

    @property
    def output_tokens(self) -> int | None:
        return sum_known(usage.output for usage in self.usage)

    @property
    def cache_read_tokens(self) -> int | None:
        return sum_known(usage.cache_read for usage in self.usage)

    @property
    def cache_write_tokens(self) -> int | None:
        return sum_known(usage.cache_write_5m + usage.cache_write_1h for usage in self.usage)

    @property
    def difference_nanousd(self) -> int | None:
        """Reported minus computed; None if one is unknown."""
        reported, computed = self.reported_nanousd, self.computed_nanousd
        return None if reported is None or computed is None else reported - computed

    @property
    def underestimate_nanousd(self) -> int | None:
        """Paid minus estimated; None if one is unknown."""
        paid = self.paid_nanousd
        return None if paid is None or self.estimated_nanousd is None else paid - self.estimated_nanousd

    @property
    def paid_nanousd(self) -> int | None:
        """The computed cost, or the reported one if nothing was computed.

        A successful call reported as free, with unknown tokens or price, has an unknown cost: its reservation is kept
        too.
        """
        if self.computed_nanousd is not None:
            return self.computed_nanousd
        return None if self.ending == "success" and not self.reported_nanousd else self.reported_nanousd

    @property
    def was_rejected(self) -> bool:
        """True if the provider rejected the call before any work: money was reserved and nothing was charged at its
        end.

        Without a price for the model nothing is reserved, so this is False.
        """
        is_usage_unknown = not (self.usage or self.unpriced or self.computed_nanousd) and self.ending != "success"
        return is_usage_unknown and bool(self.estimated_nanousd) and self.charged_nanousd == 0


C = TypeVar("C", bound=Call)


class FeatureCalls(msgspec.Struct, frozen=True):
    run: str
    feature: str
    current_phases: tuple[str, ...] = ()
    """Phases not superseded, in the order of their start."""
    calls: tuple[Call, ...] = ()
    """In the order of their requests, with those copied by a fork."""


def paid_calls(events: Iterable[Recorded[Event]]) -> tuple[Call, ...]:
    """Return the calls of these events (of any number of features, each in its order), without those copied by a fork:
    they were paid in the original run."""
    return tuple(call for row in CALLS.fold(events) for call in row.calls if not call.is_forked_copy)


def new_call(kind: type[C], recorded: Recorded[Event], event: AgentRequested, **display: object) -> C:
    """Return the requested call, with further fields of its type."""
    _, run, feature = recorded.stream.split("/", 2)
    fields: dict[str, Any] = msgspec.structs.asdict(event.ref) | display
    if event.resumes and event.prompt_tokens is not None and event.full_prompt_tokens is not None:
        fields["continued_prompt"] = event.prompt_tokens, event.full_prompt_tokens
    return kind(
        run=run,
        feature=feature,
        agent=event.agent,
        model=event.model,
        tier=event.tier,
        card=event.card,
        requested_at_us=recorded.observed_at_us,
        estimated_tokens=event.estimated_tokens,
        estimated_nanousd=event.estimated_nanousd,
        keeps_session=event.keeps_session,
        is_forked_copy=recorded.is_forked_copy,
        **fields,
    )


def evolve_calls(calls: tuple[C, ...], current_phases: tuple[str, ...], recorded: Recorded[Event]) -> tuple[C, ...]:
    """Return the calls after one more event of their feature's stream; a request is added by `new_call`."""
    event: Any = recorded.event
    handler = HANDLERS.get(type(event))
    if handler is not None:
        about = event.key if type(event) in (CallPriced, CallSettled) else event.ref.key
        return tuple([handler(call, event, recorded.observed_at_us) if call.key == about else call for call in calls])
    if type(event) not in OTHER_TYPES:
        return calls
    match event:
        case UnitCompleted() | CommitRequested(purpose="work"):
            key = last_builder_key(calls, event.phase, event.unit) if isinstance(event, CommitRequested) else None
            accepted = [
                replace(call, is_accepted=True, flaw=None if call.key == key else call.flaw)
                if call.unit == event.unit and call.phase == event.phase and not (call.is_accepted and call.key != key)
                else call
                for call in calls
            ]
            return tuple(accepted)
        case GateChecked(passed=False):
            key = last_builder_key(calls, event.phase, event.unit)
            return change_call(calls, key, lambda call: replace(call, flaw="rejected"))
        case PhaseSkipped(phase=phase):
            is_left_out = [call.phase == phase and not call.is_accepted for call in calls]
            pairs = zip(calls, is_left_out, strict=True)
            return tuple(replace(call, is_superseded=True) if left_out else call for call, left_out in pairs)
        case FeatureCancelled() | FeatureFailed():
            return tuple(
                call if call.is_accepted or call.outcome != "kept" else replace(call, is_superseded=True)
                for call in calls
            )
        case FeatureRetried(keeps_tree=True):
            return calls  # What they made was delivered, and is built upon.
        case RolledBack() | FeatureRetried():
            superseded = track_phases(current_phases, event)[1]
            unit_names = [f"{event.to}/{unit}" for unit in event.units] if isinstance(event, RolledBack) else []
            return tuple(
                replace(call, is_superseded=True)
                if call.phase in superseded or f"{call.phase}/{call.unit}" in unit_names
                else call
                for call in calls
            )
    return calls


def change_call(calls: tuple[C, ...], key: str | None, change: Callable[[C], C]) -> tuple[C, ...]:
    return tuple([change(call) if call.key == key else call for call in calls])


def last_builder_key(calls: tuple[Call, ...], phase: str, unit: str) -> str | None:
    return next((c.key for c in reversed(calls) if (c.phase, c.unit, c.role) == (phase, unit, BUILDER)), None)


def _on_reply_parsed(call: C, event: ReplyParsed, at_us: int) -> C:
    return replace(
        call,
        usage=event.usage,
        reported_nanousd=event.reported_nanousd,
        ending=event.ending,
        flaw=None if event.problem is None or event.is_question else "failed",
    )


def _on_call_settled(call: C, event: CallSettled, at_us: int) -> C:
    charged = replace(call, charged_nanousd=event.nanousd)
    return replace(charged, computed_nanousd=0) if charged.was_rejected else charged


HANDLERS: dict[type[Event], Callable[[Any, Any, int], Any]] = {
    AgentReplied: lambda call, _, at_us: replace(call, status="replied", ended_at_us=at_us),
    AgentFailed: lambda call, _, at_us: replace(call, status="failed", ended_at_us=at_us),
    AgentLost: lambda call, _, at_us: replace(call, status="lost", ended_at_us=at_us),
    ReplyParsed: _on_reply_parsed,
    ArtifactValidated: lambda call, event, _: replace(call, flaw="rejected") if event.violations else call,
    CallPriced: lambda call, event, _: replace(
        call, computed_nanousd=event.computed_nanousd, priced=True, unpriced=event.unpriced, prices=event.prices
    ),
    CallSettled: _on_call_settled,
}
"""By type of the events about one call."""
OTHER_TYPES = (
    *(GateChecked, CommitRequested, UnitCompleted, RolledBack, PhaseSkipped),
    *(FeatureRetried, FeatureCancelled, FeatureFailed),
)
"""Events about several calls, or about a call that they do not name."""


def evolve(find: Callable[[Key], FeatureCalls | None], recorded: Recorded[Event]) -> tuple[FeatureCalls, ...]:
    """Return the calls of the feature that the event belongs to; none for an event of no feature."""
    names = recorded.stream.split("/")
    if len(names) != FEATURE_DEPTH + 1:
        return ()
    _, run, feature = names
    row, event = find((run, feature)) or FeatureCalls(run, feature), recorded.event
    if type(event) is AgentRequested:
        return (replace(row, calls=(*row.calls, new_call(Call, recorded, event))),)
    phases, calls = track_phases(row.current_phases, event)[0], evolve_calls(row.calls, row.current_phases, recorded)
    return (FeatureCalls(run, feature, phases, calls),)


CALLS = ReadModel(
    name="calls",
    row=FeatureCalls,
    key=("run", "feature"),
    types=(PhaseStarted, AgentRequested, *HANDLERS, *OTHER_TYPES),
    evolve=evolve,
)
"""Over all runs: one row per feature."""
