"""Adapter: reads what others wrote, without trusting it: plain files of sensible size only, never through a link, and
never one that would have us wait."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_BYTES_MAX = 250_000_000
"""Of a file that holds output, an artifact, a patch or a repository."""
TEXT_BYTES_MAX = 16_000_000
"""Of a file that describes others; parsing one takes many times its size."""
DEPTH_MAX = 8
"""Folders within folders."""


class Unreadable(Exception):
    """A file cannot be read as a part of a cassette; says why, and of which one."""

    def __init__(self, path: Path, why: str, missing: bool = False) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why, self.missing = path, why, missing


def read_plain(path: Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The bytes of a plain file. Raises Unreadable for anything else (links, pipes and devices too), and for one that
    is larger: nothing of it is read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise Unreadable(path, _no_file(path) or why, isinstance(error, FileNotFoundError)) from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(path, "is no plain file")
        if status.st_size > bytes_max:
            raise Unreadable(path, f"is larger than {bytes_max // 1_000_000} MB")
        with open(file, "rb", closefd=False) as stream:
            return stream.read(bytes_max)
    except OSError as error:
        raise Unreadable(path, f"cannot be read ({error.strerror})") from error
    finally:
        os.close(file)


def _no_file(path: Path) -> str:
    """Words for what is there and is no file; empty where that is not why."""
    try:
        return "" if stat.S_ISREG(path.lstat().st_mode) else "is no plain file"
    except OSError:
        return ""


def walk(place: Path, depth: int = DEPTH_MAX) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a directory that is no directory itself, by its path relative to it, in order. Links are not
    followed. Raises Unreadable."""
    if not depth:
        raise Unreadable(place, "lies too deep")
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError as error:
        raise Unreadable(place, f"cannot be read ({error.strerror})") from error
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from ((f"{entry.name}/{name}", status) for name, status in walk(place / entry.name, depth - 1))
        else:
            try:
                yield entry.name, entry.stat(follow_symlinks=False)
            except OSError as error:
                raise Unreadable(place / entry.name, f"cannot be read ({error.strerror})") from error


@contextmanager
def locked(folder: Path, alone: bool) -> Iterator[None]:
    """Holds the folder against others who do the same: `alone`, or together with all who are not. Where the file system
    knows no locks, nobody is held."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)
