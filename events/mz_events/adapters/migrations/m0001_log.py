"""The first format of the log."""

from __future__ import annotations

import sqlite3
import uuid

STATEMENTS = (
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


def up(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty database and give the log its id."""
    for statement in STATEMENTS:
        connection.execute(statement)
    connection.execute("INSERT INTO log (id) VALUES (?)", (uuid.uuid4().hex,))
