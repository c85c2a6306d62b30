"""Delivery steps of a phase, after the commit of a unit run and before its completion.

With strategy `none` nothing leaves the machine: no push, no CI checks, and the pull request is a file for a person.
"""

from __future__ import annotations

from mz_events.catalog.delivery import ChecksRerun, DeliveryFailed
from mz_events.catalog.feature import Ask
from mz_events.catalog.run import Hold
from mz_projections.state import Cell

from mz_engine.config import PullRequests
from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Phase

BASE = "base"
CHECKS = "checks"
"""Causes of blocks: conflicts with the pull request's target branch; failed CI checks."""
MERGE = "merge_base"
UNMARKED = "merge_base.unmarked"
AWAIT = "await_checks"
SECOND_US = 1_000_000


def deliver(cell: Cell, phase: Phase, pins: Pins) -> Action:
    if isinstance(cell.last, DeliveryFailed):
        return act.AskHuman(ask=Ask.UNROUTED, code=cell.last.code, text=cell.last.detail)
    leaves = pins.config.pull_requests.strategy != "none"
    for step in phase.deliver:
        if step == MERGE:
            action = _merge(cell, pins)
        elif step == AWAIT:
            action = _await(cell, pins.config.pull_requests) if leaves else None
        elif step in cell.delivered:
            action = None
        elif step == "open_pr":
            action = act.OpenPullRequest()
        else:
            action = act.Push() if leaves else None
        if action is not None:
            return action
    return act.CompleteUnit(unit=cell.unit)


def _merge(cell: Cell, pins: Pins) -> Action | None:
    """Merge the target branch, then run every command gate of the pipeline again.

    Conflict markers block the phase. Conflicts without markers are a question for a person, who accepts our side or
    sends them to the agent.
    """
    if cell.merged is None:
        return act.MergeBase()
    if cell.merged.unmarked and UNMARKED not in cell.approved and not cell.pardoned:
        return act.AskHuman(ask=Ask.CONFLICT, code=UNMARKED)
    if cell.merged.conflicts or (cell.merged.unmarked and UNMARKED not in cell.approved):
        return act.Block(cause=BASE, check=MERGE)
    gates = dict.fromkeys(gate.run for phase in pins.pipeline.phases for gate in phase.gates if gate.run)
    for gate in gates if cell.merged.changed else ():
        passed = cell.checked.get(gate)
        if passed is None and gate in pins.config.commands:
            return act.RunGate(gate=gate, cause=BASE)
        if passed is False:
            return act.Block(cause=BASE, check=gate, reports=cell.reports)
    return None


def _await(cell: Cell, settings: PullRequests) -> Action | None:
    """Wait until every required CI check passes, or a person accepts the state.

    CI checks appear one by one, so the list counts as complete only after `checks_grace`.
    """
    if AWAIT in cell.approved:
        return None
    until_us = cell.pushed_at_us + settings.checks_wait_seconds * SECOND_US
    seen = cell.checks
    if seen is None:
        if isinstance(cell.last, ChecksRerun):
            return act.HoldFeature(hold=Hold.CHECKS, until_us=until_us)
        return act.LookAtChecks()
    if seen.red and not seen.pending:
        if seen.flaky and cell.reruns < settings.reruns_max:
            return act.RerunChecks()
        return act.Block(cause=CHECKS, check=AWAIT, reports=() if seen.report is None else (seen.report,))
    if seen.known and not seen.pending:
        grace_us = cell.pushed_at_us + settings.checks_grace_seconds * SECOND_US
        if cell.checks_at_us >= grace_us:
            return None
        return act.HoldFeature(hold=Hold.TIMER, until_us=grace_us)
    if cell.checks_at_us >= until_us:
        return act.AskHuman(ask=Ask.CHECKS, code=AWAIT)
    return act.HoldFeature(hold=Hold.CHECKS, until_us=until_us)
