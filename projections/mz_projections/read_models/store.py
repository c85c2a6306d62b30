"""Keeps read models in a SQLite file beside the log, each up to its cursor.

A page of events and its cursors are written in one transaction, so that no crash and no second process can count an
event twice or skip one. The file is a cache: if the log or the code that made the rows has changed, they are rebuilt;
if the file cannot be used, they are kept in memory.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self, get_origin, get_type_hints

import msgspec
import mz_events
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.store import Log, Recorded

import mz_projections
from mz_projections.read_models.model import Key, R, ReadModel

PAGE_POSITIONS = 50_000
"""Log positions per transaction: the cost of writing a row is paid once per page."""
BUSY_SECONDS = 5.0
CACHE_KIB = 32_768
encode_json = msgspec.json.Encoder().encode
REPLACED_ERRORS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Errors of a damaged file, or of one with other tables."""
CREATE_CURSOR = """
CREATE TABLE IF NOT EXISTS cursor (
  model TEXT PRIMARY KEY, log TEXT NOT NULL, code TEXT NOT NULL, position INTEGER NOT NULL, chain BLOB NOT NULL)
"""
"""Progress of each read model: log, code version, position, and the chain value of the event there."""


class ReadModelStore:
    """Read models over `log`, each in a table of the file at `path`; in memory if that is None, as it becomes for an
    unusable file.

    Not thread-safe; any number of processes may use one file.
    """

    def __init__(
        self,
        path: Path | None,
        log: Log,
        models: Sequence[ReadModel[Any]],
        page_positions: int = PAGE_POSITIONS,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._log, self.path, self._tables = log, path, {model.name: ModelTable(model) for model in models}
        self._page_positions, self._busy_seconds = page_positions, busy_seconds
        self._connection = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; rows kept in memory are lost."""
        self._connection.close()

    def rows(self, model: ReadModel[R], condition: str = "TRUE", *values: str) -> tuple[R, ...]:
        """Return the rows that meet an SQL condition, in the order of their keys, as of the last refresh."""
        query = f"SELECT * FROM {model.name} WHERE {condition} ORDER BY {', '.join(model.key)}"
        return tuple(map(self._tables[model.name].decode, self._connection.execute(query, values)))

    def refresh(self, appended: Sequence[Recorded[Event]] = ()) -> None:
        """Process every new event of the log.

        `appended`: events of one append, which need not be read again if nothing else is new. Raises: UnknownEvent,
        StoreUnusable.
        """
        try:
            self._catch_up(appended)
        except sqlite3.DatabaseError as error:
            if self.path is None:
                raise
            self._rebuild(error)

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.path or ":memory:", isolation_level=None, timeout=self._busy_seconds)
        except sqlite3.OperationalError:
            self.path = None
            return sqlite3.connect(":memory:", isolation_level=None)
        with suppress(sqlite3.DatabaseError):  # The first use reports it.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection

    def _rebuild(self, error: sqlite3.DatabaseError) -> None:
        """Replace a damaged file; if it is locked, read-only or on a full disk, keep it and use memory."""
        path, self.path = self.path, None
        self._connection.close()
        if path is not None and getattr(error, "sqlite_errorcode", 0) & 0xFF in REPLACED_ERRORS:
            with suppress(OSError, sqlite3.DatabaseError):
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
                self.path = path
                self._connection = self._connect()
                self._catch_up()
                return
            self.path = None
            self._connection.close()
        self._connection = self._connect()
        self._catch_up()

    def _catch_up(self, appended: Sequence[Recorded[Event]] = ()) -> None:
        while self._process_page(appended):
            pass

    def _process_page(self, appended: Sequence[Recorded[Event]]) -> bool:
        """Apply one page of events to every read model; return True if there may be more.

        The write lock is taken first, so that what is read stays valid: another process may move the cursors.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            head = self._log.head()
            self._connection.execute(CREATE_CURSOR)
            positions = [self._update_table(table, head, appended) for table in self._tables.values()]
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise
        return min(positions, default=head) < head

    def _update_table(self, table: ModelTable[Any], head: int, appended: Sequence[Recorded[Event]]) -> int:
        """Update one read model by a page, or by the appended events if they are next; return its new position."""
        after = self._read_cursor(table.model.name)
        if after is None:
            table.create(self._connection)
            after = 0
        elif after >= head:
            return after
        if appended and appended[0].position == after + 1:
            position = appended[-1].position
            events: Iterable[Recorded[Event]] = (
                recorded for recorded in appended if isinstance(recorded.event, table.model.types)
            )
        else:
            position = min(head, after + self._page_positions)
            events = self._log.read_types([type_of(kind) for kind in table.model.types], after, position)
        table.apply_events(self._connection, events)
        values = (table.model.name, self._log.log_id, code_digest(), position, self._link(position))
        self._connection.execute("INSERT OR REPLACE INTO cursor VALUES (?, ?, ?, ?, ?)", values)
        return position

    def _read_cursor(self, name: str) -> int | None:
        """Return the position of the last processed event; None if the rows belong to another log or code version."""
        query = "SELECT log, code, position, chain FROM cursor WHERE model = ?"
        row = self._connection.execute(query, (name,)).fetchone()
        if row is None or row[:2] != (self._log.log_id, code_digest()):
            return None
        position = int(row[2])
        return position if self._link(position) == bytes(row[3]) else None

    def _link(self, position: int) -> bytes | None:
        return self._log.link(position) if position else b""


@cache
def _field_types(row: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(row)


class ModelTable(Generic[R]):
    """The table of one read model: a column for each field of its row."""

    def __init__(self, model: ReadModel[R]) -> None:
        self.model = model
        hints = _field_types(model.row)
        self._columns = {name: _column_type(hints[name]) for name in model.row.__struct_fields__}
        self._json_columns = [at for at, sql_type in enumerate(self._columns.values()) if sql_type == "JSON"]
        self._decoders = {
            name: msgspec.json.Decoder(hints[name]) for name, sql_type in self._columns.items() if sql_type == "JSON"
        }
        fields: Callable[[Any], Any] = attrgetter(*model.key)
        self._key_of: Callable[[Any], Key] = fields if len(model.key) > 1 else lambda row: (fields(row),)

    def create(self, connection: sqlite3.Connection) -> None:
        """Create the table, empty; drop an existing one."""
        name, columns = self.model.name, ", ".join(f"{name} {sql_type}" for name, sql_type in self._columns.items())
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({', '.join(self.model.key)}))")
        if self.model.index:
            connection.execute(f"CREATE INDEX {name}_{self.model.index} ON {name} ({self.model.index})")

    def apply_events(self, connection: sqlite3.Connection, events: Iterable[Recorded[Event]]) -> None:
        """Apply the events to the rows; each changed row is written once. The hot loop of a rebuild."""
        cached: dict[Key, R | None] = {}
        changed: dict[Key, R] = {}
        condition = " AND ".join(f"{name} = ?" for name in self.model.key)
        query = f"SELECT * FROM {self.model.name} WHERE {condition}"

        def find(key: Key) -> R | None:
            try:
                return cached[key]
            except KeyError:
                values = connection.execute(query, key).fetchone()
                row = cached[key] = self.decode(values) if values else None
                return row

        evolve, key_of = self.model.evolve, self._key_of
        for recorded in events:
            for row in evolve(find, recorded):
                key = key_of(row)
                cached[key] = changed[key] = row
        statement = f"INSERT OR REPLACE INTO {self.model.name} VALUES ({', '.join('?' * len(self._columns))})"
        # In the order of the keys, so that keys that are hashes touch each page once.
        connection.executemany(statement, (self._encode(changed[key]) for key in sorted(changed)))

    def _encode(self, row: R) -> Sequence[Any]:
        values = list(msgspec.structs.astuple(row))
        for at in self._json_columns:
            values[at] = encode_json(values[at]).decode()
        return values

    def decode(self, values: Sequence[Any]) -> R:
        """Return the row of these columns."""
        decoders = self._decoders
        if not decoders:
            return self.model.row(*values)
        return self.model.row(
            **{
                name: decoders[name].decode(value) if name in decoders else value
                for name, value in zip(self._columns, values, strict=True)
            }
        )


def _column_type(hint: Any) -> Literal["INTEGER", "TEXT", "JSON"]:
    if hint in (int, int | None):
        return "INTEGER"
    return "TEXT" if hint in (str, str | None) or get_origin(hint) is Literal else "JSON"


@cache
def code_digest() -> str:
    """Return the sha256 over the sources of events and projections, which compute the read models."""
    digest = hashlib.sha256()
    for package in (mz_events, mz_projections):
        for source in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()
