"""Shapes of agents' streams: their events and fields, the JSON types, and how the current parser uses each field.

The uses are observed: the real parser reads dicts that report each access, and cannot tell them from others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec
from mz_engine.agents.catalog import dialect_of
from mz_engine.agents.contract import Adapter
from mz_engine.agents.package import StreamDialect
from mz_engine.ports import CallResult, ParsedReply

ReportAccess = Callable[[str, str, object], None]
"""Called with the event's name, the field's path and its value, or ABSENT for a missing field."""
ABSENT = object()


class TrackedObject(dict[str, Any]):
    """An object within an event, at a path."""

    def __init__(
        self, content: dict[str, Any], field_path: tuple[str, str], dialect: StreamDialect, report: ReportAccess
    ) -> None:
        self._field_path, self._report = field_path, report
        self._is_map = matches_path(dialect.maps, *field_path)
        self._dialect = dialect
        super().__init__({key: self._track(value, self._child_path(key)) for key, value in content.items()})

    def get(self, key: str, default: Any = None) -> Any:
        self._report_key(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._report_key(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._report_key(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._report_all()
        return super().__iter__()

    def items(self) -> Any:
        self._report_all()
        return super().items()

    def keys(self) -> Any:
        self._report_all()
        return super().keys()

    def values(self) -> Any:
        self._report_all()
        return super().values()

    def _report_all(self) -> None:
        for key in super().__iter__():
            self._report_key(key)

    def _report_key(self, key: str) -> None:
        self._report(self._field_path[0], self._child_path(key), super().get(key, ABSENT))

    def _child_path(self, key: str) -> str:
        return child_path(self._field_path[1], "*" if self._is_map else key)

    def _track(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return TrackedObject(value, (self._field_path[0], path), self._dialect, self._report)
        if isinstance(value, list):
            return [self._track(item, path + item_suffix(item)) for item in value]
        return value


def event_name(event: dict[str, Any], dialect: StreamDialect) -> str:
    """Return the event's name, such as `system/init`; `?` for an event without one."""
    parts = [_value_at(event, field) for field in dialect.name_fields]
    return "/".join(part for part in parts if isinstance(part, str) and part) or "?"


def _value_at(event: dict[str, Any], path: str) -> object:
    value: object = event
    for key in path.split("."):
        value = dict.get(value, key) if isinstance(value, dict) else None
    return value


def child_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def item_suffix(item: object) -> str:
    """Return the path element of an item of an array, with its type if it has one."""
    kind = dict.get(item, "type") if isinstance(item, dict) else None
    return f"[{kind}]" if isinstance(kind, str) else "[]"


def matches_path(paths: tuple[str, ...], event: str, path: str) -> bool:
    return f"{event}:{path}" in paths or f"*:{path}" in paths


def walk_fields(value: object, name: str, dialect: StreamDialect, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and JSON type of every value of an event, parents first, without opaque content."""
    yield path, json_type(value)
    if matches_path(dialect.opaque, name, path):
        return
    if isinstance(value, dict):
        is_map = matches_path(dialect.maps, name, path)
        for key, inner in value.items():
            yield from walk_fields(inner, name, dialect, child_path(path, "*" if is_map else key))
    elif isinstance(value, list):
        for item in value:
            yield from walk_fields(item, name, dialect, path + item_suffix(item))


JSON_TYPES = {bool: "boolean", str: "string", list: "array", dict: "object"}


def json_type(value: object) -> str:
    """Return the type's name in JSON Schema."""
    if value is None:
        return "null"
    return JSON_TYPES.get(type(value), "number")


Use = Literal["read", "kept", "ignored"]
FieldPath = tuple[str, str]
"""Name of the event, path of the field."""
EVENTS_MAX = 5000
"""Maximum events of one name per stream to examine; later ones add nothing, and examining takes 25 times as long as
parsing."""
UNKNOWN_EVENT = b'{"type":"<probe>"}\n'
"""An event of an unknown type: fields read of it are read of every event."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of an event type."""

    types: tuple[str, ...]
    """JSON types that occurred; empty: the parser reads it, but it was never present."""
    use: Use
    """read: affects decisions or numbers; kept: passed on unchanged; ignored: never accessed."""
    is_always_present: bool = False
    """Present in every occurrence of its parent."""


class StreamShape(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of the stream of one version of an agent's CLI."""

    agent: str
    version: str
    events: dict[str, dict[str, Field]]
    """Fields by event name, such as `system/init`, and path, such as `message.usage.input_tokens`."""


class CallStream(NamedTuple):
    """Output of one call."""

    name: str
    result: CallResult
    is_complete: bool = True
    """The call ended by itself, so its stream is complete."""


class ObservedStreams(NamedTuple):
    """Shape of several streams together."""

    shape: StreamShape
    first_stream: dict[tuple[str, str, str], str]
    """First stream in which each field had each JSON type."""
    broken_frames: tuple[tuple[str, str], ...] = ()
    """Stream, and defect of its frames."""


class _FieldCounter:
    """Counts present and accessed fields."""

    def __init__(self, dialect: StreamDialect) -> None:
        self.dialect = dialect
        self.occurrences: Counter[FieldPath] = Counter()
        self.types: dict[FieldPath, set[str]] = {}
        self.first_stream: dict[tuple[str, str, str], str] = {}
        self.accessed: set[FieldPath] = set()
        self.kept_unchanged: set[FieldPath] = set()
        self.event_names: list[str] = []
        self._strings: list[tuple[FieldPath, str]] = []
        self._stream_name = ""
        self._event_counts: Counter[str] = Counter()

    def begin(self, stream_name: str) -> None:
        self._stream_name, self.event_names, self._strings, self._event_counts = stream_name, [], [], Counter()

    def track_event(self, event: dict[str, object]) -> dict[str, object]:
        """Count the fields of the event; return an object that reports accesses."""
        name = event_name(event, self.dialect)
        self.event_names.append(name)
        self._event_counts[name] += 1
        if self._event_counts[name] > EVENTS_MAX:
            return event
        try:
            fields = list(walk_fields(event, name, self.dialect))
            tracked = TrackedObject(event, (name, ""), self.dialect, self._record_access)
        except RecursionError:
            return event
        for path, kind in fields:
            field_path = name, path
            self.occurrences[field_path] += 1
            self.types.setdefault(field_path, set()).add(kind)
            self.first_stream.setdefault((name, path, kind), self._stream_name)
        return tracked

    def _record_access(self, name: str, path: str, value: object) -> None:
        self.accessed.add((name, path))
        if value is ABSENT:
            self.types.setdefault((name, path), set())
        elif isinstance(value, str) and value and path.rpartition(".")[2] not in self.dialect.name_fields:
            self._strings.append(((name, path), value))

    def end(self, reading: ParsedReply) -> None:
        """Find the accessed strings that became part of the parsed reply unchanged."""
        names = {reading.session, reading.version, *(usage.model for usage in reading.usage)}
        lines = {*reading.text.split("\n")}
        for field_path, value in self._strings:
            if value in names or (value.partition("\n")[0] in lines and value in reading.text):
                self.kept_unchanged.add(field_path)


def observe_streams(agent: str, version: str, streams: Iterable[CallStream], adapter: Adapter) -> ObservedStreams:
    """Return the shape of these streams. Total over any bytes."""
    counter, broken = _FieldCounter(dialect_of(agent)), list[tuple[str, str]]()
    for stream in streams:
        counter.begin(stream.name)
        reading = adapter.parse_output(stream.result, counter.track_event)
        counter.end(reading)
        if stream.is_complete:
            broken += [(stream.name, defect) for defect in _frame_defects(stream.result.stdout, reading, counter)]
    events: dict[str, dict[str, Field]] = {}
    for name, path in sorted(counter.types):
        if path:
            events.setdefault(name, {})[path] = _build_field(counter, name, path)
    shape = StreamShape(agent=agent, version=version, events=events)
    return ObservedStreams(shape, counter.first_stream, tuple(broken))


def parent_path(path: str) -> str:
    """Return the path of the containing object or array; empty: the event itself."""
    return path.rpartition("[")[0] if path.endswith("]") else path.rpartition(".")[0]


def _build_field(counter: _FieldCounter, name: str, path: str) -> Field:
    use: Use = "ignored"
    if (name, path) in counter.accessed:
        use = "kept" if (name, path) in counter.kept_unchanged else "read"
    count = counter.occurrences[name, path]
    always = not path.endswith(("]", "*")) and count == counter.occurrences[name, parent_path(path)] > 0
    return Field(types=tuple(sorted(counter.types[name, path])), use=use, is_always_present=always)


def _frame_defects(stdout: bytes, reading: ParsedReply, counter: _FieldCounter) -> Iterator[str]:
    """Yield defects that a stream cannot have if its agent ended by itself."""
    bad_lines, last = reading.undecodable_lines, stdout.rpartition(b"\n")[2]
    if last.strip() and bad_lines and not _is_json_object(last):
        yield f"the last line is cut off: {last[:60].decode('utf-8', 'replace')}"
        bad_lines -= 1
    if bad_lines:
        yield "a line is not a JSON object" if bad_lines == 1 else f"{bad_lines} lines are not JSON objects"
    ends = [at for at, name in enumerate(counter.event_names) if name.partition("/")[0] in counter.dialect.final_events]
    if ends and (after := counter.event_names[ends[-1] + 1 :]):
        count = "an event follows" if len(after) == 1 else f"{len(after)} events follow"
        yield f"{count} the final one: {', '.join(sorted(set(after)))}"


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def is_known_event(name: str, fields: dict[str, Field], adapter: Adapter, dialect: StreamDialect) -> bool:
    """Return True if the parser reads fields of this event, or is known to skip it."""
    if name in dialect.skipped_events:
        return True
    counter = _FieldCounter(dialect)
    adapter.parse_output(CallResult(stdout=UNKNOWN_EVENT, stderr=b"", exit=0, duration_ms=0), counter.track_event)
    fields_of_every_event = {path for _, path in counter.accessed}
    return any(field.use != "ignored" and path not in fields_of_every_event for path, field in fields.items())


def count_fields_by_use(shape: StreamShape) -> dict[str, int]:
    """Return the number of fields by use; absent: accessed but never present."""
    uses: Counter[str] = Counter(
        field.use if field.types else "absent" for fields in shape.events.values() for field in fields.values()
    )
    return {use: uses[use] for use in ("read", "kept", "ignored", "absent")}
