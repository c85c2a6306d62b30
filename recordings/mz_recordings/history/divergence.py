"""Results of a past-run replay: where the current code diverges from the recorded events, in which fields, and how much
was compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from mz_events.names import StreamId

from mz_recordings.findings import FindingKind

DivergenceKind = Literal[
    "order", "missing", "extra", "decision", "arguments", "result", "verdict", "nondeterminism", "failure"
]

DIVERGENCE_DESCRIPTIONS: Mapping[DivergenceKind, str] = {
    "order": "the same events are in another order",
    "missing": "the current code does not produce a recorded event",
    "extra": "the current code produces an event that was not recorded",
    "decision": "the current code decides on another action",
    "arguments": "the same request or decision has other arguments",
    "result": "the same bytes are parsed differently",
    "verdict": "a rule, a gate or a permission decides differently",
    "nondeterminism": "a clock or randomness is involved: the same input gives different results",
    "failure": "the current code fails with an error",
}
"""Descriptions, each a clause."""


class EventFieldDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One field that differs from the recorded one."""

    field: str
    """Path within the event, such as `ref.attempt` or `violations.0.rule`."""
    recorded: str | None
    """As JSON; None: the field was missing."""
    produced: str | None
    lines: tuple[str, ...] = ()
    """Differing lines of a text that the field refers to: `-` recorded, `+` current; bounded."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """One event where the current code diverges from the recorded stream."""

    event_ref: str
    """`stream@version` of the recorded event, or of the one before which another event was produced."""
    kind: DivergenceKind
    finding: FindingKind
    recorded: str | None
    """Type of the recorded event; None: there is none."""
    produced: str | None
    """Type of the event that the current code produces; None: none."""
    differences: tuple[EventFieldDifference, ...] = ()
    note: str = ""
    """Further explanation, in a sentence."""
    intended_change: str = ""
    """Id of the intended change of `mz` that explains it."""

    @property
    def cause(self) -> tuple[str, ...]:
        """Return what divergences of one cause share: kind, event types, and the fields that differ."""
        fields = sorted({field_name(difference.field) for difference in self.differences})
        return (self.kind, self.recorded or "", self.produced or "", *fields)


def field_name(path: str) -> str:
    """Return `violations.rule` for `violations.0.rule`: the same field of any entry."""
    return ".".join(part for part in path.split(".") if not part.isdigit())


class StreamReplay(msgspec.Struct, frozen=True, kw_only=True):
    """Result of replaying one stream."""

    stream: StreamId
    events: int
    compared: int
    """Number of intents and derived events that were compared."""
    divergences: tuple[Divergence, ...] = ()
    """In the order of the stream; the first one may cause others."""
    not_compared: int = 0
    """Number of events after a divergence that could not be compared."""
    not_recomputed: Mapping[str, int] = {}
    """Recorded results that were not computed again, and how often."""


class RunReplay(msgspec.Struct, frozen=True, kw_only=True):
    """Result of replaying one run."""

    run: str
    mz_version: str
    """Version of `mz` that started the run."""
    streams: tuple[StreamReplay, ...]

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """Return the divergences that no intended change explains."""
        return tuple(divergence for stream in self.streams for divergence in stream.divergences if not divergence.intended_change)

    @property
    def explained(self) -> tuple[Divergence, ...]:
        return tuple(divergence for stream in self.streams for divergence in stream.divergences if divergence.intended_change)


class DivergenceCause(msgspec.Struct, frozen=True, kw_only=True):
    """Divergences with one cause: the same kind, event types and fields."""

    first: Divergence
    event_refs: tuple[str, ...]


def group_by_cause(divergences: tuple[Divergence, ...]) -> tuple[DivergenceCause, ...]:
    """Group divergences by cause, in order of first occurrence."""
    by_cause: dict[tuple[str, ...], list[Divergence]] = {}
    for divergence in divergences:
        by_cause.setdefault(divergence.cause, []).append(divergence)
    return tuple(DivergenceCause(first=group[0], event_refs=tuple(divergence.event_ref for divergence in group)) for group in by_cause.values())
