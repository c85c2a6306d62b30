"""Pure: where two stories part, and which class of drift that is.

Events in the same place are held against each other as long as they are about the same matter, so that what is read or
changed otherwise never hides another verdict. Where one story does something else than the other, the rest follows.
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
"""Fields of an event that say what it is about."""
SAID = {
    "PROMPT": "is asked otherwise",
    "CONFIG": "is called otherwise",
    "WIRE": "reads an answer otherwise",
    "EVENT": "is another one",
    "ARTIFACT": "takes something else from an artifact",
    "EFFECT": "changes other files",
    "COST": "takes other tokens",
    "POLICY": "decides otherwise",
}


class Parting(msgspec.Struct, frozen=True):
    """Two stories part here."""

    kind: FindingKind
    where: Divergence

    @property
    def what(self) -> str:
        return SAID[self.kind]

    @property
    def call(self) -> str:
        """The recording that the event is about, such as `code.a2`; empty where it is about none."""
        return next((name for line in (self.where.recorded, self.where.produced) if (name := call_name(line))), "")


def call_name(line: Line | None) -> str:
    """Name of the recording of the call that an event is about."""
    ref = (line or {}).get("ref")
    if not isinstance(ref, dict):
        return ""
    return identity_of("", "", msgspec.convert(ref | {"key": ""}, CallRef)).name


def partings(recorded: bytes, produced: bytes) -> tuple[Parting, ...]:
    """Where two stories part, each class once, in the order of the story; empty: nowhere."""
    found: dict[FindingKind, Parting] = {}
    for where in divergences(filled(one_parser(recorded, produced)), filled(produced)):
        kind = kind_of(where)
        found.setdefault(kind, Parting(kind, where))
        old, new = where.recorded or {}, where.produced or {}
        if any(old.get(name) != new.get(name) for name in MATTER):
            break
    return tuple(found.values())


def one_parser(recorded: bytes, produced: bytes) -> bytes:
    """The recorded story, read by today's parser as far as its name goes: a better parser that reads the same is no
    drift."""
    names = {line.get("parser") for _, line in _reads(produced)}
    if len(names) != 1 or None in names:
        return recorded
    return _replaced(recorded, {raw: {**line, "parser": next(iter(names))} for raw, line in _reads(recorded)})


def filled(told: bytes) -> bytes:
    """The story with all fields of usage: those that came later say what they say where nobody fills them."""
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
    """The class of drift that an event which differs stands for."""
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
