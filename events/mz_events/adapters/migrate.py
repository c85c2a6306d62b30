"""Creates log database files and migrates them to the format of this version, keeping a backup."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from mz_events.store import StoreUnusable

Migration = Callable[[sqlite3.Connection], None]

CREATE_LOG = (
    "CREATE TABLE log (id TEXT NOT NULL)",
    """CREATE TABLE stream (
        id INTEGER NOT NULL PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        recorded_at_us INTEGER NOT NULL,
        chain BLOB NOT NULL
    )""",
    """CREATE TABLE event (
        position INTEGER NOT NULL PRIMARY KEY,
        stream_id INTEGER NOT NULL REFERENCES stream (id),
        version INTEGER NOT NULL,
        type TEXT NOT NULL,
        schema INTEGER NOT NULL,
        recorded_at_us INTEGER NOT NULL,
        observed_at_us INTEGER NOT NULL,
        causation TEXT NOT NULL,
        payload BLOB NOT NULL,
        chain BLOB NOT NULL,
        UNIQUE (stream_id, version)
    )""",
    "CREATE TRIGGER event_kept BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
    "CREATE TRIGGER event_fixed BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
    "CREATE TRIGGER stream_kept BEFORE DELETE ON stream BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
)


def create_log(connection: sqlite3.Connection) -> None:
    """The first format: create the tables in an empty database and give the log its id."""
    for statement in CREATE_LOG:
        connection.execute(statement)
    connection.execute("INSERT INTO log (id) VALUES (?)", (os.urandom(16).hex(),))


MIGRATIONS: tuple[Migration, ...] = (create_log,)
"""In order; the number of applied migrations is the file's format. Never changed once released."""

APPLICATION_ID = 0x6D7A_0002
"""Distinguishes a log from any other SQLite file; stored in the file's header."""
UNRELEASED_APPLICATION_ID = 0x6D7A_0001
"""Of logs from before the first release, whose events had other names."""


def connect(target: str, timeout_seconds: float) -> sqlite3.Connection:
    """Return a connection without implicit transactions; `target` is a SQLite URI."""
    return sqlite3.connect(target, uri=True, isolation_level=None, check_same_thread=False, timeout=timeout_seconds)


def create(path: Path, migrations: Sequence[Migration]) -> None:
    """Create an empty log at `path`, atomically. The caller holds the store's lock."""
    temporary = path.with_name(path.name + ".new")
    for suffix in ("", "-journal", "-wal", "-shm"):  # What is left over.
        temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
    with closing(connect(temporary.absolute().as_uri(), 0)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        apply(connection, migrations)
        connection.execute("PRAGMA journal_mode = WAL")
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def format_of(connection: sqlite3.Connection, path: Path, newest_supported: int) -> int:
    """Return the format of the file.

    Raises: StoreUnusable when it is not a log, or was written by a newer `mz`.
    """
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id == UNRELEASED_APPLICATION_ID:
        raise StoreUnusable(
            f"{path} was written before the first release of mz, whose events had other names; use that mz to read it, "
            "or move it away"
        )
    if application_id != APPLICATION_ID:
        raise StoreUnusable(f"{path} is not a log of mz but another SQLite database; move it away")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > newest_supported:
        raise StoreUnusable(
            f"{path} has format {version}, written by a newer mz; this one reads formats up to "
            f"{newest_supported}: update mz"
        )
    return version


def apply(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Apply the missing migrations in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        applied_count = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for migration in migrations[applied_count:]:
            migration(connection)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def backup(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    """Copy the log to `<name>.format<version>.bak` beside it and return the copy's path."""
    copy = path.with_name(f"{path.name}.format{version}.bak")
    temporary = copy.with_name(copy.name + ".new")
    temporary.unlink(missing_ok=True)
    with closing(connect(temporary.absolute().as_uri(), 0)) as target:
        connection.backup(target)
    sync(temporary)
    temporary.replace(copy)
    sync(path.parent)
    return copy


def sync(path: Path) -> None:
    """Flush a file or a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
