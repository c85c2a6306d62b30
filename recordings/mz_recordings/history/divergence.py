"""Facts: what a history replay finds: where today's code parts from what was recorded, in which fields, and how far it
could look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from mz_events.names import StreamId

from mz_recordings.findings import FindingKind

Parting = Literal[
    "order", "missing", "extra", "decision", "arguments", "result", "verdict", "nondeterminism", "failure"
]

PARTINGS: Mapping[Parting, str] = {
    "order": "the same events come in another order",
    "missing": "today's code does not produce an event that was recorded",
    "extra": "today's code produces an event that was not recorded",
    "decision": "today's code decides on something else",
    "arguments": "the same is asked for, or decided on, with other arguments",
    "result": "the same bytes are read as something else",
    "verdict": "a rule, a gate or a permission decides otherwise",
    "nondeterminism": "a clock or chance is in it: the same input does not always give the same",
    "failure": "today's code breaks off with an error",
}
"""In half a sentence."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One field that is not as it was recorded."""

    field: str
    """Path within the event, such as `ref.attempt` or `violations.0.rule`."""
    recorded: str | None
    """As JSON; None: there was no such field."""
    produced: str | None
    lines: tuple[str, ...] = ()
    """Of a text that the field cites: `-` recorded, `+` today; bounded."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """One place where today's code parts from the record."""

    place: str
    """`stream@version` of the recorded event, or of the place at which another one was produced."""
    kind: Parting
    finding: FindingKind
    recorded: str | None
    """Type of the event that stands there; None: the record has none."""
    produced: str | None
    """Type of the event that today's code produces there; None: it produces none."""
    differences: tuple[Difference, ...] = ()
    note: str = ""
    """What else there is to say, in a sentence."""
    explained: str = ""
    """Id of the intended change of `mz` that is the reason for it."""

    @property
    def cause(self) -> tuple[str, ...]:
        """What divergences of one cause have in common: kind, event types, and the fields that differ."""
        fields = sorted({field_name(each.field) for each in self.differences})
        return (self.kind, self.recorded or "", self.produced or "", *fields)


def field_name(path: str) -> str:
    """`violations.rule` of `violations.0.rule`: the same field of whichever entry."""
    return ".".join(part for part in path.split(".") if not part.isdigit())


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, replayed."""

    stream: StreamId
    events: int
    compared: int
    """Intents and derived events that were held against what today's code produces."""
    divergences: tuple[Divergence, ...] = ()
    """In the order of the stream; the first one may be the reason for others."""
    unfollowed: int = 0
    """Events after a divergence of which nothing can be said: the record went another way there."""
    left: Mapping[str, int] = {}
    """What was taken from the record and not computed again, and how often."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One run, replayed."""

    run: str
    core: str
    """Version of `mz` that started it."""
    streams: tuple[Replayed, ...]

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """Those that no intended change explains."""
        return tuple(one for each in self.streams for one in each.divergences if not one.explained)

    @property
    def explained(self) -> tuple[Divergence, ...]:
        return tuple(one for each in self.streams for one in each.divergences if one.explained)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Divergences that have one reason: the same kind, event type and fields."""

    first: Divergence
    places: tuple[str, ...]


def grouped(divergences: tuple[Divergence, ...]) -> tuple[Cause, ...]:
    """By cause, in the order in which each was met first."""
    found: dict[tuple[str, ...], list[Divergence]] = {}
    for one in divergences:
        found.setdefault(one.cause, []).append(one)
    return tuple(Cause(first=each[0], places=tuple(one.place for one in each)) for each in found.values())
