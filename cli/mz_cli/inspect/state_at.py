"""`mz log --at`: the state after an event, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.feature import HumanRequested
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_projections.cost.totals import totals
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.fold import fold
from mz_projections.feature.state import (
    Active,
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

from mz_cli.common.advice import TextLoader
from mz_cli.common.json import (
    AttemptCounts,
    FeatureState,
    OpenQuestion,
    RunStateShape,
    StateAt,
    TrackShape,
)
from mz_cli.common.run_text import money_text
from mz_cli.cost.report import amounts
from mz_cli.terminal.json import shape_of
from mz_cli.terminal.text import count_noun, exact_usd, iso_time, single_line

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
    return StateAt(
        repository=repository, event_ref=last.event_ref, at=iso_time(last.recorded_at_us), event=type_of(last.event),
        text=single_line(describe(last.event)), newest=newest_version,
        feature=feature_state(fold(events), events, load_text) if of_feature else None,
        run=None if of_feature else run_state(fold_run(events)),
    )  # fmt: skip


def feature_state(state: State, events: Iterable[Recorded[Event]], load_text: TextLoader) -> FeatureState:
    active_state = state.suspended if isinstance(state, Held | Waiting) else state
    feature_progress, in_phase = progress_of(state), active_state if isinstance(active_state, InPhase) else None
    unit_run = in_phase.unit_run if in_phase else None
    started = (
        feature_progress.started
        if feature_progress
        else active_state.started
        if isinstance(active_state, CreatingWorkspace)
        else None
    )
    return FeatureState(
        state=state.status.value if isinstance(state, Ended) else STATE_NAMES[type(state)],
        within=STATE_NAMES[type(active_state)] if active_state is not state else None,
        phase=in_phase.phase if in_phase else None,
        unit=(unit_run.unit if unit_run else "") or None,
        iteration=unit_run.iteration if unit_run else None,
        units=tuple(unit for unit in in_phase.units if unit) if in_phase else (),
        units_done=tuple(unit for unit in in_phase.finished_units if unit) if in_phase else (),
        done=feature_progress.completed_phases if feature_progress else (),
        rollbacks=feature_progress.rollback_count if feature_progress else 0,
        attempts=_attempt_shapes(unit_run),
        checked=unit_run.check_results if unit_run else {},
        pending_outcome=_pending_intent(active_state),
        hold=state.hold.value if isinstance(state, Held) else None,
        until=iso_time(state.until_us) if isinstance(state, Held) else None,
        code=state.code if isinstance(state, Held | Ended) else None,
        question=_question(state.question, load_text) if isinstance(state, Waiting) else None,
        branch=started.branch if started else None,
        target=started.target if started else None,
        base=feature_progress.base if feature_progress else None,
        head=feature_progress.head if feature_progress else None,
        artifacts=tuple(
            shape_of(ArtifactView, a)
            for name, a in (feature_progress.artifacts if feature_progress else {}).items()
            if "/" in name or not a.unit
        ),
        cost=amounts(totals(paid_calls(events))),
    )


def _attempt_shapes(unit_run: UnitRun | None) -> tuple[AttemptCounts, ...]:
    return tuple(
        AttemptCounts(
            role=role,
            attempt=attempts.attempt,
            refused=attempts.rejected,
            failures=sum(attempts.failures.values()),
        )
        for role, attempts in (unit_run.attempts if unit_run else {}).items()
    )


def _pending_intent(active_state: Active | NotStarted | Ended) -> str | None:
    """Return the type of an intent without an outcome, which the engine reconciles before it continues."""
    last_event: object = (
        active_state.last_event if isinstance(active_state, CreatingWorkspace | RunningSetup | Restoring) else None
    )
    if isinstance(active_state, InPhase) and active_state.unit_run:
        last_event = active_state.unit_run.last_event
    return type_of(last_event) if isinstance(last_event, Event) and last_event.KIND is EventKind.INTENT else None


def _question(request: HumanRequested, load_text: TextLoader) -> OpenQuestion:
    return shape_of(OpenQuestion, request, detail=load_text(request.detail) or None)


# the run --------------------------------------------------------------------------------------------------------------
def run_state(state: RunState) -> RunStateShape:
    started = state.started
    return RunStateShape(
        status=_status(state), code=state.halt.code if state.halt else None,
        pipeline=started.pipeline if started else None, base=started.base if started else None,
        base_commit=started.base_commit if started else None, inbox=state.inbox_version,
        committed_usd=_usd(state.committed_nanousd),
        features=(
            *(_track(feature, track) for feature, track in state.tracks.items()),
            *(_skipped(feature) for feature in state.skipped),
        ),
    )  # fmt: skip


def _status(state: RunState) -> str:
    if state.finished:
        return "finished"
    if state.halt is not None:
        return "halted"
    if state.stop_requested:
        return "stopped"
    return "paused" if state.paused else "idle" if state.idle else "running"


def _track(feature: str, track: FeatureTrack) -> TrackShape:
    outcome = None if track.active else track.last_stop
    idle_state = "held" if track.held_by else outcome.status.value if outcome else "queued"
    return TrackShape(
        id=feature, state="working" if track.active else idle_state,
        hold=outcome.hold.value if outcome and outcome.hold else None,
        until=iso_time(outcome.until_us) if outcome else None, code=outcome.code if outcome else None,
        held_by=track.held_by, claim=track.claim or (), spent_usd=_usd(track.charged_nanousd),
        reserved_usd=_usd(sum(track.reservations.values())),
    )  # fmt: skip


def _skipped(feature: str) -> TrackShape:
    return TrackShape(
        id=feature, state="skipped", hold=None, until=None, code=None, held_by=None, claim=(), spent_usd=_usd(0),
        reserved_usd=_usd(0),
    )  # fmt: skip


def _usd(nanousd: int) -> str:
    return exact_usd(nanousd) or ""


# for people -----------------------------------------------------------------------------------------------------------
def state_rows(state: StateAt, exact: bool = False) -> tuple[tuple[str, str], ...]:
    """Return names and values; unknown and empty ones are left out. `exact`: for a pipe, with exact money."""
    head = [("event ref", state.event_ref), ("at", state.at or ""), ("event", f"{state.event}: {state.text}")]
    if state.event_ref != _newest(state):
        head.append(("since then", f"the stream has continued to {_newest(state)}"))
    body = _feature_rows(state.feature, exact) if state.feature else _run_rows(state.run) if state.run else ()
    return tuple((name, value) for name, value in (*head, *body) if value)


def _newest(state: StateAt) -> str:
    return f"{state.event_ref.rpartition('@')[0]}@{state.newest}"


def _feature_rows(state: FeatureState, exact: bool) -> Iterator[tuple[str, str]]:
    cause = state.hold or (state.question.question_kind if state.question else "") or state.code or ""
    yield "state", state.state + (f" ({cause})" if cause else "")
    yield "within", state.within or ""
    yield "until", state.until or ""
    if state.question:
        yield "asks", single_line(state.question.detail or state.question.code or "")
    again = f", iteration {state.iteration}" if (state.iteration or 1) > 1 else ""
    yield "phase", f"{state.phase}{f'/{state.unit}' if state.unit else ''}{again}" if state.phase else ""
    yield "units done", f"{' '.join(state.units_done)} of {' '.join(state.units)}" if state.units else ""
    for attempts in state.attempts:
        yield attempts.role, f"attempt {attempts.attempt}, {attempts.refused} rejected, {attempts.failures} failed"
    for gate, passed in state.checked.items():
        yield f"gate {gate}", "passed" if passed else "rejected"
    yield "pending", f"outcome of {state.pending_outcome}" if state.pending_outcome else ""
    yield "phases done", " ".join(state.done)
    yield "rollbacks", str(state.rollbacks or "")
    yield "branch", f"{state.branch} for {state.target}" if state.branch else ""
    yield "head", state.head or ""
    for artifact in state.artifacts:
        name = f"{artifact.artifact}/{artifact.unit}" if artifact.unit else artifact.artifact
        yield f"artifact {name}", f"{artifact.path or 'the reply'} of {artifact.phase}, sha256 {artifact.digest}"
    cost = state.cost
    if cost.calls:
        amounts = money_text(cost.estimated_usd, cost.reported_usd, cost.computed_usd, exact)
        yield "cost", f"{count_noun(cost.calls, 'call')}: {amounts}"


def _run_rows(state: RunStateShape) -> Iterator[tuple[str, str]]:
    yield "state", state.status + (f" ({state.code})" if state.code else "")
    yield "pipeline", f"{state.pipeline} on {state.base} at {state.base_commit}" if state.pipeline else ""
    yield "committed", f"${state.committed_usd} charged or reserved"
    yield "messages read", str(state.inbox or "")
    for track in state.features:
        cause = track.hold or track.code or (f"by {track.held_by}" if track.held_by else "")
        claim = f", claims {' '.join(track.claim)}" if track.claim else ""
        money = f"${track.spent_usd} charged, ${track.reserved_usd} reserved"
        yield f"feature {track.id}", f"{track.state}{f' ({cause})' if cause else ''}, {money}{claim}"
