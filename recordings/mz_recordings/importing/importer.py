"""Import of agents' session files into the user's log: each request once, in the session where it first occurred, in
whatever order files are read, with its price.

The state of a file and its counted requests are in one append, so that a crash at any time loses nothing and counts
nothing twice. Requests that were counted before are looked up in a file, not held in memory.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_engine.transcripts.read import FORMATS, Undetected
from mz_engine.transcripts.summary import token_total
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import (
    ImportedFileRead,
    ImportedPriced,
    ImportedRequest,
    ImportedTotalsReconciled,
    PricedSum,
)
from mz_events.names import Digest, StreamId
from mz_events.store import Append
from mz_projections.imported.model import (
    US_PER_S,
    CountedRequest,
    ImportedFile,
    ImportedSession,
    additions_and_retractions,
    count_request,
    quarter_start_s,
    update_session,
)
from mz_projections.imported.store import ImportedStore

from mz_recordings.importing.file_reader import NANOUSD_MAX, FileSegment, file_key, is_unchanged, new_segments
from mz_recordings.importing.other_tools import RECORD_FORMATS
from mz_recordings.importing.reconcile import incomplete_reasons, invocations, reconcile_totals
from mz_recordings.importing.scan import FileMetadata, UnreadableFile, scan_files

LOG, VIEWS, BLOBS, LOCK = "mz.db", "imported.sqlite", "blobs", "import.lock"
REQUESTS_PER_BATCH, BYTES_PER_BATCH, SEGMENTS_PER_BATCH = 8000, 128 << 20, 1000
"""Limits of one append: few disk flushes, but bounded memory."""
NAMED_MAX = 5
IMPORT_FORMATS = (*FORMATS, *RECORD_FORMATS)
FUTURE_US = 600_000_000
"""Clocks differ by minutes; later times are counted as future-dated."""
UNKNOWN_MODEL = "unknown"
PriceOf = Callable[[Usage, int], int | None]
"""Price of a request at a time in nano-dollars; None: no price."""


class Busy(Exception):
    """Another process imports into the same log."""


class ImportProgress(msgspec.Struct, frozen=True):
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


class UnpricedModel(msgspec.Struct, frozen=True):
    model: str
    requests: int


class ImportResult(msgspec.Struct, kw_only=True):
    """`mz import --json`."""

    log: str
    """The directory of the log."""
    files: int = 0
    """Files examined."""
    files_read: int = 0
    """Files with new content."""
    unchanged_files: int = 0
    """Files not opened, because they have not changed since the last import."""
    skipped_files: int = 0
    """Files in directories whose format mz does not read."""
    skipped_paths: tuple[str, ...] = ()
    """Paths of the first of them."""
    unknown_format: tuple[UnreadableFile, ...] = ()
    """Named files whose format mz does not read."""
    unreadable: tuple[UnreadableFile, ...] = ()
    sessions: int = 0
    """Sessions with new content."""
    incomplete_sessions: int = 0
    """Sessions whose files may report fewer tokens than were used."""
    bytes_read: int = 0
    lines: int = 0
    undecodable_lines: int = 0
    new_requests: int = 0
    already_counted_requests: int = 0
    """Requests counted earlier, in this import or a previous one."""
    corrected_requests: int = 0
    """Requests counted earlier with fewer tokens."""
    reconciled_requests: int = 0
    """Requests known only from totals at the ends of files; negative if files now show them one by one."""
    undated_requests: int = 0
    """Requests without a timestamp."""
    future_dated_requests: int = 0
    """Requests dated in the future."""
    computed_nanousd: int = 0
    """Cost of the new requests and of the corrections."""
    unpriced: tuple[UnpricedModel, ...] = ()
    """The most frequent first."""


def import_files(
    folder: Path,
    price: PriceOf,
    table: str,
    paths: Iterable[Path],
    on_progress: Callable[[ImportProgress], None] = lambda _: None,
    now: Callable[[], float] = time.time,
) -> ImportResult:
    """Import the new content of files and directories into the log in the directory `folder`, created if missing.
    `price` returns the price of a request by the price table named `table`.

    Raises Busy if another process imports into the same log, StoreUnusable.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with (
            FileLock(folder / LOCK, timeout=0, mode=0o600),
            SqliteStore(folder / LOG) as store,
            ImportedStore(folder / VIEWS, store) as views,
        ):
            views.refresh()
            return _Import(folder, store, views, price, table, now).run(paths, on_progress)
    except Timeout as error:
        raise Busy(error.lock_file) from None


class _Import:
    """One import into an open log."""

    def __init__(
        self, folder: Path, store: SqliteStore, views: ImportedStore, price: PriceOf, table: str,
        now: Callable[[], float],
    ) -> None:  # fmt: skip
        self._store, self._views, self._blobs = store, views, FileBlobs(folder / BLOBS)
        self._price, self._table, self._now, self._begun_us = price, table, now, int(now() * US_PER_S)
        self._store_directory = cache(lambda directory: self._blobs.put(directory.encode("utf-8", "replace")))
        self._result = ImportResult(log=str(folder))
        self._unpriced = Counter[str]()
        """Requests without a price, by model."""
        self._segments: list[FileSegment] = []
        self._batch_requests = self._batch_bytes = 0
        self._sessions: set[StreamId] = set()

    def run(self, paths: Iterable[Path], on_progress: Callable[[ImportProgress], None]) -> ImportResult:
        result, unreadable = self._result, list[UnreadableFile]()
        unknown, skipped = list[UnreadableFile](), list[str]()
        files = scan_files(paths, unreadable)
        rows = {row.file: row for row in self._views.files()}
        changed = [
            (entry, row)
            for entry in files
            if (row := rows.get(file_key(entry.path))) is None or not is_unchanged(entry, row)
        ]
        bytes_total = sum(entry.status.st_size for entry, _ in changed)
        for number, (entry, row) in enumerate(changed):
            on_progress(ImportProgress(number, len(changed), result.bytes_read, bytes_total))
            try:
                self._read_file(entry, row)
            except OSError as error:
                unreadable.append(UnreadableFile(str(entry.path), error.strerror or str(error)))
            except Undetected as error:
                if entry.is_named:
                    unknown.append(UnreadableFile(str(entry.path), str(error)))
                else:
                    skipped.append(str(entry.path))
        self._append()
        self._reconcile_totals()
        result.files, result.unchanged_files = len(files), len(files) - len(changed)
        result.unknown_format = tuple(unknown)
        result.skipped_files, result.skipped_paths = len(skipped), tuple(skipped[:NAMED_MAX])
        result.unreadable = tuple(dict.fromkeys(unreadable))
        unpriced = ((model or UNKNOWN_MODEL, number) for model, number in self._unpriced.most_common())
        result.unpriced = tuple(UnpricedModel(model, number) for model, number in unpriced if number > 0)
        result.sessions = len(self._sessions)
        result.incomplete_sessions = sum(
            bool(incomplete_reasons(self._views.files_of(stream), self._views.sums_of(stream)))
            for stream in self._sessions.intersection(self._views.incomplete_sessions())
        )
        return result

    def _read_file(self, file: FileMetadata, row: ImportedFile | None) -> None:
        for at, segment in enumerate(new_segments(file, row, IMPORT_FORMATS)):
            self._segments.append(segment)
            self._result.files_read += not at
            self._result.bytes_read += segment.bytes_read
            self._result.lines += segment.read.lines
            self._result.undecodable_lines += segment.read.undecodable_lines
            self._batch_requests += len(segment.read.requests)
            self._batch_bytes += segment.bytes_read
            if (
                len(self._segments) >= SEGMENTS_PER_BATCH
                or self._batch_requests >= REQUESTS_PER_BATCH
                or self._batch_bytes >= BYTES_PER_BATCH
            ):
                self._append()

    def _append(self) -> None:
        """Append the batch in one durable transaction, then update the rows."""
        batch, self._segments, self._batch_requests, self._batch_bytes = self._segments, [], 0, 0
        if not batch:
            return
        paths = self._blobs.put(b"".join(sorted({os.fsencode(segment.path) + b"\0" for segment in batch})))
        counted = self._views.counted_requests({request.key for segment in batch for request in segment.read.requests})
        stored_sessions = {row.stream: row for row in self._views.sessions_of({segment.stream for segment in batch})}
        sessions: dict[StreamId, ImportedSession | None] = {}
        appends = []
        for segment in batch:
            stream, session_found = segment.stream, segment.session_found
            if segment.cwd:
                session_found = replace(session_found, project=self._store_directory(segment.cwd))
            session = sessions[stream] if stream in sessions else stored_sessions.get(stream)
            sessions[stream] = update_session(stream, session_found, session)
            read = self._file_read(segment, paths, counted)
            priced = (self._priced(read.requests),) if read.requests else ()
            opened = (session_found,) if sessions[stream] != session else ()
            appends.append(Append(stream, None, (*opened, read, *priced)))
        self._sessions.update(sessions)
        self._write(appends)

    def _file_read(self, segment: FileSegment, paths: Digest, counted: dict[str, CountedRequest]) -> ImportedFileRead:
        """Return the segment's event. `counted` has the requests that were counted before; new ones are added to it."""
        requests = tuple(_new_requests(segment, counted))
        read = replace(
            segment.read,
            paths=paths,
            requests=requests,
            already_counted=len(segment.read.requests) - len(requests),
            future_dated=sum(request.at_us > self._begun_us + FUTURE_US for request in requests),
        )
        corrected = sum(request.before is not None for request in requests)
        self._result.new_requests += len(requests) - corrected
        self._result.corrected_requests += corrected
        self._result.already_counted_requests += read.already_counted
        self._result.undated_requests += read.undated
        self._result.future_dated_requests += read.future_dated
        return read

    def _write(self, appends: Sequence[Append]) -> None:
        self._views.refresh(self._store.append(appends, int(self._now() * US_PER_S)))

    def _reconcile_totals(self) -> None:
        """Reconcile the totals of all sessions; a killed import may have left some."""
        appends: list[Append] = []
        for stream in self._views.sessions_with_totals():
            files, sums = invocations(self._views.files_of(stream)), self._views.sums_of(stream)
            requests = tuple(reconcile_totals(stream, files, sums, self._views.counted_requests))
            for request in requests:
                had_tokens = request.before is not None and token_total(request.before) > 0
                self._result.reconciled_requests += (token_total(request.usage) > 0) - had_tokens
            if requests:
                priced = self._priced(requests)
                reconciled = ImportedTotalsReconciled(requests=requests)
                events = (reconciled, priced) if priced.sums else (reconciled,)
                appends.append(Append(StreamId(stream), None, events))
        if appends:
            self._write(appends)

    def _priced(self, requests: Iterable[ImportedRequest]) -> ImportedPriced:
        """Return the price totals by session, quarter of an hour, model and subagent."""
        sums: dict[tuple[str, int, str, str], list[int]] = {}
        unpriced: dict[str, int] = {}
        for request in requests:
            for usage, at_us, sign, _ in additions_and_retractions(request):
                if not (usage.input or usage.output):
                    continue
                numbers = sums.setdefault(
                    (request.session, quarter_start_s(at_us), usage.model, usage.subagent), [0, 0]
                )
                nanousd = self._price(usage, at_us)
                if nanousd is None:
                    numbers[1] += sign
                    unpriced[usage.model] = unpriced.get(usage.model, 0) + sign
                else:
                    numbers[0] += sign * nanousd
        self._result.computed_nanousd += sum(numbers[0] for numbers in sums.values())
        self._unpriced.update(unpriced)
        return ImportedPriced(
            sums=tuple(
                PricedSum(session=StreamId(key[0]), start_s=key[1], model=key[2], subagent=key[3],
                          nanousd=min(max(nanousd, -NANOUSD_MAX), NANOUSD_MAX), unpriced=number)
                for key, (nanousd, number) in sums.items()
            ),
            unpriced=tuple(sorted(unpriced)), prices=self._table,
        )  # fmt: skip


def _new_requests(segment: FileSegment, counted: dict[str, CountedRequest]) -> Iterator[ImportedRequest]:
    """Yield the requests that were not counted before, and corrections of those that were."""
    for request in segment.read.requests:
        earlier = counted.get(request.key)
        if earlier is not None:
            has_more_tokens = token_total(request.usage) > token_total(earlier.usage)
            if not has_more_tokens and (earlier.dated or not request.dated):
                continue
            request = _correction(request, earlier, segment.stream)
        counted[request.key] = count_request(segment.stream, request)
        yield request


def _correction(request: ImportedRequest, earlier: CountedRequest, stream: StreamId) -> ImportedRequest:
    """Return a correction. The request keeps its session, and its time if that was known; the larger usage counts."""
    fuller = request.usage if token_total(request.usage) > token_total(earlier.usage) else earlier.usage
    at_us = earlier.at_us if earlier.dated else request.at_us
    return replace(
        request,
        at_us=at_us,
        dated=earlier.dated or request.dated,
        usage=replace(fuller, subagent=earlier.usage.subagent),
        reported_nanousd=earlier.reported_nanousd if request.reported_nanousd is None else request.reported_nanousd,
        before=earlier.usage,
        before_nanousd=earlier.reported_nanousd,
        before_at_us=None if at_us == earlier.at_us else earlier.at_us,
        session=StreamId("" if earlier.session == stream else earlier.session),
    )
