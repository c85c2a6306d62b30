"""Events from file segments: each request once, in the session where it first occurred, with its price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import field
from msgspec.structs import replace
from mz_engine.transcripts.summary import token_total
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

from mz_recordings.importing.file_reader import NANOUSD_MAX, FileSegment
from mz_recordings.importing.names import is_run_worktree
from mz_recordings.importing.scan import UnreadableFile

FUTURE_US = 600_000_000
"""Clocks differ by minutes; later times are counted as future-dated."""
UNKNOWN_MODEL = "unknown"
PriceOf = Callable[[Usage, int], int | None]
"""Price of a request at a time in nano-dollars; None: no price."""


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
    unchanged: int = field(name="files_unchanged", default=0)
    """Files not opened, because they have not changed since the last import."""
    skipped: int = field(name="files_passed_over", default=0)
    """Files in directories whose format mz does not read."""
    skipped_names: tuple[str, ...] = field(name="passed_over", default=())
    """Paths of the first of them."""
    unknown_format: tuple[UnreadableFile, ...] = field(name="unknown", default=())
    """Named files whose format mz does not read."""
    unreadable: tuple[UnreadableFile, ...] = ()
    sessions: int = 0
    """Sessions with new content."""
    incomplete_sessions: int = field(name="sessions_short", default=0)
    """Sessions whose files may report fewer tokens than were used."""
    bytes_read: int = 0
    lines: int = 0
    undecodable_lines: int = field(name="bad_lines", default=0)
    new: int = field(name="requests_new", default=0)
    already_counted: int = field(name="requests_already_counted", default=0)
    """Requests counted earlier, in this import or a previous one."""
    corrected: int = field(name="requests_corrected", default=0)
    """Requests counted earlier with fewer tokens."""
    reconciled: int = field(name="requests_settled", default=0)
    """Requests known only from totals at the ends of files; negative if files now show them one by one."""
    undated: int = field(name="requests_undated", default=0)
    """Requests without a timestamp."""
    future_dated: int = field(name="requests_ahead", default=0)
    """Requests dated in the future."""
    computed_nanousd: int = 0
    """Cost of the new requests and of the corrections."""
    unpriced: tuple[UnpricedModel, ...] = ()
    """The most frequent first."""


class EventBuilder:
    """Builds events of segments. `counted` has the requests that were counted before; new ones are added to it.
    `project` stores a directory as a blob."""

    def __init__(
        self, price: PriceOf, table: str, project: Callable[[str], Digest], now_us: int, result: ImportResult
    ) -> None:
        self._price, self._table, self._project, self._now_us = price, table, project, now_us
        self.result = result
        self.unpriced = Counter[str]()
        """Requests without a price, by model."""

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
            already_counted=len(segment.requests) - len(requests),
            future_dated=sum(request.at_us > self._now_us + FUTURE_US for request in requests),
        )
        self._count(read)
        priced = (self.priced(requests),) if requests else ()
        return (*((opened,) if opened else ()), read, *priced)

    def _session_found(self, segment: FileSegment, session: ImportedSession | None) -> ImportedSessionFound | None:
        """Return None if nothing is new."""
        event = ImportedSessionFound(
            agent=segment.agent,
            session=segment.session,
            version=segment.version,
            project=self._project(segment.cwd) if segment.cwd else None,
            parent="" if segment.read.subagent or segment.parent == segment.session else segment.parent,
            by_mz=is_run_worktree(segment.cwd),
        )
        return None if update_session(segment.stream, event, session) == session else event

    def _count(self, read: ImportedFileRead) -> None:
        corrected = sum(request.before is not None for request in read.requests)
        self.result.new += len(read.requests) - corrected
        self.result.corrected += corrected
        self.result.already_counted += read.already_counted
        self.result.undated += read.undated
        self.result.future_dated += read.future_dated

    def priced_reconciliations(self, requests: Iterable[ImportedRequest]) -> ImportedPriced:
        """Return `priced` for requests that only the totals at files' ends show."""
        listed = tuple(requests)
        for request in listed:
            had_tokens = request.before is not None and token_total(request.before) > 0
            self.result.reconciled += (token_total(request.usage) > 0) - had_tokens
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
        self.result.computed_nanousd += sum(numbers[0] for numbers in sums.values())
        self.unpriced.update(unpriced)
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
    for key, request in segment.requests.items():
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
