"""Delivery steps of a phase, after the commit of a unit run and before its completion.

With strategy `none` nothing leaves the machine: no push, no CI checks, and the pull request is a file for a person.
"""

from __future__ import annotations

from mz_events.catalog.delivery import ChecksRerun, DeliveryFailed
from mz_events.catalog.feature import FeatureHeld, QuestionKind, UnitCompleted
from mz_events.catalog.run import Hold
from mz_projections.feature.state import UnitRun

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action, Work
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
        failure = unit_run.last_event
        return act.AskPerson(question_kind=QuestionKind.UNROUTED, code=failure.code, text=failure.detail)
    uses_remote = pins.config.pull_requests.strategy != "none"
    for step in phase.deliver:
        if step == MERGE_BASE:
            action = _merge_base(unit_run, pins)
        elif step == AWAIT_CHECKS:
            action = _await_checks(unit_run, pins.config.pull_requests) if uses_remote else None
        elif step in unit_run.delivery_steps:
            action = None
        elif step == "open_pr":
            action = Work.OPEN_PULL_REQUEST
        else:
            action = Work.PUSH_BRANCH if uses_remote else None
        if action is not None:
            return action
    return UnitCompleted(phase=phase.phase, unit=unit_run.unit)


def _merge_base(unit_run: UnitRun, pins: Pins) -> Action | None:
    """Merge the target branch, then run every command gate of the pipeline again.

    Conflict markers block the phase. Conflicts without markers are a question for a person, who accepts our side or
    sends them to the agent.
    """
    merged = unit_run.target_merge
    if merged is None:
        return Work.MERGE_BASE
    is_unmarked = bool(merged.unmarked) and UNMARKED not in unit_run.approved_questions
    if is_unmarked and not unit_run.rollback_allowed:
        return act.AskPerson(question_kind=QuestionKind.CONFLICT, code=UNMARKED)
    if merged.conflicts or is_unmarked:
        return act.BlockPhase(cause=BASE, check=MERGE_BASE)
    gates = dict.fromkeys(gate.run for phase in pins.pipeline.phases for gate in phase.gates if gate.run)
    for gate in gates if merged.changed else ():
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
        return FeatureHeld(hold=Hold.TIMER, until_us=settled_us)
    if unit_run.polled_at_us >= until_us:
        return act.AskPerson(question_kind=QuestionKind.CHECKS, code=AWAIT_CHECKS)
    return FeatureHeld(hold=Hold.CHECKS, until_us=until_us)
