"""The workspace port, which returns recorded results, and contents of captured trees if they still exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from mz_engine.effects.call import WORKTREE_LOST
from mz_engine.ports import (
    Capture,
    Conflicted,
    MadeCommit,
    Merged,
    Moved,
    Opened,
    Place,
    RemoteRefused,
    RepositoryUnusable,
)
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested
from mz_events.catalog.check import ArtifactParsed, Change, CommandRan
from mz_events.catalog.delivery import BaseMerged, Committed, DeliveryFailed, Pushed, PushRequested
from mz_events.catalog.feature import (
    FeatureDelivered,
    HumanRequested,
    WorkspaceConflicted,
    WorkspaceReady,
)
from mz_events.names import Commit, Digest, Path

from mz_recordings.history.tape import Lost, Tape, Unanswered

MARKED = b"<<<<<<< \n"


class Contents(Protocol):
    """Captured trees; each method raises RecordedDataMissing."""

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]: ...

    def read(self, tree: Commit, path: Path) -> bytes | None: ...

    def paths(self, tree: Commit) -> tuple[Path, ...]: ...


class Texts(Protocol):
    """Blob store; raises RecordedDataMissing."""

    def get(self, digest: Digest) -> bytes: ...


class AnsweredWorkspace:
    """Implements `mz_engine.ports.Workspace`."""

    def __init__(self, tape: Tape, trees: Contents | None, blobs: Texts) -> None:
        self.tape, self.trees, self.blobs = tape, trees, blobs
        self.read_last: Path | None = None
        """Path that was read last."""

    # worktrees --------------------------------------------------------------------------------------------------------
    def open(self, place: Place, starts_from: tuple[Commit, ...]) -> Opened | Conflicted:
        found = self.tape.outcome(WorkspaceReady, WorkspaceConflicted, HumanRequested)
        if isinstance(found, WorkspaceReady):
            return Opened(head=found.head, tree=found.tree)
        if isinstance(found, WorkspaceConflicted):
            return Conflicted(paths=found.paths)
        raise RepositoryUnusable(found.code, self._words(found.detail))

    def ensure(self, place: Place, head: Commit, tree: Commit) -> bool:
        """Return True if a set-up of the worktree was recorded here."""
        self.tape.unusable()
        found = self.tape.next()
        return isinstance(found, CommandRan) and found.stage == "setup"

    def capture(self, place: Place, before: Commit) -> Capture:
        ready = self.tape.ahead(WorkspaceReady)
        if ready is not None:
            return Capture(tree=ready.tree)
        found = self.tape.outcome(AgentReplied, AgentFailed, AgentLost)
        if isinstance(found, AgentLost) or (isinstance(found, AgentFailed) and found.problem == WORKTREE_LOST):
            raise RepositoryUnusable("worktree-lost", "as it was recorded")
        return Capture(tree=found.tree, offences=found.offences if isinstance(found, AgentReplied) else ())

    def adopt(self, place: Place, tree: Commit) -> None:
        pass

    def provide(self, place: Place, files: Mapping[Path, bytes]) -> None:
        pass

    def keep(self, place: Place, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        checked = self.tape.checked()
        if checked is None:
            self.tape.unusable()
            raise Unanswered
        return checked.tree

    def close(self, place: Place) -> None:
        self.tape.unusable()

    # contents ---------------------------------------------------------------------------------------------------------
    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        if self.trees is None:
            raise Lost("changes between captured trees")
        return self.trees.changes(old, new)

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Read from the tree, or an artifact from its blob: only parsed files were read."""
        self.read_last = path
        merged = self.tape.next()
        if isinstance(merged, BaseMerged):
            return MARKED if path in merged.conflicts else b""
        if self.trees is not None:
            return self.trees.read(tree, path)
        for one in self.tape.events[self.tape.at :]:
            if not isinstance(one.event, ArtifactParsed):
                return None
            if one.event.path == path:
                return self.blobs.get(one.event.digest)
        return None

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        if self.trees is None:
            raise Lost("files of captured trees")
        return self.trees.paths(tree)

    def patch(self, old: Commit, new: Commit) -> bytes:
        raise Lost("patches")

    # references -------------------------------------------------------------------------------------------------------
    def snapshot(self) -> Mapping[str, str]:
        """Return the refs: before a call those that its request refers to, after it with the moved ones."""
        request = self.tape.ahead(AgentRequested)
        if request is not None:
            return self._refs(request)
        self.tape.unusable()
        refs = self._refs(self._last_request())
        for moved in self.tape.moved():
            refs.pop(moved.name, None)
            if moved.new:
                refs[moved.name] = moved.new
        return refs

    def _last_request(self) -> AgentRequested | None:
        before = reversed(self.tape.events[: self.tape.at])
        return next((one.event for one in before if isinstance(one.event, AgentRequested)), None)

    def _refs(self, request: AgentRequested | None) -> dict[str, str]:
        return msgspec.json.decode(self.blobs.get(request.refs), type=dict[str, str]) if request is not None else {}

    def rescue(self, place: Place, moved: tuple[Moved, ...]) -> None:
        pass

    # commits ----------------------------------------------------------------------------------------------------------
    def find_commit(self, place: Place, key: str) -> MadeCommit | None:
        return self._made()

    def commit(self, place: Place, tree: Commit, parent: Commit, message: bytes) -> MadeCommit:
        return self._made()

    def _made(self) -> MadeCommit:
        made = self.tape.outcome(Committed)
        return MadeCommit(commit=made.commit, files=made.files, insertions=made.insertions, deletions=made.deletions)

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        return self._merged().base

    def merge(self, place: Place, head: Commit, other: Commit, message: bytes) -> Merged:
        merged = self._merged()
        paths = (*merged.conflicts, *merged.unmarked)
        return Merged(commit=merged.head, tree=merged.tree, changed=merged.changed, conflicts=paths)

    def _merged(self) -> BaseMerged:
        found = self.tape.outcome(BaseMerged, DeliveryFailed)
        if isinstance(found, DeliveryFailed):
            raise RemoteRefused(self._words(found.detail))
        return found

    def contains(self, head: Commit, commit: Commit) -> bool:
        return isinstance(self.tape.next(), PushRequested)

    def remote_head(self, remote: str, branch: str) -> Commit | None:
        match self.tape.outcome(PushRequested, Pushed, DeliveryFailed):
            case PushRequested(old=old):
                return old
            case Pushed(commit=commit):
                return commit
            case DeliveryFailed(code="remote-unreachable", detail=detail):
                raise RemoteRefused(self._words(detail))
            case DeliveryFailed(code="branch-moved"):
                return Commit("somebody else's")
        return None

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        found = self.tape.outcome(Pushed, DeliveryFailed)
        if isinstance(found, DeliveryFailed):
            raise RemoteRefused(self._words(found.detail))

    def touched(self, base: Commit, head: Commit) -> tuple[Path, ...]:
        found = self.tape.ahead(FeatureDelivered)
        if found is None:
            self.tape.unusable()
            raise Unanswered
        return found.touched

    def _words(self, detail: Digest | None) -> str:
        return self.blobs.get(detail).decode("utf-8", "replace") if detail is not None else ""
