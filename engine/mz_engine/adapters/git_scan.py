"""Adapter: walks a worktree's directory and says what is there, never asking what git has staged or ignores today.

Names are bytes: what the disk holds need not be text. (`pathlib` takes no bytes, hence `os` here.)
"""
# ruff: noqa: PTH

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from mz_engine.adapters.git_ignore import Rules
from mz_engine.adapters.git_objects import EXECUTABLE, FILE, LINK, SUBMODULE, Entry, Hasher, Listing
from mz_engine.ports import RepositoryUnusable

FILE_BYTES_MAX = 50_000_000
RACY_NS = 100_000_000
"""A file that changed less than this before it was hashed may change again without its times showing it."""
PATH_BYTES_MAX = 3000
"""Deeper than this the system calls themselves fail."""

Signature = tuple[int, int, int, int, int]
"""mtime and ctime in ns, size, inode, mode."""


class Stray(msgspec.Struct, frozen=True):
    """Something that never belongs in a tree, with all that is below it."""

    path: bytes
    kind: Literal["special", "nested-git", "too-big"]
    size_bytes: int | None = None


class Known(msgspec.Struct, frozen=True, array_like=True):
    """What a file was when it was hashed last."""

    signature: Signature
    hashed_ns: int
    oid: str


class Scan(msgspec.Struct, frozen=True):
    """What a directory holds."""

    files: dict[bytes, Entry] = {}
    """Tracked or not ignored; submodules as the reference tree has them."""
    ignored: set[bytes] = set()
    """Ignored files, and ignored directories with a `/` at the end; without what is kept."""
    directories: set[bytes] = set()
    """Those that were looked into and are not ignored; without the top."""
    strays: list[Stray] = []
    known: dict[bytes, Known] = {}
    """For the next scan."""


class Walker(msgspec.Struct):
    """One walk. `tracked` is the tree that says what is tracked, `rules` what else is ignored, `keep` which ignored
    paths are left alone, `copied` which paths are ignored whatever the rules say."""

    top: bytes
    tracked: Listing
    rules: Rules
    keep: Rules
    copied: frozenset[bytes]
    hasher: Callable[[int], Hasher]
    known: dict[bytes, Known]
    modes: bool = True
    """Whether the file system keeps the executable bit."""
    scan: Scan = msgspec.field(default_factory=lambda: Scan(files={}, ignored=set(), directories=set(), strays=[], known={}))

    def walk(self) -> Scan:
        """Raises RepositoryUnusable when the worktree is not there."""
        folders = parents_of(self.tracked)
        waiting = [(b"", False)]
        while waiting:
            directory, ignored = waiting.pop()
            waiting.extend(self._look_into(directory, ignored, folders))
        return self.scan

    def _look_into(self, directory: bytes, ignored: bool, folders: set[bytes]) -> Iterable[tuple[bytes, bool]]:
        entries = list_directory(self.top, directory)
        prefix = directory + b"/" if directory else b""
        nested = bool(directory) and not ignored and any(entry.name == b".git" for entry in entries)
        if nested:
            self.scan.strays.append(Stray(directory, "nested-git"))
            if directory not in folders:
                return
        if directory and not ignored:
            self.scan.directories.add(directory)
        for entry in entries:
            path = prefix + entry.name
            if entry.name == b".git" and (nested or not directory):
                continue
            if path == b".mz":
                self.scan.files.update(below(self.tracked, path))
            elif entry.is_dir(follow_symlinks=False):
                yield from self._directory(path, ignored, folders)
            else:
                self._file(path, ignored, entry)

    def _directory(self, path: bytes, ignored: bool, folders: set[bytes]) -> Iterable[tuple[bytes, bool]]:
        entry = self.tracked.get(path)
        if entry is not None and entry.mode == SUBMODULE:
            self.scan.files[path] = entry
            return
        ignored = ignored or path in self.copied or self.rules.ignores(path, True)
        if path in folders:
            yield path, ignored
        elif not ignored and (not git_takes(path, FILE) or len(path) > PATH_BYTES_MAX):
            self.scan.strays.append(Stray(path, "special"))
        elif not ignored:
            yield path, False
        elif path not in self.copied and not self.keep.ignores(path, True):
            self.scan.ignored.add(path + b"/")
            if len(path) <= PATH_BYTES_MAX:
                yield path, True

    def _file(self, path: bytes, ignored: bool, entry: os.DirEntry[bytes]) -> None:
        tracked = self.tracked.get(path)
        if tracked is None and (ignored or path in self.copied or self.rules.ignores(path, False)):
            if path not in self.copied and not self.keep.ignores(path, False):
                self.scan.ignored.add(path)
            return
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(os.path.join(self.top, path))
            found = Entry(LINK, self.hasher(len(target)).of(target))
        elif not stat.S_ISREG(status.st_mode):
            self.scan.strays.append(Stray(path, "special"))
            return
        elif status.st_size > FILE_BYTES_MAX and tracked is None:
            self.scan.strays.append(Stray(path, "too-big", status.st_size))
            return
        else:
            found = Entry(self._mode(status.st_mode, tracked), self._oid(path, status))
            if status.st_size > FILE_BYTES_MAX and found != tracked:
                self.scan.strays.append(Stray(path, "too-big", status.st_size))
                return
        if tracked is None and not git_takes(path, found.mode):
            self.scan.strays.append(Stray(path, "special", status.st_size))
            return
        self.scan.files[path] = found

    def _mode(self, mode: int, tracked: Entry | None) -> int:
        if self.modes:
            return EXECUTABLE if mode & stat.S_IXUSR else FILE
        return tracked.mode if tracked and tracked.mode in (FILE, EXECUTABLE) else FILE

    def _oid(self, path: bytes, status: os.stat_result) -> str:
        signature = signature_of(status)
        known = self.known.get(path)
        if known is None or known.signature != signature or known.hashed_ns - signature[1] < RACY_NS:
            now = time.time_ns()
            known = Known(signature, now, hash_file(os.path.join(self.top, path), status.st_size, self.hasher))
        self.scan.known[path] = known
        return known.oid


def signature_of(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode


def list_directory(top: bytes, directory: bytes) -> list[os.DirEntry[bytes]]:
    """Opens up a directory that its owner had closed: the worktree is ours. Raises RepositoryUnusable."""
    path = os.path.join(top, directory)
    try:
        with _opened_up(path, os.scandir) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError) as gone:
        raise RepositoryUnusable("worktree-lost", f"{os.fsdecode(path)} is not there any more") from gone
    except OSError as error:
        raise RepositoryUnusable("worktree-unusable", f"{os.fsdecode(path)} cannot be read: {error.strerror}") from error


def read_file(path: bytes) -> bytes:
    """Never through a link, and never waiting on a FIFO that took the file's place."""
    with open(_opened_up(path, _open), "rb") as file:
        return file.read()


def hash_file(path: bytes, size: int, hasher: Callable[[int], Hasher]) -> str:
    """Raises RepositoryUnusable when the file cannot be read."""
    digest = hasher(size)
    try:
        with open(_opened_up(path, _open), "rb", buffering=0) as file:
            while data := file.read(1 << 20):
                digest.feed(data)
    except OSError as error:
        raise RepositoryUnusable("worktree-unusable", f"{os.fsdecode(path)} cannot be read: {error.strerror}") from error
    return digest.oid()


def _open(path: bytes) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
