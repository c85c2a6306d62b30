"""A recorded stream, and the workspace port that returns its results. Captured trees are read from the repository, if
they still exist. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar, overload

import msgspec
from mz_engine.effects.call import WORKTREE_LOST
from mz_engine.model.config import Sources
from mz_engine.ports import (
    Capture,
    Checkout,
    CreatedCommit,
    DeliveryRefused,
    FeatureWorktree,
    MergeConflict,
    MergeResult,
    RemoteError,
    RepositoryUnusable,
    SourceChange,
    Workspace,
    WorkspaceCreated,
)
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested
from mz_events.catalog.delivery import (
    BaseMerged,
    BranchesClosed,
    BranchLanded,
    CommitRequested,
    Committed,
    DeliveryFailed,
    MergeRequested,
    Pushed,
    PushRequested,
    Tagged,
    TagRequested,
    TargetMoved,
)
from mz_events.catalog.feature import (
    EditMade,
    FeatureDelivered,
    FeatureHeld,
    HumanRequested,
    WorkspaceConflicted,
    WorkspaceReady,
)
from mz_events.catalog.run import Hold
from mz_events.catalog.validation import ArtifactParsed, Change, ChangesChecked, CommandRan
from mz_events.names import Commit, Digest, Path
from mz_events.store import Blobs, Recorded

CONFLICT_MARKER = b"<<<<<<< \n"
E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Event)
G = TypeVar("G", bound=Event)
NEAR = 4
"""Number of events within which the end of a step is: those that are appended together."""


class NotInRecord(Exception):
    """The recorded stream has no result here: it ends, or continues with something else."""


class RecordedDataMissing(Exception):
    """Recorded data that is needed to compute this again is gone. The message says which."""


class RecordedStream:
    """The events of a stream, from which the ports of one effect read recorded results."""

    def __init__(self, events: Sequence[Recorded[Event]]) -> None:
        self.events = events
        self.position = 0

    def ahead(self, events_max: int | None = None) -> Iterator[Event]:
        """Yield the events from the position on."""
        end = None if events_max is None else self.position + events_max
        return (recorded.event for recorded in islice(self.events, self.position, end))

    def next_event(self) -> Event | None:
        """Return the event at the position; None at the end."""
        return next(self.ahead(), None)

    def skip_produced(self, produced: Sequence[Event]) -> None:
        """Advance past those produced events that were recorded here."""
        for event in produced:
            if type(self.next_event()) is type(event):
                self.position += 1

    @overload
    def outcome(self, kind: type[E], /) -> E: ...
    @overload
    def outcome(self, kind: type[E], other: type[F], /) -> E | F: ...
    @overload
    def outcome(self, kind: type[E], other: type[F], third: type[G], /) -> E | F | G: ...
    def outcome(self, *kinds: type[Event]) -> Event:
        """Return the recorded outcome. Raises RepositoryUnusable if the repository was unusable, and NotInRecord."""
        event = self.next_event()
        self.raise_if_unusable()
        if isinstance(event, kinds):
            return event
        raise NotInRecord

    def raise_if_unusable(self) -> None:
        """Raise RepositoryUnusable if that was recorded here."""
        event = self.next_event()
        if isinstance(event, FeatureHeld) and event.hold is Hold.FATAL and event.template is None:
            raise RepositoryUnusable(event.code or "", "as it was recorded")

    def find_near(self, kind: type[E]) -> E | None:
        """Return the next event of that kind if it belongs to what the effect is about to append."""
        return next((event for event in self.ahead(NEAR) if isinstance(event, kind)), None)

    def changes_checked(self) -> ChangesChecked | None:
        """Return the check of the tree at the position; a set-up of the worktree may precede it."""
        for event in self.ahead():
            if not (isinstance(event, CommandRan) and event.stage == "setup"):
                return event if isinstance(event, ChangesChecked) else None
        return None

    def first_of(self, usual: type[Event], other: type[Event]) -> type[Event]:
        """Return the one of two event types that comes next, if it is near."""
        return next((type(event) for event in self.ahead(NEAR) if type(event) in (usual, other)), usual)

    def now_us(self) -> int:
        """Return the next event's time, by `observed_at`."""
        index = min(self.position, len(self.events) - 1)
        return self.events[index].observed_at_us


class RecordedWorkspace:
    """Implements `mz_engine.ports.Workspace`."""

    def __init__(self, stream: RecordedStream, trees: Workspace | None, blobs: Blobs) -> None:
        self.stream, self.trees, self.blobs = stream, trees, blobs
        self.read_last: Path | None = None
        """Path that was read last."""

    # worktrees --------------------------------------------------------------------------------------------------------
    def open(self, worktree: FeatureWorktree, starts_from: tuple[Commit, ...]) -> WorkspaceCreated | MergeConflict:
        outcome = self.stream.outcome(WorkspaceReady, WorkspaceConflicted, HumanRequested)
        if isinstance(outcome, WorkspaceReady):
            return WorkspaceCreated(head=outcome.head, tree=outcome.tree, environment=outcome.environment)
        if isinstance(outcome, WorkspaceConflicted):
            return MergeConflict(paths=outcome.paths)
        raise RepositoryUnusable(outcome.code, self._text(outcome.detail))

    def ensure(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> bool:
        """Return True if a set-up of the worktree was recorded here."""
        self.stream.raise_if_unusable()
        event = self.stream.next_event()
        return isinstance(event, CommandRan) and event.stage == "setup"

    def checkout(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> Checkout:
        needs_setup = self.ensure(worktree, head, tree)
        ran = self.stream.find_near(CommandRan)
        return Checkout(worktree=worktree, environment=ran.environment if ran else None, needs_setup=needs_setup)

    def release(self, worktree: FeatureWorktree) -> None:
        pass

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        ready = self.stream.find_near(WorkspaceReady)
        if ready is not None:
            return Capture(tree=ready.tree)
        outcome = self.stream.outcome(AgentReplied, AgentFailed, AgentLost)
        if isinstance(outcome, AgentLost) or (isinstance(outcome, AgentFailed) and outcome.problem == WORKTREE_LOST):
            raise RepositoryUnusable("worktree-lost", "as it was recorded")
        changes = outcome.forbidden_changes if isinstance(outcome, AgentReplied) else ()
        return Capture(tree=outcome.tree, forbidden_changes=changes)

    def lay_out(self, worktree: FeatureWorktree, tree: Commit, paths: tuple[Path, ...]) -> Commit:
        request = self.stream.find_near(AgentRequested)
        if request is None or request.laid_out is None:
            raise NotInRecord
        return request.laid_out

    def collect(self, worktree: FeatureWorktree, tree: Commit, laid_out: Commit) -> Capture:
        return self.capture(worktree, tree)

    def adopt(self, worktree: FeatureWorktree, tree: Commit) -> None:
        pass

    def provide(self, worktree: FeatureWorktree, files: Mapping[Path, bytes]) -> None:
        pass

    def revert_paths(self, worktree: FeatureWorktree, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        made = self.stream.next_event()
        if isinstance(made, CommitRequested | BaseMerged):
            return made.tree
        checked = self.stream.changes_checked()
        if checked is None:
            self.stream.raise_if_unusable()
            raise NotInRecord
        return checked.tree

    def edit(
        self, worktree: FeatureWorktree, tree: Commit, deleted: tuple[Path, ...], files: Mapping[Path, bytes]
    ) -> Commit:
        return self.stream.outcome(EditMade).tree

    def close(self, worktree: FeatureWorktree) -> None:
        self.stream.raise_if_unusable()

    # contents ---------------------------------------------------------------------------------------------------------
    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        with self._captured_trees() as trees:
            return trees.changes(old, new)

    def source_change(self, old: Commit, new: Commit, sources: Sources) -> SourceChange:
        with self._captured_trees() as trees:
            return trees.source_change(old, new, sources)

    def read(self, tree: Commit, path: Path) -> bytes | None:
        self.read_last = path
        merged = self.stream.next_event()
        if isinstance(merged, BaseMerged):
            return CONFLICT_MARKER if path in merged.conflicts else b""
        with self._captured_trees() as trees:
            return trees.read(tree, path)

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        with self._captured_trees() as trees:
            return trees.paths(tree)

    @contextmanager
    def _captured_trees(self) -> Iterator[Workspace]:
        """Yield the captured trees. Raises RecordedDataMissing, also if git no longer has one that is read."""
        if self.trees is None:
            raise RecordedDataMissing("captured trees")
        try:
            yield self.trees
        except RepositoryUnusable as error:
            raise RecordedDataMissing("captured trees that git no longer has") from error

    # commits ----------------------------------------------------------------------------------------------------------
    def find_commit(self, worktree: FeatureWorktree, key: str) -> CreatedCommit | None:
        return self._recorded_commit()

    def commit(self, worktree: FeatureWorktree, tree: Commit, parent: Commit, message: bytes) -> CreatedCommit:
        return self._recorded_commit()

    def _recorded_commit(self) -> CreatedCommit:
        return msgspec.convert(self.stream.outcome(Committed), CreatedCommit, from_attributes=True)

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        match self.stream.next_event():
            case MergeRequested(old=old) | BranchLanded(old=old) | TargetMoved(commit=old):
                return old
            case DeliveryFailed(code="target-missing"):
                return None
        return self._recorded_merge().base

    def join(self, target: Commit, head: Commit, message: bytes) -> CreatedCommit:
        """Return the recorded merge, with the counts of its outcome."""
        request, landed = self.stream.find_near(MergeRequested), self.stream.find_near(BranchLanded)
        commit = request.commit if request else landed.commit if landed else target
        counts = (landed.files, landed.insertions, landed.deletions) if landed else (0, 0, 0)
        return CreatedCommit(commit=commit, files=counts[0], insertions=counts[1], deletions=counts[2])

    def advance(self, branch: str, old: Commit, commit: Commit) -> Commit | None:
        outcome = self.stream.outcome(BranchLanded, TargetMoved, DeliveryFailed)
        self._raise_if_failed(outcome)
        return outcome.commit if isinstance(outcome, TargetMoved) else None

    def tagged(self, name: str) -> Commit | None:
        """Return None: a name was free where the tag was made or requested."""
        outcome = self.stream.outcome(TagRequested, Tagged, DeliveryFailed)
        self._raise_if_failed(outcome)
        return None

    def tag(self, name: str, commit: Commit) -> None:
        self.stream.outcome(Tagged)

    def close_branch(self, worktree: FeatureWorktree, head: Commit) -> None:
        self._raise_if_failed(self.stream.outcome(BranchesClosed, DeliveryFailed))

    def _raise_if_failed(self, outcome: Event) -> None:
        """Raise the error of a delivery that failed here."""
        if isinstance(outcome, DeliveryFailed):
            raise DeliveryRefused(self._text(outcome.detail), outcome.code)

    def merge(self, worktree: FeatureWorktree, head: Commit, other: Commit, message: bytes) -> MergeResult:
        merged = self._recorded_merge()
        paths = (*merged.conflicts, *merged.unmarked)
        return MergeResult(commit=merged.head, tree=merged.tree, changed=merged.changed, conflicts=paths)

    def _recorded_merge(self) -> BaseMerged:
        outcome = self.stream.outcome(BaseMerged, DeliveryFailed)
        if isinstance(outcome, DeliveryFailed):
            raise RemoteError(self._text(outcome.detail))
        return outcome

    def is_newest(self, head: Commit, path: Path, request: Path, inputs: tuple[Path, ...]) -> bool:
        return isinstance(self.stream.next_event(), ArtifactParsed)

    def contains(self, head: Commit, commit: Commit) -> bool:
        match self.stream.next_event():
            case MergeRequested(old=old):
                return commit == old
            case BranchLanded(old=old):
                return head == old
            case event:
                return isinstance(event, PushRequested)

    def remote_head(self, remote: str, branch: str) -> Commit | None:
        match self.stream.outcome(PushRequested, Pushed, DeliveryFailed):
            case PushRequested(old=old):
                return old
            case Pushed(commit=commit):
                return commit
            case DeliveryFailed(code="remote-unreachable", detail=detail):
                raise RemoteError(self._text(detail))
            case DeliveryFailed(code="branch-moved"):
                return Commit("somebody else's")
        return None

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        outcome = self.stream.outcome(Pushed, DeliveryFailed)
        if isinstance(outcome, DeliveryFailed):
            raise RemoteError(self._text(outcome.detail))

    def changed_paths(self, base: Commit, head: Commit) -> tuple[Path, ...]:
        delivered = self.stream.find_near(FeatureDelivered)
        if delivered is None:
            self.stream.raise_if_unusable()
            raise NotInRecord
        return delivered.changed_paths

    def _text(self, detail: Digest | None) -> str:
        return self.blobs.get(detail).decode("utf-8", "replace") if detail is not None else ""
