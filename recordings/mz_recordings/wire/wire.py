"""Shapes of agents' streams: their events and fields, the JSON types, and how the current parser uses each field.

The uses are observed: the real parser reads objects that report each access.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec
from mz_engine.agents.contract import Adapter
from mz_engine.ports import CallResult, Reading

from mz_recordings.wire.dialects import Dialect, dialect_of
from mz_recordings.wire.watched import ABSENT, Watched, name_of, walk

Use = Literal["read", "kept", "ignored"]
Place = tuple[str, str]
"""Name of the event, path of the field."""
EVENTS_MAX = 5000
"""Maximum events of one name per stream to examine; later ones add nothing, and examining takes 25 times as long as
parsing."""
PROBE = b'{"type":"<probe>"}\n'
"""An event of an unknown type: fields read of it are read of every event."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of an event type."""

    types: tuple[str, ...]
    """JSON types that occurred; empty: the parser reads it, but it was never present."""
    use: Use
    """read: affects decisions or numbers; kept: passed on unchanged; ignored: never accessed."""
    always: bool = False
    """Present in every occurrence of its parent."""


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of the stream of one version of an agent's CLI."""

    agent: str
    version: str
    events: dict[str, dict[str, Field]]
    """Fields by event name, such as `system/init`, and path, such as `message.usage.input_tokens`."""


class Stream(NamedTuple):
    """Output of one call."""

    where: str
    result: CallResult
    whole: bool = True
    """The call ended by itself, so its stream is complete."""


class Observed(NamedTuple):
    """Shape of several streams together."""

    wire: Wire
    first: dict[tuple[str, str, str], str]
    """First stream in which each field had each JSON type."""
    broken: tuple[tuple[str, str], ...] = ()
    """Stream, and defect of its frames."""


class _Tally:
    """Counts present and accessed fields."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.times: Counter[Place] = Counter()
        self.types: dict[Place, set[str]] = {}
        self.first: dict[tuple[str, str, str], str] = {}
        self.asked: set[Place] = set()
        self.handed: set[Place] = set()
        self.order: list[str] = []
        self._strings: list[tuple[Place, str]] = []
        self._where = ""
        self._seen: Counter[str] = Counter()

    def begin(self, where: str) -> None:
        self._where, self.order, self._strings, self._seen = where, [], [], Counter()

    def watch(self, event: dict[str, object]) -> dict[str, object]:
        """Count the fields of the event; return an object that reports accesses."""
        name = name_of(event, self.dialect)
        self.order.append(name)
        self._seen[name] += 1
        if self._seen[name] > EVENTS_MAX:
            return event
        try:
            found = list(walk(event, name, self.dialect))
            watched = Watched(event, (name, ""), self.dialect, self._ask)
        except RecursionError:
            return event
        for path, kind in found:
            place = name, path
            self.times[place] += 1
            self.types.setdefault(place, set()).add(kind)
            self.first.setdefault((name, path, kind), self._where)
        return watched

    def _ask(self, name: str, path: str, value: object) -> None:
        self.asked.add((name, path))
        if value is ABSENT:
            self.types.setdefault((name, path), set())
        elif isinstance(value, str) and value and path.rpartition(".")[2] not in self.dialect.kind:
            self._strings.append(((name, path), value))

    def end(self, reading: Reading) -> None:
        """Find the accessed strings that became part of the parsed reply unchanged."""
        names = {reading.session, reading.version, *(usage.model for usage in reading.usage)}
        lines = {*reading.text.split("\n")}
        for place, value in self._strings:
            if value in names or (value.partition("\n")[0] in lines and value in reading.text):
                self.handed.add(place)


def observe(agent: str, version: str, streams: Iterable[Stream], adapter: Adapter) -> Observed:
    """Return the shape of these streams. Total over any bytes."""
    tally, broken = _Tally(dialect_of(agent)), list[tuple[str, str]]()
    for stream in streams:
        tally.begin(stream.where)
        reading = adapter.parse_output(stream.result, tally.watch)
        tally.end(reading)
        if stream.whole:
            broken += [(stream.where, words) for words in _broken(stream.result.stdout, reading, tally)]
    events: dict[str, dict[str, Field]] = {}
    for place in sorted(tally.types):
        name, path = place
        if path:
            events.setdefault(name, {})[path] = _field(tally, place)
    return Observed(Wire(agent=agent, version=version, events=events), tally.first, tuple(broken))


def parent_of(path: str) -> str:
    """Return the path of the containing object or array; empty: the event itself."""
    return path.rpartition("[")[0] if path.endswith("]") else path.rpartition(".")[0]


def _field(tally: _Tally, place: Place) -> Field:
    name, path = place
    use: Use = "ignored" if place not in tally.asked else "kept" if place in tally.handed else "read"
    parent = parent_of(path)
    always = not path.endswith(("]", "*")) and tally.times[place] == tally.times[name, parent] > 0
    return Field(types=tuple(sorted(tally.types[place])), use=use, always=always)


def _broken(stdout: bytes, reading: Reading, tally: _Tally) -> Iterator[str]:
    """Yield defects that a stream cannot have if its agent ended by itself."""
    bad, last = reading.bad_lines, stdout.rpartition(b"\n")[2]
    if last.strip() and bad and not _decodes(last):
        yield f"the last line is cut off: {last[:60].decode('utf-8', 'replace')}"
        bad -= 1
    if bad:
        yield "a line is not a JSON object" if bad == 1 else f"{bad} lines are not JSON objects"
    ends = [at for at, name in enumerate(tally.order) if name.partition("/")[0] in tally.dialect.terminal]
    if ends and (after := tally.order[ends[-1] + 1 :]):
        count = "an event follows" if len(after) == 1 else f"{len(after)} events follow"
        yield f"{count} the final one: {', '.join(sorted(set(after)))}"


def _decodes(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def is_known(name: str, fields: dict[str, Field], adapter: Adapter, dialect: Dialect) -> bool:
    """Return True if the parser reads fields of this event, or is known to skip it."""
    return name in dialect.passed_over or any(
        one.use != "ignored" and path not in _read_of_all(adapter, dialect) for path, one in fields.items()
    )


def _read_of_all(adapter: Adapter, dialect: Dialect) -> frozenset[str]:
    tally = _Tally(dialect)
    adapter.parse_output(CallResult(stdout=PROBE, stderr=b"", exit=0, duration_ms=0), tally.watch)
    return frozenset(path for _, path in tally.asked)


def counted(wire: Wire) -> dict[str, int]:
    """Return the number of fields by use; absent: accessed but never present."""
    fields: list[Any] = [one for fields in wire.events.values() for one in fields.values()]
    uses = Counter(one.use if one.types else "absent" for one in fields)
    return {use: uses[use] for use in ("read", "kept", "ignored", "absent")}
