"""What the log costs, against `sqlite3` and `msgspec` alone: appending, reading, rebuilding read models.

With a real chain, lock and blobs, on the disk that the caller names, over events as the engine writes them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.names import StreamId
from mz_events.store import Append
from mz_projections.feature.calls import CALLS
from mz_projections.read_models.model import ReadModel
from mz_projections.read_models.store import ReadModelStore
from mz_projections.run.delivered import DELIVERED
from mz_projections.views.run import RUNS

from tools.bench.clock import alternate, rate
from tools.bench.figure import Figure, compare
from tools.bench.history import START_US, Entry, Past, fill, log_entries, simulate
from tools.bench.raw import RawLog, decode_all, read_all, rows_of, write_durably

EVENTS = 200_000
"""In the log that is read and rebuilt from."""
ROUNDS = 7
WRITING_ROUNDS = 3
"""For each round of reading: a disk is less even than a processor."""
SINGLE, BATCHES, BATCH = 100, 10, 100
"""Appends of one event in a round; appends of a batch, and events in it."""
CITING, TEXT_BYTES = 20, 18_800
"""Appends that cite a text, in a round; a text of an agent has about this size."""
APPEND_MIN, BATCH_MIN, CITING_MIN, READ_MIN, REBUILD_MIN = 0.80, 0.50, 0.50, 0.90, 0.25
MODELS: tuple[ReadModel[Any], ...] = (CALLS, RUNS, DELIVERED)
TEXTS = "texts"
"""The blobs of the filled log, to which those are added that new events cite."""
OTHER_RUNS = 1 << 16
"""Batches go to runs with numbers from here on."""
BLOB_TEXTS = b"The quick brown fox jumps over the lazy dog, and the report of the agent goes on. "


class Writing:
    """Two empty logs, ours and the raw one, which are filled side by side with the same kind of events."""

    def __init__(self, path: Path, past: Past, log: Path) -> None:
        self._open = ExitStack()
        self._store = self._open.enter_context(SqliteStore(path / "mz.db"))
        self._raw = self._open.enter_context(closing(RawLog(path / "raw.db")))
        self._blobs, self._files = FileBlobs(path / TEXTS), path / "files"
        self._files.mkdir()
        self._rows = iter(rows_of(log))
        self._single = versioned(log_entries(past))
        self._batches = batched(log_entries(past, OTHER_RUNS))
        self._texts = 0

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def single(self) -> float:
        """As the engine does: with the version that each stream must have."""
        appends = [[append] for append in islice(self._single, SINGLE)]
        return rate(len(appends), partial(self._append, appends))

    def single_raw(self) -> float:
        rows = [[row] for row in islice(self._rows, SINGLE)]
        return rate(len(rows), partial(self._append_raw, rows))

    def batch(self) -> float:
        """Many events of one stream."""
        appends = [[append] for append in islice(self._batches, BATCHES)]
        return rate(len(appends) * BATCH, partial(self._append, appends))

    def batch_raw(self) -> float:
        rows = [list(islice(self._rows, BATCH)) for _ in range(BATCHES)]
        return rate(sum(map(len, rows)), partial(self._append_raw, rows))

    def citing(self) -> float:
        """A text is kept before the event that cites it."""
        texts, appends = self._new_texts(), list(islice(self._single, CITING))

        def work() -> None:
            for text, append in zip(texts, appends, strict=True):
                self._blobs.put(text)
                self._store.append([append], START_US)

        return rate(CITING, work)

    def citing_raw(self) -> float:
        texts, rows, turn = self._new_texts(), list(islice(self._rows, CITING)), self._texts

        def work() -> None:
            for number, (text, row) in enumerate(zip(texts, rows, strict=True)):
                write_durably(self._files, f"{turn}-{number}", text)
                self._raw.append([row])

        return rate(CITING, work)

    def _append(self, transactions: Sequence[Sequence[Append]]) -> None:
        for appends in transactions:
            self._store.append(appends, START_US)

    def _append_raw(self, transactions: Sequence[Sequence[Any]]) -> None:
        for rows in transactions:
            self._raw.append(rows)

    def _new_texts(self) -> list[bytes]:
        """Others each time: a blob that is there already is not written again."""
        self._texts += 1
        heads = (f"{self._texts} {number}\n".encode() for number in range(CITING))
        return [(head + BLOB_TEXTS * (TEXT_BYTES // len(BLOB_TEXTS) + 1))[:TEXT_BYTES] for head in heads]


class Reading:
    """A filled log."""

    def __init__(self, log: Path, count: int) -> None:
        self._log, self._count = log, count
        self._store = SqliteStore(log, read_only=True)
        self._views = log.with_name("views.sqlite")
        self._payloads = [row[8] for row in rows_of(log)]

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def read(self) -> float:
        return rate(self._count, lambda: sum(1 for _ in self._store.read_all()))

    def read_raw(self) -> float:
        return rate(self._count, partial(read_all, self._log))

    def rebuild(self, model: ReadModel[Any]) -> float:
        """From nothing into a file. Events of the log, whether they concern this read model or not."""
        self._views.unlink(missing_ok=True)
        return rate(self._count, partial(self._refresh, model))

    def _refresh(self, model: ReadModel[Any]) -> None:
        with ReadModelStore(self._views, self._store, (model,)) as views:
            views.refresh()
            assert views.path is not None

    def decode(self) -> float:
        """Every payload of the log, already in memory."""
        return rate(self._count, partial(decode_all, self._payloads))


def store(path: Path, *, events: int = EVENTS, rounds: int = ROUNDS) -> tuple[Figure, ...]:
    """Events a second; `path` is an empty directory on the disk in question, `events` the size of the log to read."""
    past, log = simulate(), path / "log.db"
    with SqliteStore(log) as filled:
        count = fill(filled, FileBlobs(path / TEXTS), past, events)
    with Writing(path, past, log) as writing:
        written = tuple(_writing(writing, rounds * WRITING_ROUNDS))
    with Reading(log, count) as reading:
        return (*written, *_reading(reading, rounds))


def _writing(writing: Writing, rounds: int) -> Iterator[Figure]:
    plain = f"sqlite3 {sqlite3.sqlite_version} alone"
    synced = f"{plain}, and a synced file"
    yield _contest("append", writing.single, plain, writing.single_raw, APPEND_MIN, rounds)
    yield _contest(f"append-{BATCH}", writing.batch, plain, writing.batch_raw, BATCH_MIN, rounds)
    yield _contest("append-citing", writing.citing, synced, writing.citing_raw, CITING_MIN, rounds)


def _reading(reading: Reading, rounds: int) -> Iterator[Figure]:
    yield _contest("read", reading.read, "sqlite3 and msgspec alone", reading.read_raw, READ_MIN, rounds)
    for model in MODELS:
        ours = partial(reading.rebuild, model)
        yield _contest(f"rebuild-{model.name}", ours, "msgspec alone", reading.decode, REBUILD_MIN, rounds)


def _contest(
    name: str, ours: Callable[[], float], reference: str, theirs: Callable[[], float], least: float, rounds: int
) -> Figure:
    values = alternate(rounds, {"ours": ours, "theirs": theirs})
    return compare(f"store.{name}", values["ours"], "events/s", reference, values["theirs"], at_least=least)


def versioned(entries: Iterator[Entry]) -> Iterator[Append]:
    """Each event as an append of its own, with the version that its stream has then."""
    versions: dict[StreamId, int] = {}
    for stream, event in entries:
        version = versions.get(stream, 0)
        versions[stream] = version + 1
        yield Append(stream, version, (event,))


def batched(entries: Iterator[Entry]) -> Iterator[Append]:
    """The first `BATCH` events of each stream that has so many, as one append. `entries` never end."""
    while True:
        run = sorted(islice(entries, 50 * BATCH), key=lambda entry: entry[0])
        for stream, group in groupby(run, key=lambda entry: entry[0]):
            events = tuple(event for _, event in islice(group, BATCH))
            if len(events) == BATCH:
                yield Append(stream, None, events)
