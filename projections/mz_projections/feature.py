"""Folds the stream of one feature into its state.

`apply_strict` returns None for an event that is illegal in a state; the runner rejects such an event before it is
appended. `evolve` is total over every event ever released: an illegal event changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallHeld,
    ReplyRead,
    SessionBroken,
    SessionEnd,
)
from mz_events.catalog.check import ArtifactParsed, CommandRan
from mz_events.catalog.delivery import (
    BaseMerged,
    ChecksRerun,
    ChecksSeen,
    CommitRequested,
    Committed,
    Pushed,
)
from mz_events.catalog.feature import (
    Ask,
    Blocked,
    FeatureCancelled,
    FeatureDelivered,
    FeatureFailed,
    FeatureHeld,
    FeatureRetried,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    RolledBack,
    TreeRestored,
    UnitCompleted,
    UnitStarted,
    WorkspaceConflicted,
    WorkspaceReady,
)
from mz_events.catalog.run import FilesClaimed, FilesContended, Hold, Rest, Verdict
from mz_events.envelope import Recorded
from mz_events.names import Digest

from mz_projections.cell import IN_CELL
from mz_projections.conversation import IN_SESSION, broken, wrote
from mz_projections.state import (
    Active,
    Between,
    Book,
    Cell,
    Ended,
    Held,
    Opening,
    Restoring,
    Setting,
    State,
    Unborn,
    Waiting,
    Working,
    book_of,
    heard_of,
)

Outcome = AgentReplied | AgentFailed | AgentLost
BESIDE_THE_CELL = frozenset({AgentRequested, AgentSwitched})
"""Events within a unit that change the feature's progress even without a session."""
ANYWHERE = frozenset({FeatureCancelled, FeatureFailed, FeatureRetried, FeatureHeld, HumanRequested})
"""Legal in any state of a feature that has not ended; ends that state."""


def fold(events: Iterable[Recorded[Event]]) -> State:
    start: State = Unborn()
    return reduce(evolve, events, start)


def evolve(state: State, recorded: Recorded[Event]) -> State:
    """Return the next state. Total: an illegal event changes nothing."""
    following = follow(state, recorded)
    return state if following is None else following


def follow(state: State, recorded: Recorded[Event]) -> State | None:
    """Return the state after the event, or None if the event is illegal in this state."""
    event = recorded.event
    if type(state) is Working and type(event) not in ANYWHERE:
        return _working(state, event, recorded.observed_at_us)
    match state, event:
        case (Unborn(), FeatureStarted()):
            return Opening(started=event, heard=event.heard)
        case (Ended(before=Opening() | Setting() | Between() | Working() | Restoring() as before), FeatureRetried()):
            return _retried(before, event)
        case (Ended(), _) | (Unborn(), _):
            return None
        case (_, FeatureCancelled()):
            return _ended(state, Rest.CANCELLED, heard=event.heard)
        case (_, FeatureFailed(code=code)):
            return _ended(state, Rest.FAILED, code=code)
        case (Held(then=then), HoldReleased()):
            return _released(then, event)
        case (Waiting(asked=asked, then=then), HumanAnswered()):
            return _answered(then, asked, event)
        case (Held(then=then) | Waiting(then=then), FeatureRetried()):
            return _retried(then, event)
        case (Held() | Waiting(), _):
            return None
        case (_, FeatureRetried()):
            return _retried(state, event)
        case (_, FeatureHeld()):
            return Held(hold=event.hold, until_us=event.until_us, code=event.code, then=state)
        case (_, HumanRequested()):
            return Waiting(asked=event, then=state)
        case (Opening(), _):
            return _opening(state, event)
        case (Setting(), CommandRan(stage="setup")):
            return replace(state, ran=(*state.ran, event))
        case (Setting(book=book), WorkspaceReady()):
            return replace(state, book=replace(book, head=event.head, tree=event.tree))
        case (Setting() | Between(), PhaseStarted()):
            return _phase_started(state.book, event)
        case (Between(book=book), FeatureDelivered()):
            return Ended(
                status=Rest(event.terminal), heard=book.heard, head=event.head, touched=event.touched, book=book
            )
        case (Restoring(), _):
            return _restoring(state, event)
    return None


def _ended(state: State, status: Rest, heard: int = 0, code: str | None = None) -> Ended:
    book = book_of(state)
    return Ended(
        status=status,
        heard=max(heard, heard_of(state)),
        head=book.head if book else None,
        code=code,
        book=book,
        before=state.then if isinstance(state, Held | Waiting) else state if isinstance(state, Active) else None,
    )


def _opening(state: Opening, event: Event) -> State | None:
    match event:
        case WorkspaceReady():
            return Setting(
                book=Book(started=state.started, base=event.head, head=event.head, tree=event.tree, heard=state.heard)
            )
        case WorkspaceConflicted():
            return replace(state, last=event)
    return None


def _phase_started(book: Book, event: PhaseStarted) -> Working:
    starts = {**book.starts, event.phase: book.starts.get(event.phase, book.tree)}
    return Working(
        book=replace(book, starts=starts),
        phase=event.phase,
        units=event.units,
        finished=book.kept.get(event.phase, ()),
        kept=book.kept.get(event.phase, ()),
    )


def _restoring(state: Restoring, event: Event) -> State | None:
    match event:
        case CommitRequested(purpose="restore"):
            return replace(state, last=event)
        case Committed():
            return replace(state, last=event, book=replace(state.book, head=event.commit))
        case TreeRestored(tree=tree):
            return Between(book=replace(state.book, tree=tree))
    return None


# people and holds -----------------------------------------------------------------------------------------------------
def _hear(then: Active, heard: int) -> Active:
    if isinstance(then, Opening):
        return replace(then, heard=heard)
    return replace(then, book=replace(then.book, heard=heard))


def _released(then: Active, event: HoldReleased) -> State:
    then = _hear(then, event.heard)
    if isinstance(then, Working):
        then = replace(then, contended=False)
        if event.hold is Hold.FATAL:  # The problem was fixed: start with the configured agent again.
            then = replace(then, book=replace(then.book, agent=""))
        if then.cell is not None and _waits_to_call(then.cell):
            return replace(then, cell=replace(then.cell, last=event))
        if then.cell is not None and isinstance(then.cell.last, ChecksSeen | ChecksRerun):
            return replace(then, cell=replace(then.cell, checks=None, last=event))
    return then


def _waits_to_call(cell: Cell) -> bool:
    """Return True for a hold before a call, for money or after a problem; other holds do not affect the unit run."""
    return isinstance(cell.last, CallHeld) or (isinstance(cell.last, ReplyRead) and cell.last.problem is not None)


def _answered(then: Active, asked: HumanRequested, event: HumanAnswered) -> State:
    then = _hear(then, event.heard)
    match then:
        case Opening():
            return replace(then, last=event)
        case Setting(ran=ran):
            return replace(then, ran=tuple(command for command in ran if command.exit == 0), last=event)
        case Working(book=book, cell=Cell() as cell):
            if asked.ask is Ask.SECRET:  # The files that it wrote are reverted.
                book = replace(book, conversation=broken(book.conversation, SessionEnd.ROLLBACK))
            return replace(then, book=book, cell=_answered_cell(cell, asked, event))
    return then


def _answered_cell(cell: Cell, asked: HumanRequested, event: HumanAnswered) -> Cell:
    """Continue on approval; leave a rejection to the decision; otherwise retry with the note and reset counters.

    The retry is by the builder if a person judged its work, and from the start of the unit if no agent was called yet.
    """
    cell = replace(cell, asked=asked, moved=False)
    approved = event.verdict is Verdict.APPROVE
    if approved and asked.ask is Ask.REPOSITORY:
        return cell
    if event.verdict is Verdict.REJECT:
        return replace(cell, last=event)
    cell = replace(cell, notes=cell.notes if event.note is None else (*cell.notes, event.note))
    if approved and asked.ask is Ask.APPROVAL:
        return replace(cell, approved=(*cell.approved, asked.code))
    if asked.ask is Ask.CHECKS:
        waived = (*cell.approved, asked.code) if approved else cell.approved
        return replace(
            cell, approved=waived, checks=None, pushed_at_us=0, reruns=0, block=None, pardoned=True, last=event
        )
    if asked.ask is Ask.CONFLICT and approved and isinstance(cell.last, BaseMerged):
        return replace(cell, approved=(*cell.approved, asked.code))
    if asked.ask in (Ask.ROLLBACKS, Ask.CONFLICT):
        return replace(cell, pardoned=True)
    if not any(tries.attempt for tries in cell.tries.values()):
        waived = (*cell.approved, asked.code) if approved else cell.approved
        return replace(cell, last=None, tries={}, prepared=(), checked={}, block=None, approved=waived)
    reset = {role: replace(tries, refused=0, failures=0) for role, tries in cell.tries.items()}
    role = "builder" if asked.ask in (Ask.APPROVAL, Ask.UNROUTED) else cell.role
    tree = cell.base if asked.ask is Ask.SECRET else cell.tree
    return replace(cell, last=event, tries=reset, block=None, role=role, tree=tree)


# inside a phase -------------------------------------------------------------------------------------------------------
def _working(state: Working, event: Event, observed_at_us: int) -> State | None:
    cell = state.cell
    change = IN_CELL.get(type(event)) if cell is not None else None
    if cell is not None and change is not None:
        following = change(cell, event, observed_at_us)
        if following is None or following is cell:
            return None if following is None else state
        if state.book.conversation is not None or type(event) in BESIDE_THE_CELL:
            return replace(state, cell=following, book=_beside(state.book, cell, event))
        return replace(state, cell=following)
    match event:
        case FilesClaimed():
            return replace(state, claimed=True, contended=False)
        case FilesContended():
            return replace(state, contended=True)
        case UnitStarted() if cell is None:
            return replace(state, cell=_unit_started(state.book, event))
        case PhaseCompleted() if cell is None:
            return Between(book=_phase_completed(state.book, event.phase))
    if cell is None:
        return None
    match event:
        case SessionBroken():
            return replace(state, book=replace(state.book, conversation=None))
        case UnitCompleted():
            return replace(
                state, book=_unit_completed(state.book, cell), finished=(*state.finished, event.unit), cell=None
            )
        case Blocked():
            book = replace(
                state.book,
                issues=_counted(state.book.issues, issue_of(event)),
                blocks=_counted(state.book.blocks, event.cause),
            )
            return replace(state, book=book, cell=replace(cell, block=event, last=event))
        case RolledBack():
            return _rolled_back(state, cell, event)
        case Committed():
            book = replace(state.book, head=event.commit)
            return replace(state, book=book, cell=replace(cell, commit=event.commit, last=event))
        case BaseMerged():
            return _merged(state, cell, event)
        case Pushed():
            pushed = replace(cell, delivered=(*cell.delivered, "push"), last=event)
            return replace(state, book=replace(state.book, pushed=event.commit), cell=pushed)
    return None


def _beside(book: Book, cell: Cell, event: Event) -> Book:
    """Apply an event of a unit to the feature's session and agent."""
    change = IN_SESSION.get(type(event))
    if change is not None:
        conversation = change(book.conversation, event)
    elif isinstance(event, ArtifactParsed) and cell.replied is not None:
        conversation = wrote(book.conversation, cell.replied.ref.key, event)
    elif isinstance(event, AgentSwitched):
        return replace(book, agent=event.to)
    else:
        return book
    return book if conversation is book.conversation else replace(book, conversation=conversation)


def _unit_started(book: Book, event: UnitStarted) -> Cell:
    notes = _start_notes(book, event.phase, event.unit)
    return Cell(unit=event.unit, iteration=event.iteration, base=book.tree, tree=book.tree, notes=notes)


def _unit_completed(book: Book, cell: Cell) -> Book:
    artifacts = dict(book.artifacts)
    for name, parsed in cell.parsed.items():
        artifacts[name] = parsed
        if cell.unit:
            artifacts[f"{name}/{cell.unit}"] = parsed
    return replace(book, artifacts=artifacts, tree=cell.tree)


def _phase_completed(book: Book, phase: str) -> Book:
    kept = {name: units for name, units in book.kept.items() if name != phase}
    notes = {key: value for key, value in book.notes.items() if key.split("/")[0] != phase}
    return replace(book, done=(*book.done, phase), kept=kept, notes=notes)


def issue_of(block: Blocked) -> str:
    """Return the identity of an issue: never prose, so that the same issue is recognised."""
    return f"{block.phase}|{block.check}|{block.unit}|{block.path}"


def _counted(counts: dict[str, int], key: str) -> dict[str, int]:
    return {**counts, key: counts.get(key, 0) + 1}


def _rolled_back(state: Working, cell: Cell, event: RolledBack) -> State:
    added = cell.notes[len(_start_notes(state.book, state.phase, cell.unit)) :]
    reasons = (cell.block.note, *added) if cell.block and cell.block.note else added
    book = _superseded(state.book, event.to, event.units, reasons)
    conversation = broken(book.conversation, SessionEnd.ROLLBACK)
    book = replace(book, rollbacks=book.rollbacks + 1, conversation=conversation)
    if event.units:
        kept = tuple(unit for unit in state.finished if unit not in event.units)
        return Between(book=replace(book, kept={**book.kept, event.to: kept}, tree=cell.tree))
    if event.keeps_tree:
        return Between(book=replace(book, tree=cell.tree))
    return _restored(book, event.to, state.book)


def _superseded(book: Book, to: str, units: tuple[str, ...], reasons: tuple[Digest, ...]) -> Book:
    """Supersede phases started at or after `to`, or only these units of it, with their artifacts and completions."""
    order = list(book.starts)
    dropped = order[order.index(to) :] if to in order else []
    later = [phase for phase in dropped if phase != to] if units else dropped
    superseded = dict(book.superseded)
    for key in (*later, *(f"{to}/{unit}" for unit in units)):
        superseded[key] = superseded.get(key, 0) + 1
    notes = {key: value for key, value in book.notes.items() if key.split("/")[0] not in later}
    for key in [f"{to}/{unit}" for unit in units] or [to]:
        notes[key] = (*notes.get(key, ()), *reasons)
    return replace(
        book,
        done=tuple(phase for phase in book.done if phase not in dropped),
        artifacts={name: artifact for name, artifact in book.artifacts.items() if artifact.phase not in later},
        starts={phase: tree for phase, tree in book.starts.items() if phase not in later},
        superseded=superseded,
        kept={phase: names for phase, names in book.kept.items() if phase not in dropped},
        notes=notes,
    )


def _restored(book: Book, to: str, before: Book) -> Restoring:
    """Return the state that restores, on the branch, the tree that phase `to` began with."""
    conversation = broken(book.conversation, SessionEnd.ROLLBACK)
    tree = before.starts.get(to, before.tree)
    return Restoring(book=replace(book, tree=tree, restores=book.restores + 1, conversation=conversation), to=to)


def _retried(then: Active, event: FeatureRetried) -> State:
    """Reset all counters: a person has looked at the feature."""
    then = _hear(then, event.heard)
    if isinstance(then, Opening):
        return replace(then, last=None)
    if isinstance(then, Setting):
        return replace(then, ran=tuple(command for command in then.ran if command.exit == 0), last=None)
    book = replace(then.book, issues={}, blocks={}, rollbacks=0, agent="")
    reasons = () if event.note is None else (event.note,)
    if event.to not in book.starts:
        if not isinstance(then, Restoring):
            return Between(book=book)
        notes = {**book.notes, then.to: (*book.notes.get(then.to, ()), *reasons)}
        return Restoring(book=replace(book, restores=book.restores + 1, notes=notes), to=then.to)
    return _restored(_superseded(book, event.to, (), reasons), event.to, book)


def _merged(state: Working, cell: Cell, event: BaseMerged) -> State:
    """Apply a merge of the target to every earlier tree too, so that a rollback does not revert it."""
    book = replace(state.book, head=event.head, conflicted=event.conflicts)
    if event.changed:
        book = replace(book, joined=event.base, starts=dict.fromkeys(book.starts, event.tree))
        cell = replace(cell, checked={})
    return replace(state, book=book, cell=replace(cell, tree=event.tree, merged=event, last=event))


def _start_notes(book: Book, phase: str, unit: str) -> tuple[Digest, ...]:
    """Return the notes that a unit run begins with: for this unit, not for one that the work is rolled back to."""
    return book.notes.get(phase, ()) + (book.notes.get(f"{phase}/{unit}", ()) if unit else ())
