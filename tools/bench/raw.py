"""The least that could do the log's work: `sqlite3` and `msgspec` alone. What the store is compared with.

With the same pragmas, columns and bytes; without a chain, expected versions, a lock between processes, or checks.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Union

import msgspec
from mz_events.adapters.database import CHECKPOINT_PAGES
from mz_events.adapters.sqlite_log import COLUMNS, INSERT_EVENT, LOG_COLUMNS, PAGE_ROWS, Row
from mz_events.catalog.base import Event
from mz_events.codec import ALL_EVENTS
from mz_events.names import StreamId
from mz_events.store import Recorded

ALL = f"SELECT {COLUMNS} FROM event ORDER BY position"
DECODED = f"SELECT {LOG_COLUMNS} FROM event ORDER BY position"
TABLE = """CREATE TABLE event (
    position INTEGER NOT NULL PRIMARY KEY, stream_id INTEGER NOT NULL, version INTEGER NOT NULL, type TEXT NOT NULL,
    schema INTEGER NOT NULL, recorded_at_us INTEGER NOT NULL, observed_at_us INTEGER NOT NULL, causation TEXT NOT NULL,
    payload BLOB NOT NULL, chain BLOB NOT NULL, UNIQUE (stream_id, version))"""


class RawLog:
    """A table like the log's, filled by nothing but inserts."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", f"wal_autocheckpoint = {CHECKPOINT_PAGES}"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(TABLE)

    def close(self) -> None:
        self._connection.close()

    def append(self, rows: Sequence[Row]) -> None:
        """One durable transaction."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        if len(rows) == 1:
            execute(INSERT_EVENT, rows[0])
        else:
            self._connection.executemany(INSERT_EVENT, rows)
        execute("COMMIT")


def rows_of(log: Path) -> list[Row]:
    """All rows of a log, as they lie there."""
    connection = sqlite3.connect(log)
    try:
        return connection.execute(ALL).fetchall()
    finally:
        connection.close()


def union_decoder() -> msgspec.json.Decoder[Event]:
    """For any event of the catalog, told by its tag: the usual way to decode with msgspec."""
    return msgspec.json.Decoder(Union[ALL_EVENTS])  # noqa: UP007  # made at run time


def decode_all(payloads: Sequence[bytes]) -> None:
    decode = union_decoder().decode
    for payload in payloads:
        decode(payload)


def read_all(log: Path) -> int:
    """Every row, decoded, in the same envelope as the store's; returns how many."""
    connection = sqlite3.connect(log)
    try:
        names = {id_: StreamId(name) for id_, name in connection.execute("SELECT id, name FROM stream")}
        decode, count = union_decoder().decode, 0
        cursor = connection.execute(DECODED)
        while rows := cursor.fetchmany(PAGE_ROWS):
            for id_, version, position, _, recorded_at_us, observed_at_us, causation, payload in rows:
                Recorded(names[id_], version, position, recorded_at_us, observed_at_us, decode(payload), causation)
                count += 1
        return count
    finally:
        connection.close()


def write_durably(directory: Path, name: str, data: bytes) -> None:
    """A new file, whole or not at all, on the disk when this returns."""
    new = directory / f".{name}"
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(directory / name)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
