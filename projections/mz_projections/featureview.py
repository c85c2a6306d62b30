"""Folds the stream of one feature into its view. Total over every event; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallSettled,
    Offence,
    ReplyRead,
)
from mz_events.catalog.check import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked
from mz_events.catalog.delivery import ChecksSeen, CommitRequested, Committed, PullRequestOpened
from mz_events.catalog.feature import (
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
    PhaseStarted,
    RolledBack,
    UnitCompleted,
)
from mz_events.envelope import Recorded

from mz_projections.views import (
    BUILDER,
    ArtifactView,
    Broken,
    CallView,
    CommandView,
    CommitView,
    FeatureView,
    PhaseView,
    Refusal,
    Waiting,
)


def evolve_feature(view: FeatureView, recorded: Recorded[Event]) -> FeatureView:
    """Return the view after one more event of the feature's own stream."""
    event = recorded.event
    match event:
        case AgentRequested():
            return replace(view, calls=(*view.calls, _asked(event, recorded)))
        case AgentReplied() | AgentFailed() | AgentLost() | ReplyRead() | ChangesChecked() | ArtifactValidated():
            return _with_call(view, event.ref.key, lambda call: _learned(call, event))
        case CallPriced(key=key):
            computed_nanousd, unpriced = event.computed_nanousd, event.unpriced
            return _with_call(
                view, key, lambda call: replace(call, computed_nanousd=computed_nanousd, unpriced=unpriced, priced=True)
            )
        case CallSettled(key=key, nanousd=0):
            return _with_call(view, key, lambda call: replace(call, computed_nanousd=0) if call.took_nothing else call)
        case GateChecked() | ArtifactParsed() | CommandRan() | CommitRequested() | Committed():
            return _checked(view, event)
        case PhaseStarted() | UnitCompleted() | PhaseCompleted() | RolledBack():
            return _moved(view, event, recorded.recorded_at_us)
        case PullRequestOpened():
            return replace(view, pull_request=event.url)
        case ChecksSeen():
            return replace(view, checks=(event.green, event.red, event.pending) if event.known else None)
    return _rested(view, event, recorded)


def _rested(view: FeatureView, event: Event, recorded: Recorded[Event]) -> FeatureView:
    """Apply start, holds, questions and endings."""
    now_us = recorded.recorded_at_us
    match event:
        case FeatureStarted():
            started_us = view.started_us if view.started_us is not None else now_us
            return replace(
                view,
                status="working",
                branch=event.branch,
                target=event.target,
                title=event.title,
                started_us=started_us,
            )
        case HumanRequested():
            waiting = Waiting(
                ask=event.ask, code=event.code, phase=event.phase, unit=event.unit, detail=event.detail,
                since_us=now_us, place=recorded.place,
            )  # fmt: skip
            return replace(view, status="waiting", waiting=waiting)
        case FeatureHeld():
            broken = Broken(template=event.template, line=event.line, detail=event.detail) if event.template else None
            return replace(
                view, status="held", hold=event.hold, until_us=event.until_us, code=event.code or "", broken=broken
            )
        case HumanAnswered() | HoldReleased():
            return replace(_unheld(view), status="working", because="", code="")
        case FeatureRetried(to=to):
            retried = _superseded(view, to, now_us) if to else view
            return replace(_unheld(retried), status="working", because="", code="", ended_us=None)
        case FeatureDelivered():
            return replace(_unheld(view), status=event.terminal, touched=event.touched, ended_us=now_us)
        case FeatureFailed():
            return replace(_unheld(view), status="failed", code=event.code, ended_us=now_us)
        case FeatureCancelled():
            return replace(_unheld(view), status="cancelled", ended_us=now_us)
    return view


def _unheld(view: FeatureView) -> FeatureView:
    """Clear the fields that are only set while the feature waits or is held."""
    return replace(view, waiting=None, hold=None, until_us=None, broken=None)


# calls ----------------------------------------------------------------------------------------------------------------
def _asked(event: AgentRequested, recorded: Recorded[Event]) -> CallView:
    ref = event.ref
    return CallView(
        key=ref.key, place=recorded.place, phase=ref.phase, unit=ref.unit, iteration=ref.iteration,
        attempt=ref.attempt, role=ref.role, agent=event.agent, model=event.model, prompt=event.prompt,
        asked_us=recorded.recorded_at_us, copied=recorded.copied, before=event.tree,
        estimated_nanousd=event.estimated_nanousd,
    )  # fmt: skip


def _with_call(view: FeatureView, key: str, change: Callable[[CallView], CallView]) -> FeatureView:
    return replace(view, calls=tuple(change(call) if call.key == key else call for call in view.calls))


def _learned(call: CallView, event: Event) -> CallView:
    """Return the call after one more event."""
    match event:
        case AgentReplied():
            return replace(
                call, outcome="replied", exit=event.exit, duration_ms=event.duration_ms, salvaged=event.salvaged,
                stdout=event.stdout, stderr=event.stderr, offences=_offences((), event.offences), after=event.tree,
            )  # fmt: skip
        case AgentFailed(problem=problem):
            return replace(
                call, outcome="failed", problem=problem.code, detail=problem.detail, duration_ms=event.duration_ms,
                stdout=event.stdout, stderr=event.stderr, after=event.tree,
            )  # fmt: skip
        case AgentLost():
            return replace(call, outcome="lost", problem="lost", stdout=event.stdout)
        case ReplyRead(problem=problem):
            parsed = replace(
                call, usage=event.usage, reported_nanousd=event.reported_nanousd, text=event.text,
                bad_lines=event.bad_lines,
            )  # fmt: skip
            return parsed if problem is None else replace(parsed, problem=problem.code, detail=problem.detail)
        case ChangesChecked():
            paths = tuple(change.path for change in event.changes)
            return replace(call, after=event.tree, changed=paths, offences=_offences(call.offences, event.offences))
        case ArtifactValidated(violations=()):
            return replace(call, validated=True)
        case ArtifactValidated():
            refusal = Refusal(gate="", violations=event.violations, report=event.report)
            return replace(call, validated=True, refusals=(*call.refusals, refusal))
    return call


def _offences(earlier: tuple[str, ...], offences: tuple[Offence, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*earlier, *(f"{offence.kind} {offence.path}" for offence in offences))))


# checks and commits ---------------------------------------------------------------------------------------------------
def _checked(view: FeatureView, event: Event) -> FeatureView:
    match event:
        case GateChecked(passed=False):
            return _gate_refused(view, event)
        case ArtifactParsed():
            return _handed_over(view, event)
        case CommandRan():
            return replace(view, commands=(*view.commands, _ran(view, event)))
        case CommitRequested():
            return replace(view, committing=(event.phase, event.unit, event.purpose))
        case Committed() if view.committing is not None:
            phase, unit, purpose = view.committing
            commit = CommitView(
                phase=phase, unit=unit, purpose=purpose, commit=event.commit, files=event.files,
                insertions=event.insertions, deletions=event.deletions,
            )  # fmt: skip
            return replace(view, commits=(*view.commits, commit), committing=None)
    return view


def _handed_over(view: FeatureView, event: ArtifactParsed) -> FeatureView:
    """Add an artifact in place of an older one; it belongs to the last reply of that unit, of any role."""
    artifact = ArtifactView(
        artifact=event.artifact, phase=event.phase, unit=event.unit, path=event.path, digest=event.digest
    )
    others = tuple(a for a in view.artifacts if (a.artifact, a.unit) != (event.artifact, event.unit))
    view = replace(view, artifacts=(*others, artifact))
    call = next((c for c in reversed(view.calls) if (c.phase, c.unit) == (event.phase, event.unit)), None)
    return (
        view if call is None else _with_call(view, call.key, lambda c: replace(c, artifacts=(*c.artifacts, artifact)))
    )


def _built(view: FeatureView, phase: str, unit: str) -> CallView | None:
    """Return the last builder call in that unit."""
    return next((c for c in reversed(view.calls) if (c.phase, c.unit, c.role) == (phase, unit, BUILDER)), None)


def _ran(view: FeatureView, event: CommandRan) -> CommandView:
    current = next((phase for phase in reversed(view.phases) if phase.phase == event.phase), None)
    iteration = current.iteration if current else 0
    built = _built(view, event.phase, event.unit)
    return CommandView(
        stage=event.stage, phase=event.phase, unit=event.unit, name=event.name, exit=event.exit, passed=event.passed,
        failed=event.failed, output=event.output, excerpt=event.excerpt, duration_ms=event.duration_ms,
        iteration=iteration, attempt=built.attempt if built and built.iteration == iteration else 0,
    )  # fmt: skip


def _gate_refused(view: FeatureView, event: GateChecked) -> FeatureView:
    """Add a gate's rejection to the last builder call in that unit."""
    judged = _built(view, event.phase, event.unit)
    if judged is None:
        return view
    refusal = Refusal(gate=event.gate, violations=event.violations, report=event.report)
    return _with_call(view, judged.key, lambda call: replace(call, refusals=(*call.refusals, refusal)))


# phases ---------------------------------------------------------------------------------------------------------------
def _moved(view: FeatureView, event: Event, now_us: int) -> FeatureView:
    match event:
        case PhaseStarted():
            phase = PhaseView(
                phase=event.phase, iteration=event.iteration, started_us=now_us,
                units=tuple(unit for unit in event.units if unit),
            )  # fmt: skip
            return replace(view, status="working", phases=(*view.phases, phase))
        case UnitCompleted(unit=unit) if unit:
            return _with_phase(view, event.phase, "started", lambda p: {"units_done": (*p.units_done, unit)})
        case PhaseCompleted():
            return _with_phase(view, event.phase, "started", lambda _: {"state": "completed", "ended_us": now_us})
        case RolledBack():
            return _rolled_back(view, event, now_us)
    return view


def _with_phase(view: FeatureView, name: str, state: str, changes: Any) -> FeatureView:
    """Change the last iteration of the phase if it is in that state."""
    phases = list(view.phases)
    for index in range(len(phases) - 1, -1, -1):
        if phases[index].phase == name and phases[index].state == state:
            phases[index] = replace(phases[index], **changes(phases[index]))
            break
    return replace(view, phases=tuple(phases))


def _rolled_back(view: FeatureView, event: RolledBack, now_us: int) -> FeatureView:
    return replace(_superseded(view, event.to, now_us, event.units), rollbacks=view.rollbacks + 1)


def _superseded(view: FeatureView, to: str, now_us: int, units: tuple[str, ...] = ()) -> FeatureView:
    """Supersede the iterations since phase `to` began, and drop artifacts of later phases; with units, keep its own
    artifacts."""
    since = next((i for i, p in enumerate(view.phases) if p.phase == to and p.state != "superseded"), None)
    if since is None:
        return view
    phases = tuple(
        replace(phase, state="superseded", ended_us=phase.ended_us or now_us)
        if index >= since and phase.state != "superseded"
        else phase
        for index, phase in enumerate(view.phases)
    )
    gone = {phase.phase for phase in view.phases[since:]} - ({to} if units else set())
    artifacts = tuple(artifact for artifact in view.artifacts if artifact.phase not in gone)
    return replace(view, phases=phases, artifacts=artifacts)
