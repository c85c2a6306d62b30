"""Gaps of one feature: missing evidence and unwanted events in its stream, with event refs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested
from mz_events.catalog.delivery import ChecksPolled, CommitRequested
from mz_events.catalog.feature import (
    FeatureDelivered,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    QuestionKind,
    RolledBack,
)
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import ArtifactValidated, ChangesChecked, CommandRan, GateChecked, RefMoved
from mz_events.envelope import Recorded
from mz_events.names import BUILDER

from mz_projections.audit.model import DONE_STATUSES, Gap, GapKind
from mz_projections.cost.totals import PricedCall
from mz_projections.views.model import FeatureView
from mz_projections.views.timeline import unit_name

Stream = Sequence[Recorded[Event]]
LISTED_MAX = 5


def feature_gaps(view: FeatureView, stream: Stream, calls: Sequence[PricedCall], event_ref: str) -> tuple[Gap, ...]:
    """Return the gaps of a feature; `event_ref` is its last event."""
    return (
        *_not_delivered(view, event_ref),
        *_commits_past_gates(view.feature, stream),
        *_moved_refs(view.feature, stream),
        *_unvalidated_phases(view.feature, stream),
        *_failed_checks(view.feature, stream),
        *_untested(view.feature, stream),
        *_reverted_changes(view.feature, stream),
        *_call_gaps(view.feature, stream, calls),
    )


def _not_delivered(view: FeatureView, event_ref: str) -> Iterator[Gap]:
    if view.status not in DONE_STATUSES:
        code = view.code or (
            view.question.question_kind.value if view.question else view.hold.value if view.hold else ""
        )
        message = f"not delivered: {view.status}" + (f" ({code})" if code else "")
        yield Gap(kind="not-delivered", feature=view.feature, message=message, event_refs=(event_ref,))
    if view.quarantined:
        message = "the item was quarantined: its text may be a prompt injection"
        yield Gap(kind="quarantined", feature=view.feature, message=message, event_refs=(event_ref,))


def _commits_past_gates(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield work committed although a gate had rejected it and never passed it afterwards."""
    failing_by_unit: dict[tuple[str, str], dict[str, str]] = {}
    allowed_by = ""
    for recorded in stream:
        match recorded.event:
            case AgentRequested(ref=ref) if ref.role == BUILDER:
                failing_by_unit.pop((ref.phase, ref.unit), None)
            case GateChecked() as event:
                failing_gates, allowed_by = failing_by_unit.setdefault((event.phase, event.unit), {}), ""
                failing_gates.pop(event.gate, None)
                failing_gates |= {} if event.passed else {event.gate: recorded.event_ref}
            case HumanAnswered(verdict=Verdict.APPROVE):
                allowed_by = recorded.event_ref
            case RolledBack():
                failing_by_unit.clear()
            case CommitRequested(purpose="work") as event:
                for gate, event_ref in failing_by_unit.pop((event.phase, event.unit), {}).items():
                    message = f"{unit_name(event)} was committed although {gate} had rejected it"
                    yield Gap(
                        kind="past-gate",
                        feature=feature,
                        message=message,
                        event_refs=(event_ref, recorded.event_ref),
                        allowed_by=allowed_by,
                    )


def _moved_refs(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield changes of the repository while an agent worked; a person may approve them."""
    approvals = tuple(_approvals(stream, QuestionKind.REPOSITORY))
    for index, recorded in enumerate(stream):
        if isinstance(event := recorded.event, RefMoved):
            message = f"{event.name} changed during {unit_name(event.ref)}"
            allowed_by = next((event_ref for answer_index, event_ref in approvals if answer_index > index), "")
            yield Gap(
                kind="ref-moved",
                feature=feature,
                message=message,
                event_refs=(recorded.event_ref,),
                allowed_by=allowed_by,
            )


def _approvals(stream: Stream, question_kind: QuestionKind) -> Iterator[tuple[int, str]]:
    """Yield index and event ref of each approval of such a question."""
    question: HumanRequested | None = None
    for index, recorded in enumerate(stream):
        match recorded.event:
            case HumanRequested() as event:
                question = event
            case HumanAnswered(verdict=Verdict.APPROVE) if (
                question is not None and question.question_kind is question_kind
            ):
                yield index, recorded.event_ref


def _unvalidated_phases(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield phases completed on a reply that the rules rejected or never checked."""
    unchecked_requests: dict[str, str] = {}
    for recorded in stream:
        match recorded.event:
            case AgentRequested(ref=ref):
                unchecked_requests[ref.phase] = recorded.event_ref
            case ArtifactValidated(violations=(), ref=ref):
                unchecked_requests.pop(ref.phase, None)
            case PhaseCompleted(phase=phase) if phase in unchecked_requests:
                message = f"{phase} was completed on a reply that did not pass the rules"
                yield Gap(
                    kind="not-validated",
                    feature=feature,
                    message=message,
                    event_refs=(unchecked_requests.pop(phase), recorded.event_ref),
                )


def _failed_checks(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield a gap if not all checks of the pull request passed at the last poll."""
    polls = [recorded for recorded in stream if isinstance(recorded.event, ChecksPolled)]
    delivered = any(isinstance(recorded.event, FeatureDelivered) for recorded in stream)
    if polls and delivered and isinstance(last := polls[-1].event, ChecksPolled) and last.failed + last.pending:
        allowed_by = next((event_ref for _, event_ref in _approvals(stream, QuestionKind.CHECKS)), "")
        message = f"delivered with {last.failed} failed and {last.pending} pending checks of the pull request"
        yield Gap(
            kind="checks-red",
            feature=feature,
            message=message,
            event_refs=(polls[-1].event_ref,),
            allowed_by=allowed_by,
        )


def _untested(feature: str, stream: Stream) -> Iterator[Gap]:
    ran = any(isinstance(event := recorded.event, CommandRan) and event.stage == "gate" for recorded in stream)
    delivered = next((recorded.event_ref for recorded in stream if isinstance(recorded.event, FeatureDelivered)), "")
    if delivered and not ran:
        message = "delivered without running a command: only rules on texts checked it"
        yield Gap(kind="untested", feature=feature, message=message, event_refs=(delivered,))


def _reverted_changes(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield forbidden changes by agents."""
    for recorded in stream:
        event = recorded.event
        if isinstance(event, AgentReplied | ChangesChecked) and event.forbidden_changes:
            changes = [f"{change.kind} {change.path}" for change in event.forbidden_changes]
            suffix = f" and {len(changes) - LISTED_MAX} more" if len(changes) > LISTED_MAX else ""
            message = f"changes outside the write scope of {unit_name(event.ref)} were reverted: "
            message += ", ".join(changes[:LISTED_MAX]) + suffix
            yield Gap(kind="reverted", feature=feature, message=message, event_refs=(recorded.event_ref,))


def _call_gaps(feature: str, stream: Stream, calls: Sequence[PricedCall]) -> Iterator[Gap]:
    request_refs = {
        event.ref.key: recorded.event_ref for recorded in stream if isinstance(event := recorded.event, AgentRequested)
    }
    replies = [recorded.event for recorded in stream if isinstance(recorded.event, AgentReplied)]
    salvaged = [reply.ref.key for reply in replies if reply.salvaged]

    def gap(kind: GapKind, keys: Iterable[str], description: str) -> Iterator[Gap]:
        event_refs = tuple(request_refs[key] for key in keys if key in request_refs)
        if event_refs:
            number = f"{len(event_refs)} call{'s' * (len(event_refs) > 1)}"
            yield Gap(kind=kind, feature=feature, message=f"{number} {description}", event_refs=event_refs)

    yield from gap("failed", (priced.call.key for priced in calls if priced.outcome == "failed"), "failed")
    yield from gap("lost", (priced.call.key for priced in calls if priced.outcome == "lost"), "lost")
    yield from gap("salvaged", salvaged, "recovered after a crash: the agent's exit status is unknown")
    ended = (priced.call for priced in calls if priced.call.status != "open")
    unpriced = (call.key for call in ended if call.computed_nanousd is None)
    yield from gap("unpriced", unpriced, "without a computed price")
