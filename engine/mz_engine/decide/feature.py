"""The next action for one feature. `decide_feature` covers every state and reads only its arguments.

Inside a phase the newest event of the unit run decides: `decide_unit`, read from top to bottom, is the whole phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace
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
    ChecksRerun,
    CommitRequested,
    Committed,
    DeliveryFailed,
    MergeRequested,
    PullRequestRequested,
    PushRequested,
    TagRequested,
    TargetMoved,
)
from mz_events.catalog.feature import (
    Blocked,
    EditMade,
    FeatureFailed,
    FeatureHeld,
    HoldReleased,
    HumanAnswered,
    PhaseCompleted,
    PhaseSkipped,
    PhaseStarted,
    QuestionKind,
    UnitCompleted,
    UnitStarted,
    WorkspaceConflicted,
)
from mz_events.catalog.run import Hold, ItemsAdded, Verdict
from mz_events.catalog.validation import (
    ArtifactsKept,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    ConditionsChecked,
    GateChecked,
)
from mz_events.names import BUILDER
from mz_projections.feature.state import (
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
    has_passed,
)
from mz_projections.feature.unit import BLOCK, DENIED_COMMANDS, JUDGED_RULES, RAISED, REVIEW

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action, Work
from mz_engine.decide.caller import caller
from mz_engine.decide.conditions import holds
from mz_engine.decide.recovery import (
    AWAIT_CHECKS,
    BASE,
    after_answer,
    after_block,
    after_problem,
    after_rejection,
    next_call,
    pause,
)
from mz_engine.decide.units import iteration, units_of
from mz_engine.model.config import PullRequests
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import CHECKS, PERSON, STEPS, TIERS, BlockRoute, PersonGate, Phase, kind_of

NO_CAUSE = "none"
"""The cause in a reviewer's verdict that accepts the work."""
MERGE_BASE = "merge_base"
UNMARKED = "merge_base.unmarked"
NOT_NEEDED = "when.not-needed"
"""Question about a phase to which work was sent back, although none of its conditions holds."""
TARGET_MOVED = "target-moved"
TARGET_MOVES_MAX = 10
"""How often the target may move in a row before its merge."""
STUCK = frozenset({
    QuestionKind.EXHAUSTED, QuestionKind.RETRIES, QuestionKind.ROLLBACKS, QuestionKind.UNROUTED, QuestionKind.BLOCKER,
    QuestionKind.CONFLICT,
})  # fmt: skip
"""Questions because nothing works."""
SECOND_US = 1_000_000


def decide_feature(state: State, pins: Pins) -> Action | None:
    """Return the next action; None when the feature has not started, is held, waits for a person, or has ended."""
    action = _decide(state, pins)
    if type(action) is act.AskPerson and action.question_kind in STUCK and pins.pipeline.kinds[0].when_stuck == "fail":
        last = state.unit_run.last_event if isinstance(state, InPhase) and state.unit_run else None
        if not isinstance(last, DeliveryFailed | TargetMoved):
            return act.Fail(code=action.code or action.question_kind.value, reports=action.reports, text=action.text)
    return action


def _decide(state: State, pins: Pins) -> Action | None:
    match state:
        case InPhase(unit_run=unit_run):
            phase = pins.pipeline.find_phase(state.phase)
            if unit_run is None:
                return _start_next_unit(state, phase)
            action = decide_unit(state, unit_run, phase, pins)
            return action if phase.required else _skip_instead(action, unit_run, phase)
        case BetweenPhases(progress=progress):
            return _start_next_phase(progress, pins)
        case NotStarted() | Held() | Waiting() | Ended():
            return None
        case CreatingWorkspace():
            return _create_workspace(state)
        case RunningSetup():
            return _run_setup(state, pins)
        case Restoring(last_event=CommitRequested() as intent):
            return act.ReconcileIntent(intent=intent)
        case Restoring(last_event=last):
            return act.RestoreTree(committed=isinstance(last, Committed))
        case _:
            assert_never(state)


def _skip_instead(action: Action, unit_run: UnitRun, phase: Phase) -> Action:
    """Return the action, or leave the phase out where a required one would halt the run, or ask a person for more than
    the approval that its definition wants."""
    is_question = isinstance(action, act.AskPerson) and action.question_kind is not QuestionKind.APPROVAL
    is_halt = isinstance(action, FeatureHeld) and action.hold is Hold.FATAL
    if (is_question or is_halt) and isinstance(action, act.AskPerson | FeatureHeld):
        return PhaseSkipped(phase=phase.phase, unit=unit_run.unit, code=action.code or "")
    return action


def _create_workspace(state: CreatingWorkspace) -> Action:
    match state.last_event:
        case WorkspaceConflicted():
            return act.AskPerson(question_kind=QuestionKind.CONFLICT, code="dependencies-conflict")
        case HumanAnswered(verdict=Verdict.REJECT):
            return FeatureFailed(code="rejected")
        case HumanAnswered() | None if state.started.suspicions is not None and not state.text_approved:
            return act.AskPerson(question_kind=QuestionKind.WITHHELD, text=state.started.suspicions)
        case HumanAnswered() | None:
            return Work.CREATE_WORKSPACE
        case _:
            assert_never(state.last_event)


def _run_setup(state: RunningSetup, pins: Pins) -> Action:
    if state.last_event is not None and state.last_event.verdict is Verdict.REJECT:
        return FeatureFailed(code="rejected")
    if any(ran.exit != 0 for ran in state.command_runs):
        return act.AskPerson(
            question_kind=QuestionKind.UNROUTED, code="setup-failed", text=state.command_runs[-1].excerpt
        )
    done = {ran.name for ran in state.command_runs}
    for command in pins.config.workspace.setup:
        if command not in done:
            return act.RunSetup(command=command)
    return _start_next_phase(state.progress, pins)


def _start_next_phase(progress: FeatureProgress, pins: Pins) -> Action:
    for phase in pins.pipeline.phases:
        if phase.phase not in progress.completed_phases:
            return PhaseStarted(
                phase=phase.phase, iteration=iteration(progress, phase.phase, ""), units=units_of(progress, phase)
            )
    return Work.FINISH_FEATURE


def _start_next_unit(state: InPhase, phase: Phase) -> Action:
    if phase.claim is not None and not state.claimed:
        if state.claim_rejected:
            return FeatureHeld(hold=Hold.CLAIM)
        listed = state.progress.artifacts.get(phase.claim.artifact)
        return act.ClaimFiles(phase=phase.phase, paths=listed.files if listed else ())
    for unit in state.units:
        if unit not in state.finished_units:
            return UnitStarted(phase=phase.phase, unit=unit, iteration=iteration(state.progress, phase.phase, unit))
    return PhaseCompleted(phase=phase.phase)


def decide_unit(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    """Return the next action inside a phase, by the newest event of the unit run; the first match decides.

    Types are compared, the frequent ones first: a class pattern that does not match a Struct takes ten times as long.
    """
    last, is_committed = unit_run.last_event, unit_run.commit is not None
    if type(last) is ReplyParsed:
        if unit_run.check_results.get(DENIED_COMMANDS) is False:
            cause = "call" if last.problem else "reply"
            return act.BlockPhase(cause=cause, check=DENIED_COMMANDS, reports=unit_run.reports)
        if last.problem is not None:
            return after_problem(state, unit_run, phase, last.problem, pins)
        return Work.CHECK_CHANGES
    if type(last) is ChangesChecked:
        secrets = [change.path for change in last.forbidden_changes if change.kind == "secret"]
        return act.AskPerson(question_kind=QuestionKind.SECRET, code=secrets[0]) if secrets else Work.VALIDATE_OUTPUTS
    if type(last) is AgentRequested or type(last) is CommitRequested:
        return act.ReconcileIntent(intent=last)
    if type(last) is PushRequested or type(last) is PullRequestRequested:
        return act.ReconcileIntent(intent=last)
    if last is None and phase.when and "phase" not in unit_run.conditions:
        return act.CheckConditions(of="phase")
    if type(last) is ConditionsChecked and last.of == "phase" and not last.met:
        return _skip_phase(state, unit_run, phase, pins)
    if last is None and NOT_NEEDED in unit_run.approved_questions and unit_run.conditions.get("phase") == ():
        return _check_gates(state, unit_run, phase, pins)
    if last is None or (type(last) is ConditionsChecked and last.of == "phase"):
        return _missing_input(state, unit_run, phase) or _prepare_or_call(state, unit_run, phase, pins)
    if type(last) is ArtifactValidated and last.violations:
        question = act.AskPerson(
            question_kind=QuestionKind.EXHAUSTED, code=last.violations[0].rule, reports=unit_run.reports
        )
        return after_rejection(unit_run, phase, question)
    if type(last) is ArtifactValidated and pins.pipeline.block_file and BLOCK in unit_run.parsed_artifacts:
        return _raise_block(state, unit_run, phase, pins)
    if type(last) is ArtifactValidated and (better_call := _call_with_better_tier(state, unit_run, phase, pins)):
        return better_call
    if (
        type(last) is ArtifactValidated
        or type(last) is ArtifactsKept
        or type(last) is ConditionsChecked
        or type(last) is ItemsAdded
        or (type(last) is GateChecked and not is_committed)
    ):
        return _check_gates(state, unit_run, phase, pins)
    if type(last) is AgentReplied or type(last) is AgentFailed or type(last) is AgentLost:
        return act.ParseReply(outcome=last)
    if type(last) is CommandRan or type(last) is EditMade:
        return _failed_baseline(unit_run, phase) or _prepare_or_call(state, unit_run, phase, pins)
    if type(last) is AgentSwitched or (type(last) is HoldReleased and not is_committed):
        return next_call(unit_run, unit_run.role)
    if type(last) is HumanAnswered:
        answered = unit_run.answered_question
        if last.verdict is Verdict.ACCEPT and answered and answered.code.endswith(f".{DENIED_COMMANDS}"):
            return Work.CHECK_CHANGES if answered.code.startswith("reply.") else next_call(unit_run, unit_run.role)
        if last.verdict is Verdict.ACCEPT and not is_committed:
            return _check_gates(state, unit_run, phase, pins)
        if last.verdict is Verdict.REJECT or not is_committed:
            return after_answer(unit_run, phase, last)
    if type(last) is CallOverBudget:
        return FeatureHeld(hold=Hold.BUDGET)
    if type(last) is Blocked:
        return after_block(state, unit_run, phase, last, pins.pipeline)
    if type(last) is DeliveryFailed:
        question = act.AskPerson(question_kind=QuestionKind.UNROUTED, code=last.code, text=last.detail)
        return pause(unit_run, last.code, None, pins.config.limits) or question
    if type(last) is MergeRequested or type(last) is TagRequested:
        return act.ReconcileIntent(intent=last)
    return decide_delivery(unit_run, phase, pins)


def _skip_phase(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    """Skip a unit whose conditions do not hold. Work that was sent back to the phase would return unchanged, and be
    paid for again, so a person decides; units are skipped, as others of the phase may do the work."""
    if unit_run.notes and not unit_run.unit:
        return act.AskPerson(question_kind=QuestionKind.UNROUTED, code=NOT_NEEDED, text=unit_run.notes[-1])
    return _check_gates(state, unit_run, phase, pins)


def _call_with_better_tier(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action | None:
    """Ask again if what the builder's reply says asks for a better tier than the one that wrote it."""
    if unit_run.role != BUILDER or phase.agent is None or unit_run.request is None:
        return None
    if not (phase.agent.escalate or unit_run.request.escalated_to):
        return None  # Nothing could raise the tier; `caller` would say so after much more work.
    call = caller(pins, state, unit_run, phase, BUILDER)
    used = TIERS.index(unit_run.request.escalated_to or call.own_tier)
    return next_call(unit_run, BUILDER) if TIERS.index(call.tier) > used else None


def _missing_input(state: InPhase, unit_run: UnitRun, phase: Phase) -> Action | None:
    for use in phase.inputs:
        key = f"{use.artifact}/{unit_run.unit}" if use.units == "own" and unit_run.unit else use.artifact
        is_needed = use.artifact and not use.optional and use.units != "dependencies"
        is_approved = f"inputs.{use.artifact}" in unit_run.approved_questions
        if is_needed and not is_approved and key not in state.progress.artifacts:
            return act.BlockPhase(cause="inputs", check=use.name)
    return None


def _prepare_or_call(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    if phase.edit in pins.edits and not unit_run.is_edited:
        return Work.MAKE_EDIT
    if phase.prepare:
        done = {ran.name for ran in unit_run.preparation_runs}
        others = [f"{phase.phase}/{unit}" for unit in state.finished_units if unit not in state.kept_units]
        runs = [ran for key in others for ran in state.progress.unit_results.get(key, ()) if ran.stage == "prepare"]
        done_before = {ran.name for ran in runs}
        for preparation in phase.prepare:
            is_due = preparation.per == "unit" or preparation.run not in done_before
            if is_due and preparation.run not in done and preparation.run in pins.config.commands:
                return act.RunPreparation(command=preparation.run)
    if phase.agent is None:
        return _check_gates(state, unit_run, phase, pins)
    return act.CallAgent(role=BUILDER, attempt=1)


def _failed_baseline(unit_run: UnitRun, phase: Phase) -> Action | None:
    causes = {
        preparation.run: preparation.cause or "baseline" for preparation in phase.prepare if preparation.must_pass
    }
    for ran in unit_run.preparation_runs:
        cause = causes.get(ran.name)
        if cause and not has_passed(ran) and f"{cause}.{ran.name}" not in unit_run.approved_questions:
            return act.BlockPhase(cause=cause, check=ran.name, text=ran.excerpt)
    return None


def _check_gates(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    """Run gates, then the agent review, then ask people, then commit. Gates whose command `mz.yaml` lacks are
    skipped; for a unit that is skipped itself, only the gates of the phase run."""
    is_skipped = unit_run.conditions.get("phase") == () and unit_run.reply_event is None
    judged = unit_run.check_results.get(JUDGED_RULES)
    if judged is False and f"{phase.phase}.{JUDGED_RULES}" not in unit_run.approved_questions:
        block = act.BlockPhase(cause=phase.phase, check=JUDGED_RULES, reports=unit_run.reports)
        return after_rejection(unit_run, phase, block)
    if unit_run.role == BUILDER:
        for gate in phase.gates:
            is_last_unit = len(state.finished_units) + 1 >= len(state.units)
            had_work = not is_skipped or (gate.per == "phase" and len(state.units) > 1)
            is_due = had_work and (gate.per == "unit" or is_last_unit)
            if not is_due or (gate.run and gate.run not in pins.config.commands):
                continue
            passed, cause = unit_run.check_results.get(gate.name), gate.cause or phase.phase
            if passed is None and gate.run is not None:
                return act.RunGate(gate=gate.run, cause=cause)
            if passed is None:
                return act.CheckRule(rule=gate.name, cause=cause)
            if not passed and f"{cause}.{gate.name}" not in unit_run.approved_questions:
                block = act.BlockPhase(cause=cause, check=gate.name, reports=unit_run.reports)
                return block if is_skipped else after_rejection(unit_run, phase, block)
        if is_skipped:
            return UnitCompleted(phase=phase.phase, unit=unit_run.unit)
        review = phase.agent_review
        if review is not None and review.when and REVIEW not in unit_run.conditions:
            return act.CheckConditions(of="review")
        if review is not None and unit_run.conditions.get(REVIEW) != ():
            return next_call(unit_run, review.role)
    makes_no_commit = phase.agent is not None and unit_run.reply_event is None
    makes_no_commit = makes_no_commit or pins.pipeline.is_after_delivery(phase)
    finish = decide_delivery(unit_run, phase, pins) if makes_no_commit else Work.MAKE_COMMIT
    items = [unit_run.parsed_artifacts.get(output.artifact) for output in phase.outputs if output.creates]
    is_list = items and len(items) == len(phase.outputs) and not phase.writable
    is_needed = not is_list or any(parsed and parsed.units for parsed in items)  # A list of no items needs no approval.
    question = _ask_for_approval(state, unit_run, phase, pins, phase.ask_person) if is_needed else None
    if block_by_review := _block_by_review(unit_run, phase):
        return block_by_review
    is_judged = judged is not None or unit_run.role == BUILDER or not pins.judged_rules(phase)
    if not is_judged:
        return Work.CHECK_JUDGED_RULES
    for output in phase.outputs if question is None else ():
        if output.creates and not unit_run.items_added and output.artifact in unit_run.parsed_artifacts:
            return act.CreateItems(artifact=output.artifact, rules=output.rules, kind=output.creates)
    return question or finish


def _raise_block(state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    """Block the phase as its agent asks for, after a person was asked about the block if the phase says so; not if the
    block leads to a person, who is asked then."""
    block = unit_run.parsed_artifacts[BLOCK]
    cause, gates = block.fields["cause"], [gate for gate in phase.ask_person if gate.artifact == BLOCK]
    question = _ask_for_approval(state, unit_run, phase, pins, gates)
    asks_anyway = phase.required and BlockRoute(cause=cause, to=PERSON) in phase.on_block
    if isinstance(question, act.AskPerson) and not asks_anyway:
        return replace(question, text=block.digest)
    return act.BlockPhase(cause=cause, check=f"{RAISED}{cause}", units=block.names, text=block.digest)


def _block_by_review(unit_run: UnitRun, phase: Phase) -> Action | None:
    """Block the phase when the reviewer's verdict names a cause."""
    if phase.agent_review is None or unit_run.conditions.get(REVIEW) == ():
        return None
    verdict = unit_run.parsed_artifacts.get(phase.agent_review.output)
    cause = verdict.fields.get("cause", "") if verdict else ""
    if verdict is None or cause in ("", NO_CAUSE):
        return None
    return act.BlockPhase(cause=cause, check=phase.agent_review.role, text=verdict.digest)


def _ask_for_approval(
    state: InPhase, unit_run: UnitRun, phase: Phase, pins: Pins, gates: Iterable[PersonGate]
) -> Action | None:
    """Check each rule that asks for an approval, then ask for all that are missing at once."""
    approved, results = unit_run.approved_questions, unit_run.check_results
    missing = [gate for gate in gates if pins.config.autonomy in gate.autonomy and gate.name not in approved]
    for gate in missing:
        if gate.rule is not None and gate.rule not in results:
            return act.CheckRule(rule=gate.rule, cause="person")
    if not missing:
        return None
    broken = [rule for rule, passed in results.items() if not passed]
    codes = tuple(dict.fromkeys(gate.name for gate in missing if holds(gate, state, unit_run, phase, broken)))
    if not codes:
        return None
    question = act.AskPerson(question_kind=QuestionKind.APPROVAL, code=codes[0], reports=unit_run.reports)
    return question if len(codes) == 1 else replace(question, codes=codes)


# delivery -------------------------------------------------------------------------------------------------------------
def decide_delivery(unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    """Deliver a unit after its commit, step by step. With strategy `none` nothing leaves the machine: no push, no CI
    checks, and the pull request is a file for a person."""
    has_remote = pins.config.pull_requests.strategy != "none"
    for name, step in phase.steps.items():
        if STEPS[kind_of(step)].uses_remote and not has_remote:
            continue
        if name == MERGE_BASE:
            action = _merge_base(unit_run, phase, pins)
        elif name == AWAIT_CHECKS:
            action = _await_checks(unit_run, pins.config.pull_requests)
        else:
            action = None if name in unit_run.delivery_steps else act.Deliver(step=name)
        if action is not None:
            return action
    return UnitCompleted(phase=phase.phase, unit=unit_run.unit)


def _merge_base(unit_run: UnitRun, phase: Phase, pins: Pins) -> Action | None:
    """Merge the target branch, then run every command gate up to this phase again. Conflict markers block the phase;
    about a conflict without markers, or a target that moves again and again, a person decides."""
    merged, moves = unit_run.target_merge, unit_run.target_moves
    if merged is None and isinstance(unit_run.last_event, TargetMoved) and moves % TARGET_MOVES_MAX == 0:
        return act.AskPerson(question_kind=QuestionKind.UNROUTED, code=TARGET_MOVED)
    if merged is None:
        return act.Deliver(step=MERGE_BASE)
    is_unmarked = bool(merged.unmarked) and UNMARKED not in unit_run.approved_questions
    if is_unmarked and not unit_run.rollback_allowed:
        return act.AskPerson(question_kind=QuestionKind.CONFLICT, code=UNMARKED)
    if merged.conflicts or is_unmarked:
        return act.BlockPhase(cause=BASE, check=MERGE_BASE)
    phases = pins.pipeline.phases[: pins.pipeline.phases.index(phase) + 1]
    gates = dict.fromkeys(gate.run for earlier in phases for gate in earlier.gates if gate.run)
    for gate in gates if merged.changed else ():
        passed = unit_run.check_results.get(gate)
        if passed is None and gate in pins.config.commands:
            return act.RunGate(gate=gate, cause=BASE)
        if passed is False:
            return act.BlockPhase(cause=BASE, check=gate, reports=unit_run.reports)
    return None


def _await_checks(unit_run: UnitRun, settings: PullRequests) -> Action | None:
    """Wait until every required CI check passes. Checks appear one by one, so the list is complete only after
    `checks_settle`."""
    if AWAIT_CHECKS in unit_run.approved_questions:
        return None
    until_us = unit_run.checks_began_at_us + settings.checks_wait * SECOND_US
    checks = unit_run.last_poll
    if checks is None:
        if isinstance(unit_run.last_event, ChecksRerun):
            return FeatureHeld(hold=Hold.CHECKS, until_us=until_us)
        return Work.POLL_CHECKS
    if checks.failed and not checks.pending:
        if checks.flaky and unit_run.reruns < settings.reruns_max:
            return Work.RERUN_CHECKS
        reports = () if checks.report is None else (checks.report,)
        return act.BlockPhase(cause=CHECKS, check=AWAIT_CHECKS, reports=reports)
    if checks.commit_known and not checks.pending:
        settled_us = unit_run.checks_began_at_us + settings.checks_settle * SECOND_US
        if unit_run.polled_at_us >= settled_us:
            return None
        return FeatureHeld(hold=Hold.CHECKS, until_us=settled_us)
    if unit_run.polled_at_us >= until_us:
        return act.AskPerson(question_kind=QuestionKind.CHECKS, code=AWAIT_CHECKS)
    return FeatureHeld(hold=Hold.CHECKS, until_us=until_us)
