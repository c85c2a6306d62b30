"""Pure: what sessions that were imported add up to: rows by session, quarter of an hour, model and sub-agent.

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
"""What a file lacks as long as it says no more; all else it lacks for good."""
TYPES = (SessionOpened, SessionRead, SessionSettled, SessionPriced)
"""The events that matter."""


class Sum(msgspec.Struct, frozen=True, gc=False):
    """Requests of one session in one quarter of an hour to one model, by one sub-agent or the main conversation. Also a
    difference to be added to such a row: then numbers may be below zero."""

    session: str
    """Stream."""
    start_s: int
    """Seconds since the epoch, UTC."""
    model: str
    """Empty: the file does not say."""
    part: str
    """Of the sub-agent; empty: the main conversation."""
    requests: int = 0
    input: int = 0
    """All of it: uncached, cache reads and writes."""
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
    """Requests that `computed_nanousd` lacks."""


class Session(msgspec.Struct, frozen=True, gc=False):
    """What is known of a session besides its requests; empty or None: not known."""

    stream: str
    agent: str
    session: str
    version: str = ""
    project: Digest | None = None
    parent: str = ""
    by_mz: bool = False


class File(msgspec.Struct, frozen=True, gc=False):
    """How far a file was read, and what was counted of its lines."""

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
    """What a session's files tell besides requests."""

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
    """Seconds since the epoch at which the quarter of an hour begins that holds this instant."""
    return at_us // (QUARTER_S * US_PER_S) * QUARTER_S


def read_sums(stream: StreamId, event: SessionRead | SessionSettled) -> Iterator[Sum]:
    """What the event adds to the rows."""
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
    """What it counts, and what it no longer does: usage, time, sign, reported money."""
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
    """What the event adds to the rows."""
    for each in event.sums:
        yield Sum(
            each.session or stream, each.start_s, each.model, each.part,
            computed_nanousd=each.nanousd, unpriced=each.unpriced,
        )  # fmt: skip


def opened(stream: StreamId, event: SessionOpened, known: Session | None) -> Session:
    """The session with what the event tells; what it does not tell stays."""
    before = known or Session(stream, event.agent, event.session)
    return Session(
        stream, event.agent, event.session, event.version or before.version, event.project or before.project,
        event.parent or before.parent, event.by_mz or before.by_mz,
    )  # fmt: skip


def grown(stream: StreamId, event: SessionRead, known: File | None) -> File:
    """The file as it is after the event; what was counted of it goes on, or begins anew with its first byte."""
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
    """The numbers of both, by name."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in sorted({*first, *second})}


def count(files: Iterable[File]) -> Count:
    """Of the files of one session. Of several that tell of the same part (a copy, a file that was moved) the one that
    tells most counts, so that nothing counts twice."""
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
