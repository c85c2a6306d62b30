"""The next action for one feature. `decide_feature` covers every state and reads only its arguments.

Inside a phase the newest event of the unit run decides: `decide_unit`, read from top to bottom, is the whole phase.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import assert_never

from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallOverBudget,
    ReplyParsed,
)
from mz_events.catalog.delivery import (
    BaseMerged,
    ChecksPolled,
    ChecksRerun,
    CommitRequested,
    Committed,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import Blocked, HoldReleased, HumanAnswered, QuestionKind, WorkspaceConflicted
from mz_events.catalog.run import Hold, Verdict
from mz_events.catalog.validation import ArtifactValidated, ChangesChecked, CommandRan, GateChecked, Unit
from mz_events.names import BUILDER
from mz_projections.feature.state import (
    Attempts,
    BetweenPhases,
    CreatingWorkspace,
    Ended,
    FeatureProgress,
    Held,
    InPhase,
    NotStarted,
    Restoring,
    RunningSetup,
    State,
    UnitRun,
    Waiting,
)

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.decide.delivery import decide_delivery
from mz_engine.decide.recovery import after_answer, after_block, after_problem, after_rejection, next_agent_call
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Gate, PersonGate, Phase

NO_CAUSE = "none"
"""The cause in a reviewer's verdict that accepts the work."""


def decide_feature(state: State, pins: Pins) -> Action | None:
    """Return the next action; None when the feature has not started, is held, waits for a person, or has ended."""
    match state:
        case InPhase(unit_run=unit_run):
            phase = pins.pipeline.find_phase(state.phase)
            return _start_next_unit(state, phase) if unit_run is None else decide_unit(state, unit_run, phase, pins)
        case NotStarted() | Held() | Waiting() | Ended():
            return None
        case CreatingWorkspace():
            return _create_workspace(state)
        case RunningSetup():
            return _run_setup(state, pins)
        case BetweenPhases(progress=progress):
            return _start_next_phase(progress, pins)
        case Restoring(last_event=CommitRequested() as intent):
            return act.ReconcileIntent(intent=intent)
        case Restoring(last_event=last):
            return act.RestoreTree(committed=isinstance(last, Committed))
        case _:
            assert_never(state)


def _create_workspace(state: CreatingWorkspace) -> Action:
    match state.last_event:
        case WorkspaceConflicted():
            return act.AskPerson(question_kind=QuestionKind.CONFLICT, code="dependencies-conflict")
        case HumanAnswered(verdict=Verdict.REJECT):
            return act.FailFeature(code="rejected")
        case HumanAnswered() | None:
            return act.CreateWorkspace(started=state.started)
        case _:
            assert_never(state.last_event)


def _run_setup(state: RunningSetup, pins: Pins) -> Action:
    if state.last_event is not None and state.last_event.verdict is Verdict.REJECT:
        return act.FailFeature(code="rejected")
    if any(ran.exit != 0 for ran in state.command_runs):
        return act.AskPerson(
            question_kind=QuestionKind.UNROUTED, code="setup-failed", text=state.command_runs[-1].excerpt
        )
    commands = pins.config.workspace.setup
    if len(state.command_runs) < len(commands):
        return act.RunSetup(command=commands[len(state.command_runs)])
    return _start_next_phase(state.progress, pins)


def _start_next_phase(progress: FeatureProgress, pins: Pins) -> Action:
    for phase in pins.pipeline.phases:
        if phase.phase not in progress.completed_phases:
            return act.StartPhase(
                phase=phase.phase, iteration=iteration(progress, phase.phase, ""), units=units_of(progress, phase)
            )
    return act.FinishFeature(base=progress.base)


def iteration(progress: FeatureProgress, phase: str, unit: str) -> int:
    """Return 1 + the number of rollbacks that superseded this phase and unit."""
    of_unit = progress.superseded_counts.get(f"{phase}/{unit}", 0) if unit else 0
    return 1 + progress.superseded_counts.get(phase, 0) + of_unit


def units_of(progress: FeatureProgress, phase: Phase) -> tuple[str, ...]:
    """Return the phase's units in the order of work; one empty name when it has none, or none are listed yet."""
    if phase.for_each is None:
        return ("",)
    listed = progress.artifacts.get(phase.for_each.artifact)
    if listed is None:
        return ("",)
    units = listed.units
    return dependency_order(units) if phase.for_each.order == "depends_on" else tuple(unit.id for unit in units)


def dependency_order(units: tuple[Unit, ...]) -> tuple[str, ...]:
    """Return unit ids with dependencies first, otherwise as listed.

    A cycle, which the artifact's rules reject, keeps the listed order.
    """
    ids = {unit.id for unit in units}
    graph = {unit.id: [other for other in unit.depends_on if other in ids] for unit in units}
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError:
        return tuple(graph)


def _start_next_unit(state: InPhase, phase: Phase) -> Action:
    if phase.claim is not None and not state.claimed:
        if state.claim_rejected:
            return act.HoldFeature(hold=Hold.CLAIM)
        listed = state.progress.artifacts.get(phase.claim.artifact)
        return act.ClaimFiles(phase=phase.phase, paths=listed.files if listed else ())
    for unit in state.units:
        if unit not in state.finished_units:
            return act.StartUnit(phase=phase.phase, unit=unit, iteration=iteration(state.progress, phase.phase, unit))
    return act.CompletePhase(phase=phase.phase)


def decide_unit(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    match unit_run.last_event:
        case None:
            return _missing_input(state, unit_run, phase) or _prepare_or_call(state, unit_run, phase, pins)
        case CommandRan():
            return _failed_baseline(unit_run, phase) or _prepare_or_call(state, unit_run, phase, pins)
        case AgentRequested() | CommitRequested() | PushRequested() | PullRequestRequested() as intent:
            return act.ReconcileIntent(intent=intent)
        case AgentReplied() | AgentFailed() | AgentLost() as outcome:
            return act.ParseReply(outcome=outcome)
        case CallOverBudget():
            return act.HoldFeature(hold=Hold.BUDGET)
        case ReplyParsed() if unit_run.refs_moved:
            return act.AskPerson(question_kind=QuestionKind.REPOSITORY, code="ref-moved")
        case ReplyParsed(problem=problem):
            return (
                act.CheckChanges() if problem is None else after_problem(state, unit_run, phase, problem, pins.config)
            )
        case ChangesChecked():
            return _ask_about_secret(unit_run) or act.ValidateOutputs()
        case GateChecked() | HoldReleased() if unit_run.commit is not None:
            return decide_delivery(unit_run, phase, pins)
        case ArtifactValidated(violations=()) | GateChecked(passed=True):
            return _check_gates(state, unit_run, phase, pins)
        case ArtifactValidated(violations=violations):
            return after_rejection(
                unit_run,
                phase,
                act.AskPerson(question_kind=QuestionKind.EXHAUSTED, code=violations[0].rule, reports=unit_run.reports),
            )
        case GateChecked():
            return _check_gates(state, unit_run, phase, pins)
        case HoldReleased() | AgentSwitched():
            return next_agent_call(unit_run)
        case HumanAnswered(verdict=verdict) as answer:
            if unit_run.commit is not None and verdict is not Verdict.REJECT:
                return decide_delivery(unit_run, phase, pins)
            return after_answer(unit_run, answer)
        case Blocked() as block:
            return after_block(state, unit_run, phase, block, pins.pipeline)
        case (
            Committed()
            | BaseMerged()
            | Pushed()
            | PullRequestOpened()
            | ChecksPolled()
            | ChecksRerun()
            | DeliveryFailed()
        ):
            return decide_delivery(unit_run, phase, pins)
        case _:
            assert_never(unit_run.last_event)


def _missing_input(state: InPhase, unit_run: UnitRun, phase: Phase) -> Action | None:
    for phase_input in phase.inputs:
        name = phase_input.artifact
        if name not in state.progress.artifacts and f"inputs.{name}" not in unit_run.approved_questions:
            return act.BlockPhase(cause="inputs", check=name)
    return None


def _is_last_unit(state: InPhase) -> bool:
    return len(state.finished_units) + 1 >= len(state.units)


def _is_configured(command: str, pins: Pins) -> bool:
    """Return True if `mz.yaml` names the command; others are skipped, so that built-in pipelines need no linter."""
    return command in pins.config.commands


def _prepare_or_call(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    done = {ran.name for ran in unit_run.preparation_runs}
    for preparation in phase.prepare:
        is_due = preparation.per == "unit" or state.finished_units == state.kept_units
        if is_due and preparation.run not in done and _is_configured(preparation.run, pins):
            return act.RunPreparation(command=preparation.run)
    if phase.agent is None:
        return _check_gates(state, unit_run, phase, pins)
    return act.CallAgent(role=BUILDER, attempt=1)


def _failed_baseline(unit_run: UnitRun, phase: Phase) -> Action | None:
    must_pass = {preparation.run for preparation in phase.prepare if preparation.must_pass}
    for ran in unit_run.preparation_runs:
        if ran.name in must_pass and ran.exit != 0 and f"baseline.{ran.name}" not in unit_run.approved_questions:
            return act.BlockPhase(cause="baseline", check=ran.name, text=ran.excerpt)
    return None


def _ask_about_secret(unit_run: UnitRun) -> Action | None:
    forbidden_changes = unit_run.last_event.forbidden_changes if isinstance(unit_run.last_event, ChangesChecked) else ()
    secrets = [offence for offence in forbidden_changes if offence.kind == "secret"]
    return act.AskPerson(question_kind=QuestionKind.SECRET, code=secrets[0].path) if secrets else None


def _check_gates(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    """Run gates in order, then the agent review, then ask people, then commit."""
    if unit_run.role == BUILDER:
        for gate in phase.gates:
            if gate.per == "phase" and not _is_last_unit(state):
                continue
            if gate.run is not None and not _is_configured(gate.run, pins):
                continue
            passed, cause = unit_run.check_results.get(gate.name), gate.cause or phase.phase
            if passed is None:
                return _gate_action(gate, phase)
            if not passed and f"{cause}.{gate.name}" not in unit_run.approved_questions:
                return after_rejection(
                    unit_run, phase, act.BlockPhase(cause=cause, check=gate.name, reports=unit_run.reports)
                )
        if phase.agent_review is not None:
            role = phase.agent_review.role
            return act.CallAgent(role=role, attempt=1 + unit_run.attempts.get(role, Attempts()).attempt)
    return _block_by_review(unit_run, phase) or _ask_for_approval(state, unit_run, phase, pins) or act.MakeCommit()


def _gate_action(gate: Gate, phase: Phase) -> Action:
    cause = gate.cause or phase.phase
    if gate.run is not None:
        return act.RunGate(gate=gate.run, cause=cause)
    return act.CheckRule(rule=gate.name, cause=cause)


def _block_by_review(unit_run: UnitRun, phase: Phase) -> Action | None:
    """Block the phase when the reviewer's verdict names a cause."""
    if phase.agent_review is None:
        return None
    verdict = unit_run.parsed_artifacts.get(phase.agent_review.output)
    cause = verdict.fields.get("cause", "") if verdict else ""
    if verdict is None or cause in ("", NO_CAUSE):
        return None
    return act.BlockPhase(cause=cause, check=phase.agent_review.role, text=verdict.digest)


def _ask_for_approval(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action | None:
    for gate in phase.ask_person:
        if pins.config.autonomy not in gate.autonomy or gate.name in unit_run.approved_questions:
            continue
        if gate.rule is not None and gate.rule not in unit_run.check_results:
            return act.CheckRule(rule=gate.rule, cause="person")
        if _needs_approval(gate, state, unit_run):
            return act.AskPerson(question_kind=QuestionKind.APPROVAL, code=gate.name, reports=unit_run.reports)
    return None


def _needs_approval(gate: PersonGate, state: InPhase, unit_run: UnitRun) -> bool:
    if gate.rule is not None:
        return not unit_run.check_results[gate.rule]
    if gate.artifact is None:
        return True
    artifact = unit_run.parsed_artifacts.get(gate.artifact) or state.progress.artifacts.get(gate.artifact)
    return artifact is not None and artifact.fields.get(gate.field or "") in gate.values
