"""Adapter: keeps the rows of `imported.py` in a SQLite file beside the log, exactly as far as its cursor says.

Other than the rows of `runner.py` these are sums: an event adds to many of them at once, and a log may tell of millions
of requests, each of which must be found again by its key. So SQLite adds up, and no row is held in memory.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType, TracebackType

import msgspec
from mz_events import codec
from mz_events.catalog import call, session
from mz_events.catalog.base import Event
from mz_events.catalog.call import Usage
from mz_events.catalog.session import Request, SessionOpened, SessionPriced, SessionRead, SessionSettled
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_events.names import Digest, StreamId
from mz_events.store import Log

from mz_projections import imported, usage
from mz_projections.imported import TYPES, File, Known, Session, Sum, grown, opened, priced_sums, read_sums
from mz_projections.usage import NUMBERS

PAGE_POSITIONS = 64
"""Of the log, taken in by one transaction: an event may tell of a thousand requests."""
BUSY_SECONDS = 5.0
LOOKED_UP = 500
"""Keys asked for in one statement."""
CACHE_KIB = 32_768

SCHEMA = """
CREATE TABLE cursor (log TEXT NOT NULL, code TEXT NOT NULL, position INTEGER NOT NULL, chain BLOB NOT NULL);
CREATE TABLE session (
  stream TEXT PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, version TEXT NOT NULL, project TEXT,
  parent TEXT NOT NULL, by_mz INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE file (
  file TEXT PRIMARY KEY, session TEXT NOT NULL, ends INTEGER NOT NULL, lacks INTEGER NOT NULL,
  row BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX file_of_session ON file (session);
CREATE TABLE sum (
  session TEXT NOT NULL, start_s INTEGER NOT NULL, model TEXT NOT NULL, part TEXT NOT NULL,
  requests INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
  cache_write_5m INTEGER NOT NULL, cache_write_1h INTEGER NOT NULL, reasoning INTEGER NOT NULL,
  computed_nanousd INTEGER NOT NULL, reported_nanousd INTEGER, unpriced INTEGER NOT NULL,
  PRIMARY KEY (session, start_s, model, part)) WITHOUT ROWID;
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE request (
  key BLOB PRIMARY KEY, session INTEGER NOT NULL, at_us INTEGER NOT NULL, dated INTEGER NOT NULL,
  reported_nanousd INTEGER, model INTEGER NOT NULL, part INTEGER NOT NULL, tier INTEGER NOT NULL, requests INTEGER,
  input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write_5m INTEGER NOT NULL,
  cache_write_1h INTEGER NOT NULL, reasoning INTEGER NOT NULL) WITHOUT ROWID;
"""
TABLES = ("cursor", "session", "file", "sum", "name", "request")
COUNTED = ("at_us", "dated", "reported_nanousd", "model", "part", "tier", "requests", *NUMBERS)
# Keys are spread evenly: each row that is added lies in another page. So rows are short, and names are kept once.
COUNT = (
    f"INSERT INTO request (key, session, {', '.join(COUNTED)}) VALUES ({', '.join('?' * (len(COUNTED) + 2))}) "
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COUNTED)}"
)
NAMED = "(SELECT text FROM name WHERE id = {0})"
KNOWN = (
    f"SELECT key, {NAMED.format('session')}, at_us, dated, reported_nanousd, {NAMED.format('model')}, "
    f"{NAMED.format('part')}, {NAMED.format('tier')}, requests, {', '.join(NUMBERS)} FROM request"
)
ADDED = ("requests", "input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning",
         "computed_nanousd", "unpriced")  # fmt: skip
# A sum that is too large becomes a REAL in SQLite; the cast makes it the largest INTEGER.
ADD = (
    f"INSERT INTO sum ({', '.join(Sum.__struct_fields__)}) VALUES ({', '.join('?' * len(Sum.__struct_fields__))}) "
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = CAST({name} + excluded.{name} AS INTEGER)' for name in ADDED)}, "
    "reported_nanousd = CASE WHEN excluded.reported_nanousd IS NULL THEN reported_nanousd "
    "ELSE CAST(coalesce(reported_nanousd, 0) + excluded.reported_nanousd AS INTEGER) END"
)

_FILES = msgspec.json.Decoder(File)


class ImportedViews:
    """The rows over `log`, kept in the file at `path`; None, or a file that cannot be used: in memory.

    Not for several threads at once; any number of processes may use one file.
    """

    def __init__(self, path: Path | None, log: Log, page_positions: int = PAGE_POSITIONS) -> None:
        self._log, self._path, self._page_positions = log, path, page_positions
        self._connection = _connect(path)

    def __enter__(self) -> ImportedViews:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; what was in memory only is gone."""
        self._connection.close()

    def refresh(self, appended: Sequence[Recorded[Event]] = ()) -> None:
        """Takes in every event that the log has now. `appended`: what one append gave, so that it need not be read
        again where nothing else is new. Raises UnknownEvent, StoreUnusable."""
        try:
            self._catch_up(appended)
        except sqlite3.DatabaseError as error:
            if self._path is None:
                raise
            self._begin_anew(error)

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        """A damaged file is replaced; one that is locked, read-only or on a full disk is left, and memory used."""
        path, self._path = self._path, None
        self._connection.close()
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        if path is not None and code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            with suppress(OSError, sqlite3.DatabaseError):
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
                self._connection = _connect(path)
                self._catch_up()
                self._path = path
                return
        self._connection = _connect(None)
        self._catch_up()

    # rows -------------------------------------------------------------------------------------------------------------
    def sums(self) -> Iterator[Sum]:
        """All rows, by session, quarter, model and part."""
        for row in self._connection.execute(f"SELECT {', '.join(Sum.__struct_fields__)} FROM sum ORDER BY 1, 2, 3, 4"):
            yield Sum(*row)

    def sums_of(self, stream: str) -> tuple[Sum, ...]:
        """The rows of one session."""
        names = ", ".join(Sum.__struct_fields__)
        rows = self._connection.execute(f"SELECT {names} FROM sum WHERE session = ? ORDER BY 2, 3, 4", (stream,))
        return tuple(Sum(*row) for row in rows)

    def sessions(self) -> tuple[Session, ...]:
        """All of them, by stream."""
        return tuple(_session(row) for row in self._connection.execute("SELECT * FROM session ORDER BY stream"))

    def times(self, stream: str | None) -> dict[str, tuple[int, int]]:
        """By session (that one, or all) when its first and its last request were made, in microseconds, of those
        that have a time of their own."""
        one = "" if stream is None else " AND session = (SELECT id FROM name WHERE text = ?)"
        query = (
            "SELECT text, first, last FROM name JOIN (SELECT session, min(at_us) AS first, max(at_us) AS last "
            f"FROM request WHERE dated{one} GROUP BY 1) ON id = session"
        )
        rows = self._connection.execute(query, () if stream is None else (stream,))
        return {name: (first, last) for name, first, last in rows}

    def session(self, stream: str) -> Session | None:
        row = self._connection.execute("SELECT * FROM session WHERE stream = ?", (stream,)).fetchone()
        return _session(row) if row else None

    def file(self, digest: str) -> File | None:
        """How far the file with this digest of its path was read; None: it never was."""
        row = self._connection.execute("SELECT row FROM file WHERE file = ?", (digest,)).fetchone()
        return _FILES.decode(row[0]) if row else None

    def files(self) -> Iterator[File]:
        """Every file that was ever read."""
        for (row,) in self._connection.execute("SELECT row FROM file ORDER BY file"):
            yield _FILES.decode(row)

    def files_of(self, stream: str) -> tuple[File, ...]:
        """The files of one session."""
        rows = self._connection.execute("SELECT row FROM file WHERE session = ? ORDER BY file", (stream,))
        return tuple(_FILES.decode(row) for (row,) in rows)

    def settling(self) -> tuple[str, ...]:
        """Streams of sessions of which a file tells sums or money at its end."""
        query = "SELECT DISTINCT session FROM file WHERE ends ORDER BY session"
        return tuple(stream for (stream,) in self._connection.execute(query))

    def lacking(self) -> tuple[str, ...]:
        """Streams of sessions of which a file lacks tokens, as far as it knows itself."""
        query = "SELECT DISTINCT session FROM file WHERE lacks ORDER BY session"
        return tuple(stream for (stream,) in self._connection.execute(query))

    def known(self, keys: Sequence[str]) -> dict[str, Known]:
        """Those of the requests that were counted before."""
        found: dict[str, Known] = {}
        for at in range(0, len(keys), LOOKED_UP):
            some = [bytes.fromhex(key) for key in keys[at : at + LOOKED_UP]]
            marks = ", ".join("?" * len(some))
            for row in self._connection.execute(f"{KNOWN} WHERE key IN ({marks})", some):
                key, stream, at_us, dated, reported, model, part, tier, requests, *tokens = row
                numbers = dict(zip(NUMBERS, tokens, strict=True))
                counted = Usage(model=model, part=part, tier=tier, requests=requests, **numbers)
                found[key.hex()] = Known(stream, at_us, bool(dated), counted, reported)
        return found

    # taking in --------------------------------------------------------------------------------------------------------
    def _catch_up(self, appended: Sequence[Recorded[Event]] = ()) -> None:
        head = self._log.head()
        while self._page(head, appended) < head:
            pass

    def _page(self, head: int, appended: Sequence[Recorded[Event]]) -> int:
        """Takes in one page, or what was appended where it comes next; the position reached. The cursor is read within
        the transaction: another process may have moved it."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            after = self._cursor()
            if after is None:
                for table in TABLES:
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)
                after = 0
            next_ = bool(appended) and appended[0].position == after + 1
            upto = appended[-1].position if next_ else max(after, min(head, after + self._page_positions))
            if upto > after or not after:
                names = [type_of(kind) for kind in TYPES]
                self._take(appended if next_ else self._log.read_types(names, after, upto))
                self._move(upto)
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise
        return upto

    def _cursor(self) -> int | None:
        """Position of the last event taken in; None when the rows are not those of this log and this code."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'cursor'").fetchone():
            return None
        row = self._connection.execute("SELECT log, code, position, chain FROM cursor").fetchone()
        if row is None or row[:2] != (self._log.log_id, code_digest()):
            return None
        position = int(row[2])
        return position if self._link(position) == bytes(row[3]) else None

    def _move(self, position: int) -> None:
        self._connection.execute("DELETE FROM cursor")
        values = (self._log.log_id, code_digest(), position, self._link(position) or b"")
        self._connection.execute("INSERT INTO cursor VALUES (?, ?, ?, ?)", values)

    def _link(self, position: int) -> bytes | None:
        return self._log.link(position) if position else b""

    def _take(self, events: Iterable[Recorded[Event]]) -> None:
        """Sums and requests are written last, all together."""
        sums: list[Sum] = []
        requests: list[tuple[str, Request]] = []
        for recorded in events:
            stream = recorded.stream
            match recorded.event:
                case SessionOpened() as event:
                    row = opened(stream, event, self.session(stream))
                    values = msgspec.structs.astuple(row)
                    self._connection.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", values)
                case SessionRead() | SessionSettled() as event:
                    if isinstance(event, SessionRead):
                        self._read(stream, event)
                    sums.extend(read_sums(stream, event))
                    requests.extend((each.session or stream, each) for each in event.requests)
                case SessionPriced() as event:
                    sums.extend(priced_sums(stream, event))
        self._connection.executemany(ADD, map(msgspec.structs.astuple, sums))
        self._count(requests)

    def _read(self, stream: StreamId, event: SessionRead) -> None:
        row = grown(stream, event, self.file(event.file))
        ends = bool(event.told) or event.reported_nanousd is not None
        self._connection.execute(
            "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?)",
            (row.file, stream, ends, bool(row.lacks), msgspec.json.encode(row)),
        )

    def _count(self, requests: list[tuple[str, Request]]) -> None:
        """Rows that lie side by side are written one after the other; of those with one key the last one stands."""
        requests.sort(key=_key)
        ids = _Ids(self._connection)
        self._connection.executemany(COUNT, (_row(ids, session, request) for session, request in requests))


class _Ids(dict[str, int]):
    """What names are kept as; good within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __missing__(self, name: str) -> int:
        self._connection.execute("INSERT OR IGNORE INTO name (text) VALUES (?)", (name,))
        ((found,),) = self._connection.execute("SELECT id FROM name WHERE text = ?", (name,))
        self[name] = found
        return int(found)


def _key(counted: tuple[str, Request]) -> str:
    return counted[1].key


def _row(ids: _Ids, session: str, each: Request) -> tuple[object, ...]:
    """For `COUNT`."""
    counted = each.usage
    return (
        bytes.fromhex(each.key), ids[session], each.at_us, each.dated, each.reported_nanousd, ids[counted.model],
        ids[counted.part], ids[counted.tier], counted.requests, counted.input, counted.output, counted.cache_read,
        counted.cache_write_5m, counted.cache_write_1h, counted.reasoning,
    )  # fmt: skip


def _session(row: tuple[str, str, str, str, str | None, str, int]) -> Session:
    stream, agent, name, version, project, parent, by_mz = row
    return Session(stream, agent, name, version, Digest(project) if project else None, parent, bool(by_mz))


def _connect(path: Path | None) -> sqlite3.Connection:
    """A file that cannot be opened gives an error with its first use."""
    try:
        connection = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=BUSY_SECONDS)
    except sqlite3.OperationalError:
        connection = sqlite3.connect(":memory:", isolation_level=None)
    with suppress(sqlite3.DatabaseError):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


@cache
def code_digest() -> str:
    """sha256 over the sources that the rows are computed by."""
    modules: tuple[ModuleType, ...] = (imported, usage, session, call, codec)
    sources = chain((Path(__file__),), (Path(str(module.__file__)) for module in modules))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
