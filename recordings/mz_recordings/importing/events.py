"""Events from file segments: each request once, in the session where it first occurred, with its price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import (
    ImportedFileRead,
    ImportedPriced,
    ImportedRequest,
    ImportedSessionFound,
    PricedSum,
)
from mz_events.names import Digest, StreamId
from mz_projections.imported.model import CountedRequest, ImportedSession, additions_and_retractions, quarter_start_s

from mz_recordings.importing.names import is_run_worktree, stream_of
from mz_recordings.importing.requests import NANOUSD_MAX, ParsedRequest, SegmentStats, token_total

FUTURE_US = 600_000_000
"""Clocks differ by minutes; later times are counted as future-dated."""
PriceOf = Callable[[Usage, int], int | None]
"""Price of a request at a time in nano-dollars; None: no price."""


class FileSegment(msgspec.Struct, kw_only=True):
    """A part of a file: its event without requests, its statistics and its requests."""

    path: str
    session: str
    """Sanitised id of the file's session."""
    bytes_read: int
    read: ImportedFileRead
    """Without requests, their counts and the blob of paths."""
    stats: SegmentStats
    requests: dict[str, ParsedRequest]
    """By their keys in the log."""


class RequestTotals(msgspec.Struct):
    """Totals of an import, for people."""

    new: int = 0
    already_counted: int = 0
    corrected: int = 0
    reconciled: int = 0
    """Requests that only the totals at files' ends show; negative if they no longer do."""
    undated: int = 0
    future_dated: int = 0
    nanousd: int = 0
    """Computed price of new requests and corrections."""
    unpriced: dict[str, int] = {}
    """Requests without a price, by model."""


class EventBuilder:
    """Builds events of segments. `counted` has the requests that were counted before; new ones are added to it.
    `project` stores a directory as a blob."""

    def __init__(self, price: PriceOf, table: str, project: Callable[[str], Digest], now_us: int) -> None:
        self._price, self._table, self._project, self._now_us = price, table, project, now_us
        self.totals = RequestTotals()

    def events(
        self, segment: FileSegment, paths: Digest, counted: dict[str, CountedRequest], session: ImportedSession | None
    ) -> tuple[Event, ...]:
        """Return the events for the segment's stream; `session` is its row, `paths` the blob of paths."""
        stream = stream_of(segment.stats.agent, segment.session)
        requests = tuple(self._requests(stream, segment.requests, counted))
        opened = self._session_found(segment, session)
        read = replace(
            segment.read,
            paths=paths,
            requests=requests,
            already_counted=len(segment.requests) - len(requests),
            future_dated=sum(request.at_us > self._now_us + FUTURE_US for request in requests),
        )
        self._count(read)
        priced = (self.priced(requests),) if requests else ()
        return (*((opened,) if opened else ()), read, *priced)

    def _session_found(self, segment: FileSegment, session: ImportedSession | None) -> ImportedSessionFound | None:
        """Return None if nothing is new."""
        stats = segment.stats
        updated = ImportedSession(
            stream_of(stats.agent, segment.session), stats.agent, segment.session, version=stats.version,
            project=self._project(stats.cwd) if stats.cwd else None,
            parent="" if stats.subagent or stats.parent == segment.session else stats.parent,
            by_mz=is_run_worktree(stats.cwd),
        )  # fmt: skip
        if session is not None:
            merged = replace(
                session, version=updated.version or session.version, project=session.project or updated.project,
                parent=session.parent or updated.parent, by_mz=session.by_mz or updated.by_mz,
            )  # fmt: skip
            if merged == session:
                return None
            updated = merged
        return msgspec.convert(updated, ImportedSessionFound, from_attributes=True)

    def _requests(
        self, stream: StreamId, parsed: dict[str, ParsedRequest], counted: dict[str, CountedRequest]
    ) -> Iterator[ImportedRequest]:
        for key, request in parsed.items():
            earlier = counted.get(key)
            if earlier is None:
                counted[key] = CountedRequest(
                    stream, request.at_us, request.is_dated, request.usage, request.reported_nanousd
                )
                yield ImportedRequest(
                    key=key, at_us=request.at_us, dated=request.is_dated, usage=request.usage,
                    reported_nanousd=request.reported_nanousd,
                )  # fmt: skip
            elif token_total(request.usage) > token_total(earlier.usage) or (request.is_dated and not earlier.dated):
                yield self._correction(stream, key, request, counted)

    def _correction(
        self, stream: StreamId, key: str, request: ParsedRequest, counted: dict[str, CountedRequest]
    ) -> ImportedRequest:
        """Return a correction. The request keeps its session, and its time if that was known; the larger usage
        counts."""
        earlier = counted[key]
        fuller = request.usage if token_total(request.usage) > token_total(earlier.usage) else earlier.usage
        usage = replace(fuller, subagent=earlier.usage.subagent)
        reported_nanousd = earlier.reported_nanousd if request.reported_nanousd is None else request.reported_nanousd
        at_us = earlier.at_us if earlier.dated else request.at_us
        counted[key] = CountedRequest(
            earlier.session, at_us, earlier.dated or request.is_dated, usage, reported_nanousd
        )
        return ImportedRequest(
            key=key,
            at_us=at_us,
            dated=earlier.dated or request.is_dated,
            usage=usage,
            reported_nanousd=reported_nanousd,
            before=earlier.usage,
            before_nanousd=earlier.reported_nanousd,
            before_at_us=None if at_us == earlier.at_us else earlier.at_us,
            session=StreamId("" if earlier.session == stream else earlier.session),
        )

    def _count(self, read: ImportedFileRead) -> None:
        corrected = sum(request.before is not None for request in read.requests)
        self.totals.new += len(read.requests) - corrected
        self.totals.corrected += corrected
        self.totals.already_counted += read.already_counted
        self.totals.undated += read.undated
        self.totals.future_dated += read.future_dated

    def priced_reconciliations(self, requests: Iterable[ImportedRequest]) -> ImportedPriced:
        """Return `priced` for requests that only the totals at files' ends show."""
        listed = tuple(requests)
        for request in listed:
            had_tokens = request.before is not None and token_total(request.before) > 0
            self.totals.reconciled += (token_total(request.usage) > 0) - had_tokens
        return self.priced(listed)

    def priced(self, requests: Iterable[ImportedRequest]) -> ImportedPriced:
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
        self.totals.nanousd += sum(numbers[0] for numbers in sums.values())
        for model, number in unpriced.items():
            self.totals.unpriced[model] = self.totals.unpriced.get(model, 0) + number
        return ImportedPriced(
            sums=tuple(
                PricedSum(session=StreamId(key[0]), start_s=key[1], model=key[2], subagent=key[3],
                          nanousd=min(max(nanousd, -NANOUSD_MAX), NANOUSD_MAX), unpriced=number)
                for key, (nanousd, number) in sums.items()
            ),
            unpriced=tuple(sorted(unpriced)), prices=self._table,
        )  # fmt: skip
