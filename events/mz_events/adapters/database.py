"""Opens a log's SQLite file for writing or reading, locks commits, and translates SQLite's errors into messages.

SQLite's own busy handler is unfair (waits of seconds), and before 3.51.3 two connections that commit and checkpoint at
the same instant can corrupt a write-ahead log. One lock held from BEGIN to COMMIT, and around closing, avoids both.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from mz_events.adapters import migrate
from mz_events.store import StoreUnusable

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

POLL_SECONDS = 0.0005
SLOW_POLL_SECONDS = 0.005
FAST_POLLING_SECONDS = 0.1


class StoreLock:
    """Excludes the other threads of this process and all other processes; not re-entrant.

    The kernel releases it when the process ends, however it ends. Raises: StoreUnusable after `timeout_seconds`.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self.path = path
        self._timeout_seconds = timeout_seconds
        self._thread_lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> StoreLock:
        start = time.monotonic()
        if not self._thread_lock.acquire(timeout=self._timeout_seconds):
            raise self._timeout_error()
        try:
            while True:
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return self
                except BlockingIOError:
                    pass
                waited_seconds = time.monotonic() - start
                if waited_seconds >= self._timeout_seconds:
                    raise self._timeout_error()
                time.sleep(POLL_SECONDS if waited_seconds < FAST_POLLING_SECONDS else SLOW_POLL_SECONDS)
        except BaseException:
            self._thread_lock.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._thread_lock.release()

    def close(self) -> None:
        """Close the file; the lock is unusable afterwards."""
        with suppress(OSError):
            os.close(self._descriptor)

    def _timeout_error(self) -> StoreUnusable:
        return StoreUnusable(
            f"{self.path} was held by another process for {self._timeout_seconds:g} seconds: "
            "end that process (it may be suspended), then try again"
        )


CHECKPOINT_PAGES = 1000
"""A checkpoint happens inside a commit, under the lock: rarer and longer ones keep most commits short."""

SIZE_BYTES_MIN = 512
"""Smallest page size of SQLite; every database has at least one page."""

ERROR_MESSAGES = {
    sqlite3.SQLITE_BUSY: "is locked by another program: close that program, then try again",
    sqlite3.SQLITE_LOCKED: "is locked by another program: close that program, then try again",
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full: free some space, then try again; no recorded event is lost",
    sqlite3.SQLITE_READONLY: "cannot be written: it or its directory is read-only",
    sqlite3.SQLITE_PERM: "cannot be written: it or its directory is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check that it and its directory exist and are readable",
    sqlite3.SQLITE_NOTADB: "is not a database: it was damaged or overwritten; restore it from a backup",
    sqlite3.SQLITE_CORRUPT: "is damaged (truncated, or changed from outside): restore it from a backup",
    sqlite3.SQLITE_IOERR: "cannot be read or written, the disk failed or is full: check the disk, then try again",
}


class TranslatedErrors(AbstractContextManager["TranslatedErrors"]):
    """Converts errors of SQLite and the system about the file at `path` to StoreUnusable. No generator: each append and
    every page of a read enters it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise StoreUnusable(f"{self._path} cannot be used: {error.strerror or error}") from error
        if isinstance(error, sqlite3.Error):
            message = ERROR_MESSAGES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "cannot be used")
            raise StoreUnusable(f"{self._path} {message} ({error})") from error


class Database:
    """An open log file. `read_only` needs no write permission, neither on the file nor on its directory."""

    def __init__(
        self, path: Path, read_only: bool, timeout_seconds: float, migrations: Sequence[migrate.Migration]
    ) -> None:
        self.path = path
        self._read_only, self._timeout_seconds = read_only, timeout_seconds
        self._temporary_directory: TemporaryDirectory[str] | None = None
        self._lock: StoreLock | None = None
        self._writer: sqlite3.Connection | None = None
        self._idle_connections: list[sqlite3.Connection] = []
        with TranslatedErrors(path):
            self._target = self._open_for_reading(migrations) if read_only else self._open_for_writing(migrations)

    def close(self) -> None:
        """Close every connection; idempotent. The last one to close writes a checkpoint, hence the lock.

        If the lock is not available, its holder has the file open, so this connection is not the last.
        """
        lock, self._lock = self._lock, None
        with TranslatedErrors(self.path):
            if lock is not None:
                with suppress(StoreUnusable), lock:
                    self._dispose()
                lock.close()
            self._dispose()
            if self._temporary_directory is not None:
                self._temporary_directory.cleanup()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Cursor]:
        """Run one durable transaction, exclusive among all threads and processes; an error inside rolls it back."""
        with TranslatedErrors(self.path), self.writing_lock():
            cursor = (self._writer or self._open_writer()).cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                cursor.connection.rollback()
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Cursor]:
        """Yield a cursor in autocommit mode: each statement sees what is committed when it runs."""
        with TranslatedErrors(self.path):
            try:
                connection = self._idle_connections.pop()
            except IndexError:
                connection = self._connect(self._target)
                connection.execute("PRAGMA query_only = 1")
            try:
                yield connection.cursor()
            finally:
                self._idle_connections.append(connection)

    def writing_lock(self) -> StoreLock:
        """Return the lock that keeps everybody from appending. Raises: StoreUnusable."""
        if self._read_only or self._lock is None:
            raise StoreUnusable(f"{self.path} was opened read-only")
        return self._lock

    def _dispose(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        while self._idle_connections:
            self._idle_connections.pop().close()

    def _open_for_reading(self, migrations: Sequence[migrate.Migration]) -> str:
        """Return the target for reading. SQLite writes beside a file even to read it; where it cannot, the file is read
        as is."""
        if not self.path.exists():
            raise StoreUnusable(f"there is no log at {self.path}: nothing has been run here yet")
        if os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK):
            try:
                return self._open_for_writing(migrations)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            self._lock = None
        return self._open_unwritable(migrations)

    def _open_for_writing(self, migrations: Sequence[migrate.Migration]) -> str:
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = StoreLock(self.path.with_name(self.path.name + ".lock"), self._timeout_seconds)
        try:
            if not self.path.exists():
                with self._lock:
                    self._create(migrations)
            self._reject_truncated()
            with closing(self._connect(uri)) as connection:
                if migrate.format_of(connection, self.path, len(migrations)) < len(migrations):
                    with self._lock:
                        version = migrate.format_of(connection, self.path, len(migrations))
                        if version < len(migrations):  # No other process was faster.
                            migrate.backup(connection, self.path, version)
                            migrate.apply(connection, migrations)
        except BaseException:
            self._lock.close()
            raise
        return uri

    def _create(self, migrations: Sequence[migrate.Migration]) -> None:
        if self.path.exists():
            return
        orphan = self.path.with_name(self.path.name + "-wal")
        if orphan.exists():
            raise StoreUnusable(f"{self.path} is missing but {orphan} exists: restore the log, or move that file away")
        migrate.create(self.path, migrations)

    def _reject_truncated(self) -> None:
        """Reject a file too short for a log: SQLite would treat it as new and discard its write-ahead log."""
        if (size := self.path.stat().st_size) < SIZE_BYTES_MIN:
            raise StoreUnusable(
                f"{self.path} has {size} bytes, too few for a log: it was truncated; restore it from a backup"
            )

    def _open_unwritable(self, migrations: Sequence[migrate.Migration]) -> str:
        """Return a target that needs no write permission: the file itself if possible, else a temporary copy."""
        import shutil
        from tempfile import TemporaryDirectory

        self._reject_truncated()
        target = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        wal = self.path.with_name(self.path.name + "-wal")
        if not wal.exists() or wal.stat().st_size == 0:
            with closing(self._connect(target)) as connection:
                if migrate.format_of(connection, self.path, len(migrations)) == len(migrations):
                    return target
        self._temporary_directory = TemporaryDirectory(prefix="mz-log-")
        copy = Path(self._temporary_directory.name) / self.path.name
        shutil.copyfile(self.path, copy)
        if wal.exists():
            shutil.copyfile(wal, copy.with_name(wal.name))
        target = f"{copy.as_uri()}?mode=rw"
        with closing(self._connect(target)) as connection:
            if migrate.format_of(connection, self.path, len(migrations)) < len(migrations):
                migrate.apply(connection, migrations)
        return target

    def _connect(self, target: str) -> sqlite3.Connection:
        return migrate.connect(target, self._timeout_seconds)

    def _open_writer(self) -> sqlite3.Connection:
        """Open the writing connection with the first transaction, which holds the lock."""
        writer = self._connect(self._target)
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._writer = writer
        return writer
