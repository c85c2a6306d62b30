"""Pure: what is missing from one feature, or happened and should not have: read out of its stream, with the places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

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
    """`place`: where the last was recorded of the feature."""
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
        what = "the text of the item was held back: it looked like an attempt to instruct the agent"
        yield Gap(kind="quarantined", feature=view.feature, what=what, places=(place,))


def _past_gates(feature: str, stream: Stream) -> Iterator[Gap]:
    """Work that was committed although a gate had refused it and never passed it afterwards."""
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
                    what = f"{_cell(event.phase, event.unit)} was committed although {gate} had refused it"
                    yield Gap(
                        kind="past-gate", feature=feature, what=what, places=(place, recorded.place), allowed=allowed
                    )


def _refs_moved(feature: str, stream: Stream) -> Iterator[Gap]:
    """Changes of the repository while an agent worked; a person may say that they are right."""
    answers = tuple(_answered(stream, Ask.REPOSITORY))
    for index, recorded in enumerate(stream):
        if isinstance(event := recorded.event, RefMoved):
            what = f"{event.name} changed while {_cell(event.ref.phase, event.ref.unit)} was worked on"
            allowed = next((place for at, place in answers if at > index), "")
            yield Gap(kind="ref-moved", feature=feature, what=what, places=(recorded.place,), allowed=allowed)


def _answered(stream: Stream, ask: Ask) -> Iterator[tuple[int, str]]:
    """Index and place of each approval of such a question."""
    asked: HumanRequested | None = None
    for index, recorded in enumerate(stream):
        match recorded.event:
            case HumanRequested() as event:
                asked = event
            case HumanAnswered(verdict=Verdict.APPROVE) if asked is not None and asked.ask is ask:
                yield index, recorded.place


def _not_validated(feature: str, stream: Stream) -> Iterator[Gap]:
    """Phases that were completed on a reply that the rules were never asked about, or that they refused."""
    owed: dict[str, str] = {}
    for recorded in stream:
        match recorded.event:
            case AgentRequested(ref=ref):
                owed[ref.phase] = recorded.place
            case ArtifactValidated(violations=(), ref=ref):
                owed.pop(ref.phase, None)
            case PhaseCompleted(phase=phase) if phase in owed:
                what = f"{phase} was completed on a reply that the rules did not pass"
                yield Gap(kind="not-validated", feature=feature, what=what, places=(owed.pop(phase), recorded.place))


def _checks_red(feature: str, stream: Stream) -> Iterator[Gap]:
    """The last look at the pull request's checks, where it was not all green."""
    looks = [each for each in stream if isinstance(each.event, ChecksSeen)]
    delivered = any(isinstance(each.event, FeatureDelivered) for each in stream)
    if looks and delivered and isinstance(last := looks[-1].event, ChecksSeen) and last.red + last.pending:
        allowed = next((place for _, place in _answered(stream, Ask.CHECKS)), "")
        what = f"delivered with {last.red} red and {last.pending} pending checks of the pull request"
        yield Gap(kind="checks-red", feature=feature, what=what, places=(looks[-1].place,), allowed=allowed)


def _untested(feature: str, stream: Stream) -> Iterator[Gap]:
    ran = any(isinstance(event := each.event, CommandRan) and event.stage == "gate" for each in stream)
    delivered = next((each.place for each in stream if isinstance(each.event, FeatureDelivered)), "")
    if delivered and not ran:
        what = "no command was run on what was delivered: nothing but rules over texts checked it"
        yield Gap(kind="untested", feature=feature, what=what, places=(delivered,))


def _reverted(feature: str, stream: Stream) -> Iterator[Gap]:
    """What agents did outside their contract."""
    for recorded in stream:
        event = recorded.event
        if isinstance(event, AgentReplied | ChangesChecked) and event.offences:
            listed = [f"{offence.kind} {offence.path}" for offence in event.offences]
            more = f" and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
            what = f"{_cell(event.ref.phase, event.ref.unit)} went beyond its contract: "
            what += ", ".join(listed[:NAMED_MAX]) + more
            yield Gap(kind="reverted", feature=feature, what=what, places=(recorded.place,))


ENDED_BADLY: tuple[Literal["failed", "lost"], ...] = ("failed", "lost")


def _calls(feature: str, stream: Stream, calls: Sequence[Judged]) -> Iterator[Gap]:
    asked = {each.event.ref.key: each.place for each in stream if isinstance(each.event, AgentRequested)}
    salvaged = [event.ref.key for each in stream if isinstance(event := each.event, AgentReplied) and event.salvaged]

    def gap(kind: GapKind, keys: Iterable[str], what: str) -> Iterator[Gap]:
        places = tuple(asked[key] for key in keys if key in asked)
        if places:
            number = f"{len(places)} call{'s' * (len(places) > 1)}"
            yield Gap(kind=kind, feature=feature, what=f"{number} {what}", places=places)

    for fate in ENDED_BADLY:
        yield from gap(fate, (each.call.key for each in calls if each.fate == fate), fate)
    yield from gap("salvaged", salvaged, "salvaged after a crash: how the agent ended is not known")
    unpriced = (c.call.key for c in calls if c.call.computed_nanousd is None and c.call.outcome != "open")
    yield from gap("unpriced", unpriced, "without a computed price")


def _cell(phase: str, unit: str) -> str:
    return f"{phase}/{unit}" if unit else phase
