"""Sums of imported sessions: rows by session, quarter of an hour, model and subagent.

A quarter of an hour is the finest step between time zones: every zone's midnight begins one. So the sums of any day, in
any zone, are sums of these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
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
from mz_events.names import Digest, StreamId

from mz_projections.usage import TOKEN_FIELDS

QUARTER_S = 900
US_PER_S = 1_000_000
OUTPUT_OPEN = "output-open"
"""Reason that disappears once a later line closes the output; all others are final."""
TYPES = (ImportedSessionFound, ImportedFileRead, ImportedTotalsReconciled, ImportedPriced)
"""The events processed."""


class QuarterSum(msgspec.Struct, frozen=True, gc=False):
    """Requests of one session in one quarter of an hour to one model, by one subagent or the main conversation.

    Also a delta to be added to such a row: numbers may then be negative.
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
    """Reading state of a file, and counts of its lines."""

    file: str
    """Digest of its path."""
    session: str
    """Stream."""
    format: str
    subagent: str
    size_bytes: int
    modified_ns: int
    inode: int
    offset_end: int
    fingerprint_sha256: str
    reader_state: str
    paths: Digest
    prompts: int = 0
    tools: dict[str, int] = {}
    failed: int = 0
    lines: int = 0
    undecodable_lines: int = 0
    unknown: dict[str, int] = {}
    undated: int = 0
    future_dated: int = 0
    first_line_sha256: str = ""
    reported_totals: tuple[Usage, ...] = ()
    reported_nanousd: int | None = None
    incomplete_reasons: tuple[str, ...] = ()


class CountedRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that was counted before."""

    session: str
    """Stream for which it is counted."""
    at_us: int
    dated: bool
    usage: Usage
    reported_nanousd: int | None


class FileCounts(msgspec.Struct, frozen=True):
    """Counts of a session's files besides requests."""

    files: int = 0
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


def read_sums(stream: StreamId, event: ImportedFileRead | ImportedTotalsReconciled) -> Iterator[QuarterSum]:
    """Yield the deltas of the rows."""
    numbers_by_row: dict[tuple[str, int, str, str], tuple[int, ...]] = {}
    reported: dict[tuple[str, int, str, str], int] = {}
    for request in event.requests:
        for usage, at_us, sign, nanousd in additions_and_retractions(request):
            key = (str(request.session or stream), quarter_start_s(at_us), usage.model, usage.subagent)
            numbers = (bool(usage.input or usage.output), *(getattr(usage, name) for name in TOKEN_FIELDS))
            sums = numbers_by_row.get(key, (0,) * len(numbers))
            numbers_by_row[key] = tuple(total + sign * number for total, number in zip(sums, numbers, strict=True))
            if nanousd is not None:
                reported[key] = reported.get(key, 0) + sign * nanousd
    for key, numbers in numbers_by_row.items():
        counts = dict(zip(("requests", *TOKEN_FIELDS), numbers, strict=True))
        yield replace(QuarterSum(*key, reported_nanousd=reported.get(key)), **counts)


def additions_and_retractions(request: ImportedRequest) -> tuple[tuple[Usage, int, int, int | None], ...]:
    """Return what the request adds and what it retracts: usage, time, sign, reported money."""
    addition = request.usage, request.at_us, 1, request.reported_nanousd
    if request.before is None:
        return (addition,)
    before_at_us = request.at_us if request.before_at_us is None else request.before_at_us
    return addition, (request.before, before_at_us, -1, request.before_nanousd)


def priced_sums(stream: StreamId, event: ImportedPriced) -> Iterator[QuarterSum]:
    """Yield the deltas of the rows."""
    for priced in event.sums:
        yield QuarterSum(
            priced.session or stream, priced.start_s, priced.model, priced.subagent,
            computed_nanousd=priced.nanousd, unpriced=priced.unpriced,
        )  # fmt: skip


def update_session(stream: StreamId, event: ImportedSessionFound, previous: ImportedSession | None) -> ImportedSession:
    """Return the session updated by the event; fields empty in the event are kept."""
    base = previous or ImportedSession(stream, event.agent, event.session)
    return ImportedSession(
        stream, event.agent, event.session, event.version or base.version, event.project or base.project,
        event.parent or base.parent, event.by_mz or base.by_mz,
    )  # fmt: skip


def update_file(stream: StreamId, event: ImportedFileRead, previous: ImportedFile | None) -> ImportedFile:
    """Return the file after the event; counts are added up, or restart if it was read from its first byte."""
    base = previous if previous is not None and event.offset_start else None
    return ImportedFile(
        event.file,
        stream,
        event.format,
        event.subagent,
        event.size,
        event.modified_ns,
        event.inode,
        event.offset_end,
        event.fingerprint_sha256,
        event.reader_state,
        event.paths,
        **(_sum_counts(base, event) if base else _sum_counts(event)),
        first_line_sha256=event.first_line_sha256,
        reported_totals=event.reported_totals,
        reported_nanousd=event.reported_nanousd,
        incomplete_reasons=tuple(
            sorted({*event.incomplete_reasons, *(set(base.incomplete_reasons) - {OUTPUT_OPEN} if base else ())})
        ),
    )


def add_counts(*parts: dict[str, int]) -> dict[str, int]:
    """Return the sums by name."""
    return {name: sum(part.get(name, 0) for part in parts) for name in sorted({*chain.from_iterable(parts)})}


COUNTS = ("prompts", "failed", "lines", "undecodable_lines", "undated", "future_dated")
"""Fields of an event, a file and a session that are added up."""
COUNTS_BY_NAME = ("tools", "unknown")


def _sum_counts(*parts: ImportedFileRead | ImportedFile) -> dict[str, Any]:
    """Return the sums of the count fields."""
    return {name: sum(getattr(part, name) for part in parts) for name in COUNTS} | {
        name: add_counts(*(getattr(part, name) for part in parts)) for name in COUNTS_BY_NAME
    }


def count_session(files: Iterable[ImportedFile]) -> FileCounts:
    """Return the counts of one session's files.

    Of several files for the same subagent (a copy, a moved file) only the one with most lines counts.
    """
    all_files = tuple(files)
    file_by_subagent: dict[str, ImportedFile] = {}
    for file in all_files:
        other = file_by_subagent.get(file.subagent)
        if other is None or file.lines > other.lines:
            file_by_subagent[file.subagent] = file
    return FileCounts(files=len(all_files), **_sum_counts(*file_by_subagent.values()))
