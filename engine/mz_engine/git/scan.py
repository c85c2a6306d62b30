"""Scan a worktree's directory, independent of git's index and of ignore rules edited in it.

Names are bytes, since names on disk need not be text. (`pathlib` does not accept bytes, hence `os`.)"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable
from functools import partial
from typing import BinaryIO

import msgspec
from mz_events.names import PATH_BYTES_MAX

from mz_engine.git.content import (
    EXECUTABLE,
    FILE,
    LINK,
    SUBMODULE,
    ExcludedPath,
    FileHash,
    FileSignature,
    TreeEntry,
    TreeListing,
    WorktreeScan,
    entries_below,
    is_valid_tree_name,
    parent_directories,
)
from mz_engine.git.objects import RefMovedError, blob_id
from mz_engine.path_patterns import IgnoreRules
from mz_engine.ports import RepositoryUnusable

FILE_BYTES_MAX = 50_000_000
RACY_NS = 100_000_000
"""A file changed less than this before it was hashed may change again with the same times."""
DEPTH_BYTES_MAX = 3000
"""Length of a path; system calls fail for slightly longer ones."""


class WorktreeScanner(msgspec.Struct):
    """One scan. `tracked` is the tree that defines tracked files, `rules` define what else is ignored, `keep_rules`
    which ignored paths are left in place, `copied_paths` are ignored regardless of the rules."""

    top: bytes
    tracked: TreeListing
    ignore_rules: IgnoreRules
    object_format: str
    hash_cache: dict[bytes, FileHash]
    keep_rules: IgnoreRules = IgnoreRules({})
    copied_paths: frozenset[bytes] = frozenset()
    has_file_modes: bool = True
    """The file system stores the executable bit."""
    scan: WorktreeScan = msgspec.field(default_factory=lambda: WorktreeScan({}, set(), set(), [], {}))

    def scan_worktree(self) -> WorktreeScan:
        """Scan the directory. Raises RepositoryUnusable (`worktree-lost` if it does not exist), RefMovedError."""
        try:
            make_accessible(self.top)
        except OSError as error:
            message = f"the worktree {os.fsdecode(self.top)} no longer exists"
            raise RepositoryUnusable("worktree-lost", message) from error
        tracked_directories = parent_directories(self.tracked)
        pending = [(b"", False)]
        try:
            while pending:
                directory, ignored = pending.pop()
                pending.extend(self._scan_directory(directory, ignored, tracked_directories))
        except OSError as error:
            raise scan_error(error, self.top) from error
        return self.scan

    def _scan_directory(
        self, directory: bytes, ignored: bool, tracked_directories: set[bytes]
    ) -> Iterable[tuple[bytes, bool]]:
        entries = list_directory(os.path.join(self.top, directory))
        prefix = directory + b"/" if directory else b""
        is_nested_repository = bool(directory) and not ignored and any(entry.name == b".git" for entry in entries)
        if is_nested_repository:
            self.scan.excluded.append(ExcludedPath(directory, "nested-git"))
            if directory not in tracked_directories:
                return
        if directory and not ignored:
            self.scan.directories.add(directory)
        for entry in entries:
            path = prefix + entry.name
            if entry.name == b".git" and (is_nested_repository or not directory):
                continue
            if path == b".mz":
                self.scan.files.update(entries_below(self.tracked, path))
            elif entry.is_dir(follow_symlinks=False):
                yield from self._scan_subdirectory(path, ignored, tracked_directories)
            else:
                self._scan_file(path, ignored, entry)

    def _scan_subdirectory(
        self, path: bytes, ignored: bool, tracked_directories: set[bytes]
    ) -> Iterable[tuple[bytes, bool]]:
        entry = self.tracked.get(path)
        if entry is not None and entry.mode == SUBMODULE:
            self.scan.files[path] = entry
            return
        ignored = ignored or path in self.copied_paths or self.ignore_rules.ignores(path, True)
        if path in tracked_directories:
            yield path, ignored
        elif not ignored and (not is_valid_tree_name(path.rpartition(b"/")[2], False) or len(path) > PATH_BYTES_MAX):
            self.scan.excluded.append(ExcludedPath(path, "special"))
        elif not ignored:
            yield path, False
        elif path not in self.copied_paths and not self.keep_rules.ignores(path, True):
            self.scan.ignored.add(path + b"/")
            if len(path) <= DEPTH_BYTES_MAX:
                yield path, True

    def _scan_file(self, path: bytes, ignored: bool, entry: os.DirEntry[bytes]) -> None:
        tracked = self.tracked.get(path)
        if tracked is None and (ignored or path in self.copied_paths or self.ignore_rules.ignores(path, False)):
            if path not in self.copied_paths and not self.keep_rules.ignores(path, False):
                self.scan.ignored.add(path)
            return
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(os.path.join(self.top, path))
            content = TreeEntry(LINK, blob_id(self.object_format, len(target), (target,)))
        elif not stat.S_ISREG(status.st_mode):
            self.scan.excluded.append(ExcludedPath(path, "special"))
            return
        elif status.st_size > FILE_BYTES_MAX and tracked is None:
            self.scan.excluded.append(ExcludedPath(path, "too-big", status.st_size))
            return
        else:
            content = TreeEntry(self._mode(status.st_mode, tracked), self._oid(path, status))
            if status.st_size > FILE_BYTES_MAX and content != tracked:
                self.scan.excluded.append(ExcludedPath(path, "too-big", status.st_size))
                return
        if tracked is None and not is_valid_tree_name(entry.name, content.mode == LINK):
            self.scan.excluded.append(ExcludedPath(path, "special", status.st_size))
            return
        self.scan.files[path] = content

    def _mode(self, mode: int, tracked: TreeEntry | None) -> int:
        if self.has_file_modes:
            return EXECUTABLE if mode & stat.S_IXUSR else FILE
        return tracked.mode if tracked and tracked.mode in (FILE, EXECUTABLE) else FILE

    def _oid(self, path: bytes, status: os.stat_result) -> str:
        signature = stat_signature(status)
        cached = self.hash_cache.get(path)
        if cached is None or cached.signature != signature or cached.hashed_ns - signature[1] < RACY_NS:
            now = time.time_ns()
            with open_file(os.path.join(self.top, path)) as file:
                chunks = iter(partial(file.read, 1 << 20), b"")
                cached = FileHash(signature, now, blob_id(self.object_format, status.st_size, chunks))
        self.scan.hash_cache[path] = cached
        return cached.oid


def stat_signature(status: os.stat_result) -> FileSignature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode


def list_directory(path: bytes) -> list[os.DirEntry[bytes]]:
    """List a directory, making it accessible to its owner first. Raises OSError."""
    make_accessible(path)
    with os.scandir(path) as entries:
        return list(entries)


def make_accessible(directory: bytes) -> None:
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
        raise scan_error(error, path) from error


def open_file(path: bytes) -> BinaryIO:
    """Open a file without following links or blocking on a FIFO."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | stat.S_IRUSR)
        descriptor = os.open(path, flags)
    return open(descriptor, "rb", buffering=0)


def scan_error(error: OSError, path: bytes) -> RepositoryUnusable:
    name = os.fsdecode(error.filename or path)
    if isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ELOOP:
        return RefMovedError("worktree-busy", f"{name} vanished while it was being read")
    return RepositoryUnusable("worktree-unusable", f"{name} cannot be read: {error.strerror}")
