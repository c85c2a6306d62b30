"""The read model of imported sessions: the rows of `imported/model.py`, in tables of their own.

Unlike the rows of other read models these are sums: an event adds to many of them at once, and a log may contain
millions of requests, each of which must be found again by its key. So SQLite adds up, and no row is held in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import (
    ImportedFileRead,
    ImportedPriced,
    ImportedRequest,
    ImportedSessionFound,
    ImportedTotalsReconciled,
)
from mz_events.envelope import Recorded
from mz_events.names import Digest, StreamId
from mz_events.store import Log

from mz_projections.imported.model import (
    TYPES,
    CountedRequest,
    ImportedFile,
    ImportedSession,
    QuarterSum,
    priced_sums,
    read_sums,
    update_file,
    update_session,
)
from mz_projections.read_models.store import BUSY_SECONDS, TableStore
from mz_projections.usage import TOKEN_FIELDS

PAGE_POSITIONS = 64
"""Log positions per transaction: an event may contain a thousand requests."""
KEYS_PER_QUERY = 500
"""Keys per lookup statement."""

SCHEMA = """
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
TABLES = ("session", "file", "sum", "name", "request")
SUM_COLUMNS = ("session", "start_s", "model", "subagent", "requests", *TOKEN_FIELDS,
               "computed_nanousd", "reported_nanousd", "unpriced")  # fmt: skip
"""In the order of the fields of `Sum`."""
REQUEST_COLUMNS = ("at_us", "dated", "reported_nanousd", "model", "subagent", "tier", "requests", *TOKEN_FIELDS)
# Keys are hashes, so each insert touches another page: short rows with name ids keep the pages few.
UPSERT_REQUEST = (
    f"INSERT INTO request (key, session, {', '.join(REQUEST_COLUMNS)}) VALUES "
    f"({', '.join('?' * (len(REQUEST_COLUMNS) + 2))}) "
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in REQUEST_COLUMNS)}"
)
NAME_BY_ID = "(SELECT text FROM name WHERE id = {0})"
SELECT_REQUESTS = (
    f"SELECT key, {NAME_BY_ID.format('session')}, at_us, dated, reported_nanousd, {NAME_BY_ID.format('model')}, "
    f"{NAME_BY_ID.format('subagent')}, {NAME_BY_ID.format('tier')}, requests, {', '.join(TOKEN_FIELDS)} FROM request"
)
ADDITIVE_COLUMNS = ("requests", *TOKEN_FIELDS, "computed_nanousd", "unpriced")
# An integer overflow becomes a REAL in SQLite; the cast turns it into the largest INTEGER.
UPSERT_SUM = (
    f"INSERT INTO sum ({', '.join(SUM_COLUMNS)}) VALUES ({', '.join('?' * len(SUM_COLUMNS))}) "
    "ON CONFLICT DO UPDATE SET "
    f"{', '.join(f'{name} = CAST({name} + excluded.{name} AS INTEGER)' for name in ADDITIVE_COLUMNS)}, "
    "reported_nanousd = CASE WHEN excluded.reported_nanousd IS NULL THEN reported_nanousd "
    "ELSE CAST(coalesce(reported_nanousd, 0) + excluded.reported_nanousd AS INTEGER) END"
)

_FILE_DECODER = msgspec.json.Decoder(ImportedFile)


class ImportedStore(TableStore):
    """The rows over `log`: the only read model of its file."""

    name, types = "imported", TYPES

    def __init__(self, path: Path | None, log: Log, page_positions: int = PAGE_POSITIONS) -> None:
        super().__init__(path, log, (self,), page_positions, BUSY_SECONDS)

    def sums(self) -> Iterator[QuarterSum]:
        """Yield all rows, by session, quarter, model and subagent."""
        for row in self._connection.execute(f"SELECT {', '.join(SUM_COLUMNS)} FROM sum ORDER BY 1, 2, 3, 4"):
            yield QuarterSum(*row)

    def sums_of(self, stream: str) -> tuple[QuarterSum, ...]:
        """Return the rows of one session."""
        query = f"SELECT {', '.join(SUM_COLUMNS)} FROM sum WHERE session = ? ORDER BY 2, 3, 4"
        rows = self._connection.execute(query, (stream,))
        return tuple(QuarterSum(*row) for row in rows)

    def sessions(self) -> tuple[ImportedSession, ...]:
        """Return all sessions, by stream."""
        return tuple(_decode_session(row) for row in self._connection.execute("SELECT * FROM session ORDER BY stream"))

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

    def session(self, stream: str) -> ImportedSession | None:
        row = self._connection.execute("SELECT * FROM session WHERE stream = ?", (stream,)).fetchone()
        return _decode_session(row) if row else None

    def file(self, digest: str) -> ImportedFile | None:
        """Return the reading state of the file with this digest of its path; None: never read."""
        row = self._connection.execute("SELECT row FROM file WHERE file = ?", (digest,)).fetchone()
        return _FILE_DECODER.decode(row[0]) if row else None

    def files(self) -> Iterator[ImportedFile]:
        """Yield every file ever read."""
        for (row,) in self._connection.execute("SELECT row FROM file ORDER BY file"):
            yield _FILE_DECODER.decode(row)

    def files_of(self, stream: str) -> tuple[ImportedFile, ...]:
        """Return the files of one session."""
        rows = self._connection.execute("SELECT row FROM file WHERE session = ? ORDER BY file", (stream,))
        return tuple(_FILE_DECODER.decode(row) for (row,) in rows)

    def sessions_with_totals(self) -> tuple[str, ...]:
        """Return streams of sessions with a file that states totals or money at its end."""
        query = "SELECT DISTINCT session FROM file WHERE has_totals ORDER BY session"
        return tuple(stream for (stream,) in self._connection.execute(query))

    def incomplete_sessions(self) -> tuple[str, ...]:
        """Return streams of sessions with a file known to be incomplete."""
        query = "SELECT DISTINCT session FROM file WHERE incomplete ORDER BY session"
        return tuple(stream for (stream,) in self._connection.execute(query))

    def counted_requests(self, keys: Sequence[str]) -> dict[str, CountedRequest]:
        """Return those of the requests that were counted before, by key."""
        requests_by_key: dict[str, CountedRequest] = {}
        for offset in range(0, len(keys), KEYS_PER_QUERY):
            batch = [bytes.fromhex(key) for key in keys[offset : offset + KEYS_PER_QUERY]]
            placeholders = ", ".join("?" * len(batch))
            for row in self._connection.execute(f"{SELECT_REQUESTS} WHERE key IN ({placeholders})", batch):
                key, stream, at_us, dated, reported_nanousd, model, subagent, tier, requests, *tokens = row
                numbers = dict(zip(TOKEN_FIELDS, tokens, strict=True))
                usage_counts = Usage(model=model, subagent=subagent, tier=tier, requests=requests, **numbers)
                requests_by_key[key.hex()] = CountedRequest(stream, at_us, bool(dated), usage_counts, reported_nanousd)
        return requests_by_key

    # updates
    def create(self, connection: sqlite3.Connection) -> None:
        for table in TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)

    def apply_events(self, connection: sqlite3.Connection, events: Iterable[Recorded[Event]]) -> None:
        """Process the events; sums and requests are written last, all together."""
        sums: list[QuarterSum] = []
        requests: list[tuple[str, ImportedRequest]] = []
        for recorded in events:
            stream = recorded.stream
            match recorded.event:
                case ImportedSessionFound() as event:
                    row = update_session(stream, event, self.session(stream))
                    values = msgspec.structs.astuple(row)
                    connection.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", values)
                case ImportedFileRead() | ImportedTotalsReconciled() as event:
                    if isinstance(event, ImportedFileRead):
                        self._write_file(stream, event)
                    sums.extend(read_sums(stream, event))
                    requests.extend((request.session or stream, request) for request in event.requests)
                case ImportedPriced() as event:
                    sums.extend(priced_sums(stream, event))
        connection.executemany(UPSERT_SUM, map(msgspec.structs.astuple, sums))
        requests.sort(key=lambda request: request[1].key)  # For locality; of those with one key the last one counts.
        ids = _NameIds(connection)
        connection.executemany(UPSERT_REQUEST, (_request_row(ids, session, request) for session, request in requests))

    def _write_file(self, stream: StreamId, event: ImportedFileRead) -> None:
        row = update_file(stream, event, self.file(event.file))
        has_totals = bool(event.reported_totals) or event.reported_nanousd is not None
        self._connection.execute(
            "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?)",
            (row.file, stream, has_totals, bool(row.incomplete_reasons), msgspec.json.encode(row)),
        )


class _NameIds(dict[str, int]):
    """Ids of names in the table `name`; valid within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __missing__(self, name: str) -> int:
        self._connection.execute("INSERT OR IGNORE INTO name (text) VALUES (?)", (name,))
        ((name_id,),) = self._connection.execute("SELECT id FROM name WHERE text = ?", (name,))
        self[name] = name_id
        return int(name_id)


def _request_row(ids: _NameIds, session: str, request: ImportedRequest) -> tuple[object, ...]:
    """Return the values for UPSERT_REQUEST."""
    counts = request.usage
    return (
        bytes.fromhex(request.key), ids[session], request.at_us, request.dated, request.reported_nanousd,
        ids[counts.model], ids[counts.subagent], ids[counts.tier], counts.requests, counts.input, counts.output,
        counts.cache_read, counts.cache_write_5m, counts.cache_write_1h, counts.reasoning,
    )  # fmt: skip


def _decode_session(row: tuple[str, str, str, str, str | None, str, int]) -> ImportedSession:
    stream, agent, name, version, project, parent, by_mz = row
    return ImportedSession(stream, agent, name, version, Digest(project) if project else None, parent, bool(by_mz))
