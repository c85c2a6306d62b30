"""Captured trees, read from the repository if they still exist. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path as FilePath
from types import TracebackType
from typing import TypeVar

from mz_engine.adapters import git_content
from mz_engine.adapters.git_facts import SUBMODULE, Entry
from mz_engine.adapters.git_objects import ask
from mz_engine.adapters.git_paths import named
from mz_engine.adapters.git_process import Git, Process
from mz_engine.adapters.git_repository import describe
from mz_events.catalog.check import Change
from mz_events.names import Commit, Path

from mz_recordings.history.tape import Lost

GONE = "captured trees that git no longer has"
K = TypeVar("K")
V = TypeVar("V")
KEPT_MAX = 256
"""Limit of cached differences, directories and files."""
DIRECTORY = 0o040000
ID_BYTES = {"sha1": 20, "sha256": 32}
Differing = tuple[bytes, Entry | None, Entry | None]
"""A path, and its old and new entry; None: missing."""


class GitTrees:
    """Captured trees of one repository; a context manager. Raises RepositoryUnusable."""

    def __init__(self, root: FilePath, environment: Mapping[str, str]) -> None:
        repository = describe(root, environment)
        self._git = Git(repository.directory, environment)
        self._open = ExitStack()
        self._reader: Process | None = None
        self._id_bytes = ID_BYTES[repository.object_format]
        self._directories: dict[str, dict[bytes, Entry]] = {}
        self._changes: dict[tuple[Commit, Commit], tuple[Change, ...]] = {}
        self._files: dict[str, bytes | None] = {}

    def __enter__(self) -> GitTrees:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        """Return the paths that differ. Raises RecordedDataMissing."""
        if (old, new) not in self._changes:
            differing = self._differing(f"{old}^{{tree}}", f"{new}^{{tree}}", b"") if old != new else ()
            found = tuple(git_content.changes(sorted(differing, key=lambda one: one[0])))
            bounded(self._changes)
            self._changes[old, new] = found
        return self._changes[old, new]

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes; None if the tree does not have it. Raises RecordedDataMissing."""
        name = f"{tree}:{path}"
        if name not in self._files:
            found = self._ask(name)
            if found is None and self._ask(f"{tree}^{{tree}}") is None:
                raise Lost(GONE)
            bounded(self._files)
            self._files[name] = found[1] if found is not None and found[0] == b"blob" else None
        return self._files[name]

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        """Return all files, sorted. Raises RecordedDataMissing."""
        listed = self._differing(None, f"{tree}^{{tree}}", b"")
        found = (named(path) for path, _, entry in listed if entry is not None and entry.mode != SUBMODULE)
        return tuple(sorted(path for path in found if path))

    def _differing(self, old: str | None, new: str | None, at: bytes) -> Iterator[Differing]:
        """Files below two directories, None: one that is not there. A process of git for each pair of trees would take
        more time than all else."""
        before, after = self._directory(old), self._directory(new)
        for name in {**before, **after}:
            was, now = before.get(name), after.get(name)
            if was == now:
                continue
            files = [one if one is not None and one.mode != DIRECTORY else None for one in (was, now)]
            if any(files):
                yield at + name, files[0], files[1]
            folders = [one.oid if one is not None and one.mode == DIRECTORY else None for one in (was, now)]
            if any(folders):
                yield from self._differing(folders[0], folders[1], at + name + b"/")

    def _directory(self, name: str | None) -> dict[bytes, Entry]:
        """Return the entries of a tree object. Raises RecordedDataMissing."""
        if name is None:
            return {}
        if name not in self._directories:
            found = self._ask(name)
            if found is None or found[0] != b"tree":
                raise Lost(GONE)
            bounded(self._directories)
            self._directories[name] = dict(listed(found[1], self._id_bytes))
        return self._directories[name]

    def _ask(self, name: str) -> tuple[bytes, bytes] | None:
        """Return kind and bytes of an object; None if there is none. Restart git's process once if it has ended."""
        for _ in range(2):
            if self._reader is None:
                self._reader = self._open.enter_context(self._git.talk("cat-file", "--batch"))
            try:
                ask(self._reader, name)
                head = self._reader.out.readline()
            except BrokenPipeError:
                head = b""
            if head.endswith(b"\n"):
                fields = head.split()
                if len(fields) != 3 or not fields[2].isdigit():
                    return None
                return fields[1], self._reader.out.read(int(fields[2]) + 1)[:-1]
            self._open.close()
            self._reader = None
        raise Lost(GONE)


def listed(tree: bytes, id_bytes: int) -> Iterator[tuple[bytes, Entry]]:
    """Yield the entries of a tree object: `MODE NAME`, a zero byte and the id, without separators."""
    at = 0
    while at < len(tree):
        end = tree.index(b"\0", at)
        mode, _, name = tree[at:end].partition(b" ")
        at = end + 1 + id_bytes
        yield name, Entry(int(mode, 8), tree[end + 1 : at].hex())


def bounded(kept: dict[K, V]) -> None:
    """Remove the oldest entry if there are too many."""
    if len(kept) >= KEPT_MAX:
        del kept[next(iter(kept))]
