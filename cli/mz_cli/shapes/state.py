"""Facts: the shapes of the JSON about a past state: log --at."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.cost import Amounts


class TriesShape(Shape, frozen=True, kw_only=True):
    """Calls of one role in the present unit and iteration."""

    role: str
    attempt: int
    """Requests so far, failed and lost ones too."""
    refused: int
    """Replies refused since a person last answered."""
    failures: int
    """Calls failed or lost since a person last answered."""


class KnownArtifact(Shape, frozen=True, kw_only=True):
    artifact: str
    phase: str
    unit: str | None
    path: str | None
    digest: str


class QuestionShape(Shape, frozen=True, kw_only=True):
    ask: str
    code: str | None
    phase: str
    unit: str | None
    detail: str | None


class FeatureState(Shape, frozen=True, kw_only=True):
    """What the engine knew of a feature, and decided on."""

    state: str
    """unborn, opening, setting, between, working, restoring, held, waiting, or how it ended."""
    within: str | None
    """What is held or waits: opening, setting, between, working or restoring."""
    phase: str | None
    unit: str | None
    iteration: int | None
    units: tuple[str, ...]
    units_done: tuple[str, ...]
    done: tuple[str, ...]
    """Phases completed, in order."""
    rollbacks: int
    tries: tuple[TriesShape, ...]
    checked: dict[str, bool]
    """Gates and rules that were run on the present reply, and whether they passed."""
    owed: str | None
    """Type of an intent whose outcome is not known yet."""
    hold: str | None
    until: str | None
    code: str | None
    """Of a hold or a failure."""
    question: QuestionShape | None
    branch: str | None
    target: str | None
    base: str | None
    head: str | None
    artifacts: tuple[KnownArtifact, ...]
    cost: Amounts


class TrackShape(Shape, frozen=True, kw_only=True):
    """One item, as the run saw it."""

    id: str
    state: str
    """queued, working, skipped, or how it came to rest."""
    hold: str | None
    until: str | None
    code: str | None
    held_by: str | None
    """The dependency that was not delivered."""
    claim: tuple[str, ...]
    spent_usd: str
    reserved_usd: str


class RunStateShape(Shape, frozen=True, kw_only=True):
    """What the engine knew of the run as a whole, and decided on."""

    status: str
    """running, paused, halted, stopped, rested or finished."""
    code: str | None
    pipeline: str | None
    base: str | None
    base_commit: str | None
    inbox: int
    """Messages of people that were dealt with."""
    committed_usd: str
    """Spent and set aside."""
    features: tuple[TrackShape, ...]


class StateAt(Shape, frozen=True, kw_only=True):
    """`mz log --at PLACE --json`, with the schema mz.state/1: the state after that event."""

    repository: str
    place: str
    at: str | None
    event: str
    """Type of the event."""
    text: str
    """What it says."""
    newest: int
    """Version that the stream has now."""
    feature: FeatureState | None
    """Of a feature's stream."""
    run: RunStateShape | None
    """Of a run's own stream."""
