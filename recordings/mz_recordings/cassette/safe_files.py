"""Reading of untrusted files: regular files of limited size only, never through a link, never blocking."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_BYTES_MAX = 250_000_000
"""Limit for output, artifacts, patches and repositories."""
TEXT_BYTES_MAX = 16_000_000
"""Limit for files that are parsed, which takes many times their size."""
DEPTH_MAX = 8
"""Levels of folders."""


class CassetteUnreadable(Exception):
    """A cassette, or another file of a library, cannot be read; names the file and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


def read_plain(path: Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Return the bytes of a regular file. Raises CassetteUnreadable for other files and for those over the limit."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        with suppress(OSError):
            if not stat.S_ISREG(path.lstat().st_mode):
                reason = "is not a regular file"
        raise CassetteUnreadable(path, reason) from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise CassetteUnreadable(path, "is not a regular file")
        if status.st_size > bytes_max:
            raise CassetteUnreadable(path, f"is larger than {bytes_max // 1_000_000} MB")
        with open(file, "rb", closefd=False) as stream:
            return stream.read(bytes_max)
    except OSError as error:
        raise CassetteUnreadable(path, f"cannot be read ({error.strerror})") from error
    finally:
        os.close(file)


def walk(folder: Path, depth: int = DEPTH_MAX) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a directory except directories, sorted, by relative path. Links are not followed.

    Raises CassetteUnreadable.
    """
    if not depth:
        raise CassetteUnreadable(folder, "is nested too deeply")
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise CassetteUnreadable(folder, f"cannot be read ({error.strerror})") from error
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from ((f"{entry.name}/{name}", status) for name, status in walk(folder / entry.name, depth - 1))
        else:
            try:
                yield entry.name, entry.stat(follow_symlinks=False)
            except OSError as error:
                raise CassetteUnreadable(folder / entry.name, f"cannot be read ({error.strerror})") from error


@contextmanager
def locked(folder: Path, exclusive: bool) -> Iterator[None]:
    """Hold a lock on the folder, exclusive or shared. File systems without locks are not locked."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)
