"""Adapter: puts a folder in the place of another one at once, and mends what a writer left who was killed meanwhile.

A writer works in a folder of its own beside the place, `.NAME.xxxxxxxx.partial`, and holds it locked; git ignores it.
What lies in it as `old` stood at the place and is put back where nothing else stands there.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mz_events.adapters.migrate import sync

from mz_recordings.files.plainfiles import locked

PARTIAL = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.partial", re.DOTALL)
NEW, OLD = "new", "old"
AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Of renameat2(2)."""


@contextmanager
def beside(place: Path) -> Iterator[Path]:
    """A folder beside the place to work in, with an empty folder `new`; it is gone afterwards, but never with the only
    copy of what stood at the place. What dead writers left in the same directory is swept first."""
    with locked(place.parent, alone=True):
        _sweep(place.parent)
        partial = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".partial", dir=place.parent))
        held = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
    try:
        (partial / ".gitignore").write_text("*\n")
        (partial / NEW).mkdir()
        yield partial
    finally:
        _mend(partial)
        os.close(held)


def put(partial: Path, place: Path) -> None:
    """Puts `new` of the partial folder at the place, on the disk before it returns. Whoever looks sees one or the other
    where the system can exchange two folders; elsewhere only who holds the lock of the directory."""
    new = partial / NEW
    for folder, _, names in os.walk(new):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))
    if not place.exists():
        new.rename(place)
    elif not _exchanged(new, place):
        by_renames(partial, place)
    sync(place.parent)


def by_renames(partial: Path, place: Path) -> None:
    """Where nothing can be exchanged: what stands there goes aside first, and comes back when the rest fails."""
    try:
        place.rename(partial / OLD)
        (partial / NEW).rename(place)
    except BaseException:
        _put_back(partial)
        raise


def _exchanged(one: Path, other: Path) -> bool:
    """Exchanges two folders; False: nothing was done, for this system or file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    return renameat2 is not None and not renameat2(
        AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE
    )


def recover(folder: Path) -> None:
    """Puts back what a writer had set aside in this directory when it was killed. Nothing is done where the directory
    may not be written."""
    if any((partial / OLD).exists() for partial in _partials(folder)):
        with locked(folder, alone=True):
            for partial in _partials(folder):
                _put_back(partial)


def _sweep(folder: Path) -> None:
    """What nobody works on any more goes. Where the file system knows no locks it stays."""
    for partial in _partials(folder):
        with suppress(OSError):
            held = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _mend(partial)
            finally:
                os.close(held)


def _mend(partial: Path) -> None:
    _put_back(partial)
    if _place_of(partial).exists() or not (partial / OLD).exists():
        shutil.rmtree(partial, ignore_errors=True)


def _put_back(partial: Path) -> None:
    with suppress(OSError):
        if not os.path.lexists(_place_of(partial)):
            (partial / OLD).rename(_place_of(partial))


def _partials(folder: Path) -> tuple[Path, ...]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith("."))
    except OSError:
        return ()
    return tuple(folder / name for name in names if PARTIAL.fullmatch(name))


def _place_of(partial: Path) -> Path:
    name = PARTIAL.fullmatch(partial.name)
    assert name is not None
    return partial.with_name(name[1])
