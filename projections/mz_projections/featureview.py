"""Pure: folds the stream of one feature into what people are shown of it. Total over every event; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallHeld,
    CallPriced,
    CallRef,
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

UNHELD: Mapping[str, None] = {"waiting": None, "hold": None, "until_us": None, "broken": None}
"""What is said of a feature only while it waits or is held."""


def evolve_feature(view: FeatureView, recorded: Recorded[Event]) -> FeatureView:
    """What is shown after one more event of the feature's own stream."""
    event = recorded.event
    match event:
        case AgentRequested():
            return replace(view, calls=(*view.calls, _asked(event, recorded)))
        case AgentReplied() | AgentFailed() | AgentLost() | ReplyRead() | ChangesChecked() | ArtifactValidated():
            return _with_call(view, event.ref, event)
        case CallPriced(key=key):
            return _with_key(view, key, computed_nanousd=event.computed_nanousd, unpriced=event.unpriced, priced=True)
        case CallSettled(key=key, nanousd=0):
            refused = any(call.key == key and call.took_nothing for call in view.calls)
            return _with_key(view, key, computed_nanousd=0) if refused else view
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
    """Beginning, rests and their ends."""
    ended: dict[str, Any] = {"ended_us": recorded.recorded_at_us, **UNHELD}
    match event:
        case FeatureStarted():
            begun = view.started_us if view.started_us is not None else recorded.recorded_at_us
            return replace(
                view, status="working", branch=event.branch, target=event.target, title=event.title, started_us=begun
            )
        case HumanRequested():
            waiting = Waiting(
                ask=event.ask, code=event.code, phase=event.phase, unit=event.unit, detail=event.detail,
                since_us=recorded.recorded_at_us, place=recorded.place,
            )  # fmt: skip
            return replace(view, status="waiting", waiting=waiting)
        case FeatureHeld():
            broken = Broken(template=event.template, line=event.line, detail=event.detail) if event.template else None
            return replace(
                view, status="held", hold=event.hold, until_us=event.until_us, code=event.code or "", broken=broken
            )
        case CallHeld():
            return view
        case HumanAnswered() | HoldReleased():
            return replace(view, status="working", because="", code="", **UNHELD)
        case FeatureRetried(to=to):
            again = _superseded(view, to, recorded.recorded_at_us) if to else view
            return replace(again, status="working", because="", code="", ended_us=None, **UNHELD)
        case FeatureDelivered():
            return replace(view, status=event.terminal, touched=event.touched, **ended)
        case FeatureFailed():
            return replace(view, status="failed", code=event.code, **ended)
        case FeatureCancelled():
            return replace(view, status="cancelled", **ended)
    return view


# calls ----------------------------------------------------------------------------------------------------------------
def _asked(event: AgentRequested, recorded: Recorded[Event]) -> CallView:
    ref = event.ref
    return CallView(
        key=ref.key, place=recorded.place, phase=ref.phase, unit=ref.unit, iteration=ref.iteration,
        attempt=ref.attempt, role=ref.role, agent=event.agent, model=event.model, prompt=event.prompt,
        asked_us=recorded.recorded_at_us, copied=recorded.copied, before=event.tree,
        estimated_nanousd=event.estimated_nanousd,
    )  # fmt: skip


def _with_key(view: FeatureView, key: str, **changes: Any) -> FeatureView:
    calls = tuple(replace(call, **changes) if call.key == key else call for call in view.calls)
    return replace(view, calls=calls)


def _with_call(view: FeatureView, ref: CallRef, event: Event) -> FeatureView:
    before = next((call for call in reversed(view.calls) if call.key == ref.key), None)
    return view if before is None else _with_key(view, ref.key, **_learned(before, event))


def _learned(before: CallView, event: Event) -> dict[str, Any]:
    """What one more event says of a call."""
    match event:
        case AgentReplied():
            return {
                "outcome": "replied", "exit": event.exit, "duration_ms": event.duration_ms,
                "salvaged": event.salvaged, "stdout": event.stdout, "stderr": event.stderr,
                "offences": _offences((), event.offences), "after": event.tree,
            }  # fmt: skip
        case AgentFailed(problem=problem):
            return {
                "outcome": "failed", "problem": problem.code, "detail": problem.detail,
                "duration_ms": event.duration_ms, "stdout": event.stdout, "stderr": event.stderr, "after": event.tree,
            }  # fmt: skip
        case AgentLost():
            return {"outcome": "lost", "problem": "lost", "stdout": event.stdout}
        case ReplyRead(problem=problem):
            read = {
                "usage": event.usage, "reported_nanousd": event.reported_nanousd, "text": event.text,
                "bad_lines": event.bad_lines,
            }  # fmt: skip
            return read if problem is None else {**read, "problem": problem.code, "detail": problem.detail}
        case ChangesChecked():
            return {
                "after": event.tree,
                "changed": tuple(change.path for change in event.changes),
                "offences": _offences(before.offences, event.offences),
            }
        case ArtifactValidated(violations=()):
            return {"validated": True}
        case ArtifactValidated():
            refusal = Refusal(gate="", violations=event.violations, report=event.report)
            return {"validated": True, "refusals": (*before.refusals, refusal)}
    return {}


def _offences(known: tuple[str, ...], found: tuple[Offence, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *(f"{offence.kind} {offence.path}" for offence in found))))


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
    """The newest of its name and unit; it came with the last reply of that cell, whosever that was."""
    artifact = ArtifactView(
        artifact=event.artifact, phase=event.phase, unit=event.unit, path=event.path, digest=event.digest
    )
    others = tuple(a for a in view.artifacts if (a.artifact, a.unit) != (event.artifact, event.unit))
    view = replace(view, artifacts=(*others, artifact))
    call = next((c for c in reversed(view.calls) if (c.phase, c.unit) == (event.phase, event.unit)), None)
    return view if call is None else _with_key(view, call.key, artifacts=(*call.artifacts, artifact))


def _built(view: FeatureView, phase: str, unit: str) -> CallView | None:
    """The last call of the phase's own agent in that unit."""
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
    """A gate judges the last reply of the phase's own agent in that unit."""
    judged = _built(view, event.phase, event.unit)
    if judged is None:
        return view
    refusal = Refusal(gate=event.gate, violations=event.violations, report=event.report)
    return _with_key(view, judged.key, refusals=(*judged.refusals, refusal))


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
    """The last iteration of the phase, changed; nothing where it is not in that state."""
    phases = list(view.phases)
    for index in range(len(phases) - 1, -1, -1):
        if phases[index].phase == name and phases[index].state == state:
            phases[index] = replace(phases[index], **changes(phases[index]))
            break
    return replace(view, phases=tuple(phases))


def _rolled_back(view: FeatureView, event: RolledBack, now_us: int) -> FeatureView:
    return replace(_superseded(view, event.to, now_us, event.units), rollbacks=view.rollbacks + 1)


def _superseded(view: FeatureView, to: str, now_us: int, units: tuple[str, ...] = ()) -> FeatureView:
    """All that stood since the phase `to` began is superseded, and the artifacts of later phases go; with units, the
    phase's own artifacts stay."""
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
