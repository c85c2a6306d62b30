"""Adapter: makes a worktree's directory hold exactly one tree, changing as little as it can.

Never follows a link, never writes through an old file (it may have another name elsewhere), and may be killed at any
instant: the next walk sees what is still wrong. (Names are bytes and `pathlib` takes none, hence `os` here.)
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
import subprocess

from mz_engine.adapters.git_facts import EXECUTABLE, LINK, SUBMODULE, Entry, Listing, Scan
from mz_engine.adapters.git_objects import Objects
from mz_engine.adapters.git_paths import parents_of
from mz_engine.adapters.git_scan import open_up
from mz_engine.ports import RepositoryUnusable


def restore(objects: Objects, top: bytes, target: Listing, scan: Scan, kept: set[bytes]) -> bool:
    """Remove what `target` does not hold and is not in `kept` (ignored files; directories end in `/`), write what is
    missing or different. `scan` is what a walk with `target` as the tracked tree found; the answer is whether a file
    was written. Raises RepositoryUnusable."""
    wrong = [path for path, entry in target.items() if scan.files.get(path) != entry]
    try:
        _remove_all(top, target, scan, kept)
        modes = [path for path in wrong if _only_mode(scan.files.get(path), target[path])]
        for path in modes:
            _set_mode(os.path.join(top, path), target[path].mode)
        _write_all(objects, top, {path: target[path] for path in wrong if path not in set(modes)})
    except OSError as error:
        where = os.fsdecode(error.filename or top)
        raise RepositoryUnusable("worktree-unusable", f"{where} cannot be restored: {error.strerror}") from error
    return bool(wrong)


def _remove_all(top: bytes, target: Listing, scan: Scan, kept: set[bytes]) -> None:
    folders = parents_of(target)
    for stray in scan.strays:
        inner = b"/.git" if stray.kind == "nested-git" and stray.path in folders else b""
        remove(os.path.join(top, stray.path + inner))
    unknown = scan.ignored - kept
    for path in unknown | (scan.files.keys() - target.keys()):
        if not path.endswith(b"/"):
            remove(os.path.join(top, path))
    empty = {path[:-1] for path in unknown if path.endswith(b"/")} | (scan.directories - folders)
    for path in sorted(empty, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(top, path))


def _write_all(objects: Objects, top: bytes, files: Listing) -> None:
    made: set[bytes] = set()
    for path, entry in files.items():
        if entry.mode == SUBMODULE:
            make_directory(top, path, made)
    content = [(path, entry) for path, entry in files.items() if entry.mode != SUBMODULE]
    for (path, entry), data in zip(content, objects.blobs([entry.oid for _, entry in content]), strict=True):
        make_directory(top, path.rpartition(b"/")[0], made)
        write(os.path.join(top, path), data, entry.mode)


def make_directory(top: bytes, path: bytes, made: set[bytes]) -> None:
    """A real directory, whatever stood there; and those above it."""
    if not path or path in made:
        return
    make_directory(top, path.rpartition(b"/")[0], made)
    place = os.path.join(top, path)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(place).st_mode):
            os.unlink(place)
    with contextlib.suppress(FileExistsError):
        os.mkdir(place)
    open_up(place)
    made.add(path)


def copy_missing(
    source: pathlib.Path, worktree: pathlib.Path, scratch: pathlib.Path, names: tuple[str, ...], tracked: Listing
) -> None:
    """Copy files or directories of the user's checkout that the worktree has not: those that exist and are not tracked.
    `scratch` is on the worktree's file system. Raises RepositoryUnusable."""
    for name in names:
        path = os.fsencode(name)
        if path in tracked or not os.path.lexists(source / name) or os.path.lexists(worktree / name):
            continue
        try:
            remove(os.fsencode(scratch))
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


def write(place: bytes, data: bytes, mode: int) -> None:
    """A new file or link, in place of whatever stood there."""
    remove(place)
    if mode == LINK:
        os.symlink(data, place)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(place, flags, 0o777 if mode == EXECUTABLE else 0o666), "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]


def remove(place: bytes) -> None:
    """A file, a link, or a directory with all that is below it; nothing is fine too. Raises OSError."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(place).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not is_directory:
        os.unlink(place)
        return
    try:
        _empty(place)
    except OSError:
        # Deeper than a path can be long: only relative steps reach it, and rm(1) takes them.
        subprocess.run(["rm", "-rf", "--", place], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(place)


def _empty(place: bytes) -> None:
    """Everything inside, without recursion: directories may be nested deeper than the stack."""
    found, at = [place], 0
    while at < len(found):
        open_up(found[at])
        with os.scandir(found[at]) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    found.append(entry.path)
                else:
                    os.unlink(entry.path)
        at += 1
    for directory in reversed(found[1:]):
        os.rmdir(directory)


def _only_mode(old: Entry | None, new: Entry) -> bool:
    return old is not None and old.oid == new.oid and not {old.mode, new.mode} & {LINK, SUBMODULE}


def _set_mode(place: bytes, mode: int) -> None:
    """The executable bits follow the readable ones, as git sets them."""
    now = stat.S_IMODE(os.lstat(place).st_mode)
    bits = (now & 0o444) >> 2
    os.chmod(place, now | bits if mode == EXECUTABLE else now & ~0o111)
