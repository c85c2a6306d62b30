"""Keeps read models in a SQLite file beside the log, each up to its cursor.

A page of events and its cursors are written in one transaction, so that no crash and no second process can count an
event twice or skip one. The file is a cache: if the log or the code that made the rows has changed, they are rebuilt;
if the file cannot be used, they are kept in memory.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, get_origin, get_type_hints

import msgspec
import mz_events
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_events.store import Log

import mz_projections
from mz_projections.read_models.model import Key, R, ReadModel

PAGE_POSITIONS = 50_000
"""Log positions per transaction: the cost of writing a row is paid once per page."""
BUSY_SECONDS = 5.0
CACHE_KIB = 32_768
REPLACED_ERRORS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Errors of a damaged file, or of one with other tables."""
CREATE_CURSOR = """
CREATE TABLE IF NOT EXISTS cursor (
  model TEXT PRIMARY KEY, log TEXT NOT NULL, code TEXT NOT NULL, position INTEGER NOT NULL, chain BLOB NOT NULL)
"""
"""Progress of each read model: log, code version, position, and the chain value of the event there."""


class ModelTables(Protocol):
    """The tables of one read model."""

    @property
    def name(self) -> str: ...

    @property
    def types(self) -> tuple[type[Event], ...]:
        """The events that it reads."""

    def create(self, connection: sqlite3.Connection) -> None:
        """Create the tables, empty; drop those that exist."""

    def apply_events(self, connection: sqlite3.Connection, events: Iterable[Recorded[Event]]) -> None:
        """Add the events to the rows."""


class TableStore:
    """Tables of read models over `log`, kept in the file at `path`; None, or an unusable file: in memory.

    Not thread-safe; any number of processes may use one file.
    """

    def __init__(
        self, path: Path | None, log: Log, tables: Sequence[ModelTables], page_positions: int, busy_seconds: float
    ) -> None:
        self._log, self._path, self._tables = log, path, tables
        self._page_positions, self._busy_seconds = page_positions, busy_seconds
        self._connection = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; rows kept in memory are lost."""
        self._connection.close()

    @property
    def is_in_memory(self) -> bool:
        """True if no file was named, or it could not be used."""
        return self._path is None

    def refresh(self, appended: Sequence[Recorded[Event]] = ()) -> None:
        """Process every new event of the log.

        `appended`: events of one append, which need not be read again if nothing else is new. Raises: UnknownEvent,
        StoreUnusable.
        """
        try:
            self._catch_up(appended)
        except sqlite3.DatabaseError as error:
            if self._path is None:
                raise
            self._rebuild(error)

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._path or ":memory:", isolation_level=None, timeout=self._busy_seconds)
        except sqlite3.OperationalError:
            self._path = None
            return sqlite3.connect(":memory:", isolation_level=None)
        with suppress(sqlite3.DatabaseError):  # The first use reports it.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection

    def _rebuild(self, error: sqlite3.DatabaseError) -> None:
        """Replace a damaged file; if it is locked, read-only or on a full disk, keep it and use memory."""
        path, self._path = self._path, None
        self._connection.close()
        if path is not None and getattr(error, "sqlite_errorcode", 0) & 0xFF in REPLACED_ERRORS:
            with suppress(OSError, sqlite3.DatabaseError):
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
                self._path = path
                self._connection = self._connect()
                self._catch_up()
                return
            self._path = None
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
            positions = [self._update_tables(tables, head, appended) for tables in self._tables]
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise
        return min(positions, default=head) < head

    def _update_tables(self, tables: ModelTables, head: int, appended: Sequence[Recorded[Event]]) -> int:
        """Update one read model by a page, or by the appended events if they are next; return its new position."""
        after = self._read_cursor(tables.name)
        if after is None:
            tables.create(self._connection)
            after = 0
        elif after >= head:
            return after
        if appended and appended[0].position == after + 1:
            position = appended[-1].position
            events: Iterable[Recorded[Event]] = (
                recorded for recorded in appended if isinstance(recorded.event, tables.types)
            )
        else:
            position = min(head, after + self._page_positions)
            events = self._log.read_types([type_of(kind) for kind in tables.types], after, position)
        tables.apply_events(self._connection, events)
        values = (tables.name, self._log.log_id, code_digest(), position, self._link(position))
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


class ReadModelStore(TableStore):
    """The read models `models` over `log`, each in a table of its own."""

    def __init__(
        self,
        path: Path | None,
        log: Log,
        models: Sequence[ReadModel[Any]],
        page_positions: int = PAGE_POSITIONS,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._table_by_model = {model.name: RowTable(model) for model in models}
        super().__init__(path, log, tuple(self._table_by_model.values()), page_positions, busy_seconds)

    def rows(self, model: ReadModel[R]) -> tuple[R, ...]:
        """Return all rows, in the order of their keys, as of the last refresh."""
        table = self._table_by_model[model.name]
        result = self._connection.execute(f"SELECT * FROM {model.name} ORDER BY {', '.join(model.key)}")
        return tuple(map(table.decode, result))


class RowTable(Generic[R]):
    """The table of one read model: a column for each field of its row."""

    def __init__(self, model: ReadModel[R]) -> None:
        self.model, self.name, self.types = model, model.name, model.types
        hints = get_type_hints(model.row)
        self._columns = {name: _column_type(hints[name]) for name in model.row.__struct_fields__}
        self._decoders = {
            index: msgspec.json.Decoder(hints[name])
            for index, (name, sql_type) in enumerate(self._columns.items())
            if sql_type == "JSON"
        }
        fields: Callable[[Any], Any] = attrgetter(*model.key)
        self._key_of: Callable[[Any], Key] = fields if len(model.key) > 1 else lambda row: (fields(row),)

    def create(self, connection: sqlite3.Connection) -> None:
        columns = ", ".join(f"{name} {sql_type}" for name, sql_type in self._columns.items())
        connection.execute(f"DROP TABLE IF EXISTS {self.name}")
        connection.execute(f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(self.model.key)}))")

    def apply_events(self, connection: sqlite3.Connection, events: Iterable[Recorded[Event]]) -> None:
        """Apply the events to the rows; each changed row is written once. The hot loop of a rebuild."""
        cached: dict[Key, R | None] = {}
        changed: dict[Key, R] = {}
        condition = " AND ".join(f"{name} = ?" for name in self.model.key)
        query = f"SELECT * FROM {self.name} WHERE {condition}"

        def find(key: Key) -> R | None:
            try:
                return cached[key]
            except KeyError:
                values = connection.execute(query, key).fetchone()
                row = cached[key] = self.decode(values) if values else None
                return row

        evolve, key_of = self.model.evolve, self._key_of
        for recorded in events:
            row = evolve(find, recorded)
            if row is not None:
                key = key_of(row)
                cached[key] = changed[key] = row
        statement = f"INSERT OR REPLACE INTO {self.name} VALUES ({', '.join('?' * len(self._columns))})"
        connection.executemany(statement, map(self._encode, changed.values()))

    def _encode(self, row: R) -> tuple[Any, ...]:
        values = msgspec.structs.astuple(row)
        if not self._decoders:
            return values
        return tuple(
            msgspec.json.encode(value).decode() if index in self._decoders else value
            for index, value in enumerate(values)
        )

    def decode(self, values: Sequence[Any]) -> R:
        """Return the row of these columns."""
        if not self._decoders:
            return self.model.row(*values)
        return self.model.row(
            *(
                self._decoders[index].decode(value) if index in self._decoders else value
                for index, value in enumerate(values)
            )
        )


def _column_type(hint: Any) -> Literal["INTEGER", "TEXT", "JSON"]:
    if hint in (int, int | None):
        return "INTEGER"
    return "TEXT" if hint in (str, str | None) or get_origin(hint) is Literal else "JSON"


@cache
def code_digest() -> str:
    """Return the sha256 over the sources of events and projections, which compute the read models."""
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for package in (mz_events, mz_projections):
        yield from sorted(Path(str(package.__file__)).parent.rglob("*.py"))
