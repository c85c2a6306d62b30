"""The list of all runs with the status of each run and its features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.run import (
    AnswerAccepted,
    ChecksChanged,
    FeatureAdmitted,
    FeatureReleased,
    FeatureStopped,
    ItemAdded,
    ItemSkipped,
    RetryAccepted,
    RunFinished,
    RunForked,
    RunHalted,
    RunIdle,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopRequested,
    TimerFired,
)
from mz_events.envelope import Recorded
from mz_events.names import feature_stream

from mz_projections.read_models.model import Key, ReadModel


class RunRow(msgspec.Struct, frozen=True):
    """One run."""

    id: str
    pipeline: str
    base: str
    started_at_us: int
    fork_of: str = ""
    """`stream@version` of the event that the run was forked from; empty: not a fork."""
    status: Literal["started", "paused", "halted", "stopped", "idle", "finished"] = "started"
    features: dict[str, str] = {}
    """Status of each feature, in the order of the backlog: `queued`, `skipped`, `working`, or the value of a
    `FeatureOutcome`."""

    def count(self, *statuses: str) -> int:
        """Return the number of features with one of these statuses."""
        return sum(status in statuses for status in self.features.values())


def evolve(find: Callable[[Key], RunRow | None], recorded: Recorded[Event]) -> RunRow | None:
    """Return the run that the event starts or changes."""
    _, run, *feature = recorded.stream.split("/", 2)
    if feature:
        return None
    match recorded.event:
        case RunStarted() as event:
            return RunRow(run, event.pipeline, event.base, recorded.recorded_at_us)
    row = find((run,))
    return _apply_event(row, recorded.event) if row else None


def _apply_event(row: RunRow, event: Event) -> RunRow:
    match event:
        case RunForked() as event:
            return replace(row, fork_of=f"{feature_stream(event.source, event.feature)}@{event.version}")
        case RunResumed():
            return replace(row, status="started")
        case RunPaused():
            return replace(row, status="paused")
        case RunHalted():
            return replace(row, status="halted")
        case RunStopRequested():
            return replace(row, status="stopped")
        case RunIdle() if row.status == "started":
            return replace(row, status="idle")
        case RunFinished():
            return replace(row, status="finished")
        case ItemAdded(feature=feature):
            return _set_status(row, feature, "queued")
        case ItemSkipped(feature=feature):
            return _set_status(row, feature, "skipped")
        case FeatureStopped(feature=feature, status=status):
            return _set_status(row, feature, status.value)
        case (
            FeatureAdmitted(feature=feature)
            | FeatureReleased(feature=feature)
            | AnswerAccepted(feature=feature)
            | TimerFired(feature=feature)
            | ChecksChanged(feature=feature)
        ):
            return _set_status(row, feature, "working")
        case RetryAccepted(feature=feature):
            return _set_status(replace(row, status="started"), feature, "working")
    return row


def _set_status(row: RunRow, feature: str, status: str) -> RunRow:
    return replace(row, features={**row.features, feature: status})


RUNS = ReadModel(
    name="runs",
    row=RunRow,
    key=("id",),
    types=(
        RunStarted,
        RunResumed,
        RunHalted,
        RunStopRequested,
        RunIdle,
        RunFinished,
        RunForked,
        ItemAdded,
        ItemSkipped,
        FeatureAdmitted,
        FeatureReleased,
        FeatureStopped,
        AnswerAccepted,
        RetryAccepted,
        RunPaused,
        TimerFired,
        ChecksChanged,
    ),
    evolve=evolve,
)
