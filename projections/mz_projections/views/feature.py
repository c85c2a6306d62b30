"""Folds the stream of one feature into its view. Total over every event; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested, ForbiddenChange, ReplyParsed
from mz_events.catalog.delivery import (
    BranchesClosed,
    BranchLanded,
    ChecksPolled,
    CommitRequested,
    Committed,
    PullRequestOpened,
    Tagged,
)
from mz_events.catalog.feature import (
    Blocked,
    FeatureCancelled,
    FeatureDelivered,
    FeatureFailed,
    FeatureHeld,
    FeatureRetried,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseSkipped,
    PhaseStarted,
    RolledBack,
    UnitCompleted,
)
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    ConditionsChecked,
    GateChecked,
)
from mz_events.store import Recorded

from mz_projections.feature.calls import change_call, evolve_calls, last_builder_key, new_call
from mz_projections.feature.state import superseded_phases, track_phases
from mz_projections.feature.unit import RAISED
from mz_projections.views.model import (
    ENDED_STATUSES,
    ArtifactView,
    CallView,
    CommandView,
    CommitView,
    FeatureView,
    Landing,
    PhaseView,
    Rejection,
    TemplateFault,
    question_of,
    view_of,
)


def evolve_feature(view: FeatureView, recorded: Recorded[Event]) -> FeatureView:
    """Return the view after one more event of the feature's own stream."""
    event = recorded.event
    calls = evolve_calls(view.calls, view.current_phases, recorded)
    view = view if calls is view.calls else replace(view, calls=calls)
    match event:
        case AgentRequested():
            call = new_call(
                CallView, recorded, event, event_ref=recorded.event_ref, prompt=event.prompt, template=event.template,
                tree_before=event.tree,
            )  # fmt: skip
            return replace(view, calls=(*view.calls, call))
        case AgentReplied() | AgentFailed() | AgentLost() | ReplyParsed() | ChangesChecked() | ArtifactValidated():
            return _change_call(view, event.ref.key, lambda call: _apply_to_call(call, event))
        case Blocked() if event.check.startswith(RAISED):
            rejection = Rejection(gate=event.check, violations=(), report=None, note=event.note)
            key = last_builder_key(view.calls, event.phase, event.unit)
            return _change_call(view, key, lambda call: replace(call, rejections=(*call.rejections, rejection)))
        case GateChecked() | ArtifactParsed() | CommandRan() | CommitRequested() | Committed():
            return _apply_check_or_commit(view, event)
        case PhaseStarted() | UnitCompleted() | PhaseCompleted() | PhaseSkipped() | ConditionsChecked() | RolledBack():
            return _apply_phase_event(view, event, recorded.recorded_at_us)
        case PullRequestOpened():
            return replace(view, pull_request=event.url)
        case BranchLanded():
            return replace(view, landed=Landing(branch=event.branch, commit=event.commit))
        case Tagged():
            return replace(view, tags=tuple(dict.fromkeys((*view.tags, event.name))))
        case BranchesClosed():
            return replace(view, branch_closed=True)
        case ChecksPolled():
            return replace(view, checks=(event.passed, event.failed, event.pending) if event.commit_known else None)
    return _apply_lifecycle(view, event, recorded)


def _apply_lifecycle(view: FeatureView, event: Event, recorded: Recorded[Event]) -> FeatureView:
    """Apply start, holds, questions and endings."""
    now_us = recorded.recorded_at_us
    match event:
        case FeatureStarted():
            started_us = now_us if view.started_us is None else view.started_us
            view = replace(view, branch=event.branch, target=event.target, title=event.title)
            return replace(view, status="working", started_us=started_us)
        case HumanRequested():
            question = replace(question_of(event, recorded), gate=_rejecting_gate(view, event))
            return replace(view, status="waiting", question=question)
        case FeatureHeld():
            fault = (
                TemplateFault(template=event.template, line=event.line, detail=event.detail) if event.template else None
            )
            view = replace(view, status="held", hold=event.hold, until_us=event.until_us)
            return replace(view, code=event.code or "", template_error=fault)
        case HumanAnswered() | HoldReleased():
            return replace(_clear_hold(view), status="working", blocked_by="", code="")
        case FeatureRetried():
            view = _clear_hold(_supersede_phases(view, event, now_us))
            return replace(take_up(view, now_us), blocked_by="", code="", branch_closed=False)
        case FeatureDelivered():
            return replace(_clear_hold(view), status=event.ending, changed_paths=event.changed_paths, ended_us=now_us)
        case FeatureFailed():
            return replace(_clear_hold(view), status="failed", code=event.code, failure=event.detail, ended_us=now_us)
        case FeatureCancelled():
            return replace(_clear_hold(view), status="cancelled", ended_us=now_us)
    return view


def take_up(view: FeatureView, now_us: int) -> FeatureView:
    """Return the view at work again; a clock that an end had stopped leaves out the time since then."""
    paused_us = now_us - view.ended_us if view.ended_us is not None and view.status in ENDED_STATUSES else 0
    started_us = None if view.started_us is None else view.started_us + paused_us
    return replace(view, status="working", started_us=started_us, ended_us=None)


def _clear_hold(view: FeatureView) -> FeatureView:
    """Clear the fields that are only set while the feature waits or is held."""
    return replace(view, question=None, hold=None, until_us=None, template_error=None)


# calls ----------------------------------------------------------------------------------------------------------------
def _change_call(view: FeatureView, key: str | None, change: Callable[[CallView], CallView]) -> FeatureView:
    return replace(view, calls=change_call(view.calls, key, change))


def _apply_to_call(call: CallView, event: Event) -> CallView:
    """Return the call after one more event."""
    match event:
        case AgentReplied():
            return replace(
                call,
                exit=event.exit,
                duration_ms=event.duration_ms,
                salvaged=event.salvaged,
                stdout=event.stdout,
                stderr=event.stderr,
                forbidden_changes=_merge_forbidden_changes((), event.forbidden_changes),
                tree_after=event.tree,
            )
        case AgentFailed(problem=problem):
            return replace(
                call, problem=problem.code, detail=problem.detail, duration_ms=event.duration_ms, stdout=event.stdout,
                stderr=event.stderr, tree_after=event.tree,
            )  # fmt: skip
        case AgentLost():
            return replace(call, problem="lost", stdout=event.stdout)
        case ReplyParsed(problem=problem):
            parsed = replace(call, text=event.text, undecodable_lines=event.bad_lines)
            return parsed if problem is None else replace(parsed, problem=problem.code, detail=problem.detail)
        case ChangesChecked():
            paths = tuple(change.path for change in event.changes)
            return replace(
                call,
                tree_after=event.tree,
                changed_paths=paths,
                forbidden_changes=_merge_forbidden_changes(call.forbidden_changes, event.forbidden_changes),
            )
        case ArtifactValidated() if event.violations:
            rejection = Rejection(gate="", violations=event.violations, report=event.report)
            return replace(call, rejections=(*call.rejections, rejection))
    return call


def _merge_forbidden_changes(
    earlier: tuple[str, ...], forbidden_changes: tuple[ForbiddenChange, ...]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*earlier, *(f"{change.kind} {change.path}" for change in forbidden_changes))))


def _rejecting_gate(view: FeatureView, event: HumanRequested) -> str:
    """Return the gate that the question is about; empty if it is about something else."""
    key = last_builder_key(view.calls, event.phase, event.unit)
    rejections = next((call.rejections for call in view.calls if call.key == key), ())
    gate = rejections[-1].gate if rejections else ""
    return gate if gate and gate in (event.code, event.code.rpartition(".")[2]) else ""


# checks and commits ---------------------------------------------------------------------------------------------------
def _apply_check_or_commit(view: FeatureView, event: Event) -> FeatureView:
    match event:
        case GateChecked(passed=False):
            rejection = Rejection(gate=event.gate, violations=event.violations, report=event.report)
            key = last_builder_key(view.calls, event.phase, event.unit)
            return _change_call(view, key, lambda call: replace(call, rejections=(*call.rejections, rejection)))
        case ArtifactParsed():
            return _add_artifact(view, event)
        case CommandRan():
            return replace(view, commands=(*view.commands, _command_view(view, event)))
        case CommitRequested():
            return replace(view, pending_commit=(event.phase, event.unit, event.purpose))
        case Committed() if view.pending_commit is not None:
            phase, unit, purpose = view.pending_commit
            commit = view_of(CommitView, event, phase=phase, unit=unit, purpose=purpose)
            return replace(view, commits=(*view.commits, commit), pending_commit=None)
    return view


def _add_artifact(view: FeatureView, event: ArtifactParsed) -> FeatureView:
    """Add an artifact in place of an older one; it belongs to the last reply of that unit, of any role."""
    artifact = view_of(ArtifactView, event)
    others = tuple(a for a in view.artifacts if (a.artifact, a.unit) != (event.artifact, event.unit))
    view = replace(view, artifacts=(*others, artifact))
    call = next((c for c in reversed(view.calls) if (c.phase, c.unit) == (event.phase, event.unit)), None)
    if call is None or event.is_result:
        return view
    return _change_call(view, call.key, lambda c: replace(c, artifacts=(*c.artifacts, artifact)))


def _command_view(view: FeatureView, event: CommandRan) -> CommandView:
    current_phase = next((phase for phase in reversed(view.phases) if phase.phase == event.phase), None)
    iteration = current_phase.iteration if current_phase else 0
    key = last_builder_key(view.calls, event.phase, event.unit)
    call = next((call for call in view.calls if call.key == key), None)
    attempt = call.attempt if call and call.iteration == iteration else 0
    return view_of(CommandView, event, iteration=iteration, attempt=attempt)


# phases ---------------------------------------------------------------------------------------------------------------
def _apply_phase_event(view: FeatureView, event: Event, now_us: int) -> FeatureView:
    match event:
        case PhaseStarted():
            phase = PhaseView(
                phase=event.phase, iteration=event.iteration, started_us=now_us,
                units=tuple(unit for unit in event.units if unit),
            )  # fmt: skip
            current_phases, _ = track_phases(view.current_phases, event)
            return replace(view, status="working", phases=(*view.phases, phase), current_phases=current_phases)
        case UnitCompleted(unit=unit) if unit:
            return _change_phase(view, event.phase, lambda p: {"units_done": (*p.units_done, unit)})
        case PhaseCompleted():
            return _change_phase(view, event.phase, lambda _: {"state": "completed", "ended_us": now_us})
        case ConditionsChecked(of="phase", met=(), unit=""):
            return _change_phase(view, event.phase, lambda _: {"state": "skipped", "ended_us": now_us})
        case PhaseSkipped():
            return _change_phase(view, event.phase, lambda _: {"state": "skipped", "ended_us": now_us})
        case RolledBack():
            return replace(_supersede_phases(view, event, now_us), rollbacks=view.rollbacks + 1)
    return view


def _change_phase(view: FeatureView, name: str, changes: Any) -> FeatureView:
    """Change the last iteration of the phase that neither ended nor was superseded."""
    phases = list(view.phases)
    for index in range(len(phases) - 1, -1, -1):
        if phases[index].phase == name and phases[index].state == "started":
            phases[index] = replace(phases[index], **changes(phases[index]))
            break
    return replace(view, phases=tuple(phases))


def _supersede_phases(view: FeatureView, event: RolledBack | FeatureRetried, now_us: int) -> FeatureView:
    """Supersede the iterations since the target phase began, and drop artifacts of superseded phases: if only units of
    the target go back, it keeps its own."""
    ended = superseded_phases(view.current_phases, event.to)
    current_phases, superseded = track_phases(view.current_phases, event)
    phases = tuple(
        replace(phase, state="superseded", ended_us=phase.ended_us or now_us)
        if phase.phase in ended and phase.state != "superseded"
        else phase
        for phase in view.phases
    )
    artifacts = tuple(artifact for artifact in view.artifacts if artifact.phase not in superseded)
    return replace(view, phases=phases, current_phases=current_phases, artifacts=artifacts)
