"""Import of agents' session files into the user's log: each request once, in whatever order files are read.

The state of a file and its counted requests are in one append, so that a crash at any time loses nothing and counts
nothing twice. Requests that were counted before are looked up in a file, not held in memory.
"""

from __future__ import annotations

import fcntl
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.session import SessionOpened, SessionSettled
from mz_events.names import Digest, StreamId
from mz_events.store import Append
from mz_projections.imported import File, Session, opened
from mz_projections.importedviews import ImportedViews

from mz_recordings.importing.names import stream_of
from mz_recordings.importing.reading import digest_of, stretches, told_by_file, untouched
from mz_recordings.importing.reckon import PriceOf, Reckoning, Stretch, Tally
from mz_recordings.importing.records import RECORDS
from mz_recordings.importing.scan import Found, Unreadable, scan
from mz_recordings.importing.settle import invocations, keys, lacking, settled
from mz_recordings.transcripts.detect import Undetected
from mz_recordings.transcripts.facts import Format
from mz_recordings.transcripts.formats import FORMATS

LOG, VIEWS, BLOBS, LOCK = "mz.db", "imported.sqlite", "blobs", "import.lock"
REQUESTS_A_BATCH, BYTES_A_BATCH, STRETCHES_A_BATCH = 8000, 128 << 20, 1000
"""Limits of one append: few disk flushes, but bounded memory."""
US = 1_000_000
NAMED_MAX = 5
YOUNG = 1
"""Generation of objects that were created since the last batch."""
EVERY = (*FORMATS, *RECORDS)


class Busy(Exception):
    """Another process imports into the same log."""


class Progress(msgspec.Struct, frozen=True):
    """Progress of an import."""

    files: int
    of_files: int
    bytes: int
    of_bytes: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import."""

    files: int
    """Files found."""
    read: int
    """Files with new content."""
    untouched: int
    """Files that were not opened, because they are unchanged."""
    unknown: tuple[Unreadable, ...]
    """Files of unknown formats, if the user named them."""
    passed_over: int
    """Other files of unknown formats."""
    passed_names: tuple[str, ...]
    """The first of these."""
    unreadable: tuple[Unreadable, ...]
    bytes: int
    """Bytes read."""
    lines: int
    bad: int
    sessions: int
    """Sessions with new content."""
    short: int
    """Sessions of these whose files report fewer tokens than were used."""
    tally: Tally


class Importer:
    """Imports into the log in the directory `home`, which is created if missing. `price` returns the price of a request
    by the price table named `table`."""

    def __init__(
        self, home: Path, price: PriceOf, table: str, formats: tuple[Format, ...] = EVERY,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._home, self._formats, self._now = home, formats, now
        self._price, self._table = price, table

    def run(self, paths: Iterable[Path], say: Callable[[Progress], None] = lambda _: None) -> Outcome:
        """Import the new content of files and directories, and report progress to `on_progress`.

        Raises Busy if another process imports into the same log, StoreUnusable.
        """
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            _seldom_collected(),
            _alone(self._home / LOCK),
            SqliteStore(self._home / LOG) as store,
            ImportedViews(self._home / VIEWS, store) as views,
        ):
            views.refresh()
            blobs = _Directories(FileBlobs(self._home / BLOBS))
            reckoning = Reckoning(self._price, self._table, blobs.keep, self._now_us())
            return _Taking(store, views, blobs, reckoning, self._formats, self._now_us).take(paths, say)

    def _now_us(self) -> int:
        return int(self._now() * US)


class _Directories:
    """Stores directories as blobs; each is written once."""

    def __init__(self, blobs: FileBlobs) -> None:
        self.blobs = blobs
        self._kept: dict[str, Digest] = {}

    def keep(self, directory: str) -> Digest:
        found = self._kept.get(directory)
        if found is None:
            found = self._kept[directory] = self.blobs.put(_encoded(directory))
        return found


class _Taking:
    """One import."""

    def __init__(
        self, store: SqliteStore, views: ImportedViews, directories: _Directories, reckoning: Reckoning,
        formats: tuple[Format, ...], now_us: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store, self._views, self._blobs, self._reckoning = store, views, directories.blobs, reckoning
        self._formats, self._now_us = formats, now_us
        self._batch: list[Stretch] = []
        self._read: set[str] = set()
        self._sessions: set[StreamId] = set()
        self._bytes = self._lines = self._bad = 0

    def take(self, paths: Iterable[Path], say: Callable[[Progress], None]) -> Outcome:
        unreadable: list[Unreadable] = []
        unknown: list[Unreadable] = []
        found = scan(paths, unreadable)
        rows = {row.file: row for row in self._views.files()}
        changed = [each for each in found if (row := rows.get(digest_of(each))) is None or not untouched(each, row)]
        of_bytes = sum(each.size for each in changed)
        for number, each in enumerate(changed):
            say(Progress(number, len(changed), self._bytes, of_bytes))
            try:
                self._file(each, rows.get(digest_of(each)))
            except OSError as error:
                unreadable.append(Unreadable(str(each.path), error.strerror or str(error)))
            except Undetected as error:
                unknown.append(Unreadable(str(each.path), str(error)))
        self._append()
        self._settle()
        named = {str(each.path) for each in changed if each.named}
        passed = [each.path for each in unknown if each.path not in named]
        return Outcome(
            files=len(found), read=len(self._read), untouched=len(found) - len(changed),
            unknown=tuple(each for each in unknown if each.path in named),
            passed_over=len(passed), passed_names=tuple(passed[:NAMED_MAX]),
            unreadable=tuple(dict.fromkeys(unreadable)), bytes=self._bytes, lines=self._lines, bad=self._bad,
            sessions=len(self._sessions), short=sum(map(self._lacks, self._sessions)), tally=self._reckoning.tally,
        )  # fmt: skip

    def _lacks(self, stream: StreamId) -> bool:
        return bool(lacking(self._views.files_of(stream), self._views.sums_of(stream)))

    def _file(self, found: Found, row: File | None) -> None:
        for stretch in stretches(found, row, self._formats):
            self._batch.append(stretch)
            self._read.add(digest_of(found))
            self._bytes += stretch.bytes
            self._lines += stretch.gathered.lines
            self._bad += stretch.gathered.bad
            if _full(self._batch):
                self._append()

    def _append(self) -> None:
        """Append the batch in one durable transaction, then update the rows."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        paths = self._blobs.put(b"".join(sorted({os.fsencode(each.path) + b"\0" for each in batch})))
        known = self._views.known(list(dict.fromkeys(key for each in batch for key in each.requests)))
        sessions: dict[StreamId, Session | None] = {}
        appends = []
        for each in batch:
            stream = stream_of(each.gathered.agent, each.session)
            if stream not in sessions:
                sessions[stream] = self._views.session(stream)
            events = self._reckoning.events(each, paths, known, sessions[stream])
            if isinstance(events[0], SessionOpened):
                sessions[stream] = opened(stream, events[0], sessions[stream])
            appends.append(Append(stream, None, events))
        self._sessions.update(sessions)
        self._write(appends)
        gc.collect(YOUNG)

    def _write(self, appends: Sequence[Append]) -> None:
        self._views.refresh(self._store.append(appends, self._now_us()))

    def _settle(self) -> None:
        """Reconcile the totals of all sessions; a killed import may have left some."""
        views = self._views
        appends: list[Append] = []
        for stream in views.settling():
            session, files = views.session(stream), invocations(views.files_of(stream))
            if session is None:
                continue
            sums = views.sums_of(stream)
            changed_us = told_by_file(max(each.modified_ns for each in files))
            newest_us = max((each.start_s * US for each in sums), default=changed_us)
            known = views.known(keys(session.agent, stream, files))
            requests = tuple(settled(session.agent, stream, files, sums, known, newest_us))
            if requests:
                priced = self._reckoning.settled(requests)
                events: tuple[Event, ...] = (SessionSettled(requests=requests), *((priced,) if priced.sums else ()))
                appends.append(Append(StreamId(stream), None, events))
        if appends:
            self._write(appends)


def _encoded(directory: str) -> bytes:
    try:
        return os.fsencode(directory)
    except UnicodeEncodeError:
        return directory.encode("utf-8", "replace")


def _full(batch: Sequence[Stretch]) -> bool:
    return (
        len(batch) >= STRETCHES_A_BATCH
        or sum(len(each.requests) for each in batch) >= REQUESTS_A_BATCH
        or sum(each.bytes for each in batch) >= BYTES_A_BATCH
    )


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Disable the garbage collector. Reading makes no cycles, and looking for them would take a tenth of the time; the
    collector runs after each batch instead."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the import lock, which the kernel releases when the process ends. Raises Busy."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(str(path)) from None
        yield
    finally:
        os.close(descriptor)
