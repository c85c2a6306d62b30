"""Remove garbage below `.mz`: blobs that no event cites, spools of calls with a recorded outcome, unfinished files.
Safe beside a running process, and safe to kill."""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
import time
from pathlib import Path

import msgspec
from mz_events.adapters.blobs import SHARDS, TEMPORARY_PREFIX, FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested

from mz_engine.agents.process import spool_directory
from mz_engine.paths import SPOOL_FOLDER

MIN_AGE_SECONDS = 24 * 3600.0
"""Younger files stay: an event that cites one may be about to be appended."""
DIGEST_PATTERN = re.compile(rb'"([0-9a-f]{64})"')
UNFINISHED_FILES = (
    f"blobs/*/{TEMPORARY_PREFIX}*",
    "mz.db.new*",
    "mz.db.format*.bak.new*",
    "spool/*/exit.json.tmp",
    "worktree-notes/*/*/*.partial",
    "worktree-notes/*/*/ignored/*.partial",
    "pull-requests/*/*.partial",
)
"""Partial files of killed writers, relative to `.mz`."""
CALL_OUTCOMES = (AgentReplied, AgentFailed, AgentLost)


class BlobGroup(msgspec.Struct):
    """Number and total size of files of one kind."""

    count: int = 0
    size_bytes: int = 0
    """Size on disk; blobs are compressed."""

    def add(self, size_bytes: int) -> None:
        self.count += 1
        self.size_bytes += size_bytes


class CollectedGarbage(msgspec.Struct):
    """`mz clean --blobs --json`: files removed, and files kept."""

    dry_run: bool
    """Nothing was removed; the numbers say what would be."""
    blobs: BlobGroup = msgspec.field(default_factory=BlobGroup)
    """Blobs that no event cites."""
    spools: BlobGroup = msgspec.field(default_factory=BlobGroup)
    """Output of agent calls whose outcome is recorded, or that no event cites."""
    unfinished_files: BlobGroup = msgspec.field(default_factory=BlobGroup)
    """Unfinished files whose writer was killed."""
    freed_bytes: int = 0
    kept_blobs: BlobGroup = msgspec.field(default_factory=BlobGroup)
    """Remaining blobs, including those too young to judge."""
    recent_blobs: BlobGroup = msgspec.field(default_factory=BlobGroup)
    """Blobs that no event cites, younger than 24 hours."""


class LogCitations:
    """Digests and calls in the log; updated as the log grows."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._after = store, 0
        self.digests: set[str] = set()
        self.pending_keys: set[str] = set()
        """Keys of calls without a recorded outcome."""

    def catch_up(self) -> None:
        """Read new events. Digests in any field count. Raises UnknownEvent (citations of a newer mz are unknown),
        StoreUnusable."""
        for recorded in self._store.read_all(self._after):
            self._after, event = recorded.position, recorded.event
            self.digests.update(digest.decode() for digest in DIGEST_PATTERN.findall(msgspec.json.encode(event)))
            if isinstance(event, AgentRequested):
                self.pending_keys.add(event.ref.key)
            elif isinstance(event, CALL_OUTCOMES):
                self.pending_keys.discard(event.ref.key)


def collect_garbage(mz_folder: Path, store: SqliteStore, dry_run: bool, now: float | None = None) -> CollectedGarbage:
    """Remove garbage. `now` in seconds since the epoch. Raises UnknownEvent, StoreUnusable."""
    cutoff = (time.time() if now is None else now) - MIN_AGE_SECONDS
    garbage, citations = CollectedGarbage(dry_run=dry_run), LogCitations(store)
    citations.catch_up()
    spools = mz_folder / SPOOL_FOLDER
    pending_names = {spool_directory(spools, key).name for key in citations.pending_keys}
    for spool in sorted(spools.iterdir()) if spools.is_dir() else ():
        if spool.name not in pending_names and spool.is_dir() and newest_mtime(spool) <= cutoff:
            garbage.spools.add(total_bytes(spool))
            if not dry_run:
                shutil.rmtree(spool, ignore_errors=True)
    for file in (file for pattern in UNFINISHED_FILES for file in mz_folder.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_mtime <= cutoff:
                garbage.unfinished_files.add(status.st_size)
                if not dry_run:
                    file.unlink()
    blobs = FileBlobs(mz_folder / "blobs")
    for shard in SHARDS:
        # One shard at a time, so that an appending process waits for one of them only.
        with contextlib.nullcontext() if dry_run else store.exclusive():
            citations.catch_up()
            for digest in blobs.list_shard(shard):
                with contextlib.suppress(FileNotFoundError):
                    status = blobs.path(digest).stat()
                    if digest in citations.digests:
                        garbage.kept_blobs.add(status.st_size)
                    elif status.st_mtime <= cutoff and (dry_run or blobs.delete(digest, cutoff)):
                        garbage.blobs.add(status.st_size)
                    else:
                        garbage.kept_blobs.add(status.st_size)
                        garbage.recent_blobs.add(status.st_size)
    garbage.freed_bytes = sum(group.size_bytes for group in (garbage.blobs, garbage.spools, garbage.unfinished_files))
    return garbage


def newest_mtime(folder: Path) -> float:
    """Return the newest modification time of the directory and its direct entries, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    return float("inf")


def total_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory; files that vanish meanwhile count 0."""
    total, pending = 0, [path]
    while pending:
        current = pending.pop()
        with contextlib.suppress(OSError):
            status = current.lstat()
            if stat.S_ISDIR(status.st_mode):
                pending += current.iterdir()
            else:
                total += status.st_size
    return total
