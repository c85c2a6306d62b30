"""Events from file segments: each request once, in the session where it first occurred, with its price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import Usage
from mz_events.catalog.session import PricedSum, Request, SessionOpened, SessionPriced, SessionRead
from mz_events.names import Digest, StreamId
from mz_projections.imported import Known, Session, quarter, sides

from mz_recordings.importing.gather import NANOUSD_MAX, Gathered, Seen, total
from mz_recordings.importing.names import by_mz, stream_of

AHEAD_US = 600_000_000
"""Clocks differ by minutes; later times are counted as future-dated."""
PriceOf = Callable[[Usage, int], int | None]
"""Price of a request at a time in nano-dollars; None: no price."""


class Stretch(msgspec.Struct, kw_only=True):
    """A part of a file, and its statistics."""

    file: str
    """sha256 of its path."""
    path: str
    format: str
    session: str
    """Sanitised id of the file's session."""
    size: int
    modified_ns: int
    inode: int
    start: int
    upto: int
    bytes: int
    """Bytes read."""
    mark: str
    head: str
    carry: str
    gathered: Gathered
    requests: dict[str, Seen]
    """By their keys in the log."""


class Tally(msgspec.Struct):
    """Totals of an import, for people."""

    new: int = 0
    known: int = 0
    corrected: int = 0
    settled: int = 0
    """Requests that only the totals at files' ends show; negative if they no longer do."""
    undated: int = 0
    ahead: int = 0
    nanousd: int = 0
    """Computed price of new requests and corrections."""
    unpriced: dict[str, int] = {}
    """Requests without a price, by model."""


class Reckoning:
    """Builds events of segments. `counted` has the requests that were counted before; new ones are added to it.
    `project` stores a directory as a blob."""

    def __init__(self, price: PriceOf, table: str, project: Callable[[str], Digest], now_us: int) -> None:
        self._price, self._table, self._project, self._now_us = price, table, project, now_us
        self.tally = Tally()

    def events(
        self, stretch: Stretch, paths: Digest, known: dict[str, Known], session: Session | None
    ) -> tuple[Event, ...]:
        """Return the events for the segment's stream; `session` is its row, `paths` the blob of paths."""
        gathered = stretch.gathered
        stream = stream_of(gathered.agent, stretch.session)
        requests = tuple(self._requests(stream, stretch.requests, known))
        opened = self._opened(stretch, session)
        read = SessionRead(
            file=stretch.file, paths=paths, format=stretch.format, part=gathered.part or "", size=stretch.size,
            modified_ns=stretch.modified_ns, inode=stretch.inode, start=stretch.start, upto=stretch.upto,
            mark=stretch.mark, requests=requests, seen=len(stretch.requests) - len(requests),
            undated=gathered.undated, ahead=sum(each.at_us > self._now_us + AHEAD_US for each in requests),
            prompts=gathered.prompts, tools=gathered.tools, failed=gathered.failed, lines=gathered.lines,
            bad=gathered.bad, unknown=gathered.unknown, carry=stretch.carry, head=stretch.head,
            told=tuple(gathered.told.values()), reported_nanousd=gathered.reported_nanousd, lacks=tuple(gathered.lacks),
        )  # fmt: skip
        self._count(read)
        priced = (self.priced(requests),) if requests else ()
        return (*((opened,) if opened else ()), read, *priced)

    def _opened(self, stretch: Stretch, session: Session | None) -> SessionOpened | None:
        """Return None if nothing is new."""
        gathered = stretch.gathered
        told = Session(
            stream_of(gathered.agent, stretch.session), gathered.agent, stretch.session, version=gathered.version,
            project=self._project(gathered.cwd) if gathered.cwd else None,
            parent="" if gathered.part or gathered.parent == stretch.session else gathered.parent,
            by_mz=by_mz(gathered.cwd),
        )  # fmt: skip
        if session is not None:
            merged = replace(
                session, version=told.version or session.version, project=session.project or told.project,
                parent=session.parent or told.parent, by_mz=session.by_mz or told.by_mz,
            )  # fmt: skip
            if merged == session:
                return None
            told = merged
        return SessionOpened(
            agent=told.agent, session=told.session, version=told.version, project=told.project, parent=told.parent,
            by_mz=told.by_mz,
        )  # fmt: skip

    def _requests(self, stream: StreamId, told: dict[str, Seen], known: dict[str, Known]) -> Iterator[Request]:
        for key, seen in told.items():
            before = known.get(key)
            if before is None:
                known[key] = Known(stream, seen.at_us, seen.dated, seen.usage, seen.reported_nanousd)
                yield Request(
                    key=key, at_us=seen.at_us, dated=seen.dated, usage=seen.usage,
                    reported_nanousd=seen.reported_nanousd,
                )  # fmt: skip
            elif total(seen.usage) > total(before.usage) or (seen.dated and not before.dated):
                yield self._corrected(stream, key, seen, known)

    def _corrected(self, stream: StreamId, key: str, seen: Seen, known: dict[str, Known]) -> Request:
        """Return a correction. The request keeps its session, and its time if that was known; the larger usage
        counts."""
        before = known[key]
        fuller = seen.usage if total(seen.usage) > total(before.usage) else before.usage
        usage = replace(fuller, part=before.usage.part)
        reported = before.reported_nanousd if seen.reported_nanousd is None else seen.reported_nanousd
        at_us = before.at_us if before.dated else seen.at_us
        known[key] = Known(before.session, at_us, before.dated or seen.dated, usage, reported)
        return Request(
            key=key, at_us=at_us, dated=before.dated or seen.dated, usage=usage, reported_nanousd=reported,
            before=before.usage, before_nanousd=before.reported_nanousd,
            before_at_us=None if at_us == before.at_us else before.at_us,
            session=StreamId("" if before.session == stream else before.session),
        )  # fmt: skip

    def _count(self, read: SessionRead) -> None:
        corrected = sum(each.before is not None for each in read.requests)
        self.tally.new += len(read.requests) - corrected
        self.tally.corrected += corrected
        self.tally.known += read.seen
        self.tally.undated += read.undated
        self.tally.ahead += read.ahead

    def settled(self, requests: Iterable[Request]) -> SessionPriced:
        """Return `priced` for requests that only the totals at files' ends show."""
        listed = tuple(requests)
        for each in listed:
            self.tally.settled += bool(total(each.usage)) - bool(each.before is not None and total(each.before))
        return self.priced(listed)

    def priced(self, requests: Iterable[Request]) -> SessionPriced:
        """Return the price totals by session, quarter of an hour, model and subagent."""
        sums: dict[tuple[str, int, str, str], list[int]] = {}
        unpriced: dict[str, int] = {}
        for each in requests:
            for usage, at_us, sign, _ in sides(each):
                if not (usage.input or usage.output):
                    continue
                numbers = sums.setdefault((each.session, quarter(at_us), usage.model, usage.part), [0, 0])
                nanousd = self._price(usage, at_us)
                if nanousd is None:
                    numbers[1] += sign
                    unpriced[usage.model] = unpriced.get(usage.model, 0) + sign
                else:
                    numbers[0] += sign * nanousd
        self.tally.nanousd += sum(numbers[0] for numbers in sums.values())
        for model, number in unpriced.items():
            self.tally.unpriced[model] = self.tally.unpriced.get(model, 0) + number
        return SessionPriced(
            sums=tuple(
                PricedSum(session=StreamId(key[0]), start_s=key[1], model=key[2], part=key[3],
                          nanousd=min(max(nanousd, -NANOUSD_MAX), NANOUSD_MAX), unpriced=number)
                for key, (nanousd, number) in sums.items()
            ),
            unpriced=tuple(sorted(unpriced)), prices=self._table,
        )  # fmt: skip
