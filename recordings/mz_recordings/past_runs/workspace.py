"""The workspace port, which returns recorded results, and the captured trees, read from the repository if they still
exist. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path as FilePath
from subprocess import Popen
from types import TracebackType
from typing import Protocol, TypeVar

import msgspec
from mz_engine.effects.call import WORKTREE_LOST
from mz_engine.git import content
from mz_engine.git.content import SUBMODULE, TreeEntry, event_path
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
K = TypeVar("K")
V = TypeVar("V")
CACHE_ENTRIES_MAX = 256
"""Limit of cached differences, directories and files."""
DIRECTORY = 0o040000
ID_BYTES = {"sha1": 20, "sha256": 32}
PathChange = tuple[bytes, TreeEntry | None, TreeEntry | None]
"""A path, and its old and new entry; None: missing."""


class GitTrees:
    """Captured trees of one repository; a context manager. Raises RepositoryUnusable."""

    def __init__(self, root: FilePath, environment: Mapping[str, str]) -> None:
        repository = describe_repository(root, environment)
        self._git = Git(repository.directory, environment)
        self._open = ExitStack()
        self._reader: Popen[bytes] | None = None
        self._id_bytes = ID_BYTES[repository.object_format]
        self._directories: dict[str, dict[bytes, TreeEntry]] = {}
        self._changes: dict[tuple[Commit, Commit], tuple[Change, ...]] = {}
        self._files: dict[str, bytes | None] = {}

    def __enter__(self) -> GitTrees:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        """Return the paths that differ. Raises RecordedDataMissing."""
        if (old, new) not in self._changes:
            differing = self._path_changes(f"{old}^{{tree}}", f"{new}^{{tree}}", b"") if old != new else ()
            changes = tuple(content.changes(sorted(differing, key=lambda change: change[0])))
            evict_oldest(self._changes)
            self._changes[old, new] = changes
        return self._changes[old, new]

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes; None if the tree does not have it. Raises RecordedDataMissing."""
        name = f"{tree}:{path}"
        if name not in self._files:
            blob = self._read_object(name)
            if blob is None and self._read_object(f"{tree}^{{tree}}") is None:
                raise RecordedDataMissing(TREES_GONE)
            evict_oldest(self._files)
            self._files[name] = blob[1] if blob is not None and blob[0] == b"blob" else None
        return self._files[name]

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        """Return all files, sorted. Raises RecordedDataMissing."""
        entries = self._path_changes(None, f"{tree}^{{tree}}", b"")
        names = (event_path(path) for path, _, entry in entries if entry is not None and entry.mode != SUBMODULE)
        return tuple(sorted(path for path in names if path))

    def _path_changes(self, old: str | None, new: str | None, at: bytes) -> Iterator[PathChange]:
        """Files below two directories, None: one that is not there. A process of git for each pair of trees would take
        more time than all else."""
        before, after = self._directory(old), self._directory(new)
        for name in {**before, **after}:
            old_entry, new_entry = before.get(name), after.get(name)
            if old_entry == new_entry:
                continue
            files = [
                entry if entry is not None and entry.mode != DIRECTORY else None for entry in (old_entry, new_entry)
            ]
            if any(files):
                yield at + name, files[0], files[1]
            folders = [
                entry.oid if entry is not None and entry.mode == DIRECTORY else None for entry in (old_entry, new_entry)
            ]
            if any(folders):
                yield from self._path_changes(folders[0], folders[1], at + name + b"/")

    def _directory(self, name: str | None) -> dict[bytes, TreeEntry]:
        """Return the entries of a tree object. Raises RecordedDataMissing."""
        if name is None:
            return {}
        if name not in self._directories:
            tree = self._read_object(name)
            if tree is None or tree[0] != b"tree":
                raise RecordedDataMissing(TREES_GONE)
            evict_oldest(self._directories)
            self._directories[name] = dict(tree_entries(tree[1], self._id_bytes))
        return self._directories[name]

    def _read_object(self, name: str) -> tuple[bytes, bytes] | None:
        """Return kind and bytes of an object; None if there is none. Restart git's process once if it has ended."""
        for _ in range(2):
            if self._reader is None:
                self._reader = self._open.enter_context(self._git.start("cat-file", "--batch"))
            assert self._reader.stdin
            assert self._reader.stdout
            try:
                self._reader.stdin.write(f"{name}\n".encode("utf-8", "surrogateescape"))
                self._reader.stdin.flush()
                head = self._reader.stdout.readline()
            except BrokenPipeError:
                head = b""
            if head.endswith(b"\n"):
                fields = head.split()
                if len(fields) != 3 or not fields[2].isdigit():
                    return None
                return fields[1], self._reader.stdout.read(int(fields[2]) + 1)[:-1]
            with suppress(BrokenPipeError):  # The request that was not read is written again when the pipe is closed.
                self._open.close()
            self._reader = None
        raise RecordedDataMissing(TREES_GONE)


def tree_entries(tree: bytes, id_bytes: int) -> Iterator[tuple[bytes, TreeEntry]]:
    """Yield the entries of a tree object: `MODE NAME`, a zero byte and the id, without separators."""
    offset = 0
    while offset < len(tree):
        end = tree.index(b"\0", offset)
        mode, _, name = tree[offset:end].partition(b" ")
        offset = end + 1 + id_bytes
        yield name, TreeEntry(int(mode, 8), tree[end + 1 : offset].hex())


def evict_oldest(cache: dict[K, V]) -> None:
    """Remove the oldest entry if there are too many."""
    if len(cache) >= CACHE_ENTRIES_MAX:
        del cache[next(iter(cache))]
