"""Pure: what follows the commit of a cell: the phase's delivery steps, then its completion."""

from __future__ import annotations

from mz_events.catalog.delivery import DeliveryFailed
from mz_events.catalog.feature import Ask
from mz_projections.state import Cell

from mz_engine.config import PullRequests
from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.pipelines.definition import Phase


def deliver(cell: Cell, phase: Phase, pull_requests: PullRequests) -> Action:
    """With strategy `none` nothing leaves the machine: no push, and the pull request is a file for a person."""
    if isinstance(cell.last, DeliveryFailed):
        return act.AskHuman(ask=Ask.UNROUTED, code=cell.last.code, text=cell.last.detail)
    for step in phase.deliver:
        if step in cell.delivered:
            continue
        if step == "open_pr":
            return act.OpenPullRequest()
        if pull_requests.strategy != "none":
            return act.Push()
    return act.CompleteUnit(unit=cell.unit)
