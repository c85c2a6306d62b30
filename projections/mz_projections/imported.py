"""Sums of imported sessions: rows by session, quarter of an hour, model and subagent.

A quarter of an hour is the finest step between time zones: every zone's midnight begins one. So the sums of any day, in
any zone, are sums of these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from mz_events.catalog.call import Usage
from mz_events.catalog.session import Request, SessionOpened, SessionPriced, SessionRead, SessionSettled
from mz_events.names import Digest, StreamId

QUARTER_S = 900
US_PER_S = 1_000_000
OPEN = "output-open"
"""Reason that disappears once a later line closes the output; all others are final."""
TYPES = (SessionOpened, SessionRead, SessionSettled, SessionPriced)
"""The events processed."""


class Sum(msgspec.Struct, frozen=True, gc=False):
    """Requests of one session in one quarter of an hour to one model, by one subagent or the main conversation.

    Also a delta to be added to such a row: numbers may then be negative.
    """

    session: str
    """Stream."""
    start_s: int
    """Seconds since the epoch, UTC."""
    model: str
    """Empty: not in the file."""
    part: str
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


class Session(msgspec.Struct, frozen=True, gc=False):
    """A session without its requests; empty or None: unknown."""

    stream: str
    agent: str
    session: str
    version: str = ""
    project: Digest | None = None
    parent: str = ""
    by_mz: bool = False


class File(msgspec.Struct, frozen=True, gc=False):
    """Reading state of a file, and counts of its lines."""

    file: str
    """Digest of its path."""
    session: str
    """Stream."""
    format: str
    part: str
    size: int
    modified_ns: int
    inode: int
    upto: int
    mark: str
    carry: str
    paths: Digest
    prompts: int = 0
    tools: dict[str, int] = {}
    failed: int = 0
    lines: int = 0
    bad: int = 0
    unknown: dict[str, int] = {}
    undated: int = 0
    ahead: int = 0
    head: str = ""
    told: tuple[Usage, ...] = ()
    reported_nanousd: int | None = None
    lacks: tuple[str, ...] = ()


class Known(msgspec.Struct, frozen=True, gc=False):
    """A request that was counted before."""

    session: str
    """Stream for which it is counted."""
    at_us: int
    dated: bool
    usage: Usage
    reported_nanousd: int | None


class Count(msgspec.Struct, frozen=True):
    """Counts of a session's files besides requests."""

    files: int = 0
    prompts: int = 0
    tools: dict[str, int] = {}
    failed: int = 0
    lines: int = 0
    bad: int = 0
    unknown: dict[str, int] = {}
    undated: int = 0
    ahead: int = 0


def quarter(at_us: int) -> int:
    """Return the start, in seconds since the epoch, of the quarter of an hour that contains this time."""
    return at_us // (QUARTER_S * US_PER_S) * QUARTER_S


def read_sums(stream: StreamId, event: SessionRead | SessionSettled) -> Iterator[Sum]:
    """Yield the deltas of the rows."""
    found: dict[tuple[str, int, str, str], list[int]] = {}
    reported: dict[tuple[str, int, str, str], int] = {}
    for request in event.requests:
        for usage, at_us, sign, nanousd in sides(request):
            key = (str(request.session or stream), quarter(at_us), usage.model, usage.part)
            _add(found.setdefault(key, [0] * 7), usage, sign)
            if nanousd is not None:
                reported[key] = reported.get(key, 0) + sign * nanousd
    for key, (requests, input_, output, read, short, long, reasoning) in found.items():
        yield Sum(*key, requests, input_, output, read, short, long, reasoning, 0, reported.get(key))


def sides(request: Request) -> tuple[tuple[Usage, int, int, int | None], ...]:
    """Return what the request adds and what it retracts: usage, time, sign, reported money."""
    counted = request.usage, request.at_us, 1, request.reported_nanousd
    if request.before is None:
        return (counted,)
    before_at_us = request.at_us if request.before_at_us is None else request.before_at_us
    return counted, (request.before, before_at_us, -1, request.before_nanousd)


def _add(numbers: list[int], usage: Usage, sign: int) -> None:
    numbers[0] += sign if usage.input or usage.output else 0
    numbers[1] += sign * usage.input
    numbers[2] += sign * usage.output
    numbers[3] += sign * usage.cache_read
    numbers[4] += sign * usage.cache_write_5m
    numbers[5] += sign * usage.cache_write_1h
    numbers[6] += sign * usage.reasoning


def priced_sums(stream: StreamId, event: SessionPriced) -> Iterator[Sum]:
    """Yield the deltas of the rows."""
    for each in event.sums:
        yield Sum(
            each.session or stream, each.start_s, each.model, each.part,
            computed_nanousd=each.nanousd, unpriced=each.unpriced,
        )  # fmt: skip


def opened(stream: StreamId, event: SessionOpened, known: Session | None) -> Session:
    """Return the session updated by the event; fields empty in the event are kept."""
    before = known or Session(stream, event.agent, event.session)
    return Session(
        stream, event.agent, event.session, event.version or before.version, event.project or before.project,
        event.parent or before.parent, event.by_mz or before.by_mz,
    )  # fmt: skip


def grown(stream: StreamId, event: SessionRead, known: File | None) -> File:
    """Return the file after the event; counts are added up, or restart if it was read from its first byte."""
    before = known if known is not None and event.start else None
    return File(
        event.file, stream, event.format, event.part, event.size, event.modified_ns, event.inode, event.upto,
        event.mark, event.carry, event.paths,
        prompts=event.prompts + (before.prompts if before else 0),
        tools=added(before.tools if before else {}, event.tools),
        failed=event.failed + (before.failed if before else 0),
        lines=event.lines + (before.lines if before else 0),
        bad=event.bad + (before.bad if before else 0),
        unknown=added(before.unknown if before else {}, event.unknown),
        undated=event.undated + (before.undated if before else 0),
        ahead=event.ahead + (before.ahead if before else 0),
        head=event.head, told=event.told, reported_nanousd=event.reported_nanousd,
        lacks=tuple(sorted({*event.lacks, *(set(before.lacks) - {OPEN} if before else ())})),
    )  # fmt: skip


def added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Return the sums by name."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in sorted({*first, *second})}


def count(files: Iterable[File]) -> Count:
    """Return the counts of one session's files.

    Of several files for the same subagent (a copy, a moved file) only the one with most lines counts.
    """
    listed = tuple(files)
    best: dict[str, File] = {}
    for each in listed:
        other = best.get(each.part)
        if other is None or each.lines > other.lines:
            best[each.part] = each
    total = Count(files=len(listed))
    for each in best.values():
        total = Count(
            files=total.files, prompts=total.prompts + each.prompts, tools=added(total.tools, each.tools),
            failed=total.failed + each.failed, lines=total.lines + each.lines, bad=total.bad + each.bad,
            unknown=added(total.unknown, each.unknown), undated=total.undated + each.undated,
            ahead=total.ahead + each.ahead,
        )  # fmt: skip
    return total
