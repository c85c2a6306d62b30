"""Dispatch from each action to its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import assert_never

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import (
    BaseMerged,
    CommitRequested,
    MergeRequested,
    PullRequestRequested,
    PushRequested,
    TagRequested,
)
from mz_events.catalog.feature import Blocked, FeatureFailed, HumanRequested
from mz_events.catalog.validation import GateChecked
from mz_events.names import Digest
from mz_projections.feature.state import InPhase

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action, Intent, Work
from mz_engine.effects import call, delivery, items, validation, workspace
from mz_engine.effects.steps import Effect, StepContext, Steps, emit, get_reports, put_blob

WORK: Mapping[Work, Callable[[StepContext], Effect]] = {
    Work.CREATE_WORKSPACE: workspace.create_workspace,
    Work.MAKE_EDIT: workspace.make_edit,
    Work.CHECK_CHANGES: validation.check_changes,
    Work.VALIDATE_OUTPUTS: validation.validate_outputs,
    Work.CHECK_JUDGED_RULES: validation.check_judged_rules,
    Work.MAKE_COMMIT: workspace.make_commit,
    Work.POLL_CHECKS: delivery.poll_checks,
    Work.RERUN_CHECKS: delivery.rerun_checks,
    Work.FINISH_FEATURE: delivery.finish_feature,
}
STEPS: Mapping[str, Callable[[StepContext], Effect]] = {
    "merge_base": delivery.merge_base,
    "push": delivery.push_branch,
    "open_pr": delivery.open_pull_request,
    "merge": delivery.merge_branch,
    "close_branch": partial(delivery.close_branches, step="close_branch"),
    "close_branches": partial(delivery.close_branches, step="close_branches"),
}
"""Effects of the delivery steps; all others are tags."""


def effect_of(action: Action, context: StepContext) -> Effect:
    match action:
        case Event():
            return emit(action)
        case Work():
            return WORK[action](context)
        case act.Deliver(step=step):
            effect = STEPS[step](context) if step in STEPS else delivery.make_tag(context, step)
            return delivery.deliver(context.key(step), effect)
        case act.ClaimFiles():
            return _request_claim(action)
        case act.CreateItems():
            return items.create_items(action, context)
        case act.RunSetup():
            return validation.run_setup(action, context)
        case act.RunPreparation():
            return validation.run_preparation(action, context)
        case act.CallAgent():
            return call.call_agent(action, context)
        case act.ReconcileIntent(intent=intent):
            return reconcile_intent(intent, context)
        case act.ParseReply():
            return call.parse_reply(action, context)
        case act.RunGate():
            return validation.run_gate(action, context)
        case act.CheckRule():
            return validation.check_feature_rule(action, context)
        case act.CheckConditions():
            return validation.check_conditions(action, context)
        case act.AskPerson():
            return _ask_person(action, context)
        case act.Fail(code=code):
            return _fail(action, code, context)
        case act.BlockPhase():
            return _block_phase(action, context)
        case act.RestoreTree():
            return workspace.restore_tree(action, context)
        case _:
            assert_never(action)


def reconcile_intent(intent: Intent, context: StepContext) -> Effect:
    """Find out what became of an intent without an outcome, and record it."""
    match intent:
        case AgentRequested():
            return call.reconcile_call(intent, context)
        case CommitRequested():
            return workspace.reconcile_commit(intent, context)
        case PushRequested():
            return delivery.deliver(intent.key, delivery.reconcile_push(intent))
        case PullRequestRequested():
            return delivery.deliver(intent.key, delivery.reconcile_pull_request(intent, context))
        case MergeRequested():
            return delivery.deliver(intent.key, delivery.reconcile_merge(intent, context))
        case TagRequested():
            return delivery.deliver(intent.key, delivery.reconcile_tag(intent))
        case _:
            assert_never(intent)


def _request_claim(action: act.ClaimFiles) -> Effect:
    yield action


def _ask_person(action: act.AskPerson, context: StepContext) -> Effect:
    state = context.state
    unit_run = state.unit_run if isinstance(state, InPhase) else None
    yield from emit(
        HumanRequested(
            phase=state.phase if isinstance(state, InPhase) else "",
            unit=unit_run.unit if unit_run else "",
            question_kind=action.question_kind,
            code=action.code,
            codes=action.codes,
            detail=(yield from _put_detail(action, context)),
        )
    )


def _fail(action: act.Fail, code: str, context: StepContext) -> Effect:
    yield from emit(FeatureFailed(code=code, detail=(yield from _put_detail(action, context))))


def _put_detail(action: act.AskPerson | act.Fail, context: StepContext) -> Steps[Digest | None]:
    """Store why a person is needed."""
    state = context.state
    if isinstance(state, InPhase) and state.unit_run and isinstance(state.unit_run.last_event, BaseMerged):
        return (yield from put_blob(delivery.conflict_text(state.unit_run.last_event)))
    return action.text or (yield from _put_messages(action.reports))


def _block_phase(action: act.BlockPhase, context: StepContext) -> Effect:
    last, path = context.unit_run.last_event, ""
    note = action.text or (yield from _put_messages(action.reports))
    if isinstance(last, GateChecked) and last.violations:
        path = last.violations[0].path
    if isinstance(last, BaseMerged) and (last.conflicts or last.unmarked):
        path, note = (*last.conflicts, *last.unmarked)[0], (yield from put_blob(delivery.conflict_text(last)))
    phase, unit = context.phase_state.phase, context.unit_run.unit
    block = Blocked(phase=phase, unit=unit, cause=action.cause, check=action.check, path=path, note=note)
    yield from emit(replace(block, units=action.units))


def _put_messages(reports: tuple[Digest, ...]) -> Steps[Digest | None]:
    """Store the messages of reports as one text."""
    messages = yield from get_reports(reports)
    return (yield from put_blob("\n".join(messages))) if messages else None
