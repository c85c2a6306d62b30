"""`mz log --at`: the state after an event, as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import field
from mz_events.catalog.base import Event, EventKind
from mz_events.codec import type_of
from mz_events.store import Recorded
from mz_projections.cost.totals import Totals, totals
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.fold import fold
from mz_projections.feature.state import (
    BetweenPhases,
    CreatingWorkspace,
    Ended,
    Held,
    InPhase,
    NotStarted,
    Restoring,
    RunningSetup,
    State,
    UnitRun,
    Waiting,
    progress_of,
)
from mz_projections.run.fold import FeatureTrack, RunState, fold_run
from mz_projections.views.model import ArtifactView
from mz_projections.views.timeline import describe

from mz_cli.app.context import TextLoader
from mz_cli.terminal.json import Shape, plain_value, shape_of
from mz_cli.terminal.text import single_line


class AttemptCounts(Shape, frozen=True, kw_only=True):
    """Calls of one role in the current unit and iteration."""

    role: str
    attempt: int
    """Number of requests so far, including failed and lost ones."""
    rejected: int
    """Rejected replies since the last answer of a person."""
    failures: int
    """Failed or lost calls since the last answer of a person."""


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
    until_us: int | None = field(name="until")
    code: str | None
    """Code of a hold or a failure."""
    question: OpenQuestion | None
    branch: str | None
    target: str | None
    base: str | None
    head: str | None
    artifacts: tuple[ArtifactView, ...]
    cost: Totals


class TrackShape(Shape, frozen=True, kw_only=True):
    """One feature as the run sees it."""

    id: str
    state: str
    """queued, working, skipped, or the feature's outcome."""
    hold: str | None
    until_us: int | None = field(name="until")
    code: str | None
    held_by: str | None
    """Dependency that was not delivered."""
    claim: tuple[str, ...]
    charged_nanousd: int
    reserved_nanousd: int


class RunStateShape(Shape, frozen=True, kw_only=True):
    """State of the run from which the engine decides."""

    status: str
    """running, paused, halted, stopped, idle or finished."""
    code: str | None
    pipeline: str | None
    base: str | None
    base_commit: str | None
    inbox_version: int
    """Number of processed messages of people."""
    committed_nanousd: int
    """Spent and reserved."""
    features: tuple[TrackShape, ...]


class StateAt(Shape, frozen=True, kw_only=True):
    """`mz log --at STREAM@VERSION --json`, with the schema mz.log-state/1: the state after that event."""

    repository: str
    event_ref: str
    recorded_at_us: int
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


STATE_NAMES: Mapping[type[State], str] = {
    NotStarted: "unborn",
    CreatingWorkspace: "opening",
    RunningSetup: "setting",
    BetweenPhases: "between",
    InPhase: "working",
    Restoring: "restoring",
    Held: "held",
    Waiting: "waiting",
}
"""Values of `state` in the JSON document."""


def state_at(events: Sequence[Recorded[Event]], newest_version: int, repository: str, load_text: TextLoader) -> StateAt:
    """Return the state after the last of `events`, the first ones of a stream whose current version is given."""
    last = events[-1]
    of_feature = last.stream.count("/") == 2
    return shape_of(
        StateAt,
        last,
        repository=repository,
        event=type_of(last.event),
        text=single_line(describe(last.event)),
        newest=newest_version,
        feature=feature_state(fold(events), events, load_text) if of_feature else None,
        run=None if of_feature else run_state(fold_run(events)),
    )


def feature_state(state: State, events: Iterable[Recorded[Event]], load_text: TextLoader) -> FeatureState:
    held, active = (state, state.suspended) if isinstance(state, Held) else (None, state)
    active, question = (state.suspended, state.question) if isinstance(state, Waiting) else (active, None)
    progress, in_phase = progress_of(state), active if isinstance(active, InPhase) else None
    unit_run = in_phase.unit_run if in_phase else None
    started = progress.started if progress else active.started if isinstance(active, CreatingWorkspace) else None
    return shape_of(
        FeatureState,
        progress,
        held,
        in_phase,
        unit_run,
        started,
        state=state.status.value if isinstance(state, Ended) else STATE_NAMES[type(state)],
        within=STATE_NAMES[type(active)] if active is not state else None,
        units=tuple(filter(None, in_phase.units)) if in_phase else (),
        units_done=tuple(filter(None, in_phase.finished_units)) if in_phase else (),
        done=progress.completed_phases if progress else (),
        rollbacks=progress.rollback_count if progress else 0,
        attempts=tuple(
            AttemptCounts(role=role, attempt=a.attempt, rejected=a.rejected, failures=sum(a.failures.values()))
            for role, a in (unit_run.attempts if unit_run else {}).items()
        ),
        checked=unit_run.check_results if unit_run else {},
        pending_outcome=_pending_intent(active, unit_run),
        code=state.code if isinstance(state, Held | Ended) else None,
        question=shape_of(OpenQuestion, question, detail=load_text(question.detail) or None) if question else None,
        artifacts=tuple(
            shape_of(ArtifactView, artifact)
            for name, artifact in (progress.artifacts if progress else {}).items()
            if "/" in name or not artifact.unit
        ),
        cost=totals(paid_calls(events)),
    )


def _pending_intent(active: State, unit_run: UnitRun | None) -> str | None:
    """Return the type of an intent without an outcome, which the engine reconciles before it continues."""
    last_event = unit_run.last_event if unit_run else getattr(active, "last_event", None)
    return type_of(last_event) if isinstance(last_event, Event) and last_event.KIND is EventKind.INTENT else None


def run_state(state: RunState) -> RunStateShape:
    flags = {"finished": state.finished, "halted": state.halt, "stopped": state.stop_requested,
             "paused": state.paused, "idle": state.idle}  # fmt: skip
    tracks = {**state.tracks, **dict.fromkeys(state.skipped)}
    return shape_of(
        RunStateShape,
        state,
        state.started,
        state.halt,
        status=next((status for status, is_set in flags.items() if is_set), "running"),
        features=tuple(_track(feature, track) for feature, track in tracks.items()),
    )


def _track(feature: str, track: FeatureTrack | None) -> TrackShape:
    """Return the feature as the run sees it; None: it was skipped."""
    outcome = track.stop if track else None
    idle_state = "skipped" if not track else "held" if track.held_by else outcome.status.value if outcome else "queued"
    return shape_of(
        TrackShape,
        outcome,
        track,
        id=feature,
        state="working" if track and track.active else idle_state,
        claim=(track.claim if track else None) or (),
        charged_nanousd=track.charged.nanousd if track else 0,
        reserved_nanousd=sum(amount.nanousd for amount in track.reservations.values()) if track else 0,
    )


Labelled = Callable[[str, str], tuple[str, str]]


def state_rows(state: StateAt, label: Labelled = lambda name, text: (name, text)) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the document; unknown and empty ones are left out. `label` formats those of nested
    objects."""
    document = plain_value(state)
    del document["repository"]
    body = document.pop("feature") or document.pop("run")
    for name, value in {**document, **body}.items():
        elements = value if isinstance(value, list | tuple) and value and isinstance(value[0], dict) else [value]
        yield from ((name, text) for element in elements if (text := _value_text(element, label)))


def _value_text(value: object, label: Labelled) -> str:
    if isinstance(value, dict):
        texts = ((key, _value_text(element, label)) for key, element in value.items())
        return ", ".join(" ".join(label(key, text)) for key, text in texts if text)
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if value is None else single_line(str(value))
