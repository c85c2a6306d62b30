"""Files of a library. Untrusted ones are read only if they are regular and of limited size, never through a link, never
blocking. A folder is replaced atomically, and recovered after a writer was killed.

A writer works in a locked folder beside the target, `.NAME.xxxxxxxx.partial`, which git ignores. Its subfolder `old`
is the previous content of the target and is moved back if the target is missing.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mz_events.adapters.blobs import read_regular
from mz_events.adapters.migrate import sync

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
        return read_regular(path, bytes_max)
    except ValueError as error:
        raise CassetteUnreadable(path, str(error)) from None
    except OSError as error:
        raise CassetteUnreadable(path, f"cannot be read ({error.strerror})") from error


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


# replacement ----------------------------------------------------------------------------------------------------------
PARTIAL = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.partial", re.DOTALL)
NEW, OLD = "new", "old"
AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of renameat2(2)."""


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Provide a work folder beside the target, with an empty subfolder `new`. It is removed afterwards, unless it holds
    the only copy of the target's content. Remains of dead writers in the same directory are removed first."""
    with ExitStack() as stack:
        with locked(target.parent, exclusive=True):
            _remove_dead(target.parent)
            partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
            stack.enter_context(locked(partial, exclusive=True))
            stack.callback(_clean_up, partial)
        (partial / ".gitignore").write_text("*\n")
        (partial / NEW).mkdir()
        yield partial


def replace_folder(partial: Path, target: Path) -> None:
    """Move `new` of the work folder to the target and flush it to disk. Atomic for readers if the system can exchange
    folders, else only for holders of the directory's lock."""
    new = partial / NEW
    for folder, _, names in os.walk(new):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))
    if not target.exists():
        new.rename(target)
    elif not _exchange(new, target):
        replace_by_renames(partial, target)
    sync(target.parent)


def replace_by_renames(partial: Path, target: Path) -> None:
    """Replace the target with two renames: move it aside first, and back if the second one fails."""
    try:
        target.rename(partial / OLD)
        (partial / NEW).rename(target)
    except BaseException:
        _restore_target(partial)
        raise


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders. Return False, without a change, if the system or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    return renameat2 is not None and not renameat2(
        AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE
    )


def restore_old(folder: Path) -> None:
    """Restore what a killed writer had moved aside in this directory, if the directory is writable."""
    if any((partial / OLD).exists() for partial in _partials(folder)):
        with locked(folder, exclusive=True):
            for partial in _partials(folder):
                _restore_target(partial)


def _remove_dead(folder: Path) -> None:
    """Remove work folders without a writer. They stay on file systems without locks."""
    for partial in _partials(folder):
        with suppress(OSError):
            lock_file = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clean_up(partial)
            finally:
                os.close(lock_file)


def _clean_up(partial: Path) -> None:
    _restore_target(partial)
    if _target_of(partial).exists() or not (partial / OLD).exists():
        shutil.rmtree(partial, ignore_errors=True)


def _restore_target(partial: Path) -> None:
    with suppress(OSError):
        if not os.path.lexists(_target_of(partial)):
            (partial / OLD).rename(_target_of(partial))


def _partials(folder: Path) -> tuple[Path, ...]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith("."))
    except OSError:
        return ()
    return tuple(folder / name for name in names if PARTIAL.fullmatch(name))


def _target_of(partial: Path) -> Path:
    return partial.with_name(PARTIAL.sub(r"\1", partial.name))
