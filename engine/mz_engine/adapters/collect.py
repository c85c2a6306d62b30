"""Remove garbage below `.mz`: blobs that no event cites, spools of calls with a recorded outcome, unfinished files.
Safe beside a running process, and safe to kill."""

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
"""Younger files stay: an event that cites one may be about to be appended."""
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
"""Partial files of killed writers, relative to `.mz`."""
OUTCOMES = (AgentReplied, AgentFailed, AgentLost)


class Heap(msgspec.Struct):
    """Number and total size of files of one kind."""

    count: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.count += 1
        self.size_bytes += size_bytes


class Collected(msgspec.Struct):
    """Files removed (in a dry run: to be removed), and files kept."""

    blobs: Heap = msgspec.field(default_factory=Heap)
    spools: Heap = msgspec.field(default_factory=Heap)
    files: Heap = msgspec.field(default_factory=Heap)
    """Files that were never finished."""
    kept: Heap = msgspec.field(default_factory=Heap)
    """Blobs that stay."""
    young: Heap = msgspec.field(default_factory=Heap)
    """Those of `kept_blobs` that no event cites but that are younger than the limit."""


class Cited:
    """Digests and calls in the log; updated as the log grows."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._after = store, 0
        self.digests: set[str] = set()
        self.asked: set[str] = set()
        """Keys of all agent calls."""
        self.recorded: set[str] = set()
        """Keys of calls with a recorded outcome."""

    def catch_up(self) -> None:
        """Read new events. Digests in any field count. Raises UnknownEvent (citations of a newer mz are unknown),
        StoreUnusable."""
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
    """Remove garbage. `home` is `.mz`; `now` in seconds since the epoch. Raises UnknownEvent, StoreUnusable."""
    before = (time.time() if now is None else now) - SPARED_SECONDS
    done, cited = Collected(), Cited(store)
    cited.catch_up()
    _spools(home / SPOOL, cited, before, dry_run, done)
    _files(home, before, dry_run, done)
    blobs = FileBlobs(home / "blobs")
    for shard in SHARDS:
        # One shard at a time, so that an appending process waits for one of them only.
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
    """Remove spools of calls whose outcome is recorded, or that no event mentions."""
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
    """Return the newest modification time of the directory and its direct entries, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return max(each.lstat().st_mtime for each in (folder, *folder.iterdir()))
    return float("inf")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory; files that vanish meanwhile count 0."""
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
