"""Dispatch from each action to its effect."""

from __future__ import annotations

from typing import assert_never

from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import BaseMerged, CommitRequested, PullRequestRequested, PushRequested
from mz_events.catalog.feature import (
    Blocked,
    FeatureFailed,
    FeatureHeld,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    RolledBack,
    UnitCompleted,
    UnitStarted,
)
from mz_events.catalog.validation import GateChecked
from mz_events.names import Digest
from mz_projections.feature.state import InPhase

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action, Intent
from mz_engine.effects import call, delivery, validation, workspace
from mz_engine.effects import delivery as checks
from mz_engine.effects.steps import ClaimPaths, Effect, StepContext, Steps, emit, get_report, put_blob


def effect_of(action: Action, context: StepContext) -> Effect:
    match action:
        case act.CreateWorkspace():
            yield from workspace.create_workspace(action, context)
        case act.RunSetup():
            yield from validation.run_setup(action, context)
        case act.StartPhase():
            yield from emit(PhaseStarted(phase=action.phase, iteration=action.iteration, units=action.units))
        case act.ClaimFiles():
            yield ClaimPaths(action.phase, action.paths)
        case act.StartUnit():
            yield from emit(UnitStarted(phase=action.phase, unit=action.unit, iteration=action.iteration))
        case act.RunPreparation():
            yield from validation.run_preparation(action, context)
        case act.CallAgent():
            yield from call.call_agent(action, context)
        case act.SwitchAgent():
            yield from call.switch_agent(action, context)
        case act.ReconcileIntent():
            yield from reconcile_intent(action.intent, context)
        case act.ParseReply():
            yield from call.parse_reply(action, context)
        case act.CheckChanges():
            yield from validation.check_changes(context)
        case act.ValidateOutputs():
            yield from validation.validate_outputs(context)
        case act.RunGate():
            yield from validation.run_gate(action, context)
        case act.CheckRule():
            yield from validation.check_feature_rule(action, context)
        case act.AskPerson():
            yield from _ask_person(action, context)
        case act.BlockPhase():
            yield from _block_phase(action, context)
        case act.RollBack():
            yield from emit(
                RolledBack(
                    source=context.phase_state.phase, to=action.to, units=action.units, keeps_tree=action.keeps_tree
                )
            )
        case act.RestoreTree():
            yield from workspace.restore_tree(action, context)
        case act.MakeCommit():
            yield from workspace.make_commit(context)
        case act.PushBranch():
            yield from delivery.push_branch(context)
        case act.OpenPullRequest():
            yield from delivery.open_pull_request(context)
        case act.MergeBase():
            yield from delivery.merge_base(context)
        case act.PollChecks():
            yield from checks.poll_checks(context)
        case act.RerunChecks():
            yield from checks.rerun_checks(context)
        case act.CompleteUnit():
            yield from emit(UnitCompleted(phase=context.phase_state.phase, unit=action.unit))
        case act.CompletePhase():
            yield from emit(PhaseCompleted(phase=action.phase))
        case act.HoldFeature():
            yield from emit(FeatureHeld(hold=action.hold, until_us=action.until_us, code=action.code))
        case act.FailFeature():
            yield from emit(FeatureFailed(code=action.code))
        case act.FinishFeature():
            yield from delivery.finish_feature(action, context)
        case _:
            assert_never(action)


def reconcile_intent(intent: Intent, context: StepContext) -> Effect:
    """Find out what became of an intent without an outcome, and record it."""
    match intent:
        case AgentRequested():
            yield from call.reconcile_call(intent, context)
        case CommitRequested():
            yield from workspace.reconcile_commit(intent, context)
        case PushRequested():
            yield from delivery.reconcile_push(intent)
        case PullRequestRequested():
            yield from delivery.reconcile_pull_request(intent, context)
        case _:
            assert_never(intent)


def _ask_person(action: act.AskPerson, context: StepContext) -> Effect:
    state = context.state
    phase, unit = (
        (state.phase, state.unit_run.unit if state.unit_run else "") if isinstance(state, InPhase) else ("", "")
    )
    detail = action.text or (yield from _put_messages(action.reports))
    if isinstance(state, InPhase) and state.unit_run and isinstance(state.unit_run.last_event, BaseMerged):
        detail = yield from put_blob(delivery.conflict_text(state.unit_run.last_event))
    yield from emit(
        HumanRequested(phase=phase, unit=unit, question_kind=action.question_kind, code=action.code, detail=detail)
    )


def _block_phase(action: act.BlockPhase, context: StepContext) -> Effect:
    unit_run, last, path = context.unit_run, context.unit_run.last_event, ""
    note = action.text or (yield from _put_messages(action.reports))
    if isinstance(last, GateChecked) and last.violations:
        path = last.violations[0].path
    if isinstance(last, BaseMerged) and (last.conflicts or last.unmarked):
        path, note = (*last.conflicts, *last.unmarked)[0], (yield from put_blob(delivery.conflict_text(last)))
    yield from emit(
        Blocked(
            phase=context.phase_state.phase,
            unit=unit_run.unit,
            cause=action.cause,
            check=action.check,
            path=path,
            note=note,
        )
    )


def _put_messages(reports: tuple[Digest, ...]) -> Steps[Digest | None]:
    """Store the messages of reports as one text."""
    lines: list[str] = []
    for report in reports:
        lines += yield from get_report(report)
    return (yield from put_blob("\n".join(lines))) if lines else None
