"""Shapes of agents' streams: their events and fields, the JSON types, and how the current parser uses each field.

The uses are observed: the real parser reads dicts that report each access, and cannot tell them from others.

Differences between two shapes have a risk. High: a field that the parser reads is missing or has another JSON type.
Medium: an unknown event. Low: additions and unread fields, since streams gain fields with nearly every release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from mz_engine.agents.catalog import agent_package
from mz_engine.agents.contract import Adapter
from mz_engine.agents.package import StreamDialect
from mz_engine.agents.reading.json_lines import decode_object
from mz_engine.ports import CallResult, ParsedReply

from mz_recordings.cassette.model import RecordedCall
from mz_recordings.drift.model import Difference, LeafDifference
from mz_recordings.findings.model import RISKS, Finding, Risk


class TrackedObject(dict[str, Any]):
    """An object that reports each access to a key, which may be missing."""

    def __init__(self, content: dict[str, Any], report: Callable[[str], None]) -> None:
        super().__init__(content)
        self._report = report

    def get(self, key: str, default: Any = None) -> Any:
        self._report(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._report(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._report(str(key))
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
            self._report(key)


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


JSON_TYPES = {bool: "boolean", str: "string", list: "array", dict: "object"}


def json_type(value: object) -> str:
    """Return the type's name in JSON Schema."""
    if value is None:
        return "null"
    return JSON_TYPES.get(type(value), "number")


Use = Literal["read", "ignored", "absent"]
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
    """JSON types that occurred."""
    use: Use
    """read: the parser accesses it; ignored: it never does; absent: it accesses it, but it was never present."""
    is_always_present: bool = False
    """Present in every occurrence of its parent."""


class StreamShape(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of the stream of one version of an agent's CLI."""

    agent: str
    version: str
    events: dict[str, dict[str, Field]]
    """Fields by event name, such as `system/init`, and path, such as `message.usage.input_tokens`."""


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
        self.event_names: list[str] = []
        self._stream_name = ""
        self._event_counts: Counter[str] = Counter()

    def begin(self, stream_name: str) -> None:
        self._stream_name, self.event_names, self._event_counts = stream_name, [], Counter()

    def track_event(self, event: dict[str, object]) -> dict[str, object]:
        """Count the fields of the event; return an object that reports accesses."""
        name = event_name(event, self.dialect)
        self.event_names.append(name)
        self._event_counts[name] += 1
        if self._event_counts[name] > EVENTS_MAX:
            return event
        try:
            fields = list[tuple[str, str]]()
            tracked: dict[str, object] = self._track(event, name, "", fields)
        except RecursionError:
            return event
        for path, kind in fields:
            field_path = name, path
            self.occurrences[field_path] += 1
            self.types.setdefault(field_path, set()).add(kind)
            self.first_stream.setdefault((name, path, kind), self._stream_name)
        return tracked

    def _track(self, value: Any, name: str, path: str, fields: list[tuple[str, str]] | None) -> Any:
        """Return the value with objects that report accesses. Append to `fields` path and JSON type of every value,
        parents first, without opaque content; None: within opaque content."""
        if fields is not None:
            fields.append((path, json_type(value)))
            fields = None if matches_path(self.dialect.opaque, name, path) else fields
        if isinstance(value, dict):
            is_map = matches_path(self.dialect.maps, name, path)
            content = {
                key: self._track(inner, name, child_path(path, "*" if is_map else key), fields)
                for key, inner in value.items()
            }
            return TrackedObject(content, partial(self._record_access, name, path, is_map))
        if isinstance(value, list):
            return [self._track(item, name, path + item_suffix(item), fields) for item in value]
        return value

    def _record_access(self, name: str, path: str, is_map: bool, key: str) -> None:
        field_path = name, child_path(path, "*" if is_map else key)
        self.accessed.add(field_path)
        self.types.setdefault(field_path, set())


def observe_streams(calls: Sequence[RecordedCall], adapter: Adapter) -> ObservedStreams:
    """Return the shape of the streams of these calls of one agent. Total over any bytes."""
    agent, versions = calls[0].recording.agent, {call.recording.version for call in calls}
    counter, broken = _FieldCounter(agent_package(agent).dialect), list[tuple[str, str]]()
    for call in calls:
        name, result = call.identity.path, call.result()
        counter.begin(name)
        reading = adapter.parse_output(result, counter.track_event)
        if call.recording.outcome == "replied":  # It ended by itself, so its stream is complete.
            broken += [(name, defect) for defect in _frame_defects(result.stdout, reading, counter)]
    events: dict[str, dict[str, Field]] = {}
    for name, path in sorted(counter.types):
        if path:
            events.setdefault(name, {})[path] = _build_field(counter, name, path)
    shape = StreamShape(agent=agent, version=", ".join(sorted(versions)), events=events)
    return ObservedStreams(shape, counter.first_stream, tuple(broken))


def parent_path(path: str) -> str:
    """Return the path of the containing object or array; empty: the event itself."""
    return path.rpartition("[")[0] if path.endswith("]") else path.rpartition(".")[0]


def _build_field(counter: _FieldCounter, name: str, path: str) -> Field:
    count, types = counter.occurrences[name, path], tuple(sorted(counter.types[name, path]))
    use: Use = ("read" if types else "absent") if (name, path) in counter.accessed else "ignored"
    always = not path.endswith(("]", "*")) and count == counter.occurrences[name, parent_path(path)] > 0
    return Field(types=types, use=use, is_always_present=always)


def _frame_defects(stdout: bytes, reading: ParsedReply, counter: _FieldCounter) -> Iterator[str]:
    """Yield defects that a stream cannot have if its agent ended by itself."""
    bad_lines, last = reading.undecodable_lines, stdout.rpartition(b"\n")[2]
    if last.strip() and bad_lines and decode_object(last) is None:
        yield f"the last line is cut off: {last[:60].decode('utf-8', 'replace')}"
        bad_lines -= 1
    if bad_lines:
        yield "a line is not a JSON object" if bad_lines == 1 else f"{bad_lines} lines are not JSON objects"
    names, dialect = counter.event_names, counter.dialect
    ends = (at for at, name in enumerate(names) if name.partition("/")[0] in dialect.final_events)
    after = [name for name in names[max(ends, default=len(names)) + 1 :] if name not in dialect.later_events]
    if after:
        count = "an event follows" if len(after) == 1 else f"{len(after)} events follow"
        yield f"{count} the final one: {', '.join(sorted(set(after)))}"


def is_known_event(name: str, fields: dict[str, Field], adapter: Adapter, dialect: StreamDialect) -> bool:
    """Return True if the parser reads fields of this event, or is known to skip it."""
    if name in dialect.skipped_events:
        return True
    counter = _FieldCounter(dialect)
    adapter.parse_output(CallResult(stdout=UNKNOWN_EVENT, stderr=b"", exit=0, duration_ms=0), counter.track_event)
    fields_of_every_event = {path for _, path in counter.accessed}
    return any(field.use != "ignored" and path not in fields_of_every_event for path, field in fields.items())


def count_fields_by_use(shape: StreamShape) -> dict[str, int]:
    uses: Counter[str] = Counter(field.use for fields in shape.events.values() for field in fields.values())
    return {use: uses[use] for use in get_args(Use)}


# differences ----------------------------------------------------------------------------------------------------------
LINES_MAX = 40
NULL = frozenset({"null"})
MESSAGES: dict[Risk, str] = {
    "high": "fields that the parser reads are missing or have another type",
    "medium": "events that the parser does not know",
    "low": "changes that the parser does not depend on",
}


class ShapeChange(NamedTuple):
    """One difference between two stream shapes."""

    risk: Risk
    event: str
    path: str
    description: str
    """`-` removed, `+` added, `!` of another type."""
    types: tuple[str, ...] = ()
    """New JSON types."""

    @property
    def name(self) -> str:
        return f"{self.event}:{self.path}" if self.path else self.event


def compare_shapes(
    baseline: StreamShape, observed: ObservedStreams, adapter: Adapter, *, same_calls: bool = False
) -> tuple[ShapeChange, ...]:
    """Return the differences of `observed` from `baseline`. Missing parts count only with `same_calls` (both are
    recordings of them), since one stream need not show everything in a baseline."""
    dialect, shape, changes = agent_package(baseline.agent).dialect, observed.shape, list[ShapeChange]()
    for name, fields in shape.events.items():
        if name not in baseline.events:
            risk: Risk = "low" if is_known_event(name, fields, adapter, dialect) else "medium"
            changes.append(ShapeChange(risk, name, "", f"+ event {name}", ("object",)))
    for name, fields in shape.events.items():
        if name in baseline.events:
            changes += _field_changes(name, baseline.events[name], fields, same_calls)
    missing = [name for name in baseline.events if name not in shape.events] if same_calls else []
    has_end = any(name.partition("/")[0] in dialect.final_events for name in shape.events)
    for name in missing:
        is_missing_end = name.partition("/")[0] in dialect.final_events and not has_end
        changes.append(ShapeChange("high" if is_missing_end else "low", name, "", f"- event {name}"))
    return tuple(changes)


def _field_changes(
    name: str, old_fields: dict[str, Field], new_fields: dict[str, Field], same_calls: bool
) -> Iterator[ShapeChange]:
    for path, field in new_fields.items():
        before = old_fields.get(path)
        if before is None or not before.types:
            if field.types and _can_contain(old_fields, parent_path(path)):
                yield ShapeChange(
                    "low", name, path, f"+ {name} {path}: {_join_types(field)} ({field.use})", field.types
                )
        elif field.types:
            yield from _type_changes(name, path, before, field, same_calls)
            if same_calls and field.is_always_present and not before.is_always_present and before.use != "ignored":
                yield ShapeChange("low", name, path, f"+ {name} {path}: always present ({field.use})", field.types)
    for path, before in old_fields.items():
        if before.types and _can_contain(new_fields, parent_path(path)):
            yield from _missing_field(name, path, before, new_fields.get(path), same_calls)


def _can_contain(fields: dict[str, Field], parent: str) -> bool:
    """Return True if children of the parent can occur at all; otherwise the difference of the parent suffices."""
    return not parent or (parent in fields and bool({"object", "array"} & set(fields[parent].types)))


def _missing_field(name: str, path: str, before: Field, after: Field | None, same_calls: bool) -> Iterator[ShapeChange]:
    is_missing, was_used = after is None or not after.types, before.use != "ignored"
    if before.is_always_present and was_used and (is_missing or (after is not None and not after.is_always_present)):
        # A parser that handles null handles a missing field too.
        risk: Risk = "low" if "null" in before.types else "high"
        yield ShapeChange(risk, name, path, f"- {name} {path}: {_join_types(before)} ({before.use})")
    elif is_missing and same_calls:
        yield ShapeChange("low", name, path, f"- {name} {path}: {_join_types(before)} ({before.use})")


def _join_types(field: Field) -> str:
    return " or ".join(field.types)


def _type_changes(name: str, path: str, before: Field, after: Field, same_calls: bool) -> Iterator[ShapeChange]:
    old_types, new_types = frozenset(before.types) - NULL, frozenset(after.types) - NULL
    null_is_new = before.is_always_present and "null" in after.types and "null" not in before.types
    if (old_types and new_types - old_types) or null_is_new or (same_calls and old_types - new_types):
        is_used = before.use != "ignored" or after.use != "ignored"
        description = f"! {name} {path}: {_join_types(before)}, now {_join_types(after)} ({after.use})"
        added_types = tuple(sorted(set(after.types) - set(before.types)))
        yield ShapeChange("high" if is_used and added_types else "low", name, path, description, added_types)


def shape_differences(
    changes: tuple[ShapeChange, ...], observed: ObservedStreams, baseline_label: str, fix: str
) -> Iterator[Difference]:
    """Yield at most one difference per risk, and one for broken frames. `baseline_label` describes the baseline."""
    cause = f"{observed.shape.agent} {observed.shape.version}".strip()
    for risk in reversed(RISKS):
        risk_changes = [change for change in changes if change.risk == risk]
        if risk_changes:
            count = f"{len(risk_changes)} {'differences' if len(risk_changes) > 1 else 'difference'}"
            message = f"{MESSAGES[risk]}: {count} from {baseline_label}"
            detail = limit_lines([_change_line(change, observed) for change in risk_changes])
            leaves = tuple(LeafDifference(change.name) for change in risk_changes) if risk == "low" else ()
            yield Difference(
                Finding(kind="STREAM", message=message, cause=cause, detail=detail, fix=fix, risk=risk), leaves
            )
    if observed.broken_frames:
        lines = [f"  {stream_name}: {defect}" for stream_name, defect in observed.broken_frames]
        message = f"the frames of {f'{len(lines)} streams' if len(lines) > 1 else 'a stream'} are broken"
        yield Difference(Finding(kind="STREAM", message=message, cause="frames", detail=limit_lines(lines), fix=fix))


def _change_line(change: ShapeChange, observed: ObservedStreams) -> str:
    streams = (observed.first_stream.get((change.event, change.path, kind)) for kind in change.types)
    first_stream = next((stream_name for stream_name in streams if stream_name), "")
    return f"{change.description}, in {first_stream}" if first_stream else change.description


def limit_lines(lines: list[str]) -> tuple[str, ...]:
    omitted = len(lines) - LINES_MAX
    return (*lines[:LINES_MAX], *((f"... and {omitted} more",) if omitted > 0 else ()))
