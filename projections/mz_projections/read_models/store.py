"""Keeps read models in `.mz/views.sqlite`, each up to its cursor.

A page of events and its cursor are written in one transaction, so that no crash and no second process can count an
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
from typing import Any, Literal, get_origin, get_type_hints

import msgspec
import mz_events
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_events.store import Log
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    select,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import StaticPool
from sqlalchemy.types import TypeDecorator, TypeEngine

import mz_projections
from mz_projections.read_models.model import Key, R, ReadModel

PAGE_POSITIONS = 50_000
"""Log positions per transaction: the cost of writing a row is paid once per page."""
BUSY_SECONDS = 5.0

CURSOR = Table(
    "cursor",
    MetaData(),
    Column("model", Text, primary_key=True),
    Column("log", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("chain", LargeBinary, nullable=False),
)
"""Progress of each read model: log, code version, position, and the chain value of the event there."""


class JsonColumn(TypeDecorator[Any]):
    """A field that is neither text nor integer."""

    impl = Text
    cache_ok = True

    def __init__(self, hint: Any) -> None:
        super().__init__()
        self._decoder = msgspec.json.Decoder(hint)

    def process_bind_param(self, value: Any, dialect: Any) -> str:
        return msgspec.json.encode(value).decode()

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return self._decoder.decode(value)


class ReadModelStore:
    """The read models `models` over `log`, kept in the file at `path`; None: in memory only.

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
        self._log = log
        self._page_positions, self._busy_seconds = page_positions, busy_seconds
        self._tables = {model.name: (model, _table_of(model)) for model in models}
        self._path = path
        self._engine = _file_engine(path, busy_seconds) if path else _memory_engine()

    def __enter__(self) -> ReadModelStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; rows kept in memory are lost."""
        self._engine.dispose()

    @property
    def is_in_memory(self) -> bool:
        """True if no file was named, or it could not be used."""
        return self._path is None

    def refresh(self) -> None:
        """Process every new event of the log.

        Raises: UnknownEvent, StoreUnusable.
        """
        try:
            self._catch_up()
        except DatabaseError as error:
            if self._path is None:
                raise
            self._rebuild(error)

    def rows(self, model: ReadModel[R]) -> tuple[R, ...]:
        """Return all rows, in the order of their keys, as of the last refresh."""
        table = self._tables[model.name][1]
        with self._engine.begin() as connection:
            result = connection.execute(select(table).order_by(*table.primary_key))
            return tuple(model.row(*row) for row in result)

    def _rebuild(self, error: DatabaseError) -> None:
        """Replace a damaged file; if it is locked, read-only or on a full disk, keep it and use memory."""
        assert self._path is not None
        self._engine.dispose()
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            with suppress(OSError, DatabaseError):
                self._path.unlink()
                self._engine = _file_engine(self._path, self._busy_seconds)
                self._catch_up()
                return
        self._path, self._engine = None, _memory_engine()
        self._catch_up()

    def _catch_up(self) -> None:
        while self._process_page():
            pass

    def _process_page(self) -> bool:
        """Apply one page of events to every read model; return True if there may be more.

        The cursors are read within the transaction: another process may have moved them.
        """
        head = self._log.head()
        with self._engine.begin() as connection:
            CURSOR.create(connection, checkfirst=True)
            positions = [self._update_model(connection, model, table, head) for model, table in self._tables.values()]
        return min(positions, default=head) < head

    def _update_model(self, connection: Connection, model: ReadModel[R], table: Table, head: int) -> int:
        """Update one read model; return its position after the transaction."""
        after = self._read_cursor(connection, model)
        if after is None:
            table.drop(connection, checkfirst=True)
            table.create(connection)
            after = 0
        elif after == head:
            return head
        page_end = min(head, after + self._page_positions)
        rows = _RowBuffer(connection, model, table)
        rows.apply_events(self._log.read_types([type_of(kind) for kind in model.types], after, page_end))
        rows.write()
        self._write_cursor(connection, model, page_end)
        return page_end

    def _read_cursor(self, connection: Connection, model: ReadModel[R]) -> int | None:
        """Return the position of the last processed event; None if the rows belong to another log or code version."""
        row = connection.execute(select(CURSOR).where(CURSOR.c.model == model.name)).first()
        if row is None or (row.log, row.code) != (self._log.log_id, code_digest()):
            return None
        link = self._log.link(row.position) if row.position else b""
        return int(row.position) if link == row.chain else None

    def _write_cursor(self, connection: Connection, model: ReadModel[R], position: int) -> None:
        link = self._log.link(position) if position else b""
        values = {"log": self._log.log_id, "code": code_digest(), "position": position, "chain": link}
        statement = insert(CURSOR).values(model=model.name, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=["model"], set_=values))


class _RowBuffer:
    """The rows of one read model within a transaction; each changed row is written once at its end."""

    def __init__(self, connection: Connection, model: ReadModel[R], table: Table) -> None:
        self._connection, self._model, self._table = connection, model, table
        self._key_of = _key_getter(model.key)
        self._cached: dict[Key, Any] = {}
        self._changed: dict[Key, Any] = {}

    def find(self, key: Key) -> Any:
        try:
            return self._cached[key]
        except KeyError:
            matches = (column == part for column, part in zip(self._table.primary_key, key, strict=True))
            row = self._connection.execute(select(self._table).where(*matches)).first()
            cached_row = self._cached[key] = self._model.row(*row) if row else None
            return cached_row

    def apply_events(self, events: Iterable[Recorded[Event]]) -> None:
        """Apply the events to the rows. The hot loop of a rebuild."""
        evolve, key_of, find = self._model.evolve, self._key_of, self.find
        cached, changed = self._cached, self._changed
        for recorded in events:
            row = evolve(find, recorded)
            if row is not None:
                key = key_of(row)
                cached[key] = changed[key] = row

    def write(self) -> None:
        """Write by the driver: SQLAlchemy's own statements take twice as long for a page of rows."""
        if not self._changed:
            return
        names = self._table.columns.keys()
        sets = ", ".join(f"{name} = excluded.{name}" for name in names)
        statement = (
            f"INSERT INTO {self._table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({', '.join(self._model.key)}) DO UPDATE SET {sets}"
        )
        json_indexes = [
            index for index, column in enumerate(self._table.columns) if isinstance(column.type, JsonColumn)
        ]
        self._connection.exec_driver_sql(
            statement, [_driver_values(row, json_indexes) for row in self._changed.values()]
        )


def _key_getter(names: tuple[str, ...]) -> Callable[[Any], Key]:
    """Return a function from a row to its key."""
    fields: Callable[[Any], Any] = attrgetter(*names)
    return fields if len(names) > 1 else lambda row: (fields(row),)


def _driver_values(row: msgspec.Struct, json_indexes: Sequence[int]) -> tuple[Any, ...]:
    """Return the row for the driver; `json`: indexes of the fields stored as JSON."""
    values = msgspec.structs.astuple(row)
    if not json_indexes:
        return values
    return tuple(
        msgspec.json.encode(value).decode() if index in json_indexes else value for index, value in enumerate(values)
    )


def _table_of(model: ReadModel[Any]) -> Table:
    hints = get_type_hints(model.row)
    columns = (
        Column(name, _column_type(hints[name]), primary_key=name in model.key) for name in model.row.__struct_fields__
    )
    return Table(model.name, MetaData(), *columns)


def _column_type(hint: Any) -> TypeEngine[Any]:
    if hint in (int, int | None):
        return Integer()
    if hint in (str, str | None) or get_origin(hint) is Literal:
        return Text()
    return JsonColumn(hint)


def _file_engine(path: Path, busy_seconds: float) -> Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, timeout=busy_seconds, check_same_thread=False)

    return _begin_immediate(create_engine("sqlite+pysqlite://", creator=connect, poolclass=StaticPool))


def _memory_engine() -> Engine:
    return _begin_immediate(
        create_engine(
            "sqlite+pysqlite://",
            poolclass=StaticPool,
            connect_args={"isolation_level": None, "check_same_thread": False},
        )
    )


def _begin_immediate(engine: Engine) -> Engine:
    """Take the write lock when a transaction begins, so that what it reads stays valid until it ends."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


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
