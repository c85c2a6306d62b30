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
from mz_projections.imported.model import (
    CountedRequest,
    ImportedSession,
    additions_and_retractions,
    count_request,
    quarter_start_s,
    update_session,
)

from mz_recordings.importing.names import is_run_worktree
from mz_recordings.importing.requests import NANOUSD_MAX, FileSegment, token_total

FUTURE_US = 600_000_000
"""Clocks differ by minutes; later times are counted as future-dated."""
PriceOf = Callable[[Usage, int], int | None]
"""Price of a request at a time in nano-dollars; None: no price."""


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
        requests = tuple(_new_requests(segment, counted))
        opened = self._session_found(segment, session)
        read = replace(
            segment.read,
            paths=paths,
            requests=requests,
            already_counted=len(segment.stats.requests) - len(requests),
            future_dated=sum(request.at_us > self._now_us + FUTURE_US for request in requests),
        )
        self._count(read)
        priced = (self.priced(requests),) if requests else ()
        return (*((opened,) if opened else ()), read, *priced)

    def _session_found(self, segment: FileSegment, session: ImportedSession | None) -> ImportedSessionFound | None:
        """Return None if nothing is new."""
        stats = segment.stats
        event = ImportedSessionFound(
            agent=stats.agent,
            session=segment.session,
            version=stats.version,
            project=self._project(stats.cwd) if stats.cwd else None,
            parent="" if stats.subagent or stats.parent == segment.session else stats.parent,
            by_mz=is_run_worktree(stats.cwd),
        )
        return None if update_session(segment.stream, event, session) == session else event

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


def _new_requests(segment: FileSegment, counted: dict[str, CountedRequest]) -> Iterator[ImportedRequest]:
    """Yield the requests that were not counted before, and corrections of those that were."""
    for key, request in segment.stats.requests.items():
        earlier = counted.get(key)
        if earlier is not None:
            has_more_tokens = token_total(request.usage) > token_total(earlier.usage)
            if not has_more_tokens and (earlier.dated or not request.dated):
                continue
            request = _correction(request, earlier, segment.stream)
        counted[key] = count_request(segment.stream, request)
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
