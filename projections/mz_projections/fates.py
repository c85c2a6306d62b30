"""Pure: which agent calls were for nothing: failed, lost, refused, or superseded when the work went back.

A refused reply that a person let pass stands after all: what is committed in a cell is the last reply of its builder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ReplyRead
from mz_events.catalog.check import ArtifactValidated, GateChecked
from mz_events.catalog.delivery import CommitRequested
from mz_events.catalog.feature import FeatureRetried, PhaseStarted, RolledBack
from mz_events.envelope import Recorded
from mz_events.names import StreamId

from mz_projections.cost import CallCost
from mz_projections.readmodel import Key, ReadModel

Fate = Literal["open", "stands", "refused", "failed", "lost", "superseded"]
WASTED: tuple[Fate, ...] = ("refused", "failed", "lost", "superseded")
"""Fates of calls that were thrown away, in the order in which they are reported."""
BUILDER = "builder"


class Course(msgspec.Struct, frozen=True):
    """What a feature's stream says of its replies, beyond what each of them cost."""

    run: str
    feature: str
    begun: tuple[str, ...] = ()
    """Phases that stand, in the order in which they began."""
    superseded: dict[str, int] = {}
    """How many iterations of a phase (`code`) or of a unit (`code/u1`) do not stand any more."""
    last: dict[str, str] = {}
    """By cell (`phase/unit`): key of its builder's last call."""
    spoilt: dict[str, Literal["failed", "refused"]] = {}
    """By key of the call."""


def fate_of(call: CallCost, course: Course) -> Fate:
    """What became of the call."""
    if call.outcome != "replied":
        return call.outcome
    gone = course.superseded.get(call.phase, 0)
    if call.unit:
        gone += course.superseded.get(f"{call.phase}/{call.unit}", 0)
    return "superseded" if call.iteration <= gone else course.spoilt.get(call.key, "stands")


def courses(events: Iterable[Recorded[Event]]) -> dict[StreamId, Course]:
    """By stream, for the events of any number of features, each in its order."""
    found: dict[StreamId, Course] = {}
    for recorded in events:
        if recorded.stream.count("/") == 2:
            _, run, feature = recorded.stream.split("/")
            found[recorded.stream] = follow(found.get(recorded.stream) or Course(run, feature), recorded.event)
    return found


def follow(course: Course, event: Event) -> Course:
    """Total: what does not concern a reply changes nothing."""
    match event:
        case PhaseStarted():
            return replace(course, begun=follow_phases(course.begun, event)[0])
        case AgentRequested(ref=ref) if ref.role == BUILDER:
            return replace(course, last={**course.last, f"{ref.phase}/{ref.unit}": ref.key})
        case ReplyRead(ref=ref):
            return _spoilt(course, ref.key, "failed" if event.problem is not None else None)
        case ArtifactValidated(ref=ref, violations=violations) if violations:
            return _spoilt(course, ref.key, "refused")
        case GateChecked(passed=False):
            return _spoilt(course, course.last.get(f"{event.phase}/{event.unit}", ""), "refused")
        case CommitRequested(purpose="work"):
            return _spoilt(course, course.last.get(f"{event.phase}/{event.unit}", ""), None)
        case RolledBack(to=to, units=units):
            return _superseded(course, event, tuple(f"{to}/{unit}" for unit in units))
        case FeatureRetried():
            return _superseded(course, event, ())
    return course


def _spoilt(course: Course, key: str, how: Literal["failed", "refused"] | None) -> Course:
    others = {other: known for other, known in course.spoilt.items() if other != key}
    return replace(course, spoilt={**others, key: how} if how and key else others)


def _superseded(course: Course, event: Event, units: tuple[str, ...]) -> Course:
    begun, gone = follow_phases(course.begun, event)
    superseded = dict(course.superseded)
    for name in (*gone, *units):
        superseded[name] = superseded.get(name, 0) + 1
    return replace(course, superseded=superseded, begun=begun)


def follow_phases(begun: tuple[str, ...], event: Event) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The phases that stand after the event, in the order in which they began, and those that it supersedes: begun at
    or after the one that the work goes back to; where only units go back, that phase itself stands."""
    match event:
        case PhaseStarted(phase=phase):
            return (begun if phase in begun else (*begun, phase)), ()
        case RolledBack(to=to, units=units):
            gone = _since(begun, to)[1 if units else 0 :]
        case FeatureRetried(to=to):
            gone = _since(begun, to)
        case _:
            return begun, ()
    return tuple(phase for phase in begun if phase not in gone), gone


def _since(begun: tuple[str, ...], phase: str) -> tuple[str, ...]:
    return begun[begun.index(phase) :] if phase in begun else ()


def evolve(find: Callable[[Key], Course | None], recorded: Recorded[Event]) -> Course | None:
    """The row of the feature whose stream the event is in."""
    if recorded.stream.count("/") != 2:
        return None
    _, run, feature = recorded.stream.split("/")
    return follow(find((run, feature)) or Course(run, feature), recorded.event)


COURSES = ReadModel(
    name="courses",
    row=Course,
    key=("run", "feature"),
    types=(
        PhaseStarted,
        AgentRequested,
        ReplyRead,
        ArtifactValidated,
        GateChecked,
        CommitRequested,
        RolledBack,
        FeatureRetried,
    ),
    evolve=evolve,
)
"""Over all runs: one row a feature."""
