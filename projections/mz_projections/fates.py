"""Outcomes of agent calls: which ones were wasted (failed, lost, rejected, or superseded by a rollback).

A rejected reply that a person approved is kept after all: the last reply of a unit's builder is what is committed.
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
"""Outcomes of wasted calls, in the order of reports."""
BUILDER = "builder"


class Course(msgspec.Struct, frozen=True):
    """State of a feature's replies, from its stream."""

    run: str
    feature: str
    begun: tuple[str, ...] = ()
    """Phases not superseded, in the order of their start."""
    superseded: dict[str, int] = {}
    """Number of superseded iterations of a phase (`code`) or of a unit (`code/u1`)."""
    last: dict[str, str] = {}
    """Key of the last builder call by unit (`phase/unit`)."""
    spoilt: dict[str, Literal["failed", "refused"]] = {}
    """By key of the call."""


def fate_of(call: CallCost, course: Course) -> Fate:
    """Return the outcome of the call."""
    if call.outcome != "replied":
        return call.outcome
    gone = course.superseded.get(call.phase, 0)
    if call.unit:
        gone += course.superseded.get(f"{call.phase}/{call.unit}", 0)
    return "superseded" if call.iteration <= gone else course.spoilt.get(call.key, "stands")


def courses(events: Iterable[Recorded[Event]]) -> dict[StreamId, Course]:
    """Return the outcomes by stream, for events of any number of features, each in its order."""
    found: dict[StreamId, Course] = {}
    for recorded in events:
        if recorded.stream.count("/") == 2:
            _, run, feature = recorded.stream.split("/")
            found[recorded.stream] = follow(found.get(recorded.stream) or Course(run, feature), recorded.event)
    return found


def follow(course: Course, event: Event) -> Course:
    """Return the outcomes after the event. Total: events that do not concern replies change nothing."""
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
    """Return the current phases after the event, in the order of their start, and the phases that it supersedes.

    Superseded are phases started at or after the target of a rollback; if only units go back, the target phase itself
    stays.
    """
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
    """Return the row of the feature that the event belongs to."""
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
"""Over all runs: one row per feature."""
