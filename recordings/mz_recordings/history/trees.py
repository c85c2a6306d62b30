"""Captured trees, read from the repository if they still exist. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path as FilePath
from types import TracebackType
from typing import TypeVar

from mz_engine.adapters import git_content
from mz_engine.adapters.git_facts import SUBMODULE, TreeEntry
from mz_engine.adapters.git_objects import request_objects
from mz_engine.adapters.git_paths import event_path
from mz_engine.adapters.git_process import Git, GitProcess
from mz_engine.adapters.git_repository import describe_repository
from mz_events.catalog.check import Change
from mz_events.names import Commit, Path

from mz_recordings.history.tape import RecordedDataMissing

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
        self._reader: GitProcess | None = None
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
            changes = tuple(git_content.changes(sorted(differing, key=lambda change: change[0])))
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
            files = [entry if entry is not None and entry.mode != DIRECTORY else None for entry in (old_entry, new_entry)]
            if any(files):
                yield at + name, files[0], files[1]
            folders = [entry.oid if entry is not None and entry.mode == DIRECTORY else None for entry in (old_entry, new_entry)]
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
                self._reader = self._open.enter_context(self._git.open_process("cat-file", "--batch"))
            try:
                request_objects(self._reader, name)
                head = self._reader.stdout_pipe.readline()
            except BrokenPipeError:
                head = b""
            if head.endswith(b"\n"):
                fields = head.split()
                if len(fields) != 3 or not fields[2].isdigit():
                    return None
                return fields[1], self._reader.stdout_pipe.read(int(fields[2]) + 1)[:-1]
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
