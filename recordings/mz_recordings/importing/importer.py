"""Import of agents' session files into the user's log: each request once, in whatever order files are read.

The state of a file and its counted requests are in one append, so that a crash at any time loses nothing and counts
nothing twice. Requests that were counted before are looked up in a file, not held in memory.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec
from mz_engine.transcripts.read import FORMATS, Undetected
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.imported import ImportedSessionFound, ImportedTotalsReconciled
from mz_events.names import StreamId
from mz_events.store import Append
from mz_projections.imported.model import ImportedFile, ImportedSession, update_session
from mz_projections.imported.store import ImportedStore

from mz_recordings.importing.events import UNKNOWN_MODEL, EventBuilder, ImportResult, PriceOf, UnpricedModel
from mz_recordings.importing.file_reader import FileSegment, file_key, is_unchanged, new_segments
from mz_recordings.importing.other_tools import RECORD_FORMATS
from mz_recordings.importing.reconcile import incomplete_reasons, invocations, reconcile_totals
from mz_recordings.importing.scan import FileMetadata, UnreadableFile, scan_files

LOG, VIEWS, BLOBS, LOCK = "mz.db", "imported.sqlite", "blobs", "import.lock"
REQUESTS_PER_BATCH, BYTES_PER_BATCH, SEGMENTS_PER_BATCH = 8000, 128 << 20, 1000
"""Limits of one append: few disk flushes, but bounded memory."""
US_PER_SECOND = 1_000_000
NAMED_MAX = 5
IMPORT_FORMATS = (*FORMATS, *RECORD_FORMATS)


class Busy(Exception):
    """Another process imports into the same log."""


class ImportProgress(msgspec.Struct, frozen=True):
    """Progress of an import."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


def import_files(
    home: Path,
    price: PriceOf,
    table: str,
    paths: Iterable[Path],
    on_progress: Callable[[ImportProgress], None] = lambda _: None,
    now: Callable[[], float] = time.time,
) -> ImportResult:
    """Import the new content of files and directories into the log in the directory `home`, created if missing.
    `price` returns the price of a request by the price table named `table`.

    Raises Busy if another process imports into the same log, StoreUnusable.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _import_lock(home / LOCK), SqliteStore(home / LOG) as store, ImportedStore(home / VIEWS, store) as views:
        views.refresh()
        blobs = FileBlobs(home / BLOBS)
        store_directory = cache(lambda directory: blobs.put(_encode_directory(directory)))
        builder = EventBuilder(price, table, store_directory, int(now() * US_PER_SECOND), ImportResult(log=str(home)))
        return _Import(store, views, blobs, builder, now).run(paths, on_progress)


class _Import:
    """One import into an open log."""

    def __init__(
        self, store: SqliteStore, views: ImportedStore, blobs: FileBlobs, builder: EventBuilder,
        now: Callable[[], float],
    ) -> None:  # fmt: skip
        self._store, self._views, self._blobs, self._builder, self._now = store, views, blobs, builder, now
        self._outcome = builder.result
        self._segments: list[FileSegment] = []
        self._sessions: set[StreamId] = set()

    def run(self, paths: Iterable[Path], on_progress: Callable[[ImportProgress], None]) -> ImportResult:
        outcome, unreadable, unknown = self._outcome, list[UnreadableFile](), list[UnreadableFile]()
        files = scan_files(paths, unreadable)
        rows = {row.file: row for row in self._views.files()}
        changed = [
            entry for entry in files if (row := rows.get(file_key(entry))) is None or not is_unchanged(entry, row)
        ]
        bytes_total = sum(entry.size_bytes for entry in changed)
        for number, entry in enumerate(changed):
            on_progress(ImportProgress(number, len(changed), outcome.bytes_read, bytes_total))
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
        outcome.files, outcome.unchanged = len(files), len(files) - len(changed)
        outcome.unknown_format = tuple(entry for entry in unknown if entry.path in named_paths)
        outcome.skipped, outcome.skipped_names = len(skipped), tuple(skipped[:NAMED_MAX])
        outcome.unreadable = tuple(dict.fromkeys(unreadable))
        unpriced = ((model or UNKNOWN_MODEL, number) for model, number in self._builder.unpriced.most_common())
        outcome.unpriced = tuple(UnpricedModel(model, number) for model, number in unpriced if number > 0)
        outcome.sessions = len(self._sessions)
        outcome.incomplete_sessions = sum(
            bool(incomplete_reasons(self._views.files_of(stream), self._views.sums_of(stream)))
            for stream in self._sessions
        )
        return outcome

    def _read_file(self, file: FileMetadata, row: ImportedFile | None) -> None:
        for at, segment in enumerate(new_segments(file, row, IMPORT_FORMATS)):
            self._segments.append(segment)
            self._outcome.files_read += not at
            self._outcome.bytes_read += segment.bytes_read
            self._outcome.lines += segment.read.lines
            self._outcome.undecodable_lines += segment.read.undecodable_lines
            if _is_full(self._segments):
                self._append()

    def _append(self) -> None:
        """Append the batch in one durable transaction, then update the rows."""
        batch, self._segments = self._segments, []
        if not batch:
            return
        paths = self._blobs.put(b"".join(sorted({os.fsencode(segment.path) + b"\0" for segment in batch})))
        counted = self._views.counted_requests({key for segment in batch for key in segment.requests})
        sessions: dict[StreamId, ImportedSession | None] = {}
        appends = []
        for segment in batch:
            stream = segment.stream
            if stream not in sessions:
                sessions[stream] = self._views.session(stream)
            events = self._builder.events(segment, paths, counted, sessions[stream])
            if isinstance(events[0], ImportedSessionFound):
                sessions[stream] = update_session(stream, events[0], sessions[stream])
            appends.append(Append(stream, None, events))
        self._sessions.update(sessions)
        self._write(appends)

    def _write(self, appends: Sequence[Append]) -> None:
        self._views.refresh(self._store.append(appends, int(self._now() * US_PER_SECOND)))

    def _reconcile_totals(self) -> None:
        """Reconcile the totals of all sessions; a killed import may have left some."""
        appends: list[Append] = []
        for stream in self._views.sessions_with_totals():
            files, sums = invocations(self._views.files_of(stream)), self._views.sums_of(stream)
            requests = tuple(reconcile_totals(stream, files, sums, self._views.counted_requests))
            if requests:
                priced = self._builder.priced_reconciliations(requests)
                reconciled = ImportedTotalsReconciled(requests=requests)
                events = (reconciled, priced) if priced.sums else (reconciled,)
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
