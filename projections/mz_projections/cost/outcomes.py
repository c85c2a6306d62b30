"""Outcomes of agent calls: which ones were wasted (failed, lost, rejected, or superseded by a rollback).

A rejected reply that a person approved is kept after all: the last reply of a unit's builder is what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ReplyParsed
from mz_events.catalog.delivery import CommitRequested
from mz_events.catalog.feature import FeatureRetried, PhaseStarted, RolledBack
from mz_events.catalog.validation import ArtifactValidated, GateChecked
from mz_events.envelope import Recorded
from mz_events.names import BUILDER, StreamId

from mz_projections.cost.calls import CallCost
from mz_projections.feature.rollback import track_phases
from mz_projections.read_models.model import Key, ReadModel

CallOutcome = Literal["open", "kept", "rejected", "failed", "lost", "superseded"]
WASTED: tuple[CallOutcome, ...] = ("rejected", "failed", "lost", "superseded")
"""Outcomes of wasted calls, in the order of reports."""


class CallOutcomes(msgspec.Struct, frozen=True):
    """State of a feature's replies, from its stream."""

    run: str
    feature: str
    current_phases: tuple[str, ...] = ()
    """Phases not superseded, in the order of their start."""
    superseded_counts: dict[str, int] = {}
    """Number of superseded iterations of a phase (`code`) or of a unit (`code/u1`)."""
    last_builder_calls: dict[str, str] = {}
    """Key of the last builder call by unit (`phase/unit`)."""
    bad_replies: dict[str, Literal["failed", "rejected"]] = {}
    """By key of the call."""


def outcome_of(call: CallCost, outcomes: CallOutcomes) -> CallOutcome:
    """Return the outcome of the call."""
    if call.status != "replied":
        return call.status
    superseded_count = outcomes.superseded_counts.get(call.phase, 0)
    if call.unit:
        superseded_count += outcomes.superseded_counts.get(f"{call.phase}/{call.unit}", 0)
    return "superseded" if call.iteration <= superseded_count else outcomes.bad_replies.get(call.key, "kept")


def call_outcomes(events: Iterable[Recorded[Event]]) -> dict[StreamId, CallOutcomes]:
    """Return the outcomes by stream, for events of any number of features, each in its order."""
    outcomes_by_stream: dict[StreamId, CallOutcomes] = {}
    for recorded in events:
        if recorded.stream.count("/") == 2:
            _, run, feature = recorded.stream.split("/")
            outcomes_by_stream[recorded.stream] = apply_event(
                outcomes_by_stream.get(recorded.stream) or CallOutcomes(run, feature), recorded.event
            )
    return outcomes_by_stream


def apply_event(outcomes: CallOutcomes, event: Event) -> CallOutcomes:
    """Return the outcomes after the event. Total: events that do not concern replies change nothing."""
    match event:
        case PhaseStarted():
            return replace(outcomes, current_phases=track_phases(outcomes.current_phases, event)[0])
        case AgentRequested(ref=ref) if ref.role == BUILDER:
            return replace(
                outcomes, last_builder_calls={**outcomes.last_builder_calls, f"{ref.phase}/{ref.unit}": ref.key}
            )
        case ReplyParsed(ref=ref):
            return _mark_reply(outcomes, ref.key, "failed" if event.problem is not None else None)
        case ArtifactValidated(ref=ref, violations=violations) if violations:
            return _mark_reply(outcomes, ref.key, "rejected")
        case GateChecked(passed=False):
            return _mark_reply(outcomes, outcomes.last_builder_calls.get(f"{event.phase}/{event.unit}", ""), "rejected")
        case CommitRequested(purpose="work"):
            return _mark_reply(outcomes, outcomes.last_builder_calls.get(f"{event.phase}/{event.unit}", ""), None)
        case RolledBack(to=target, units=units):
            return _supersede(outcomes, event, tuple(f"{target}/{unit}" for unit in units))
        case FeatureRetried():
            return _supersede(outcomes, event, ())
    return outcomes


def _mark_reply(outcomes: CallOutcomes, key: str, flaw: Literal["failed", "rejected"] | None) -> CallOutcomes:
    others = {other: flaw_of_other for other, flaw_of_other in outcomes.bad_replies.items() if other != key}
    return replace(outcomes, bad_replies={**others, key: flaw} if flaw and key else others)


def _supersede(outcomes: CallOutcomes, event: Event, units: tuple[str, ...]) -> CallOutcomes:
    current_phases, superseded_phases = track_phases(outcomes.current_phases, event)
    counts = dict(outcomes.superseded_counts)
    for name in (*superseded_phases, *units):
        counts[name] = counts.get(name, 0) + 1
    return replace(outcomes, superseded_counts=counts, current_phases=current_phases)


def evolve(find: Callable[[Key], CallOutcomes | None], recorded: Recorded[Event]) -> CallOutcomes | None:
    """Return the row of the feature that the event belongs to."""
    if recorded.stream.count("/") != 2:
        return None
    _, run, feature = recorded.stream.split("/")
    return apply_event(find((run, feature)) or CallOutcomes(run, feature), recorded.event)


CALL_OUTCOMES = ReadModel(
    name="courses",
    row=CallOutcomes,
    key=("run", "feature"),
    types=(
        PhaseStarted,
        AgentRequested,
        ReplyParsed,
        ArtifactValidated,
        GateChecked,
        CommitRequested,
        RolledBack,
        FeatureRetried,
    ),
    evolve=evolve,
)
"""Over all runs: one row per feature."""
