"""A worktree's directory: scan it, independent of git's index; make it hold exactly one tree, with as few changes as
possible.

A capture ignores what the `.gitignore` files of the worktree ignore as it is, and only those that are in the capture
too, so that its diff shows why a file is missing. Restoring uses the rules of the tree that it restores.

Restoring never follows a link, never writes through an existing file (it may have another name elsewhere), and may be
killed at any time: the next scan finds what still differs. Names are bytes, since names on disk need not be text.
(`pathlib` does not accept bytes, hence `os`.)"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import stat
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import BinaryIO

import msgspec
from mz_events.names import PATH_BYTES_MAX, Path

from mz_engine.errors.diagnostics import MzError
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
from mz_engine.git.objects import ObjectStore, RefMovedError, object_id
from mz_engine.git.process import Repository, file_error
from mz_engine.path_patterns import IgnoreRules, parse_gitignore
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import FILE_BYTES_MAX, RepositoryUnusable

RACY_NS = 100_000_000
"""A file changed less than this before it was hashed may change again with the same times."""
WALKED_PATH_BYTES_MAX = 3000
"""Ignored folders with a longer path are not walked: system calls fail for slightly longer ones."""
IGNORE_ALL = b"*\n"
SELF_IGNORE_BYTES_MAX = 4000


class WorktreeScanner(msgspec.Struct):
    """One scan. `tracked` is the tree that defines tracked files, `ignore_rules` define what else is ignored, with
    `reads_rules` those that the walk finds, `keep_rules` which ignored paths are left in place, `copied_paths` are
    ignored regardless of the rules."""

    top: bytes
    tracked: TreeListing
    ignore_rules: IgnoreRules
    repository: Repository
    hash_cache: dict[bytes, FileHash]
    keep_rules: IgnoreRules = IgnoreRules({})
    copied_paths: frozenset[bytes] = frozenset()
    reads_rules: bool = False
    tracked_directories: set[bytes] = set()
    scan: WorktreeScan = msgspec.field(default_factory=lambda: WorktreeScan({}, set(), set(), [], {}, set()))

    def scan_worktree(self) -> WorktreeScan:
        """Scan the directory. Raises RepositoryUnusable (`worktree-lost` if it does not exist), RefMovedError."""
        try:
            make_accessible(self.top)
        except OSError as error:
            message = f"the worktree {os.fsdecode(self.top)} no longer exists"
            raise RepositoryUnusable("worktree-lost", message) from error
        self.tracked_directories = parent_directories(self.tracked)
        pending = [(b"", False)]
        try:
            while pending:
                directory, ignored = pending.pop()
                pending.extend(self._scan_directory(directory, ignored))
        except OSError as error:
            raise scan_error(error, self.top) from error
        return self.scan

    def _scan_directory(self, directory: bytes, ignored: bool) -> Iterable[tuple[bytes, bool]]:
        make_accessible(os.path.join(self.top, directory))
        with os.scandir(os.path.join(self.top, directory)) as scanned:
            entries = list(scanned)
        prefix = directory + b"/" if directory else b""
        is_nested_repository = bool(directory) and not ignored and any(entry.name == b".git" for entry in entries)
        if is_nested_repository:
            self.scan.excluded.append(ExcludedPath(directory, "nested-git"))
            if directory not in self.tracked_directories:
                return
        if directory and not ignored:
            self.scan.directories.add(directory)
        if self.reads_rules and not ignored:
            self._read_rules(directory, prefix + b".gitignore")
        for entry in entries:
            path = prefix + entry.name
            if entry.name == b".git" and (is_nested_repository or not directory):
                continue
            if path == b".mz":
                self.scan.files.update(entries_below(self.tracked, path))
            elif entry.is_dir(follow_symlinks=False):
                yield from self._scan_subdirectory(path, ignored)
            else:
                self._scan_file(path, ignored, entry)

    def _read_rules(self, directory: bytes, path: bytes) -> None:
        """Let the rules of a directory's `.gitignore` count if it is a file that the capture shows."""
        file, rules = os.path.join(self.top, path), self.ignore_rules
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size <= FILE_BYTES_MAX:
                rules.patterns[directory] = parse_gitignore(read_file(file))
                if path not in self.tracked and rules.ignores(path, False):
                    del rules.patterns[directory]

    def _scan_subdirectory(self, path: bytes, ignored: bool) -> Iterable[tuple[bytes, bool]]:
        entry = self.tracked.get(path)
        if entry is not None and entry.mode == SUBMODULE:
            self.scan.files[path] = entry
            return
        ignored = ignored or path in self.copied_paths or self.ignore_rules.ignores(path, True)
        if path in self.tracked_directories:
            yield path, ignored
            return
        if not ignored and ignores_itself(os.path.join(self.top, path)):
            self.scan.self_ignored.add(path + b"/")
            ignored = True
        if not ignored and (not is_valid_tree_name(path.rpartition(b"/")[2], False) or len(path) > PATH_BYTES_MAX):
            self.scan.excluded.append(ExcludedPath(path, "special"))
        elif not ignored:
            yield path, False
        elif path not in self.copied_paths and not self.keep_rules.ignores(path, True):
            self.scan.ignored.add(path + b"/")
            if len(path) <= WALKED_PATH_BYTES_MAX:
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
            content = TreeEntry(LINK, object_id(self.repository.object_format, b"blob", len(target), (target,)))
            self.scan.hash_cache[path] = FileHash(stat_signature(status), 0, content.oid)
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
        if self.repository.has_file_modes:
            return EXECUTABLE if mode & stat.S_IXUSR else FILE
        return tracked.mode if tracked and tracked.mode in (FILE, EXECUTABLE) else FILE

    def _oid(self, path: bytes, status: os.stat_result) -> str:
        signature = stat_signature(status)
        cached = self.hash_cache.get(path)
        if cached is None or cached.signature != signature or cached.hashed_ns - signature[1] < RACY_NS:
            now = time.time_ns()
            with open_file(os.path.join(self.top, path)) as file:
                chunks = iter(partial(file.read, 1 << 20), b"")
                oid = object_id(self.repository.object_format, b"blob", status.st_size, chunks)
                cached = FileHash(signature, now, oid)
        self.scan.hash_cache[path] = cached
        return cached.oid


def stat_signature(status: os.stat_result) -> FileSignature:
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return *times, status.st_size, status.st_ino, status.st_mode, status.st_dev, status.st_uid, status.st_gid


def ignores_itself(directory: bytes) -> bool:
    """Return True if the directory's own `.gitignore` ignores everything in it, as tools write it into their caches."""
    try:
        with open_file(os.path.join(directory, b".gitignore")) as file:
            lines = file.read(SELF_IGNORE_BYTES_MAX).splitlines()
    except OSError:
        return False
    return {line.rstrip() for line in lines if line.strip() and not line.startswith(b"#")} == {IGNORE_ALL.strip()}


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
    return file_error("worktree-unusable", f"{name} cannot be read", error)


# restoring ------------------------------------------------------------------------------------------------------------
def restore(objects: ObjectStore, top: bytes, target: TreeListing, scan: WorktreeScan, kept: set[bytes]) -> bool:
    """Remove what is neither in `target` nor in `kept` (ignored files; directories end in `/`), and write what
    is missing or different. `scan` is the result of a walk with `target` as the tracked tree. Return True if a file was
    written. Raises RepositoryUnusable."""
    differing = {path: entry for path, entry in target.items() if scan.files.get(path) != entry}
    folders, unexpected_ignored, created = parent_directories(target), scan.ignored - kept, set[bytes]()
    try:
        for stray in scan.excluded:
            suffix = b"/.git" if stray.kind == "nested-git" and stray.path in folders else b""
            remove_tree(os.path.join(top, stray.path + suffix))
        for path in unexpected_ignored | (scan.files.keys() - target.keys() - kept):
            if not path.endswith(b"/"):
                remove_tree(os.path.join(top, path))
        empty_directories = {path[:-1] for path in unexpected_ignored if path.endswith(b"/")}
        for path in sorted(empty_directories | (scan.directories - folders), key=len, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(top, path))
        for path, entry in differing.items():
            if entry.mode == SUBMODULE:
                make_directory(top, path, created)
        written = {path: entry for path, entry in differing.items() if entry.mode != SUBMODULE}
        contents = objects.blobs([entry.oid for entry in written.values()])
        for (path, entry), data in zip(written.items(), contents, strict=True):
            make_directory(top, path.rpartition(b"/")[0], created)
            write_file(os.path.join(top, path), data, entry.mode)
    except OSError as error:
        name = os.fsdecode(error.filename or top)
        raise file_error("worktree-unusable", f"{name} cannot be restored", error) from error
    return bool(differing)


def make_directory(top: bytes, path: bytes, created: set[bytes]) -> None:
    """Make a real directory and its parents, replacing whatever has that name."""
    if not path or path in created:
        return
    make_directory(top, path.rpartition(b"/")[0], created)
    directory = os.path.join(top, path)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            os.unlink(directory)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
    make_accessible(directory)
    created.add(path)


def write_engine_files(top: pathlib.Path, files: Mapping[Path, bytes]) -> None:
    """Write the engine's own files, below `.mz/`, which git in the worktree ignores. A link that an agent put in the
    way is removed, never followed. Raises OSError."""
    created: set[bytes] = set()
    for path, data in ({Path(f"{MZ_FOLDER}/.gitignore"): IGNORE_ALL} | dict(files)).items():
        make_directory(os.fsencode(top), os.fsencode(path).rpartition(b"/")[0], created)
        write_if_changed(top / path, data)


def copy_missing(
    source: pathlib.Path, worktree: pathlib.Path, scratch: pathlib.Path, names: tuple[str, ...], tracked: TreeListing
) -> None:
    """Copy files or directories of the user's checkout into the worktree if they exist there, are not tracked, and are
    missing here. `scratch` is on the worktree's file system. Raises RepositoryUnusable."""
    for name in names:
        path = os.fsencode(name)
        if path in tracked or not os.path.lexists(source / name) or os.path.lexists(worktree / name):
            continue
        try:
            remove_tree(os.fsencode(scratch))
            scratch.parent.mkdir(parents=True, exist_ok=True)
            if (source / name).is_dir() and not (source / name).is_symlink():
                shutil.copytree(source / name, scratch, symlinks=True)
            else:
                shutil.copy2(source / name, scratch, follow_symlinks=False)
            make_directory(os.fsencode(worktree), path.rpartition(b"/")[0], set())
            scratch.rename(worktree / name)
        except OSError as error:
            raise file_error("worktree-unusable", f"`{name}` cannot be copied into the worktree", error) from error


def write_file(path: bytes, data: bytes, mode: int) -> None:
    """Write a new file or link, replacing whatever has that name."""
    remove_tree(path)
    if mode == LINK:
        os.symlink(data, path)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o777 if mode == EXECUTABLE else 0o666), "wb") as file:
        file.write(data)


def write_bytes(file: pathlib.Path, data: bytes) -> None:
    """Write a file atomically, following no link in its directory."""
    name = os.fsencode(file)
    try:
        write_file(name + b".partial", data, FILE)
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(name + b".partial", data, FILE)
    try:
        os.replace(name + b".partial", name)
    except OSError:
        os.unlink(name + b".partial")
        raise


def write_project_file(root: pathlib.Path, name: str, text: str, then: str) -> None:
    """Write a file of the project atomically. Raises MzError (MZ1007), which says what to do `then`."""
    try:
        write_bytes(root / name, text.encode())
    except OSError as error:
        raise MzError("MZ1007", f"{name}: {error.strerror}", hint=f"make it writable, then {then}") from None


def write_if_changed(file: pathlib.Path, content: bytes | str) -> None:
    """Write a file unless it already has that content, replacing whatever has that name."""
    data = os.fsencode(content)
    if file.is_symlink() or not file.is_file() or file.read_bytes() != data:
        remove_tree(os.fsencode(file))
        write_bytes(file, data)


def remove_tree(path: bytes) -> None:
    """Remove a file, a link, or a directory with its content, if it exists. Raises OSError."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not is_directory:
        os.unlink(path)
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        # Without rights, or nested deeper than a path can be long, so that only relative steps reach it.
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", path], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if os.path.lexists(path):
            os.rmdir(path)
