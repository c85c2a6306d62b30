"""The log in one SQLite file. Appends are durable when they return, even if the process then dies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain as chained
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from mz_events.adapters.database import Database
from mz_events.adapters.migrate import MIGRATIONS, Migration
from mz_events.catalog.base import Event
from mz_events.chain import GENESIS, Damage, link, verify
from mz_events.codec import CODEC, Codec
from mz_events.names import StreamId
from mz_events.store import Append, Head, Recorded, Stored, StoreUnusable, VersionConflict

PAGE_ROWS = 1000
FIRST_ROWS = 50
"""Size of a stream's first page: reading only how a stream begins stays cheap."""
LOCK_SECONDS = 30.0
POSITION_MAX = (1 << 63) - 1

METADATA_COLUMNS = "stream_id, version, position, type, schema, recorded_at_us, observed_at_us, causation"
COLUMNS = f"{METADATA_COLUMNS}, payload, chain"
EVENT_COLUMNS = "version, position, schema, recorded_at_us, observed_at_us, causation, payload"
"""Without the stream, which is one where a stream is read, and the type, which the payload names too."""
LOG_COLUMNS = f"stream_id, {EVENT_COLUMNS}"
LAST_POSITION = "SELECT coalesce(max(position), 0) FROM event"
SELECT_STREAM = "SELECT id, version, recorded_at_us, chain FROM stream WHERE name = ?"
INSERT_STREAM = "INSERT INTO stream (name, version, recorded_at_us, chain) VALUES (?, 0, 0, ?)"
UPDATE_STREAM = "UPDATE stream SET version = ?, recorded_at_us = ?, chain = ? WHERE id = ?"
UPDATE_HEAD = (
    "UPDATE stream SET version = ?, chain = ?, recorded_at_us = (SELECT max(recorded_at_us) FROM event "
    "WHERE stream_id = stream.id) WHERE id = ?"
)
INSERT_EVENT = f"INSERT INTO event ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SELECT_STREAMS = "SELECT name, version FROM stream WHERE substr(name, 1, ?) = ? ORDER BY name"
SELECT_STREAMS_BY_AGE = "SELECT name FROM stream WHERE substr(name, 1, ?) = ? ORDER BY id"
SELECT_HEADS = "SELECT name, version, CAST(chain AS BLOB) FROM stream"
OF_STREAM = "stream_id = (SELECT id FROM stream WHERE name = ?)"
EVENT_AT = "SELECT stream_id, version, type, schema, payload FROM event WHERE position = ?"
STREAM_PAGE = f"SELECT {EVENT_COLUMNS} FROM event WHERE {OF_STREAM} AND version > ? ORDER BY version LIMIT ?"
ALL_EVENTS = f"SELECT {METADATA_COLUMNS}, CAST(payload AS BLOB), CAST(chain AS BLOB) FROM event ORDER BY position"
"""For verification; the casts handle text that someone wrote in place of bytes."""

EventRow = tuple[Any, ...]
"""The id of the stream, where events of several are read, then the `EVENT_COLUMNS`."""
Row = tuple[int, int, int, str, int, int, int, str, bytes, bytes]
Encoded = tuple[str, int, bytes]


class _StreamTail(msgspec.Struct):
    """The end of a stream while an append extends it."""

    id: int
    version: int
    recorded_at_us: int
    chain: bytes


class SqliteStore(AbstractContextManager["SqliteStore"]):
    """The Log port over the file at `path`, which is created if missing.

    Several threads and several processes may use one file at once; a store must not be shared across a fork.
    `read_only` needs no write permission and rejects appends; it raises StoreUnusable where there is no log.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        timeout_seconds: float = LOCK_SECONDS,
        codec: Codec = CODEC,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self._codec = codec
        self._database = Database(path, read_only, timeout_seconds, migrations)
        self._names: dict[int, StreamId] = {}
        try:
            with self._database.reading() as cursor:
                self.log_id = str(cursor.execute("SELECT id FROM log").fetchone()[0])
                """Random id, set once when the log is created."""
        except BaseException:
            self._database.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the store is unusable afterwards."""
        self._database.close()

    def append(self, appends: Sequence[Append], now_us: int) -> tuple[Recorded[Event], ...]:
        """Append everything in one durable transaction, or nothing. `now_us`: microseconds since the epoch, UTC.

        Raises: VersionConflict, StoreUnusable.
        """
        encoded = [[self._codec.encode(event) for event in append.events] for append in appends]
        with self._database.writing() as cursor:
            (position,) = cursor.execute(LAST_POSITION).fetchone()
            tails: dict[StreamId, _StreamTail] = {}
            recorded: list[Recorded[Event]] = []
            rows: list[Row] = []
            for append, payloads in zip(appends, encoded, strict=True):
                tail = tails.get(append.stream) or _StreamTail(
                    *(cursor.execute(SELECT_STREAM, (append.stream,)).fetchone() or (0, 0, 0, GENESIS))
                )
                if append.expected is not None and tail.version != append.expected:
                    raise VersionConflict(append.stream, append.expected, tail.version)
                if not payloads:
                    continue
                tail.id = tail.id or cursor.execute(INSERT_STREAM, (append.stream, GENESIS)).lastrowid or 0
                tails[append.stream] = tail
                _extend_stream(tail, position, append, payloads, now_us, rows, recorded)
                position += len(payloads)
            cursor.executemany(INSERT_EVENT, rows)
            cursor.executemany(UPDATE_STREAM, [(t.version, t.recorded_at_us, t.chain, t.id) for t in tails.values()])
        return tuple(recorded)

    def read(self, stream: StreamId, after: int = 0) -> Iterator[Recorded[Event]]:
        """Yield the stream's events with a version greater than `after`, in order; none if it does not exist.

        Raises while iterating: UnknownEvent, StoreUnusable.
        """
        return self._decode_pages(self._stream_pages(stream, after), stream)

    def read_all(self, after: int = 0, limit: int | None = None) -> Iterator[Recorded[Event]]:
        """Yield at most `limit` events of all streams with a position greater than `after`, in order of position."""
        return self._decode_pages(self._log_pages(after, POSITION_MAX if limit is None else after + limit))

    def read_types(self, types: Collection[str], after: int, last_position: int) -> Iterator[Recorded[Event]]:
        """Yield events of these types with `after < position <= last_position`, in order.

        Events of other known types are not decoded; unknown types raise UnknownEvent, as everywhere.
        """
        others = self._codec.types.keys() - set(types)
        return self._decode_pages(self._log_pages(after, last_position, others))

    def streams(self, prefix: str = "") -> tuple[tuple[StreamId, int], ...]:
        """Return names and versions of the streams that begin with `prefix`, sorted by name."""
        with self._database.reading() as cursor:
            rows = cursor.execute(SELECT_STREAMS, (len(prefix), prefix)).fetchall()
        return tuple((StreamId(name), version) for name, version in rows)

    def streams_by_age(self, prefix: str) -> tuple[StreamId, ...]:
        """Return the streams that begin with `prefix`, in the order of their first events. No event is read."""
        with self._database.reading() as cursor:
            rows = cursor.execute(SELECT_STREAMS_BY_AGE, (len(prefix), prefix)).fetchall()
        return tuple(StreamId(name) for (name,) in rows)

    def head(self) -> int:
        """Return the position of the last event; 0 for an empty log."""
        with self._database.reading() as cursor:
            return int(cursor.execute(LAST_POSITION).fetchone()[0])

    def link(self, position: int) -> bytes | None:
        """Return the chain value of the event at `position`; None if there is none."""
        with self._database.reading() as cursor:
            row = cursor.execute("SELECT chain FROM event WHERE position = ?", (position,)).fetchone()
        return None if row is None else bytes(row[0])

    def heads(self) -> dict[StreamId, Head]:
        """Return the heads of all streams, as of one moment."""
        with self._database.reading() as cursor:
            rows = cursor.execute(SELECT_HEADS).fetchall()
        return {StreamId(name): Head(version, chain) for name, version, chain in rows}

    def verify(self, watch: Callable[[Stored], None] | None = None) -> tuple[Damage, ...]:
        """Check the file and every stream's chain over one snapshot of the log; empty when intact.

        `watch` is called with every event, in order of position, whatever its state.
        """
        with self._database.reading() as cursor:
            cursor.execute("BEGIN")
            try:
                (check_result,) = cursor.execute("PRAGMA quick_check(1)").fetchone()
                if check_result != "ok":
                    return (Damage("", 0, f"the file is damaged: {check_result}"),)
                names = {id_: StreamId(name) for id_, name in cursor.execute("SELECT id, name FROM stream")}
                heads = {StreamId(name): Head(*head) for name, *head in cursor.execute(SELECT_HEADS)}
                rows = cursor.execute(ALL_EVENTS)
                events = (Stored(names.get(row[0], StreamId("?")), *row[1:]) for row in rows)
                return verify(events if watch is None else _call_for_each(events, watch), heads)
            finally:
                cursor.connection.rollback()

    def stored(self, heads: Mapping[StreamId, Head]) -> Iterator[Stored]:
        """Yield the events of these streams as stored, up to these heads, in order of position."""
        for row in chained.from_iterable(self._log_pages(0, POSITION_MAX, columns=COLUMNS)):
            name = self._stream_name(row[0])
            if name in heads and row[1] <= heads[name].version:
                yield Stored(name, *row[1:])

    def insert(self, events: Iterable[Stored], heads: Mapping[StreamId, Head]) -> None:
        """Append complete streams, with positions from 1, in one transaction. Raises StoreUnusable unless their chains
        are valid and end at `heads`."""
        with self._database.writing() as cursor:
            (last,) = cursor.execute(LAST_POSITION).fetchone()
            ids = {name: cursor.execute(INSERT_STREAM, (name, GENESIS)).lastrowid for name in heads}

            def inserted() -> Iterator[Stored]:
                for event in events:
                    yield event
                    position_and_values = msgspec.structs.astuple(event)[3:]
                    row = (ids.get(event.stream), event.version, last + event.position, *position_and_values)
                    cursor.execute(INSERT_EVENT, row)

            if damages := verify(inserted(), heads):
                raise StoreUnusable(f"nothing was imported: {damages[0].event_ref}: {damages[0].message}")
            cursor.executemany(UPDATE_HEAD, [(head.version, head.chain, ids[name]) for name, head in heads.items()])

    def exclusive(self) -> AbstractContextManager[object]:
        """Hold the store's lock so that nobody appends meanwhile: for work beside the log, such as deleting blobs."""
        return self._database.writing_lock()

    def _stream_pages(self, stream: StreamId, after: int) -> Iterator[list[EventRow]]:
        limit = FIRST_ROWS
        while True:
            yield (rows := self._fetch_page(STREAM_PAGE, (stream, after, limit)))
            if len(rows) < limit:
                return
            after, limit = rows[-1][0], PAGE_ROWS

    def _log_pages(
        self, after: int, last_position: int, left_out: Collection[str] = (), columns: str = LOG_COLUMNS
    ) -> Iterator[list[Any]]:
        """Yield pages of the events of all types but those left out."""
        placeholders = ", ".join("?" * len(left_out))
        query = (
            f"SELECT {columns} FROM event WHERE position > ? AND position <= ? AND type NOT IN ({placeholders}) "
            f"ORDER BY position LIMIT {PAGE_ROWS}"
        )
        while True:
            yield (rows := self._fetch_page(query, (after, last_position, *left_out)))
            if len(rows) < PAGE_ROWS:
                return
            after = rows[-1][2]

    def _fetch_page(self, query: str, values: tuple[object, ...]) -> list[Any]:
        with self._database.reading() as cursor:
            return cursor.execute(query, values).fetchall()

    def _decode_pages(
        self, pages: Iterator[list[EventRow]], stream: StreamId | None = None
    ) -> Iterator[Recorded[Event]]:
        """Decode each page when it is reached. Not by `yield from`: passing each event on cost a tenth of the time."""
        return chained.from_iterable(self._decode_rows(rows, stream) for rows in pages if rows)

    def _stream_name(self, stream_id: int) -> StreamId:
        """Return a stream's name. Names never change, so those read once are cached."""
        if stream_id not in self._names:
            with self._database.reading() as cursor:
                self._names.update((id_, StreamId(name)) for id_, name in cursor.execute("SELECT id, name FROM stream"))
        try:
            return self._names[stream_id]
        except KeyError:
            problem = "is damaged: a stream is missing; see `mz audit --verify`"
            raise StoreUnusable(f"{self._database.path} {problem}") from None

    def _decode_rows(self, rows: Sequence[EventRow], stream: StreamId | None) -> Iterator[Recorded[Event]]:
        """Decode a page by columns: a step in Python for each event costs as much as decoding it does."""
        *ids, versions, positions, schemas, recorded_at_us, observed_at_us, causations, payloads = zip(
            *rows, strict=True
        )
        streams = map(self._stream_name, ids[0]) if stream is None else repeat(stream)
        events = self._codec.decode_unconverted(payloads, schemas) or map(self._decode_at, positions)
        return map(Recorded, streams, versions, positions, recorded_at_us, observed_at_us, events, causations)

    def _decode_at(self, position: int) -> Event:
        """Decode one event, whatever its schema. Raises UnknownEvent, StoreUnusable."""
        with self._database.reading() as cursor:
            stream_id, version, name, schema, payload = cursor.execute(EVENT_AT, (position,)).fetchone()
        return self._codec.decode(name, schema, payload, f"{self._stream_name(stream_id)}@{version}")


def _call_for_each(events: Iterator[Stored], watch: Callable[[Stored], None]) -> Iterator[Stored]:
    for event in events:
        watch(event)
        yield event


def _extend_stream(
    tail: _StreamTail,
    position: int,
    append: Append,
    payloads: Sequence[Encoded],
    now_us: int,
    rows: list[Row],
    recorded: list[Recorded[Event]],
) -> None:
    """Add the events of one append after `position` to `rows` and `recorded`, and advance the tail."""
    stream, causation = append.stream, append.causation
    tail.recorded_at_us = recorded_at_us = max(now_us, tail.recorded_at_us)
    for offset, (event, (name, schema, payload)) in enumerate(zip(append.events, payloads, strict=True), start=1):
        tail.version += 1
        tail.chain = link(tail.chain, stream, tail.version, name, schema, recorded_at_us, now_us, causation, payload)
        version_and_position = tail.version, position + offset
        rows.append(
            (tail.id, *version_and_position, name, schema, recorded_at_us, now_us, causation, payload, tail.chain)
        )
        recorded.append(Recorded(stream, *version_and_position, recorded_at_us, now_us, event, causation))
