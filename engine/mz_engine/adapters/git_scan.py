"""Scan a worktree's directory, independent of git's index and of ignore rules edited in it.

Names are bytes, since names on disk need not be text. (`pathlib` does not accept bytes, hence `os`.)"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO

import msgspec
from mz_events.names import PATH_BYTES_MAX

from mz_engine.adapters.git_facts import (
    EXECUTABLE,
    FILE,
    LINK,
    SUBMODULE,
    Entry,
    Known,
    Listing,
    Scan,
    Signature,
    Stray,
)
from mz_engine.adapters.git_ignore import Rules
from mz_engine.adapters.git_objects import Hasher, Restless
from mz_engine.adapters.git_paths import below, git_takes, parents_of
from mz_engine.ports import RepositoryUnusable

FILE_BYTES_MAX = 50_000_000
RACY_NS = 100_000_000
"""A file changed less than this before it was hashed may change again with the same times."""
DEPTH_BYTES_MAX = 3000
"""Length of a path; system calls fail for slightly longer ones."""


class Walker(msgspec.Struct):
    """One scan. `tracked` is the tree that defines tracked files, `rules` define what else is ignored, `keep_rules`
    which ignored paths are left in place, `copied_paths` are ignored regardless of the rules."""

    top: bytes
    tracked: Listing
    rules: Rules
    keep: Rules
    copied: frozenset[bytes]
    hasher: Callable[[int], Hasher]
    known: dict[bytes, Known]
    modes: bool = True
    """The file system stores the executable bit."""
    scan: Scan = msgspec.field(default_factory=lambda: Scan({}, set(), set(), [], {}))

    def walk(self) -> Scan:
        """Scan the directory. Raises RepositoryUnusable (`worktree-lost` if it does not exist), RefMovedError."""
        try:
            open_up(self.top)
        except OSError as error:
            message = f"the worktree {os.fsdecode(self.top)} no longer exists"
            raise RepositoryUnusable("worktree-lost", message) from error
        folders = parents_of(self.tracked)
        waiting = [(b"", False)]
        try:
            while waiting:
                directory, ignored = waiting.pop()
                waiting.extend(self._look_into(directory, ignored, folders))
        except OSError as error:
            raise unreadable(error, self.top) from error
        return self.scan

    def _look_into(self, directory: bytes, ignored: bool, folders: set[bytes]) -> Iterable[tuple[bytes, bool]]:
        entries = list_directory(os.path.join(self.top, directory))
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
        elif not ignored and (not git_takes(path.rpartition(b"/")[2], False) or len(path) > PATH_BYTES_MAX):
            self.scan.strays.append(Stray(path, "special"))
        elif not ignored:
            yield path, False
        elif path not in self.copied and not self.keep.ignores(path, True):
            self.scan.ignored.add(path + b"/")
            if len(path) <= DEPTH_BYTES_MAX:
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
            content = Entry(LINK, self.hasher(len(target)).of(target))
        elif not stat.S_ISREG(status.st_mode):
            self.scan.strays.append(Stray(path, "special"))
            return
        elif status.st_size > FILE_BYTES_MAX and tracked is None:
            self.scan.strays.append(Stray(path, "too-big", status.st_size))
            return
        else:
            content = Entry(self._mode(status.st_mode, tracked), self._oid(path, status))
            if status.st_size > FILE_BYTES_MAX and content != tracked:
                self.scan.strays.append(Stray(path, "too-big", status.st_size))
                return
        if tracked is None and not git_takes(entry.name, content.mode == LINK):
            self.scan.strays.append(Stray(path, "special", status.st_size))
            return
        self.scan.files[path] = content

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


def list_directory(path: bytes) -> list[os.DirEntry[bytes]]:
    """List a directory, making it accessible to its owner first. Raises OSError."""
    open_up(path)
    with os.scandir(path) as entries:
        return list(entries)


def open_up(directory: bytes) -> None:
    """Give the owner every right on a directory. Raises OSError, NotADirectoryError for a link."""
    mode = os.lstat(directory).st_mode
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(directory)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(directory, stat.S_IMODE(mode) | stat.S_IRWXU)


def read_file(path: bytes) -> bytes:
    """Return a file's bytes or a link's target. Raises RepositoryUnusable, RefMovedError."""
    try:
        if os.path.islink(path):
            return os.readlink(path)
        with open_file(path) as file:
            return file.read()
    except OSError as error:
        raise unreadable(error, path) from error


def hash_file(path: bytes, size: int, hasher: Callable[[int], Hasher]) -> str:
    """Return the object id of a file. Raises OSError."""
    digest = hasher(size)
    with open_file(path) as file:
        while data := file.read(1 << 20):
            digest.feed(data)
    return digest.oid()


def open_file(path: bytes) -> BinaryIO:
    """Open a file without following links or blocking on a FIFO."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | stat.S_IRUSR)
        descriptor = os.open(path, flags)
    return open(descriptor, "rb", buffering=0)


def unreadable(error: OSError, path: bytes) -> RepositoryUnusable:
    name = os.fsdecode(error.filename or path)
    if isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ELOOP:
        return Restless("worktree-busy", f"{name} vanished while it was being read")
    return RepositoryUnusable("worktree-unusable", f"{name} cannot be read: {error.strerror}")
