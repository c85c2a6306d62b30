"""The rows of `imported.py`, kept in a SQLite file beside the log and updated from its cursor.

Unlike the rows of `runner.py` these are sums: an event adds to many of them at once, and a log may contain millions of
requests, each of which must be found again by its key. So SQLite adds up, and no row is held in memory.
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
"""Log positions per transaction: an event may contain a thousand requests."""
BUSY_SECONDS = 5.0
LOOKED_UP = 500
"""Keys per lookup statement."""
CACHE_KIB = 32_768

SCHEMA = """
CREATE TABLE cursor (log TEXT NOT NULL, code TEXT NOT NULL, position INTEGER NOT NULL, chain BLOB NOT NULL);
CREATE TABLE session (
  stream TEXT PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, version TEXT NOT NULL, project TEXT,
  parent TEXT NOT NULL, by_mz INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE file (
  file TEXT PRIMARY KEY, session TEXT NOT NULL, has_totals INTEGER NOT NULL, incomplete INTEGER NOT NULL,
  row BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX file_of_session ON file (session);
CREATE TABLE sum (
  session TEXT NOT NULL, start_s INTEGER NOT NULL, model TEXT NOT NULL, subagent TEXT NOT NULL,
  requests INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
  cache_write_5m INTEGER NOT NULL, cache_write_1h INTEGER NOT NULL, reasoning INTEGER NOT NULL,
  computed_nanousd INTEGER NOT NULL, reported_nanousd INTEGER, unpriced INTEGER NOT NULL,
  PRIMARY KEY (session, start_s, model, subagent)) WITHOUT ROWID;
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE request (
  key BLOB PRIMARY KEY, session INTEGER NOT NULL, at_us INTEGER NOT NULL, dated INTEGER NOT NULL,
  reported_nanousd INTEGER, model INTEGER NOT NULL, subagent INTEGER NOT NULL, tier INTEGER NOT NULL, requests INTEGER,
  input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write_5m INTEGER NOT NULL,
  cache_write_1h INTEGER NOT NULL, reasoning INTEGER NOT NULL) WITHOUT ROWID;
"""
TABLES = ("cursor", "session", "file", "sum", "name", "request")
SUM_COLUMNS = ("session", "start_s", "model", "subagent", "requests", *NUMBERS,
               "computed_nanousd", "reported_nanousd", "unpriced")  # fmt: skip
"""In the order of the fields of `Sum`."""
COUNTED = ("at_us", "dated", "reported_nanousd", "model", "subagent", "tier", "requests", *NUMBERS)
# Keys are hashes, so each insert touches another page: short rows with name ids keep the pages few.
COUNT = (
    f"INSERT INTO request (key, session, {', '.join(COUNTED)}) VALUES ({', '.join('?' * (len(COUNTED) + 2))}) "
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COUNTED)}"
)
NAMED = "(SELECT text FROM name WHERE id = {0})"
KNOWN = (
    f"SELECT key, {NAMED.format('session')}, at_us, dated, reported_nanousd, {NAMED.format('model')}, "
    f"{NAMED.format('subagent')}, {NAMED.format('tier')}, requests, {', '.join(NUMBERS)} FROM request"
)
ADDED = ("requests", *NUMBERS, "computed_nanousd", "unpriced")
# An integer overflow becomes a REAL in SQLite; the cast turns it into the largest INTEGER.
ADD = (
    f"INSERT INTO sum ({', '.join(SUM_COLUMNS)}) VALUES ({', '.join('?' * len(SUM_COLUMNS))}) "
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = CAST({name} + excluded.{name} AS INTEGER)' for name in ADDED)}, "
    "reported_nanousd = CASE WHEN excluded.reported_nanousd IS NULL THEN reported_nanousd "
    "ELSE CAST(coalesce(reported_nanousd, 0) + excluded.reported_nanousd AS INTEGER) END"
)

_FILES = msgspec.json.Decoder(File)


class ImportedViews:
    """The rows over `log`, kept in the file at `path`; None, or an unusable file: in memory.

    Not thread-safe; any number of processes may use one file.
    """

    def __init__(self, path: Path | None, log: Log, page_positions: int = PAGE_POSITIONS) -> None:
        self._log, self._path, self._page_positions = log, path, page_positions
        self._connection = _connect(path)

    def __enter__(self) -> ImportedViews:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; rows kept in memory are lost."""
        self._connection.close()

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
            self._begin_anew(error)

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        """Replace a damaged file; if it is locked, read-only or on a full disk, keep it and use memory."""
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

    # rows
    def sums(self) -> Iterator[Sum]:
        """Yield all rows, by session, quarter, model and subagent."""
        for row in self._connection.execute(f"SELECT {', '.join(SUM_COLUMNS)} FROM sum ORDER BY 1, 2, 3, 4"):
            yield Sum(*row)

    def sums_of(self, stream: str) -> tuple[Sum, ...]:
        """Return the rows of one session."""
        query = f"SELECT {', '.join(SUM_COLUMNS)} FROM sum WHERE session = ? ORDER BY 2, 3, 4"
        rows = self._connection.execute(query, (stream,))
        return tuple(Sum(*row) for row in rows)

    def sessions(self) -> tuple[Session, ...]:
        """Return all sessions, by stream."""
        return tuple(_session(row) for row in self._connection.execute("SELECT * FROM session ORDER BY stream"))

    def times(self, stream: str | None) -> dict[str, tuple[int, int]]:
        """Return the times of the first and last request by session (one or all), in microseconds. Requests without a
        time of their own are ignored."""
        condition = "" if stream is None else " AND session = (SELECT id FROM name WHERE text = ?)"
        query = (
            "SELECT text, first, last FROM name JOIN (SELECT session, min(at_us) AS first, max(at_us) AS last "
            f"FROM request WHERE dated{condition} GROUP BY 1) ON id = session"
        )
        rows = self._connection.execute(query, () if stream is None else (stream,))
        return {name: (first, last) for name, first, last in rows}

    def session(self, stream: str) -> Session | None:
        row = self._connection.execute("SELECT * FROM session WHERE stream = ?", (stream,)).fetchone()
        return _session(row) if row else None

    def file(self, digest: str) -> File | None:
        """Return the reading state of the file with this digest of its path; None: never read."""
        row = self._connection.execute("SELECT row FROM file WHERE file = ?", (digest,)).fetchone()
        return _FILES.decode(row[0]) if row else None

    def files(self) -> Iterator[File]:
        """Yield every file ever read."""
        for (row,) in self._connection.execute("SELECT row FROM file ORDER BY file"):
            yield _FILES.decode(row)

    def files_of(self, stream: str) -> tuple[File, ...]:
        """Return the files of one session."""
        rows = self._connection.execute("SELECT row FROM file WHERE session = ? ORDER BY file", (stream,))
        return tuple(_FILES.decode(row) for (row,) in rows)

    def settling(self) -> tuple[str, ...]:
        """Return streams of sessions with a file that states totals or money at its end."""
        query = "SELECT DISTINCT session FROM file WHERE has_totals ORDER BY session"
        return tuple(stream for (stream,) in self._connection.execute(query))

    def lacking(self) -> tuple[str, ...]:
        """Return streams of sessions with a file known to be incomplete."""
        query = "SELECT DISTINCT session FROM file WHERE incomplete ORDER BY session"
        return tuple(stream for (stream,) in self._connection.execute(query))

    def known(self, keys: Sequence[str]) -> dict[str, Known]:
        """Return those of the requests that were counted before, by key."""
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

    # updates
    def _catch_up(self, appended: Sequence[Recorded[Event]] = ()) -> None:
        head = self._log.head()
        while self._page(head, appended) < head:
            pass

    def _page(self, head: int, appended: Sequence[Recorded[Event]]) -> int:
        """Process one page, or the appended events if they are next, and return the position reached.

        The cursor is read within the transaction: another process may have moved it.
        """
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
        """Return the position of the last processed event; None if the rows belong to another log or code version."""
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
        """Process the events; sums and requests are written last, all together."""
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
                    requests.extend((request.session or stream, request) for request in event.requests)
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
        """Write requests sorted by key, for locality; of those with the same key the last one counts."""
        requests.sort(key=_key)
        ids = _Ids(self._connection)
        self._connection.executemany(COUNT, (_row(ids, session, request) for session, request in requests))


class _Ids(dict[str, int]):
    """Ids of names in the table `name`; valid within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __missing__(self, name: str) -> int:
        self._connection.execute("INSERT OR IGNORE INTO name (text) VALUES (?)", (name,))
        ((found,),) = self._connection.execute("SELECT id FROM name WHERE text = ?", (name,))
        self[name] = found
        return int(found)


def _key(counted: tuple[str, Request]) -> str:
    return counted[1].key


def _row(ids: _Ids, session: str, request: Request) -> tuple[object, ...]:
    """Return the values for `COUNT`."""
    counts = request.usage
    return (
        bytes.fromhex(request.key), ids[session], request.at_us, request.dated, request.reported_nanousd,
        ids[counts.model], ids[counts.part], ids[counts.tier], counts.requests, counts.input, counts.output,
        counts.cache_read, counts.cache_write_5m, counts.cache_write_1h, counts.reasoning,
    )  # fmt: skip


def _session(row: tuple[str, str, str, str, str | None, str, int]) -> Session:
    stream, agent, name, version, project, parent, by_mz = row
    return Session(stream, agent, name, version, Digest(project) if project else None, parent, bool(by_mz))


def _connect(path: Path | None) -> sqlite3.Connection:
    """Return a connection; a file that cannot be opened raises an error on first use."""
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
    """Return the sha256 over the sources that compute the rows."""
    modules: tuple[ModuleType, ...] = (imported, usage, session, call, codec)
    sources = chain((Path(__file__),), (Path(str(module.__file__)) for module in modules))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
