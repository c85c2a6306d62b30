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
from functools import cache
from pathlib import Path

import msgspec
from mz_engine.agents.reading.records import Format
from mz_engine.transcripts.formats import FORMATS, Undetected
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.imported import ImportedSessionFound, ImportedTotalsReconciled
from mz_events.names import StreamId
from mz_events.store import Append
from mz_projections.imported.model import ImportedFile, ImportedSession, update_session
from mz_projections.imported.store import ImportedStore

from mz_recordings.importing.events import EventBuilder, FileSegment, PriceOf, RequestTotals
from mz_recordings.importing.file_reader import file_key, is_unchanged, modified_us, new_segments
from mz_recordings.importing.names import stream_of
from mz_recordings.importing.other_tools import RECORD_FORMATS
from mz_recordings.importing.reconcile import incomplete_reasons, invocations, reconcile_totals, reconciliation_keys
from mz_recordings.importing.scan import FileMetadata, UnreadableFile, scan_files

LOG, VIEWS, BLOBS, LOCK = "mz.db", "imported.sqlite", "blobs", "import.lock"
REQUESTS_PER_BATCH, BYTES_PER_BATCH, SEGMENTS_PER_BATCH = 8000, 128 << 20, 1000
"""Limits of one append: few disk flushes, but bounded memory."""
US_PER_SECOND = 1_000_000
NAMED_MAX = 5
YOUNG_GENERATION = 1
"""Generation of objects that were created since the last batch."""
IMPORT_FORMATS = (*FORMATS, *RECORD_FORMATS)


class Busy(Exception):
    """Another process imports into the same log."""


class ImportProgress(msgspec.Struct, frozen=True):
    """Progress of an import."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


class ImportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import."""

    files: int
    """Files found."""
    files_read: int
    """Files with new content."""
    unchanged: int
    """Files that were not opened, because they are unchanged."""
    unknown_format: tuple[UnreadableFile, ...]
    """Files of unknown formats, if the user named them."""
    skipped: int
    """Other files of unknown formats."""
    skipped_names: tuple[str, ...]
    """The first of these."""
    unreadable: tuple[UnreadableFile, ...]
    bytes_read: int
    """Bytes read."""
    lines: int
    undecodable_lines: int
    sessions: int
    """Sessions with new content."""
    incomplete_sessions: int
    """Sessions of these whose files report fewer tokens than were used."""
    totals: RequestTotals


class Importer:
    """Imports into the log in the directory `home`, which is created if missing. `price` returns the price of a request
    by the price table named `table`."""

    def __init__(
        self, home: Path, price: PriceOf, table: str, formats: tuple[Format, ...] = IMPORT_FORMATS,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._home, self._formats, self._now = home, formats, now
        self._price, self._table = price, table

    def run(
        self, paths: Iterable[Path], on_progress: Callable[[ImportProgress], None] = lambda _: None
    ) -> ImportOutcome:
        """Import the new content of files and directories, and report progress to `on_progress`.

        Raises Busy if another process imports into the same log, StoreUnusable.
        """
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            _garbage_collection_paused(),
            _import_lock(self._home / LOCK),
            SqliteStore(self._home / LOG) as store,
            ImportedStore(self._home / VIEWS, store) as views,
        ):
            views.refresh()
            blobs = FileBlobs(self._home / BLOBS)
            store_directory = cache(lambda directory: blobs.put(_encode_directory(directory)))
            builder = EventBuilder(self._price, self._table, store_directory, self._now_us())
            return ImportBatch(store, views, blobs, builder, self._formats, self._now_us).run(paths, on_progress)

    def _now_us(self) -> int:
        return int(self._now() * US_PER_SECOND)


class ImportBatch:
    """One import."""

    def __init__(
        self, store: SqliteStore, views: ImportedStore, blobs: FileBlobs, builder: EventBuilder,
        formats: tuple[Format, ...], now_us: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store, self._views, self._blobs, self._builder = store, views, blobs, builder
        self._formats, self._now_us = formats, now_us
        self._segments: list[FileSegment] = []
        self._files_read: set[str] = set()
        self._sessions: set[StreamId] = set()
        self._bytes = self._lines = self._undecodable_lines = 0

    def run(self, paths: Iterable[Path], on_progress: Callable[[ImportProgress], None]) -> ImportOutcome:
        unreadable: list[UnreadableFile] = []
        unknown: list[UnreadableFile] = []
        files = scan_files(paths, unreadable)
        rows = {row.file: row for row in self._views.files()}
        changed = [
            entry for entry in files if (row := rows.get(file_key(entry))) is None or not is_unchanged(entry, row)
        ]
        bytes_total = sum(entry.size_bytes for entry in changed)
        for number, entry in enumerate(changed):
            on_progress(ImportProgress(number, len(changed), self._bytes, bytes_total))
            try:
                self._read_file(entry, rows.get(file_key(entry)))
            except OSError as error:
                unreadable.append(UnreadableFile(str(entry.path), error.strerror or str(error)))
            except Undetected as error:
                unknown.append(UnreadableFile(str(entry.path), str(error)))
        self._append()
        self._reconcile_totals()
        named_paths = {str(entry.path) for entry in changed if entry.is_named}
        skipped = [entry.path for entry in unknown if entry.path not in named_paths]
        return ImportOutcome(
            files=len(files),
            files_read=len(self._files_read),
            unchanged=len(files) - len(changed),
            unknown_format=tuple(entry for entry in unknown if entry.path in named_paths),
            skipped=len(skipped),
            skipped_names=tuple(skipped[:NAMED_MAX]),
            unreadable=tuple(dict.fromkeys(unreadable)),
            bytes_read=self._bytes,
            lines=self._lines,
            undecodable_lines=self._undecodable_lines,
            sessions=len(self._sessions),
            incomplete_sessions=sum(map(self._is_incomplete, self._sessions)),
            totals=self._builder.totals,
        )

    def _is_incomplete(self, stream: StreamId) -> bool:
        return bool(incomplete_reasons(self._views.files_of(stream), self._views.sums_of(stream)))

    def _read_file(self, file: FileMetadata, row: ImportedFile | None) -> None:
        for segment in new_segments(file, row, self._formats):
            self._segments.append(segment)
            self._files_read.add(file_key(file))
            self._bytes += segment.bytes_read
            self._lines += segment.stats.lines
            self._undecodable_lines += segment.stats.undecodable_lines
            if _is_full(self._segments):
                self._append()

    def _append(self) -> None:
        """Append the batch in one durable transaction, then update the rows."""
        batch, self._segments = self._segments, []
        if not batch:
            return
        paths = self._blobs.put(b"".join(sorted({os.fsencode(segment.path) + b"\0" for segment in batch})))
        counted = self._views.counted_requests(
            list(dict.fromkeys(key for segment in batch for key in segment.requests))
        )
        sessions: dict[StreamId, ImportedSession | None] = {}
        appends = []
        for segment in batch:
            stream = stream_of(segment.stats.agent, segment.session)
            if stream not in sessions:
                sessions[stream] = self._views.session(stream)
            events = self._builder.events(segment, paths, counted, sessions[stream])
            if isinstance(events[0], ImportedSessionFound):
                sessions[stream] = update_session(stream, events[0], sessions[stream])
            appends.append(Append(stream, None, events))
        self._sessions.update(sessions)
        self._write(appends)
        gc.collect(YOUNG_GENERATION)

    def _write(self, appends: Sequence[Append]) -> None:
        self._views.refresh(self._store.append(appends, self._now_us()))

    def _reconcile_totals(self) -> None:
        """Reconcile the totals of all sessions; a killed import may have left some."""
        views = self._views
        appends: list[Append] = []
        for stream in views.sessions_with_totals():
            session, files = views.session(stream), invocations(views.files_of(stream))
            if session is None:
                continue
            sums = views.sums_of(stream)
            changed_us = modified_us(max(row.modified_ns for row in files))
            newest_us = max((row.start_s * US_PER_SECOND for row in sums), default=changed_us)
            counted = views.counted_requests(reconciliation_keys(session.agent, stream, files))
            requests = tuple(reconcile_totals(session.agent, stream, files, sums, counted, newest_us))
            if requests:
                priced = self._builder.priced_reconciliations(requests)
                events: tuple[Event, ...] = (
                    ImportedTotalsReconciled(requests=requests),
                    *((priced,) if priced.sums else ()),
                )
                appends.append(Append(StreamId(stream), None, events))
        if appends:
            self._write(appends)


def _encode_directory(directory: str) -> bytes:
    try:
        return os.fsencode(directory)
    except UnicodeEncodeError:
        return directory.encode("utf-8", "replace")


def _is_full(batch: Sequence[FileSegment]) -> bool:
    return (
        len(batch) >= SEGMENTS_PER_BATCH
        or sum(len(segment.requests) for segment in batch) >= REQUESTS_PER_BATCH
        or sum(segment.bytes_read for segment in batch) >= BYTES_PER_BATCH
    )


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
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
def _import_lock(path: Path) -> Iterator[None]:
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
