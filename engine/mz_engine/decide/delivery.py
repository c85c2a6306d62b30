"""Delivery steps of a phase, after the commit of a unit run and before its completion.

With strategy `none` nothing leaves the machine: no push, no CI checks, and the pull request is a file for a person.
"""

from __future__ import annotations

from mz_events.catalog.delivery import ChecksRerun, DeliveryFailed
from mz_events.catalog.feature import QuestionKind
from mz_events.catalog.run import Hold
from mz_projections.feature.state import UnitRun

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.model.config import PullRequests
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Phase

BASE = "base"
CHECKS = "checks"
"""Causes of blocks: conflicts with the pull request's target branch; failed CI checks."""
MERGE_BASE = "merge_base"
UNMARKED = "merge_base.unmarked"
AWAIT_CHECKS = "await_checks"
SECOND_US = 1_000_000


def decide_delivery(unit_run: UnitRun, phase: Phase, pins: Pins) -> Action:
    if isinstance(unit_run.last_event, DeliveryFailed):
        return act.AskPerson(
            question_kind=QuestionKind.UNROUTED, code=unit_run.last_event.code, text=unit_run.last_event.detail
        )
    uses_remote = pins.config.pull_requests.strategy != "none"
    for step in phase.deliver:
        if step == MERGE_BASE:
            action = _merge_base(unit_run, pins)
        elif step == AWAIT_CHECKS:
            action = _await_checks(unit_run, pins.config.pull_requests) if uses_remote else None
        elif step in unit_run.delivery_steps:
            action = None
        elif step == "open_pr":
            action = act.OpenPullRequest()
        else:
            action = act.PushBranch() if uses_remote else None
        if action is not None:
            return action
    return act.CompleteUnit(unit=unit_run.unit)


def _merge_base(unit_run: UnitRun, pins: Pins) -> Action | None:
    """Merge the target branch, then run every command gate of the pipeline again.

    Conflict markers block the phase. Conflicts without markers are a question for a person, who accepts our side or
    sends them to the agent.
    """
    if unit_run.target_merge is None:
        return act.MergeBase()
    if unit_run.target_merge.unmarked and UNMARKED not in unit_run.approved_questions and not unit_run.rollback_allowed:
        return act.AskPerson(question_kind=QuestionKind.CONFLICT, code=UNMARKED)
    if unit_run.target_merge.conflicts or (
        unit_run.target_merge.unmarked and UNMARKED not in unit_run.approved_questions
    ):
        return act.BlockPhase(cause=BASE, check=MERGE_BASE)
    gates = dict.fromkeys(gate.run for phase in pins.pipeline.phases for gate in phase.gates if gate.run)
    for gate in gates if unit_run.target_merge.changed else ():
        passed = unit_run.check_results.get(gate)
        if passed is None and gate in pins.config.commands:
            return act.RunGate(gate=gate, cause=BASE)
        if passed is False:
            return act.BlockPhase(cause=BASE, check=gate, reports=unit_run.reports)
    return None


def _await_checks(unit_run: UnitRun, settings: PullRequests) -> Action | None:
    """Wait until every required CI check passes, or a person accepts the state.

    CI checks appear one by one, so the list counts as complete only after `checks_settle`.
    """
    if AWAIT_CHECKS in unit_run.approved_questions:
        return None
    until_us = unit_run.checks_began_at_us + settings.checks_wait * SECOND_US
    checks = unit_run.last_poll
    if checks is None:
        if isinstance(unit_run.last_event, ChecksRerun):
            return act.HoldFeature(hold=Hold.CHECKS, until_us=until_us)
        return act.PollChecks()
    if checks.failed and not checks.pending:
        if checks.flaky and unit_run.reruns < settings.reruns_max:
            return act.RerunChecks()
        return act.BlockPhase(
            cause=CHECKS, check=AWAIT_CHECKS, reports=() if checks.report is None else (checks.report,)
        )
    if checks.commit_known and not checks.pending:
        settled_us = unit_run.checks_began_at_us + settings.checks_settle * SECOND_US
        if unit_run.polled_at_us >= settled_us:
            return None
        return act.HoldFeature(hold=Hold.TIMER, until_us=settled_us)
    if unit_run.polled_at_us >= until_us:
        return act.AskPerson(question_kind=QuestionKind.CHECKS, code=AWAIT_CHECKS)
    return act.HoldFeature(hold=Hold.CHECKS, until_us=until_us)
