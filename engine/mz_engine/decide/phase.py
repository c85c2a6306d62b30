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
    CallHeld,
    ReplyRead,
)
from mz_events.catalog.check import ArtifactValidated, ChangesChecked, CommandRan, GateChecked, Unit
from mz_events.catalog.delivery import (
    BaseMerged,
    ChecksRerun,
    ChecksSeen,
    CommitRequested,
    Committed,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import Ask, Blocked, HoldReleased, HumanAnswered, WorkspaceConflicted
from mz_events.catalog.run import Hold, Verdict
from mz_projections.state import (
    Between,
    Book,
    Cell,
    Ended,
    Held,
    Opening,
    Restoring,
    Setting,
    State,
    Tries,
    Unborn,
    Waiting,
    Working,
)

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.decide.delivery import deliver
from mz_engine.decide.recovery import after_answer, after_block, after_problem, next_call, refused
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Gate, HumanGate, Phase

NO_CAUSE = "none"
"""The cause in a reviewer's verdict that accepts the work."""


def decide(state: State, pins: Pins) -> Action | None:
    """Return the next action; None when the feature has not started, is held, waits for a person, or has ended."""
    match state:
        case Working(cell=cell):
            phase = pins.pipeline.find(state.phase)
            return _between_units(state, phase) if cell is None else in_cell(state, cell, phase, pins)
        case Unborn() | Held() | Waiting() | Ended():
            return None
        case Opening():
            return _opening(state)
        case Setting():
            return _setting(state, pins)
        case Between(book=book):
            return _between(book, pins)
        case Restoring(last=CommitRequested() as intent):
            return act.Settle(intent=intent)
        case Restoring(last=last):
            return act.Restore(committed=isinstance(last, Committed))
        case _:
            assert_never(state)


def _opening(state: Opening) -> Action:
    match state.last:
        case WorkspaceConflicted():
            return act.AskHuman(ask=Ask.CONFLICT, code="dependencies-conflict")
        case HumanAnswered(verdict=Verdict.REJECT):
            return act.FailFeature(code="rejected")
        case HumanAnswered() | None:
            return act.Open(started=state.started)
        case _:
            assert_never(state.last)


def _setting(state: Setting, pins: Pins) -> Action:
    if state.last is not None and state.last.verdict is Verdict.REJECT:
        return act.FailFeature(code="rejected")
    if any(ran.exit != 0 for ran in state.ran):
        return act.AskHuman(ask=Ask.UNROUTED, code="setup-failed", text=state.ran[-1].excerpt)
    commands = pins.config.workspace.setup
    if len(state.ran) < len(commands):
        return act.SetUp(command=commands[len(state.ran)])
    return _between(state.book, pins)


def _between(book: Book, pins: Pins) -> Action:
    for phase in pins.pipeline.phases:
        if phase.phase not in book.done:
            return act.StartPhase(
                phase=phase.phase, iteration=iteration(book, phase.phase, ""), units=units_of(book, phase)
            )
    return act.FinishFeature(base=book.base)


def iteration(book: Book, phase: str, unit: str) -> int:
    """Return 1 + the number of rollbacks that superseded this phase and unit."""
    of_unit = book.superseded.get(f"{phase}/{unit}", 0) if unit else 0
    return 1 + book.superseded.get(phase, 0) + of_unit


def units_of(book: Book, phase: Phase) -> tuple[str, ...]:
    """Return the phase's units in the order of work; one empty name when it has none, or none are listed yet."""
    if phase.for_each is None:
        return ("",)
    listed = book.artifacts.get(phase.for_each.artifact)
    if listed is None:
        return ("",)
    units = listed.units
    return ordered(units) if phase.for_each.order == "depends_on" else tuple(unit.id for unit in units)


def ordered(units: tuple[Unit, ...]) -> tuple[str, ...]:
    """Return unit ids with dependencies first, otherwise as listed.

    A cycle, which the artifact's rules reject, keeps the listed order.
    """
    ids = {unit.id for unit in units}
    graph = {unit.id: [other for other in unit.depends_on if other in ids] for unit in units}
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError:
        return tuple(graph)


def _between_units(state: Working, phase: Phase) -> Action:
    if phase.claim is not None and not state.claimed:
        if state.contended:
            return act.HoldFeature(hold=Hold.CLAIM)
        listed = state.book.artifacts.get(phase.claim.artifact)
        return act.ClaimFiles(phase=phase.phase, paths=listed.files if listed else ())
    for unit in state.units:
        if unit not in state.finished:
            return act.StartUnit(phase=phase.phase, unit=unit, iteration=iteration(state.book, phase.phase, unit))
    return act.CompletePhase(phase=phase.phase)


def in_cell(state: Working, cell: Cell, phase: Phase, pins: Pins) -> Action:
    match cell.last:
        case None:
            return _inputs(state, cell, phase) or _prepare(state, cell, phase, pins)
        case CommandRan():
            return _baseline(cell, phase) or _prepare(state, cell, phase, pins)
        case AgentRequested() | CommitRequested() | PushRequested() | PullRequestRequested() as intent:
            return act.Settle(intent=intent)
        case AgentReplied() | AgentFailed() | AgentLost() as outcome:
            return act.ReadReply(outcome=outcome)
        case CallHeld():
            return act.HoldFeature(hold=Hold.BUDGET)
        case ReplyRead() if cell.moved:
            return act.AskHuman(ask=Ask.REPOSITORY, code="ref-moved")
        case ReplyRead(problem=problem):
            return act.CheckChanges() if problem is None else after_problem(state, cell, phase, problem, pins.config)
        case ChangesChecked():
            return _secret(cell) or act.Validate()
        case GateChecked() | HoldReleased() if cell.commit is not None:
            return deliver(cell, phase, pins)
        case ArtifactValidated(violations=()) | GateChecked(passed=True):
            return _gates(state, cell, phase, pins)
        case ArtifactValidated(violations=violations):
            return refused(cell, phase, act.AskHuman(ask=Ask.EXHAUSTED, code=violations[0].rule, reports=cell.reports))
        case GateChecked():
            return _gates(state, cell, phase, pins)
        case HoldReleased() | AgentSwitched():
            return next_call(cell)
        case HumanAnswered(verdict=verdict) as answer:
            if cell.commit is not None and verdict is not Verdict.REJECT:
                return deliver(cell, phase, pins)
            return after_answer(cell, answer)
        case Blocked() as block:
            return after_block(state, cell, phase, block, pins.pipeline)
        case (
            Committed()
            | BaseMerged()
            | Pushed()
            | PullRequestOpened()
            | ChecksSeen()
            | ChecksRerun()
            | DeliveryFailed()
        ):
            return deliver(cell, phase, pins)
        case _:
            assert_never(cell.last)


def _inputs(state: Working, cell: Cell, phase: Phase) -> Action | None:
    for phase_input in phase.inputs:
        name = phase_input.artifact
        if name not in state.book.artifacts and f"inputs.{name}" not in cell.approved:
            return act.Block(cause="inputs", check=name)
    return None


def _last_unit(state: Working) -> bool:
    return len(state.finished) + 1 >= len(state.units)


def _configured(command: str, pins: Pins) -> bool:
    """Return True if `mz.yaml` names the command; others are skipped, so that built-in pipelines need no linter."""
    return command in pins.config.commands


def _prepare(state: Working, cell: Cell, phase: Phase, pins: Pins) -> Action:
    done = {ran.name for ran in cell.prepared}
    for preparation in phase.prepare:
        is_due = preparation.per == "unit" or state.finished == state.kept
        if is_due and preparation.run not in done and _configured(preparation.run, pins):
            return act.Prepare(command=preparation.run)
    if phase.agent is None:
        return _gates(state, cell, phase, pins)
    return act.CallAgent(role="builder", attempt=1)


def _baseline(cell: Cell, phase: Phase) -> Action | None:
    must_pass = {preparation.run for preparation in phase.prepare if preparation.must_pass}
    for ran in cell.prepared:
        if ran.name in must_pass and ran.exit != 0 and f"baseline.{ran.name}" not in cell.approved:
            return act.Block(cause="baseline", check=ran.name, text=ran.excerpt)
    return None


def _secret(cell: Cell) -> Action | None:
    offences = cell.last.offences if isinstance(cell.last, ChangesChecked) else ()
    secrets = [offence for offence in offences if offence.kind == "secret"]
    return act.AskHuman(ask=Ask.SECRET, code=secrets[0].path) if secrets else None


def _gates(state: Working, cell: Cell, phase: Phase, pins: Pins) -> Action:
    """Run gates in order, then the agent review, then ask people, then commit."""
    if cell.role == "builder":
        for gate in phase.gates:
            if gate.per == "phase" and not _last_unit(state):
                continue
            if gate.run is not None and not _configured(gate.run, pins):
                continue
            passed, cause = cell.checked.get(gate.name), gate.cause or phase.phase
            if passed is None:
                return _check(gate, phase)
            if not passed and f"{cause}.{gate.name}" not in cell.approved:
                return refused(cell, phase, act.Block(cause=cause, check=gate.name, reports=cell.reports))
        if phase.review is not None:
            return act.CallAgent(role=phase.review.role, attempt=1 + cell.tries.get(phase.review.role, Tries()).attempt)
    return _verdict(cell, phase) or _people(state, cell, phase, pins) or act.MakeCommit()


def _check(gate: Gate, phase: Phase) -> Action:
    cause = gate.cause or phase.phase
    if gate.run is not None:
        return act.RunGate(gate=gate.run, cause=cause)
    return act.CheckRule(rule=gate.name, cause=cause)


def _verdict(cell: Cell, phase: Phase) -> Action | None:
    """Block the phase when the reviewer's verdict names a cause."""
    if phase.review is None:
        return None
    verdict = cell.parsed.get(phase.review.output)
    cause = verdict.fields.get("cause", "") if verdict else ""
    if verdict is None or cause in ("", NO_CAUSE):
        return None
    return act.Block(cause=cause, check=phase.review.role, text=verdict.digest)


def _people(state: Working, cell: Cell, phase: Phase, pins: Pins) -> Action | None:
    for gate in phase.human:
        if pins.config.autonomy not in gate.autonomy or gate.name in cell.approved:
            continue
        if gate.rule is not None and gate.rule not in cell.checked:
            return act.CheckRule(rule=gate.rule, cause="person")
        if _asks(gate, state, cell):
            return act.AskHuman(ask=Ask.APPROVAL, code=gate.name, reports=cell.reports)
    return None


def _asks(gate: HumanGate, state: Working, cell: Cell) -> bool:
    if gate.rule is not None:
        return not cell.checked[gate.rule]
    if gate.artifact is None:
        return True
    artifact = cell.parsed.get(gate.artifact) or state.book.artifacts.get(gate.artifact)
    return artifact is not None and artifact.fields.get(gate.field or "") in gate.values
