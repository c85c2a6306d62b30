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
from mz_recordings.recording.story import Divergence, divergences

Line = dict[str, Any]
VERDICTS = ("artifact.validated", "gate.checked", "human.requested")
"""Events in which a rule, a gate or a permission decides."""
MONEY = frozenset({"usage", "reported_nanousd"})
NO_USAGE: Line = msgspec.to_builtins(Usage(model="", input=0, output=0))
MATTER = ("type", "ref", "phase", "unit", "iteration", "artifact", "stage", "name", "gate")
"""Fields that name the subject of an event."""
SAID = {
    "PROMPT": "has another prompt",
    "CONFIG": "has other settings",
    "WIRE": "parses a reply differently",
    "EVENT": "has another event",
    "ARTIFACT": "reads something else from an artifact",
    "EFFECT": "changes other files",
    "COST": "has other token counts",
    "POLICY": "decides differently",
}


class Parting(msgspec.Struct, frozen=True):
    """First difference of a kind between two traces."""

    kind: FindingKind
    where: Divergence

    @property
    def what(self) -> str:
        return SAID[self.kind]

    @property
    def call(self) -> str:
        """Return the name of the recording, such as `code.a2`, that the event concerns; empty: none."""
        return next((name for line in (self.where.recorded, self.where.produced) if (name := call_name(line))), "")


def call_name(line: Line | None) -> str:
    """Return the name of the recording of the event's call; empty: none."""
    ref = (line or {}).get("ref")
    if not isinstance(ref, dict):
        return ""
    return identity_of("", "", msgspec.convert(ref | {"key": ""}, CallRef)).name


def partings(recorded: bytes, produced: bytes) -> tuple[Parting, ...]:
    """Return the differences of two traces in order, the first one of each kind."""
    found: dict[FindingKind, Parting] = {}
    for where in divergences(filled(one_parser(recorded, produced)), filled(produced)):
        kind = kind_of(where)
        found.setdefault(kind, Parting(kind, where))
        old, new = where.recorded or {}, where.produced or {}
        if any(old.get(name) != new.get(name) for name in MATTER):
            break
    return tuple(found.values())


def one_parser(recorded: bytes, produced: bytes) -> bytes:
    """Return the recorded trace with the parser name of the produced one: a new parser that reads the same is no
    drift."""
    names = {line.get("parser") for _, line in _reads(produced)}
    if len(names) != 1 or None in names:
        return recorded
    return _replaced(recorded, {raw: {**line, "parser": next(iter(names))} for raw, line in _reads(recorded)})


def filled(told: bytes) -> bytes:
    """Return the trace with all usage fields; fields that are newer than the trace get their default."""
    lines = {raw: line for raw, line in _reads(told) if any(NO_USAGE.keys() - one for one in line.get("usage", ()))}
    return _replaced(
        told, {raw: {**line, "usage": [{**NO_USAGE, **one} for one in line["usage"]]} for raw, line in lines.items()}
    )


def _reads(told: bytes) -> Iterator[tuple[bytes, Line]]:
    for raw in told.splitlines():
        if b'"reply.read"' in raw and (line := json.loads(raw))["type"] == "reply.read":
            yield raw, line


def _replaced(told: bytes, lines: dict[bytes, Line]) -> bytes:
    made = {raw: msgspec.json.encode(line, order="deterministic") for raw, line in lines.items()}
    return b"".join(made.get(raw, raw) + b"\n" for raw in told.splitlines())


def kind_of(where: Divergence) -> FindingKind:
    """Return the kind of drift of a differing event."""
    old, new = where.recorded or {}, where.produced or {}
    if old.get("type") != new.get("type"):
        return "POLICY" if _decides(old) or _decides(new) else "EVENT"
    differing = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if "ref" in differing:
        return "EVENT"
    match new["type"]:
        case "reply.read":
            return "COST" if differing <= MONEY else "WIRE"
        case "artifact.parsed":
            return "ARTIFACT"
        case "changes.checked":
            return "POLICY" if "offences" in differing else "EFFECT"
        case "command.ran":
            return "POLICY" if new.get("stage") == "gate" and "exit" in differing else "EVENT"
    return "POLICY" if new["type"] in VERDICTS else "EVENT"


def _decides(line: Line) -> bool:
    return line.get("type") in VERDICTS or (line.get("type") == "command.ran" and line.get("stage") == "gate")
