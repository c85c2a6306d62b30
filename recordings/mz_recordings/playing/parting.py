"""Classification of differences between two traces.

Events at the same position are compared as long as they have the same subject, so one difference does not hide
another. After an event with another subject, the remaining events are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from mz_events.catalog.call import CallRef, Usage

from mz_recordings.cassette import identity_of
from mz_recordings.findings import FindingKind
from mz_recordings.recording.story import EventDifference, event_differences

EventJson = dict[str, Any]
DECIDING_EVENTS = ("artifact.validated", "gate.checked", "human.requested")
"""Events in which a rule, a gate or a permission decides."""
COST_FIELDS = frozenset({"usage", "reported_nanousd"})
NO_USAGE: EventJson = msgspec.to_builtins(Usage(model="", input=0, output=0))
SUBJECT_FIELDS = ("type", "ref", "phase", "unit", "iteration", "artifact", "stage", "name", "gate")
"""Fields that name the subject of an event."""
DESCRIPTIONS = {
    "PROMPT": "has another prompt",
    "CONFIG": "has other settings",
    "STREAM": "parses a reply differently",
    "TRACE": "has another event",
    "ARTIFACT": "reads something else from an artifact",
    "FILES": "changes other files",
    "COST": "has other token counts",
    "DECISION": "decides differently",
}


class TraceDivergence(msgspec.Struct, frozen=True):
    """First difference of a kind between two traces."""

    kind: FindingKind
    difference: EventDifference

    @property
    def description(self) -> str:
        return DESCRIPTIONS[self.kind]

    @property
    def call(self) -> str:
        """Return the name of the recording, such as `code.a2`, that the event concerns; empty: none."""
        return next((name for line in (self.difference.recorded, self.difference.produced) if (name := call_name(line))), "")


def call_name(line: EventJson | None) -> str:
    """Return the name of the recording of the event's call; empty: none."""
    ref = (line or {}).get("ref")
    if not isinstance(ref, dict):
        return ""
    return identity_of("", "", msgspec.convert(ref | {"key": ""}, CallRef)).name


def trace_divergences(recorded: bytes, produced: bytes) -> tuple[TraceDivergence, ...]:
    """Return the differences of two traces in order, the first one of each kind."""
    first_by_kind: dict[FindingKind, TraceDivergence] = {}
    for difference in event_differences(with_all_usage_fields(with_produced_parser(recorded, produced)), with_all_usage_fields(produced)):
        kind = drift_kind(difference)
        first_by_kind.setdefault(kind, TraceDivergence(kind, difference))
        old, new = difference.recorded or {}, difference.produced or {}
        if any(old.get(name) != new.get(name) for name in SUBJECT_FIELDS):
            break
    return tuple(first_by_kind.values())


def with_produced_parser(recorded: bytes, produced: bytes) -> bytes:
    """Return the recorded trace with the parser name of the produced one: a new parser that reads the same is no
    drift."""
    names = {line.get("parser") for _, line in _reply_lines(produced)}
    if len(names) != 1 or None in names:
        return recorded
    return _replace_lines(recorded, {raw: {**line, "parser": next(iter(names))} for raw, line in _reply_lines(recorded)})


def with_all_usage_fields(trace: bytes) -> bytes:
    """Return the trace with all usage fields; fields that are newer than the trace get their default."""
    lines = {raw: line for raw, line in _reply_lines(trace) if any(NO_USAGE.keys() - usage for usage in line.get("usage", ()))}
    return _replace_lines(
        trace, {raw: {**line, "usage": [{**NO_USAGE, **usage} for usage in line["usage"]]} for raw, line in lines.items()}
    )


def _reply_lines(trace: bytes) -> Iterator[tuple[bytes, EventJson]]:
    for raw in trace.splitlines():
        if b'"reply.parsed"' in raw and (line := json.loads(raw))["type"] == "reply.parsed":
            yield raw, line


def _replace_lines(trace: bytes, lines: dict[bytes, EventJson]) -> bytes:
    encoded = {raw: msgspec.json.encode(line, order="deterministic") for raw, line in lines.items()}
    return b"".join(encoded.get(raw, raw) + b"\n" for raw in trace.splitlines())


def drift_kind(difference: EventDifference) -> FindingKind:
    """Return the kind of drift of a differing event."""
    old, new = difference.recorded or {}, difference.produced or {}
    if old.get("type") != new.get("type"):
        return "DECISION" if _is_decision(old) or _is_decision(new) else "TRACE"
    differing = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if "ref" in differing:
        return "TRACE"
    match new["type"]:
        case "reply.parsed":
            return "COST" if differing <= COST_FIELDS else "STREAM"
        case "artifact.parsed":
            return "ARTIFACT"
        case "changes.checked":
            return "DECISION" if "offences" in differing else "FILES"
        case "command.ran":
            return "DECISION" if new.get("stage") == "gate" and "exit" in differing else "TRACE"
    return "DECISION" if new["type"] in DECIDING_EVENTS else "TRACE"


def _is_decision(line: EventJson) -> bool:
    return line.get("type") in DECIDING_EVENTS or (line.get("type") == "command.ran" and line.get("stage") == "gate")
