"""Sums of imported sessions: rows by session, quarter of an hour, model and subagent.

A quarter of an hour is the finest step between time zones: every zone's midnight begins one. So the sums of any day, in
any zone, are sums of these rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import (
    ImportedFileRead,
    ImportedPriced,
    ImportedRequest,
    ImportedSessionFound,
    ImportedTotalsReconciled,
)
from mz_events.names import Digest
from mz_events.store import Recorded

from mz_projections.read_models.model import Key, ReadModel
from mz_projections.usage import TOKEN_FIELDS, sum_known

QUARTER_S = 900
US_PER_S = 1_000_000
OUTPUT_OPEN = "output-open"
"""Reason that disappears once a later line closes the output; all others are final."""
INTEGER_MAX = (1 << 63) - 1
"""The largest number that a table holds."""


class QuarterSum(msgspec.Struct, frozen=True, gc=False):
    """Requests of one session in one quarter of an hour to one model, by one subagent or the main conversation.

    Also an addition to such a row: numbers may then be negative.
    """

    session: str
    """Stream."""
    start_s: int
    """Seconds since the epoch, UTC."""
    model: str
    """Empty: not in the file."""
    subagent: str
    """Empty: the main conversation."""
    requests: int = 0
    input: int = 0
    """All input: uncached, cache reads and writes."""
    output: int = 0
    """Reasoning included."""
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    computed_nanousd: int = 0
    reported_nanousd: int | None = None
    """None: nothing was reported."""
    unpriced: int = 0
    """Requests missing in `computed_nanousd`."""


class ImportedSession(msgspec.Struct, frozen=True, gc=False):
    """A session without its requests; empty or None: unknown."""

    stream: str
    agent: str
    session: str
    version: str = ""
    project: Digest | None = None
    parent: str = ""
    by_mz: bool = False


class ImportedFile(msgspec.Struct, frozen=True, gc=False):
    """A file and the state of reading it."""

    file: str
    """Digest of its path."""
    session: str
    """Stream."""
    has_totals: bool
    """It states totals or money at its end."""
    is_incomplete: bool
    read: ImportedFileRead
    """The last event, without requests. Its counts are of all parts read since the file's first byte."""


class CountedRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that was counted before."""

    key: str
    session: str
    """Stream for which it is counted."""
    at_us: int
    dated: bool
    usage: Usage
    reported_nanousd: int | None


class FileCounts(msgspec.Struct, frozen=True):
    """Counts of a session's files besides requests."""

    prompts: int = 0
    tools: dict[str, int] = {}
    failed: int = 0
    lines: int = 0
    undecodable_lines: int = 0
    unknown: dict[str, int] = {}
    undated: int = 0
    future_dated: int = 0


def quarter_start_s(at_us: int) -> int:
    """Return the start, in seconds since the epoch, of the quarter of an hour that contains this time."""
    return at_us // (QUARTER_S * US_PER_S) * QUARTER_S


def additions_and_retractions(request: ImportedRequest) -> tuple[tuple[Usage, int, int, int | None], ...]:
    """Return what the request adds and what it retracts: usage, time, sign, reported money."""
    addition = request.usage, request.at_us, 1, request.reported_nanousd
    if request.before is None:
        return (addition,)
    before_at_us = request.at_us if request.before_at_us is None else request.before_at_us
    return addition, (request.before, before_at_us, -1, request.before_nanousd)


def update_session(stream: str, event: ImportedSessionFound, previous: ImportedSession | None) -> ImportedSession:
    """Return the session updated by the event: its newest version, and what was known first of everything else."""
    base = previous or ImportedSession(stream, event.agent, event.session)
    return replace(
        base,
        version=event.version or base.version,
        project=base.project or event.project,
        parent=base.parent or event.parent,
        by_mz=base.by_mz or event.by_mz,
    )


def _evolve_session(find: Callable[[Key], ImportedSession | None], recorded: Recorded[Any]) -> tuple[ImportedSession]:
    return (update_session(recorded.stream, recorded.event, find((recorded.stream,))),)


def _evolve_file(find: Callable[[Key], ImportedFile | None], recorded: Recorded[Any]) -> tuple[ImportedFile]:
    """Return the file after the event; counts are added up, or restart if it was read from its first byte."""
    event: ImportedFileRead = recorded.event
    previous = find((event.file,)) if event.offset_start else None
    reasons, counts = set(event.incomplete_reasons), dict[str, Any]()
    if previous is not None:
        reasons |= set(previous.read.incomplete_reasons) - {OUTPUT_OPEN}
        counts = _sum_counts((event, previous.read))
    read = replace(event, requests=(), incomplete_reasons=tuple(sorted(reasons)), **counts)
    has_totals = bool(event.reported_totals) or event.reported_nanousd is not None
    return (ImportedFile(event.file, recorded.stream, has_totals, bool(reasons), read),)


def _evolve_requests(_: object, recorded: Recorded[Any]) -> Iterator[CountedRequest]:
    return (count_request(recorded.stream, request) for request in recorded.event.requests)


def count_request(stream: str, request: ImportedRequest) -> CountedRequest:
    """Return the request as counted for the session that it names, else for that of its `stream`."""
    return CountedRequest(
        request.key, request.session or stream, request.at_us, request.dated, request.usage, request.reported_nanousd
    )


def _evolve_sums(find: Callable[[Key], QuarterSum | None], recorded: Recorded[Any]) -> Iterator[QuarterSum]:
    for addition in _additions(recorded.stream, recorded.event):
        row = find((addition.session, addition.start_s, addition.model, addition.subagent))
        yield _add(row, addition) if row else addition


def _additions(
    stream: str, event: ImportedFileRead | ImportedTotalsReconciled | ImportedPriced
) -> Iterator[QuarterSum]:
    if isinstance(event, ImportedPriced):
        for priced in event.sums:
            yield QuarterSum(
                priced.session or stream, priced.start_s, priced.model, priced.subagent,
                computed_nanousd=priced.nanousd, unpriced=priced.unpriced,
            )  # fmt: skip
        return
    for request in event.requests:
        for usage, at_us, sign, nanousd in additions_and_retractions(request):
            yield QuarterSum(
                request.session or stream, quarter_start_s(at_us), usage.model, usage.subagent,
                requests=sign * bool(usage.input or usage.output),
                reported_nanousd=None if nanousd is None else sign * nanousd,
                **{name: sign * getattr(usage, name) for name in TOKEN_FIELDS},
            )  # fmt: skip


def _add(row: QuarterSum, addition: QuarterSum) -> QuarterSum:
    reported = sum_known((row.reported_nanousd, addition.reported_nanousd))
    sums = [number + added for number, added in zip(ADDED_OF(row), ADDED_OF(addition), strict=True)]
    if max(sums) > INTEGER_MAX or min(sums) < -INTEGER_MAX:
        sums = list(map(_limit, sums))
    reported = None if reported is None else _limit(reported)
    return replace(row, reported_nanousd=reported, **dict(zip(ADDED_FIELDS, sums, strict=True)))


def _limit(number: int) -> int:
    return max(min(number, INTEGER_MAX), -INTEGER_MAX)


ADDED_FIELDS = ("requests", *TOKEN_FIELDS, "computed_nanousd", "unpriced")
ADDED_OF = attrgetter(*ADDED_FIELDS)
COUNTS = ("prompts", "failed", "lines", "undecodable_lines", "undated", "future_dated")
"""Fields of an event and of a session that are added up."""
COUNTS_BY_NAME = ("tools", "unknown")


def _sum_counts(parts: Collection[ImportedFileRead]) -> dict[str, Any]:
    by_name = {name: sum((Counter(getattr(part, name)) for part in parts), Counter[str]()) for name in COUNTS_BY_NAME}
    return {name: sum(getattr(part, name) for part in parts) for name in COUNTS} | {
        name: dict(sorted(counts.items())) for name, counts in by_name.items()
    }


def count_session(files: Iterable[ImportedFileRead]) -> FileCounts:
    """Return the counts of one session's files.

    Of several files for the same subagent (a copy, a moved file) only the one with most lines counts.
    """
    file_by_subagent: dict[str, ImportedFileRead] = {}
    for file in files:
        other = file_by_subagent.get(file.subagent)
        if other is None or file.lines > other.lines:
            file_by_subagent[file.subagent] = file
    return FileCounts(**_sum_counts(file_by_subagent.values()))


SESSIONS = ReadModel(
    name="session", row=ImportedSession, key=("stream",), types=(ImportedSessionFound,), evolve=_evolve_session
)
FILES = ReadModel(
    name="file", row=ImportedFile, key=("file",), types=(ImportedFileRead,), evolve=_evolve_file, index="session"
)
SUMS = ReadModel(
    name="sum",
    row=QuarterSum,
    key=("session", "start_s", "model", "subagent"),
    types=(ImportedFileRead, ImportedTotalsReconciled, ImportedPriced),
    evolve=_evolve_sums,
)
REQUESTS = ReadModel(
    name="request",
    row=CountedRequest,
    key=("key",),
    types=(ImportedFileRead, ImportedTotalsReconciled),
    evolve=_evolve_requests,
)
