"""Gaps of one feature: missing evidence and unwanted events in its stream, with event refs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested
from mz_events.catalog.check import ArtifactValidated, ChangesChecked, CommandRan, GateChecked, RefMoved
from mz_events.catalog.delivery import ChecksSeen, CommitRequested
from mz_events.catalog.feature import Ask, FeatureDelivered, HumanAnswered, HumanRequested, PhaseCompleted, RolledBack
from mz_events.catalog.run import Verdict
from mz_events.envelope import Recorded

from mz_projections.audit import DONE, Gap, GapKind
from mz_projections.fates import BUILDER
from mz_projections.spending import Judged
from mz_projections.views import FeatureView

Stream = Sequence[Recorded[Event]]
NAMED_MAX = 5


def feature_gaps(view: FeatureView, stream: Stream, calls: Sequence[Judged], place: str) -> tuple[Gap, ...]:
    """Return the gaps of a feature; `event_ref` is its last event."""
    return (
        *_not_delivered(view, place),
        *_past_gates(view.feature, stream),
        *_refs_moved(view.feature, stream),
        *_not_validated(view.feature, stream),
        *_checks_red(view.feature, stream),
        *_untested(view.feature, stream),
        *_reverted(view.feature, stream),
        *_calls(view.feature, stream, calls),
    )


def _not_delivered(view: FeatureView, place: str) -> Iterator[Gap]:
    if view.status not in DONE:
        code = view.code or (view.waiting.ask.value if view.waiting else view.hold.value if view.hold else "")
        what = f"not delivered: {view.status}" + (f" ({code})" if code else "")
        yield Gap(kind="not-delivered", feature=view.feature, what=what, places=(place,))
    if view.quarantined:
        what = "the item was quarantined: its text may be a prompt injection"
        yield Gap(kind="quarantined", feature=view.feature, what=what, places=(place,))


def _past_gates(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield work committed although a gate had rejected it and never passed it afterwards."""
    failing: dict[tuple[str, str], dict[str, str]] = {}
    allowed = ""
    for recorded in stream:
        match recorded.event:
            case AgentRequested(ref=ref) if ref.role == BUILDER:
                failing.pop((ref.phase, ref.unit), None)
            case GateChecked() as event:
                cell, allowed = failing.setdefault((event.phase, event.unit), {}), ""
                cell.pop(event.gate, None)
                cell |= {} if event.passed else {event.gate: recorded.place}
            case HumanAnswered(verdict=Verdict.APPROVE):
                allowed = recorded.place
            case RolledBack():
                failing.clear()
            case CommitRequested(purpose="work") as event:
                for gate, place in failing.pop((event.phase, event.unit), {}).items():
                    what = f"{_cell(event.phase, event.unit)} was committed although {gate} had rejected it"
                    yield Gap(
                        kind="past-gate", feature=feature, what=what, places=(place, recorded.place), allowed=allowed
                    )


def _refs_moved(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield changes of the repository while an agent worked; a person may approve them."""
    answers = tuple(_answered(stream, Ask.REPOSITORY))
    for index, recorded in enumerate(stream):
        if isinstance(event := recorded.event, RefMoved):
            what = f"{event.name} changed during {_cell(event.ref.phase, event.ref.unit)}"
            allowed = next((place for at, place in answers if at > index), "")
            yield Gap(kind="ref-moved", feature=feature, what=what, places=(recorded.place,), allowed=allowed)


def _answered(stream: Stream, ask: Ask) -> Iterator[tuple[int, str]]:
    """Yield index and event ref of each approval of such a question."""
    asked: HumanRequested | None = None
    for index, recorded in enumerate(stream):
        match recorded.event:
            case HumanRequested() as event:
                asked = event
            case HumanAnswered(verdict=Verdict.APPROVE) if asked is not None and asked.ask is ask:
                yield index, recorded.place


def _not_validated(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield phases completed on a reply that the rules rejected or never checked."""
    owed: dict[str, str] = {}
    for recorded in stream:
        match recorded.event:
            case AgentRequested(ref=ref):
                owed[ref.phase] = recorded.place
            case ArtifactValidated(violations=(), ref=ref):
                owed.pop(ref.phase, None)
            case PhaseCompleted(phase=phase) if phase in owed:
                what = f"{phase} was completed on a reply that did not pass the rules"
                yield Gap(kind="not-validated", feature=feature, what=what, places=(owed.pop(phase), recorded.place))


def _checks_red(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield a gap if not all checks of the pull request passed at the last poll."""
    looks = [each for each in stream if isinstance(each.event, ChecksSeen)]
    delivered = any(isinstance(each.event, FeatureDelivered) for each in stream)
    if looks and delivered and isinstance(last := looks[-1].event, ChecksSeen) and last.red + last.pending:
        allowed = next((place for _, place in _answered(stream, Ask.CHECKS)), "")
        what = f"delivered with {last.red} failed and {last.pending} pending checks of the pull request"
        yield Gap(kind="checks-red", feature=feature, what=what, places=(looks[-1].place,), allowed=allowed)


def _untested(feature: str, stream: Stream) -> Iterator[Gap]:
    ran = any(isinstance(event := each.event, CommandRan) and event.stage == "gate" for each in stream)
    delivered = next((each.place for each in stream if isinstance(each.event, FeatureDelivered)), "")
    if delivered and not ran:
        what = "delivered without running a command: only rules on texts checked it"
        yield Gap(kind="untested", feature=feature, what=what, places=(delivered,))


def _reverted(feature: str, stream: Stream) -> Iterator[Gap]:
    """Yield forbidden changes by agents."""
    for recorded in stream:
        event = recorded.event
        if isinstance(event, AgentReplied | ChangesChecked) and event.offences:
            listed = [f"{offence.kind} {offence.path}" for offence in event.offences]
            more = f" and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
            what = f"changes outside the write scope of {_cell(event.ref.phase, event.ref.unit)} were reverted: "
            what += ", ".join(listed[:NAMED_MAX]) + more
            yield Gap(kind="reverted", feature=feature, what=what, places=(recorded.place,))


def _calls(feature: str, stream: Stream, calls: Sequence[Judged]) -> Iterator[Gap]:
    asked = {
        event.ref.key: recorded.place for recorded in stream if isinstance(event := recorded.event, AgentRequested)
    }
    replies = [recorded.event for recorded in stream if isinstance(recorded.event, AgentReplied)]
    salvaged = [reply.ref.key for reply in replies if reply.salvaged]

    def gap(kind: GapKind, keys: Iterable[str], what: str) -> Iterator[Gap]:
        places = tuple(asked[key] for key in keys if key in asked)
        if places:
            number = f"{len(places)} call{'s' * (len(places) > 1)}"
            yield Gap(kind=kind, feature=feature, what=f"{number} {what}", places=places)

    yield from gap("failed", (priced.call.key for priced in calls if priced.fate == "failed"), "failed")
    yield from gap("lost", (priced.call.key for priced in calls if priced.fate == "lost"), "lost")
    yield from gap("salvaged", salvaged, "recovered after a crash: the agent's exit status is unknown")
    ended = (priced.call for priced in calls if priced.call.outcome != "open")
    unpriced = (call.key for call in ended if call.computed_nanousd is None)
    yield from gap("unpriced", unpriced, "without a computed price")


def _cell(phase: str, unit: str) -> str:
    return f"{phase}/{unit}" if unit else phase
