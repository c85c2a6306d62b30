"""The workspace port, which returns recorded results, and the captured trees, read from the repository if they still
exist. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Protocol

import msgspec
from mz_engine.effects.call import WORKTREE_LOST
from mz_engine.git import content
from mz_engine.git.content import SUBMODULE, TreeListing, event_path
from mz_engine.git.objects import ObjectStore
from mz_engine.git.process import Git
from mz_engine.git.repository import describe_repository
from mz_engine.ports import (
    Capture,
    CreatedCommit,
    FeatureWorktree,
    MergeConflict,
    MergeResult,
    RefChange,
    RemoteError,
    RepositoryUnusable,
    WorkspaceCreated,
)
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested
from mz_events.catalog.delivery import BaseMerged, Committed, DeliveryFailed, Pushed, PushRequested
from mz_events.catalog.feature import FeatureDelivered, HumanRequested, WorkspaceConflicted, WorkspaceReady
from mz_events.catalog.validation import ArtifactParsed, Change, CommandRan
from mz_events.names import Commit, Digest, Path

from mz_recordings.past_runs.recorded_stream import NotInRecord, RecordedDataMissing, RecordedStream

CONFLICT_MARKER = b"<<<<<<< \n"


class CapturedTrees(Protocol):
    """Captured trees, if they still exist; each method raises RecordedDataMissing."""

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]: ...

    def read(self, tree: Commit, path: Path) -> bytes | None: ...

    def paths(self, tree: Commit) -> tuple[Path, ...]: ...


class BlobReader(Protocol):
    """Blob store; raises RecordedDataMissing."""

    def get(self, digest: Digest) -> bytes: ...


class RecordedWorkspace:
    """Implements `mz_engine.ports.Workspace`."""

    def __init__(self, stream: RecordedStream, trees: CapturedTrees | None, blobs: BlobReader) -> None:
        self.stream, self.trees, self.blobs = stream, trees, blobs
        self.read_last: Path | None = None
        """Path that was read last."""

    # worktrees --------------------------------------------------------------------------------------------------------
    def open(self, worktree: FeatureWorktree, starts_from: tuple[Commit, ...]) -> WorkspaceCreated | MergeConflict:
        outcome = self.stream.outcome(WorkspaceReady, WorkspaceConflicted, HumanRequested)
        if isinstance(outcome, WorkspaceReady):
            return WorkspaceCreated(head=outcome.head, tree=outcome.tree)
        if isinstance(outcome, WorkspaceConflicted):
            return MergeConflict(paths=outcome.paths)
        raise RepositoryUnusable(outcome.code, self._text(outcome.detail))

    def ensure(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> bool:
        """Return True if a set-up of the worktree was recorded here."""
        self.stream.raise_if_unusable()
        event = self.stream.next_event()
        return isinstance(event, CommandRan) and event.stage == "setup"

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        ready = self.stream.find_near(WorkspaceReady)
        if ready is not None:
            return Capture(tree=ready.tree)
        outcome = self.stream.outcome(AgentReplied, AgentFailed, AgentLost)
        if isinstance(outcome, AgentLost) or (isinstance(outcome, AgentFailed) and outcome.problem == WORKTREE_LOST):
            raise RepositoryUnusable("worktree-lost", "as it was recorded")
        return Capture(
            tree=outcome.tree, forbidden_changes=outcome.forbidden_changes if isinstance(outcome, AgentReplied) else ()
        )

    def adopt(self, worktree: FeatureWorktree, tree: Commit) -> None:
        pass

    def provide(self, worktree: FeatureWorktree, files: Mapping[Path, bytes]) -> None:
        pass

    def revert_paths(self, worktree: FeatureWorktree, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        checked = self.stream.changes_checked()
        if checked is None:
            self.stream.raise_if_unusable()
            raise NotInRecord
        return checked.tree

    def close(self, worktree: FeatureWorktree) -> None:
        self.stream.raise_if_unusable()

    # contents ---------------------------------------------------------------------------------------------------------
    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        if self.trees is None:
            raise RecordedDataMissing("changes between captured trees")
        return self.trees.changes(old, new)

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Read from the tree, or an artifact from its blob: only parsed files were read."""
        self.read_last = path
        merged = self.stream.next_event()
        if isinstance(merged, BaseMerged):
            return CONFLICT_MARKER if path in merged.conflicts else b""
        if self.trees is not None:
            return self.trees.read(tree, path)
        for recorded in self.stream.events[self.stream.position :]:
            if not isinstance(recorded.event, ArtifactParsed):
                return None
            if recorded.event.path == path:
                return self.blobs.get(recorded.event.digest)
        return None

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        if self.trees is None:
            raise RecordedDataMissing("files of captured trees")
        return self.trees.paths(tree)

    def patch(self, old: Commit, new: Commit) -> bytes:
        raise RecordedDataMissing("patches")

    # references -------------------------------------------------------------------------------------------------------
    def snapshot(self) -> Mapping[str, str]:
        """Return the refs: before a call those that its request refers to, after it with the moved ones."""
        request = self.stream.find_near(AgentRequested)
        if request is not None:
            return self._recorded_refs(request)
        self.stream.raise_if_unusable()
        refs = self._recorded_refs(self._last_request())
        for moved in self.stream.moved_refs():
            refs.pop(moved.name, None)
            if moved.new:
                refs[moved.name] = moved.new
        return refs

    def _last_request(self) -> AgentRequested | None:
        before = reversed(self.stream.events[: self.stream.position])
        return next((recorded.event for recorded in before if isinstance(recorded.event, AgentRequested)), None)

    def _recorded_refs(self, request: AgentRequested | None) -> dict[str, str]:
        return msgspec.json.decode(self.blobs.get(request.refs), type=dict[str, str]) if request is not None else {}

    def rescue(self, worktree: FeatureWorktree, changes: tuple[RefChange, ...]) -> None:
        pass

    # commits ----------------------------------------------------------------------------------------------------------
    def find_commit(self, worktree: FeatureWorktree, key: str) -> CreatedCommit | None:
        return self._recorded_commit()

    def commit(self, worktree: FeatureWorktree, tree: Commit, parent: Commit, message: bytes) -> CreatedCommit:
        return self._recorded_commit()

    def _recorded_commit(self) -> CreatedCommit:
        committed = self.stream.outcome(Committed)
        return CreatedCommit(
            commit=committed.commit,
            files=committed.files,
            insertions=committed.insertions,
            deletions=committed.deletions,
        )

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        return self._recorded_merge().base

    def merge(self, worktree: FeatureWorktree, head: Commit, other: Commit, message: bytes) -> MergeResult:
        merged = self._recorded_merge()
        paths = (*merged.conflicts, *merged.unmarked)
        return MergeResult(commit=merged.head, tree=merged.tree, changed=merged.changed, conflicts=paths)

    def _recorded_merge(self) -> BaseMerged:
        outcome = self.stream.outcome(BaseMerged, DeliveryFailed)
        if isinstance(outcome, DeliveryFailed):
            raise RemoteError(self._text(outcome.detail))
        return outcome

    def contains(self, head: Commit, commit: Commit) -> bool:
        return isinstance(self.stream.next_event(), PushRequested)

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


TREES_GONE = "captured trees that git no longer has"
CACHED_FILES_MAX = 256


class GitTrees:
    """Captured trees of one repository. Raises RepositoryUnusable."""

    def __init__(self, root: FilePath, environment: Mapping[str, str]) -> None:
        repository = describe_repository(root, environment)
        git = Git(repository.directory, environment)
        self._objects = ObjectStore(git, repository.object_format)
        self._blob = lru_cache(CACHED_FILES_MAX)(lambda oid: git.run("cat-file", "blob", oid).stdout)

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        """Return the paths that differ. Raises RecordedDataMissing."""
        before, after = self._listing(old), self._listing(new)
        paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        return tuple(content.changes((path, before.get(path), after.get(path)) for path in paths))

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes; None if the tree does not have it. Raises RecordedDataMissing."""
        entry = self._listing(tree).get(os.fsencode(path))
        if entry is None or entry.mode == SUBMODULE:
            return None
        with _trees_gone():
            return self._blob(entry.oid)

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        """Return all files, sorted. Raises RecordedDataMissing."""
        listing = self._listing(tree)
        names = (event_path(path) for path, entry in listing.items() if entry.mode != SUBMODULE)
        return tuple(sorted(path for path in names if path))

    def _listing(self, tree: Commit) -> TreeListing:
        with _trees_gone():
            return self._objects.listing(tree)


@contextmanager
def _trees_gone() -> Iterator[None]:
    try:
        yield
    except RepositoryUnusable as error:
        raise RecordedDataMissing(TREES_GONE) from error
