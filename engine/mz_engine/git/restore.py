"""Make a worktree's directory hold exactly one tree, with as few changes as possible.

Never follows a link, never writes through an existing file (it may have another name elsewhere), and may be killed at
any time: the next scan finds what still differs. (Names are bytes, which `pathlib` does not accept, hence `os`.)"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
import subprocess
from collections.abc import Mapping

from mz_events.names import Path

from mz_engine.git.content import EXECUTABLE, FILE, LINK, SUBMODULE, TreeListing, WorktreeScan, parent_directories
from mz_engine.git.objects import ObjectStore
from mz_engine.git.scan import make_accessible
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import RepositoryUnusable

IGNORE_ALL = b"*\n"


def restore(
    objects: ObjectStore, top: bytes, target: TreeListing, scan: WorktreeScan, kept_ignored: set[bytes]
) -> bool:
    """Remove what is neither in `target` nor in `kept_ignored` (ignored files; directories end in `/`), and write what
    is missing or different. `scan` is the result of a walk with `target` as the tracked tree. Return True if a file was
    written. Raises RepositoryUnusable."""
    differing = [path for path, entry in target.items() if scan.files.get(path) != entry]
    try:
        _remove_all(top, target, scan, kept_ignored)
        _write_all(objects, top, {path: target[path] for path in differing})
    except OSError as error:
        name = os.fsdecode(error.filename or top)
        raise RepositoryUnusable("worktree-unusable", f"{name} cannot be restored: {error.strerror}") from error
    return bool(differing)


def _remove_all(top: bytes, target: TreeListing, scan: WorktreeScan, kept_ignored: set[bytes]) -> None:
    folders = parent_directories(target)
    for stray in scan.excluded:
        suffix = b"/.git" if stray.kind == "nested-git" and stray.path in folders else b""
        remove_tree(os.path.join(top, stray.path + suffix))
    unexpected_ignored = scan.ignored - kept_ignored
    for path in unexpected_ignored | (scan.files.keys() - target.keys()):
        if not path.endswith(b"/"):
            remove_tree(os.path.join(top, path))
    empty_directories = {path[:-1] for path in unexpected_ignored if path.endswith(b"/")} | (scan.directories - folders)
    for path in sorted(empty_directories, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(top, path))


def _write_all(objects: ObjectStore, top: bytes, files: TreeListing) -> None:
    created: set[bytes] = set()
    for path, entry in files.items():
        if entry.mode == SUBMODULE:
            make_directory(top, path, created)
    for path, entry in files.items():
        if entry.mode != SUBMODULE:
            data = objects.blob(entry.oid)
            make_directory(top, path.rpartition(b"/")[0], created)
            write_file(os.path.join(top, path), data, entry.mode)


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
    """Write the engine's own files, whose paths begin with `.mz/`; git in the worktree ignores them. Raises OSError.

    An agent may have written there before: a link in the way is removed, never followed.
    """
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
            message = f"`{name}` cannot be copied into the worktree: {error}"
            raise RepositoryUnusable("worktree-unusable", message) from error


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
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    write_file(os.fsencode(partial), data, FILE)
    partial.replace(file)


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
