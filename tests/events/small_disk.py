"""Scenarios inside a small file system: `python -m tests.events.small_disk full|crammed|read-only DIRECTORY`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.store import Append, StoreUnusable

from tests.events.conformance import FIRST, NOW, unit, units

CRASH = (
    "import os, sys; from tests.events.small_disk import *\n"
    "SqliteStore(Path(sys.argv[1])).append([Append(FIRST, 0, units(4))], NOW); os._exit(9)"
)


def refusal(of: Callable[[], object]) -> str:
    """What is said about something that cannot be done; empty when it could."""
    try:
        of()
    except StoreUnusable as error:
        return str(error)
    return ""


def append(store: SqliteStore, version: int, count: int) -> str:
    return refusal(lambda: store.append([Append(FIRST, version, units(count))], NOW))


def fill(path: Path) -> None:
    """Leaves not a byte of room."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def logs(directory: Path) -> tuple[Path, Path]:
    """A log that was closed, with 3 events, and one that crashed, with 4."""
    closed, crashed = directory / "closed.db", directory / "crashed.db"
    with SqliteStore(closed) as store:
        store.append([Append(FIRST, 0, units(3))], NOW)
    subprocess.run([sys.executable, "-c", CRASH, crashed], check=False)
    assert crashed.with_name("crashed.db-wal").stat().st_size > 0
    return closed, crashed


def full(directory: Path) -> None:
    """Fills the disk by appends; what was answered is there, and with room again the same store goes on."""
    room = directory / "room"
    room.write_bytes(bytes(1_000_000))
    path, blobs = directory / "mz.db", FileBlobs(directory / "blobs")
    with SqliteStore(path) as store:
        kept, text = 0, ""
        while not text:
            text = append(store, kept, 50)
            kept += 0 if text else 50
        assert kept > 0
        assert "mz.db" in text, text
        assert "full" in text, text
        assert "No space left" in refusal(lambda: blobs.put(os.urandom(500_000)))
        assert [recorded.version for recorded in store.read(FIRST)] == list(range(1, kept + 1))
        room.unlink()
        assert not [file for file in (directory / "blobs").rglob("*") if file.is_file()]
        store.append([Append(FIRST, kept, (unit(0),))], NOW)
        assert blobs.get(blobs.put(b"room again")) == b"room again"
        assert store.verify() == ()
    with SqliteStore(path) as store:
        assert [item.version for item in store.read(FIRST)] == list(range(1, kept + 2))


def crammed(directory: Path) -> None:
    """Not a byte of room: reading still works, after a clean end and after a crash."""
    closed, crashed = logs(directory)
    fill(directory / "filler")
    for path, count in ((closed, 3), (crashed, 4)):
        with SqliteStore(path, read_only=True) as store:
            assert [recorded.version for recorded in store.read(FIRST)] == list(range(1, count + 1))
    fill(directory / "filler again")
    assert "full" in (text := refusal(partial(SqliteStore, directory / "new.db"))), text
    assert not (directory / "new.db").exists()


def read_only(directory: Path) -> None:
    """A log that was closed, one that crashed, and none: read without a byte written."""
    closed, crashed = logs(directory)
    subprocess.run(["mount", "-o", "remount,bind,ro", directory], check=True)
    for path, count in ((closed, 3), (crashed, 4)):
        with SqliteStore(path, read_only=True) as store:
            assert [recorded.version for recorded in store.read(FIRST)] == list(range(1, count + 1))
            assert store.verify() == ()
            assert "read-only" in append(store, count, 1)
    for path in (closed, crashed, directory / "none.db"):
        assert "read-only" in refusal(partial(SqliteStore, path)).lower()


if __name__ == "__main__":
    {"full": full, "crammed": crammed, "read-only": read_only}[sys.argv[1]](Path(sys.argv[2]))
