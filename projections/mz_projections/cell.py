"""Applies events to the unit run in which they occur. A table of handlers, because this is the most frequent step of a
fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallHeld,
    CallPriced,
    CallReserved,
    CallSettled,
    ReplyRead,
)
from mz_events.catalog.check import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    GateChecked,
    RefMoved,
)
from mz_events.catalog.delivery import (
    ChecksRerun,
    ChecksSeen,
    CommitRequested,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
    PushRequested,
)
from mz_events.names import Digest

from mz_projections.state import Cell, Spent, Tries

NO_TRIES = Tries()
SESSION_MISSING = "session-missing"
"""Problem code of a continued call that is repeated with a full prompt. Not a failure of the work; it cannot occur
twice in a row, since the repeated call starts a new session."""


# calls ----------------------------------------------------------------------------------------------------------------
def _requested(cell: Cell, event: AgentRequested, at_us: int) -> Cell:
    role = event.ref.role
    tries = {**cell.tries, role: replace(cell.tries.get(role, NO_TRIES), attempt=event.ref.attempt)}
    checked = {} if role == "builder" else cell.checked
    return replace(cell, role=role, tries=tries, approved=(), checked=checked, request=event, last=event)


def _replied(cell: Cell, event: AgentReplied, at_us: int) -> Cell:
    return replace(cell, spent=_with_time(cell.spent, event.duration_ms), ended_at_us=at_us, replied=event, last=event)


def _failed(cell: Cell, event: AgentFailed, at_us: int) -> Cell:
    return replace(cell, spent=_with_time(cell.spent, event.duration_ms), ended_at_us=at_us, last=event)


def _with_time(spent: Spent, duration_ms: int) -> Spent:
    return replace(spent, duration_ms=spent.duration_ms + duration_ms)


def _lost(cell: Cell, event: AgentLost, at_us: int) -> Cell:
    return replace(cell, last=event, ended_at_us=at_us)


def _read(cell: Cell, event: ReplyRead, at_us: int) -> Cell:
    role = event.ref.role
    tries = cell.tries.get(role, NO_TRIES)
    resumed = cell.request is not None and cell.request.resumes
    if event.problem is not None and not (resumed and event.problem.code == SESSION_MISSING):
        tries = replace(tries, failures=tries.failures + 1)
    spent = _with_tokens(cell.spent, event)
    return replace(cell, tries={**cell.tries, role: tries}, reply=event.text, spent=spent, last=event)


def _with_tokens(spent: Spent, read: ReplyRead) -> Spent:
    return replace(
        spent,
        input_tokens=spent.input_tokens + sum([usage.input for usage in read.usage]),
        output_tokens=spent.output_tokens + sum([usage.output for usage in read.usage]),
    )


def _settled(cell: Cell, event: CallSettled, at_us: int) -> Cell:
    return replace(cell, spent=replace(cell.spent, nanousd=cell.spent.nanousd + event.nanousd))


def _switched(cell: Cell, event: AgentSwitched, at_us: int) -> Cell:
    """Reset the failures: the next agent has its own retries."""
    role = event.ref.role
    tries = replace(cell.tries.get(role, NO_TRIES), failures=0)
    return replace(cell, tries={**cell.tries, role: tries}, last=event)


def _held(cell: Cell, event: CallHeld, at_us: int) -> Cell:
    return replace(cell, role=event.role, last=event)


# checks ---------------------------------------------------------------------------------------------------------------
def _ran(cell: Cell, event: CommandRan, at_us: int) -> Cell | None:
    if event.stage == "prepare":
        return replace(cell, prepared=(*cell.prepared, event), last=event)
    return cell if event.stage in ("gate", "setup") else None


def _changes_checked(cell: Cell, event: ChangesChecked, at_us: int) -> Cell:
    return replace(cell, tree=event.tree, last=event)


def _parsed(cell: Cell, event: ArtifactParsed, at_us: int) -> Cell:
    return replace(cell, parsed={**cell.parsed, event.artifact: event})


def _validated(cell: Cell, event: ArtifactValidated, at_us: int) -> Cell:
    if event.violations and event.report is not None:
        return _refused(replace(cell, last=event), event.report, event.ref.role)
    return replace(cell, reports=(), signature="", last=event)


def _gate_checked(cell: Cell, event: GateChecked, at_us: int) -> Cell:
    cell = replace(cell, checked={**cell.checked, event.gate: event.passed}, last=event)
    if event.passed or event.report is None:
        return cell
    if event.cause == "person":
        return replace(cell, reports=(event.report,))
    return replace(_refused(cell, event.report, "builder"), signature=event.signature)


def _refused(cell: Cell, report: Digest, role: str) -> Cell:
    tries = cell.tries.get(role, NO_TRIES)
    tries = replace(tries, refused=tries.refused + 1)
    return replace(cell, role=role, tries={**cell.tries, role: tries}, reports=(report,), signature="")


# delivery -------------------------------------------------------------------------------------------------------------
def _pull_opened(cell: Cell, event: PullRequestOpened, at_us: int) -> Cell:
    return replace(cell, delivered=(*cell.delivered, "open_pr"), pull=event.number, last=event)


def _checks_seen(cell: Cell, event: ChecksSeen, at_us: int) -> Cell:
    return replace(cell, checks=event, checks_at_us=at_us, pushed_at_us=cell.pushed_at_us or at_us, last=event)


def _checks_rerun(cell: Cell, event: ChecksRerun, at_us: int) -> Cell:
    return replace(cell, checks=None, reruns=cell.reruns + 1, pushed_at_us=at_us, last=event)


# any ------------------------------------------------------------------------------------------------------------------
def _noted(cell: Cell, event: Any, at_us: int) -> Cell:
    return replace(cell, last=event)


def _unchanged(cell: Cell, event: Event, at_us: int) -> Cell:
    return cell


def _moved(cell: Cell, event: RefMoved, at_us: int) -> Cell:
    return replace(cell, moved=True)


IN_CELL: Mapping[type[Event], Callable[[Cell, Any, int], Cell | None]] = {
    AgentRequested: _requested,
    AgentReplied: _replied,
    AgentFailed: _failed,
    AgentLost: _lost,
    ReplyRead: _read,
    CallHeld: _held,
    AgentSwitched: _switched,
    CallReserved: _unchanged,
    CallPriced: _unchanged,
    CallSettled: _settled,
    RefMoved: _moved,
    CommandRan: _ran,
    ChangesChecked: _changes_checked,
    ArtifactParsed: _parsed,
    ArtifactValidated: _validated,
    GateChecked: _gate_checked,
    CommitRequested: _noted,
    PushRequested: _noted,
    PullRequestRequested: _noted,
    DeliveryFailed: _noted,
    PullRequestOpened: _pull_opened,
    ChecksSeen: _checks_seen,
    ChecksRerun: _checks_rerun,
}
"""By event type: returns the next unit run, given the observation time; None: illegal. Unlisted events do not occur
inside a unit run, or change more than it."""
