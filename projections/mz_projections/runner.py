"""Adapter: keeps read models in `.mz/views.sqlite`, each exactly as far as its cursor says.

A page of events and the cursor behind it are written in one transaction, so that no crash and no second process can
count an event twice or leave one out. The file is a cache: whenever the log is another one, its past was changed, or
the code is not the code that made the rows, they are made anew; where the file cannot be used, they are made in memory.
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
from mz_projections.readmodel import Key, R, ReadModel

PAGE_POSITIONS = 50_000
"""Of the log, taken in by one transaction: what a row costs to write is paid once a page."""
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
"""How far each read model has come: in which log, by which code, and the chain value of the event there."""


class Json(TypeDecorator[Any]):
    """A field that is neither text nor number nor truth value."""

    impl = Text
    cache_ok = True

    def __init__(self, hint: Any) -> None:
        super().__init__()
        self._decoder = msgspec.json.Decoder(hint)

    def process_bind_param(self, value: Any, dialect: Any) -> str:
        return msgspec.json.encode(value).decode()

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return self._decoder.decode(value)


class Views:
    """The read models `models` over `log`, kept in the file at `path`; None: in memory only.

    Not for several threads at once; any number of processes may use one file.
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
        self._tables = {model.name: (model, _table(model)) for model in models}
        self._path = path
        self._engine = _file(path, busy_seconds) if path else _memory()

    def __enter__(self) -> Views:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; what was in memory only is gone."""
        self._engine.dispose()

    @property
    def in_memory(self) -> bool:
        """Whether the file is not used: none was named, or it could not be."""
        return self._path is None

    def refresh(self) -> None:
        """Takes in every event that the log has now. Raises UnknownEvent, StoreUnusable."""
        try:
            self._catch_up()
        except DatabaseError as error:
            if self._path is None:
                raise
            self._begin_anew(error)

    def rows(self, model: ReadModel[R]) -> tuple[R, ...]:
        """All rows, in the order of their keys, as of the last refresh."""
        table = self._tables[model.name][1]
        with self._engine.begin() as connection:
            found = connection.execute(select(table).order_by(*table.primary_key))
            return tuple(model.row(*row) for row in found)

    def _begin_anew(self, error: DatabaseError) -> None:
        """A damaged file is replaced; one that is locked, read-only or on a full disk is left, and memory used."""
        assert self._path is not None
        self._engine.dispose()
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            with suppress(OSError, DatabaseError):
                self._path.unlink()
                self._engine = _file(self._path, self._busy_seconds)
                self._catch_up()
                return
        self._path, self._engine = None, _memory()
        self._catch_up()

    def _catch_up(self) -> None:
        while self._page():
            pass

    def _page(self) -> bool:
        """Takes one page of events into every read model; whether there may be more. The cursors are read within the
        transaction: another process may have moved them."""
        head = self._log.head()
        with self._engine.begin() as connection:
            CURSOR.create(connection, checkfirst=True)
            reached = [self._take(connection, model, table, head) for model, table in self._tables.values()]
        return min(reached, default=head) < head

    def _take(self, connection: Connection, model: ReadModel[R], table: Table, head: int) -> int:
        """The position that the read model has reached when the transaction commits."""
        after = self._cursor(connection, model)
        if after is None:
            table.drop(connection, checkfirst=True)
            table.create(connection)
            after = 0
        elif after == head:
            return head
        upto = min(head, after + self._page_positions)
        rows = _Rows(connection, model, table)
        rows.take(self._log.read_types([type_of(kind) for kind in model.types], after, upto))
        rows.write()
        self._move(connection, model, upto)
        return upto

    def _cursor(self, connection: Connection, model: ReadModel[R]) -> int | None:
        """Position of the last event taken in; None when the rows are not those of this log and this code."""
        row = connection.execute(select(CURSOR).where(CURSOR.c.model == model.name)).first()
        if row is None or (row.log, row.code) != (self._log.log_id, code_digest()):
            return None
        link = self._log.link(row.position) if row.position else b""
        return int(row.position) if link == row.chain else None

    def _move(self, connection: Connection, model: ReadModel[R], position: int) -> None:
        link = self._log.link(position) if position else b""
        values = {"log": self._log.log_id, "code": code_digest(), "position": position, "chain": link}
        statement = insert(CURSOR).values(model=model.name, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=["model"], set_=values))


class _Rows:
    """The rows of one read model as they are within a transaction; written at its end, each once."""

    def __init__(self, connection: Connection, model: ReadModel[R], table: Table) -> None:
        self._connection, self._model, self._table = connection, model, table
        self._key = _key(model.key)
        self._known: dict[Key, Any] = {}
        self._changed: dict[Key, Any] = {}

    def find(self, key: Key) -> Any:
        try:
            return self._known[key]
        except KeyError:
            matches = (column == part for column, part in zip(self._table.primary_key, key, strict=True))
            row = self._connection.execute(select(self._table).where(*matches)).first()
            found = self._known[key] = self._model.row(*row) if row else None
            return found

    def take(self, events: Iterable[Recorded[Event]]) -> None:
        """Lets each event make or change its row. Nothing else is done as often when read models are made anew."""
        evolve, key_of, find = self._model.evolve, self._key, self.find
        known, changed = self._known, self._changed
        for recorded in events:
            row = evolve(find, recorded)
            if row is not None:
                key = key_of(row)
                known[key] = changed[key] = row

    def write(self) -> None:
        """By the driver: SQLAlchemy's own statements take twice as long for a page of rows."""
        if not self._changed:
            return
        names = self._table.columns.keys()
        sets = ", ".join(f"{name} = excluded.{name}" for name in names)
        statement = (
            f"INSERT INTO {self._table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({', '.join(self._model.key)}) DO UPDATE SET {sets}"
        )
        json = [place for place, column in enumerate(self._table.columns) if isinstance(column.type, Json)]
        self._connection.exec_driver_sql(statement, [_values(row, json) for row in self._changed.values()])


def _key(names: tuple[str, ...]) -> Callable[[Any], Key]:
    """From a row to its key."""
    fields: Callable[[Any], Any] = attrgetter(*names)
    return fields if len(names) > 1 else lambda row: (fields(row),)


def _values(row: msgspec.Struct, json: Sequence[int]) -> tuple[Any, ...]:
    """The row for the driver; `json`: places of the fields that are kept as JSON."""
    values = msgspec.structs.astuple(row)
    if not json:
        return values
    return tuple(msgspec.json.encode(value).decode() if place in json else value for place, value in enumerate(values))


def _table(model: ReadModel[Any]) -> Table:
    hints = get_type_hints(model.row)
    columns = (Column(name, _type(hints[name]), primary_key=name in model.key) for name in model.row.__struct_fields__)
    return Table(model.name, MetaData(), *columns)


def _type(hint: Any) -> TypeEngine[Any]:
    if hint in (int, int | None):
        return Integer()
    if hint in (str, str | None) or get_origin(hint) is Literal:
        return Text()
    return Json(hint)


def _file(path: Path, busy_seconds: float) -> Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, timeout=busy_seconds, check_same_thread=False)

    return _transactional(create_engine("sqlite+pysqlite://", creator=connect, poolclass=StaticPool))


def _memory() -> Engine:
    return _transactional(
        create_engine(
            "sqlite+pysqlite://",
            poolclass=StaticPool,
            connect_args={"isolation_level": None, "check_same_thread": False},
        )
    )


def _transactional(engine: Engine) -> Engine:
    """Every transaction takes the write lock when it begins: what it reads stays true until it ends."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@cache
def code_digest() -> str:
    """sha256 over everything that read models are computed by: the sources of events and projections."""
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for package in (mz_events, mz_projections):
        yield from sorted(Path(str(package.__file__)).parent.rglob("*.py"))
