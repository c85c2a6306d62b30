"""Adapter: removes what nothing needs any more below `.mz`: blobs that no event cites, spools of calls whose outcome is
recorded, files that were never finished. Safe beside a run at work, and after being killed anywhere."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from mz_events.adapters.blobs import FRESH, SHARDS, FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested
from mz_events.names import Digest

from mz_engine.agents.spool import directory
from mz_engine.home import SPOOL

SPARED_SECONDS = 24 * 3600.0
"""What is younger stays: an event that cites it may be about to be appended."""
DIGEST = re.compile(rb'"([0-9a-f]{64})"')
UNFINISHED = (
    f"blobs/*/{FRESH}*",
    "mz.db.new*",
    "mz.db.format*.bak.new*",
    "spool/*/exit.json.tmp",
    "worktree-notes/*/*/*.partial",
    "worktree-notes/*/*/ignored/*.partial",
    "pull-requests/*/*.partial",
)
"""What is left of files whose writer was killed, relative to `.mz`."""
OUTCOMES = (AgentReplied, AgentFailed, AgentLost)


class Heap(msgspec.Struct):
    """So many things of one kind, and their bytes."""

    count: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.count += 1
        self.size_bytes += size_bytes


class Collected(msgspec.Struct):
    """What went, or in a dry run would go; and what stays."""

    blobs: Heap = msgspec.field(default_factory=Heap)
    spools: Heap = msgspec.field(default_factory=Heap)
    files: Heap = msgspec.field(default_factory=Heap)
    """Never finished."""
    kept: Heap = msgspec.field(default_factory=Heap)
    """Blobs that stay."""
    young: Heap = msgspec.field(default_factory=Heap)
    """Of these, blobs that no event cites but that are too young to be sure."""


class Cited:
    """What the log speaks of; grows as the log does."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._after = store, 0
        self.digests: set[str] = set()
        self.asked: set[str] = set()
        """Keys of agent calls."""
        self.recorded: set[str] = set()
        """Keys of those whose outcome is known."""

    def catch_up(self) -> None:
        """Reads what came since. Any digest counts, in whatever field it stands. Raises UnknownEvent, StoreUnusable:
        where a newer mz wrote, nobody knows what it cites."""
        for recorded in self._store.read_all(self._after):
            self._after = recorded.position
            self._take(recorded.event)

    def _take(self, event: Event) -> None:
        self.digests.update(found.decode() for found in DIGEST.findall(msgspec.json.encode(event)))
        if isinstance(event, AgentRequested):
            self.asked.add(event.ref.key)
        elif isinstance(event, OUTCOMES):
            self.recorded.add(event.ref.key)


def collect(home: Path, store: SqliteStore, dry_run: bool, now: float | None = None) -> Collected:
    """`home` is `.mz`; `now` counts seconds since the epoch. Raises UnknownEvent, StoreUnusable."""
    before = (time.time() if now is None else now) - SPARED_SECONDS
    done, cited = Collected(), Cited(store)
    cited.catch_up()
    _spools(home / SPOOL, cited, before, dry_run, done)
    _files(home, before, dry_run, done)
    blobs = FileBlobs(home / "blobs")
    for shard in SHARDS:
        # In portions: whoever wants to append waits for one of them only.
        with contextlib.nullcontext() if dry_run else store.alone():
            cited.catch_up()
            for digest in blobs.kept(shard):
                _blob(blobs, digest, cited, before, dry_run, done)
    return done


def _blob(blobs: FileBlobs, digest: Digest, cited: Cited, before: float, dry_run: bool, done: Collected) -> None:
    try:
        status = blobs.path(digest).stat()
    except FileNotFoundError:
        return
    if digest in cited.digests:
        done.kept.add(status.st_size)
    elif status.st_mtime > before or not (dry_run or blobs.drop(digest, before)):
        done.kept.add(status.st_size)
        done.young.add(status.st_size)
    else:
        done.blobs.add(status.st_size)


def _spools(folder: Path, cited: Cited, before: float, dry_run: bool, done: Collected) -> None:
    """A spool goes when the outcome of its call is recorded, or when no event knows the call."""
    owed = {directory(folder, key).name for key in cited.asked - cited.recorded}
    for spool in sorted(folder.iterdir()) if folder.is_dir() else ():
        if spool.name in owed or not spool.is_dir() or newest(spool) > before:
            continue
        done.spools.add(size_of(spool))
        if not dry_run:
            shutil.rmtree(spool, ignore_errors=True)


def _files(home: Path, before: float, dry_run: bool, done: Collected) -> None:
    for pattern in UNFINISHED:
        for file in home.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode) and status.st_mtime <= before:
                    done.files.add(status.st_size)
                    if not dry_run:
                        file.unlink()


def newest(folder: Path) -> float:
    """When the directory or something directly in it changed last, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return max(each.lstat().st_mtime for each in (folder, *folder.iterdir()))
    return float("inf")


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a directory; what vanishes meanwhile counts for nothing."""
    return sum(_sizes(os.fsencode(path)))


def _sizes(path: bytes) -> Iterator[int]:
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            yield os.lstat(path).st_size
            return
        waiting = [path]
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        with contextlib.suppress(OSError):
                            yield entry.stat(follow_symlinks=False).st_size
