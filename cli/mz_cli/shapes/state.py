"""JSON document of `mz log --at`: a past state."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.cost import Amounts


class AttemptCounts(Shape, frozen=True, kw_only=True):
    """Calls of one role in the current unit and iteration."""

    role: str
    attempt: int
    """Number of requests so far, including failed and lost ones."""
    refused: int
    """Rejected replies since the last answer of a person."""
    failures: int
    """Failed or lost calls since the last answer of a person."""


class CurrentArtifact(Shape, frozen=True, kw_only=True):
    artifact: str
    phase: str
    unit: str | None
    path: str | None
    digest: str


class OpenQuestion(Shape, frozen=True, kw_only=True):
    question_kind: str
    code: str | None
    phase: str
    unit: str | None
    detail: str | None


class FeatureState(Shape, frozen=True, kw_only=True):
    """State of a feature from which the engine decides."""

    state: str
    """State of the engine, such as held or waiting; of an ended feature, its outcome."""
    within: str | None
    """State that is held or waits."""
    phase: str | None
    unit: str | None
    iteration: int | None
    units: tuple[str, ...]
    units_done: tuple[str, ...]
    done: tuple[str, ...]
    """Phases completed, in order."""
    rollbacks: int
    attempts: tuple[AttemptCounts, ...]
    checked: dict[str, bool]
    """Gates and rules run on the current reply; true: passed."""
    pending_outcome: str | None
    """Type of an intent without an outcome yet."""
    hold: str | None
    until: str | None
    code: str | None
    """Code of a hold or a failure."""
    question: OpenQuestion | None
    branch: str | None
    target: str | None
    base: str | None
    head: str | None
    artifacts: tuple[CurrentArtifact, ...]
    cost: Amounts


class TrackShape(Shape, frozen=True, kw_only=True):
    """One feature as the run sees it."""

    id: str
    state: str
    """queued, working, skipped, or the feature's outcome."""
    hold: str | None
    until: str | None
    code: str | None
    held_by: str | None
    """Dependency that was not delivered."""
    claim: tuple[str, ...]
    spent_usd: str
    reserved_usd: str


class RunStateShape(Shape, frozen=True, kw_only=True):
    """State of the run from which the engine decides."""

    status: str
    """running, paused, halted, stopped, idle or finished."""
    code: str | None
    pipeline: str | None
    base: str | None
    base_commit: str | None
    inbox: int
    """Number of processed messages of people."""
    committed_usd: str
    """Spent and reserved."""
    features: tuple[TrackShape, ...]


class StateAt(Shape, frozen=True, kw_only=True):
    """`mz log --at STREAM@VERSION --json`, with the schema mz.state/1: the state after that event."""

    repository: str
    event_ref: str
    at: str | None
    event: str
    """Type of the event."""
    text: str
    """Description of the event."""
    newest: int
    """Current version of the stream."""
    feature: FeatureState | None
    """Set for a feature's stream."""
    run: RunStateShape | None
    """Set for a run's own stream."""
