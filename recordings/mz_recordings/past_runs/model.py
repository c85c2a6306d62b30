"""Results of a past-run replay: where the current code diverges from the recorded events, in which fields, and how much
was compared; and their findings, in the form that all replays share.

Divergences that an intended change of decisions explains are listed separately, and pass. Add an entry for each change
of what the code decides, produces or parses; without it, all earlier runs diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec
from mz_events.names import StreamId

from mz_recordings.findings.model import Finding, FindingKind

DivergenceKind = Literal["order", "missing", "extra", "decision", "arguments", "result", "verdict", "failure"]

DIVERGENCE_DESCRIPTIONS: Mapping[DivergenceKind, str] = {
    "order": "the same events are in another order",
    "missing": "the current code does not produce a recorded event",
    "extra": "the current code produces an event that was not recorded",
    "decision": "the current code decides on another action",
    "arguments": "the same request or decision has other arguments",
    "result": "the same bytes are parsed differently",
    "verdict": "a rule, a gate or a permission decides differently",
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
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields that differ, sorted."""
        return tuple(sorted({field_name(difference.field) for difference in self.differences}))

    @property
    def cause(self) -> tuple[object, ...]:
        """Return what divergences of one cause share: kind, event types, and the fields that differ."""
        return (self.kind, self.recorded, self.produced, self.fields)


def field_name(path: str) -> str:
    """Return `violations.rule` for `violations.0.rule`: the same field of any entry."""
    return ".".join(part for part in path.split(".") if not part.isdigit())


class StreamReplay(msgspec.Struct, frozen=True, kw_only=True):
    stream: StreamId
    events: int
    compared: int
    """Number of intents and derived events that were compared."""
    divergences: tuple[Divergence, ...] = ()
    """In the order of the stream; the first one may cause others."""
    not_compared: int = 0
    """Number of events after a divergence, or after missing data, that could not be compared."""
    missing_data: str | None = None
    """Recorded data that is gone, and the event from which the stream is not comparable; None: it is comparable."""
    not_recomputed: Mapping[str, int] = {}
    """Recorded results that were not computed again, and how often."""


class RunReplay(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    mz_version: str
    """Version of `mz` that started the run."""
    streams: tuple[StreamReplay, ...]

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """Return the divergences that no intended change explains."""
        return tuple(item for stream in self.streams for item in stream.divergences if not item.intended_change)

    @property
    def explained(self) -> tuple[Divergence, ...]:
        return tuple(item for stream in self.streams for item in stream.divergences if item.intended_change)


def group_by_cause(divergences: tuple[Divergence, ...]) -> tuple[list[Divergence], ...]:
    """Group divergences by cause, in order of first occurrence."""
    by_cause: dict[tuple[object, ...], list[Divergence]] = {}
    for divergence in divergences:
        by_cause.setdefault(divergence.cause, []).append(divergence)
    return tuple(by_cause.values())


class IntendedChange(NamedTuple):
    id: str
    """Such as `wait-for-overload`; never reused."""
    since: str
    """The first version of `mz` with the change."""
    reason: str
    """Reason, in one sentence."""
    explains: Callable[[Divergence], bool]
    """Returns True if the divergence follows from the change."""


INTENDED_CHANGES: tuple[IntendedChange, ...] = ()
"""Empty: no version of `mz` that decides differently has been released."""


FIX = "revert the change of mz, or add it to mz_recordings/past_runs/model.py"
FIELDS_MAX = 20


def findings_of(history: RunReplay) -> tuple[Finding, ...]:
    """Return one finding per cause, in order of first occurrence, then one per stream that is not comparable."""
    return (
        *(_finding(group) for group in group_by_cause(history.divergences)),
        *(
            Finding(
                kind="UNREADABLE",
                message=f"{stream.stream} is not comparable: {stream.missing_data}",
                feature=_feature(stream.stream),
            )
            for stream in history.streams
            if stream.missing_data is not None
        ),
    )


def _finding(divergences: list[Divergence]) -> Finding:
    first, more = divergences[0], len(divergences) - 1
    location = f"{first.event_ref}{f' and {more} more events' if more > 1 else ' and 1 more event' if more else ''}"
    return Finding(
        kind=first.finding,
        message=f"at {location}: {DIVERGENCE_DESCRIPTIONS[first.kind]}",
        feature=_feature(first.event_ref),
        cause=first.produced or first.recorded or "",
        detail=tuple(divergence_lines(first)),
        fix=FIX,
    )


def _feature(event_ref: str) -> str:
    """Return the feature of an event reference; empty for the run's stream."""
    _, _, feature = event_ref.partition("@")[0].removeprefix("run/").partition("/")
    return feature


def divergence_lines(divergence: Divergence) -> Iterator[str]:
    """Yield the differences, one line per field: `-` recorded, `+` current; then the lines of a text that differ."""
    if divergence.recorded == divergence.produced and divergence.differences:
        yield f"  {divergence.recorded}"
    else:
        is_extra = divergence.kind == "extra"
        yield f"- nothing; next is {divergence.recorded}" if is_extra else f"- {divergence.recorded or 'nothing'}"
        yield f"+ {divergence.produced or 'nothing'}"
    for difference in divergence.differences[:FIELDS_MAX]:
        yield from _difference_lines(difference)
    if len(divergence.differences) > FIELDS_MAX:
        yield f"  ... and {len(divergence.differences) - FIELDS_MAX} more fields"
    if divergence.note:
        yield f"  {divergence.note}"


def _difference_lines(difference: EventFieldDifference) -> Iterator[str]:
    if difference.lines:
        yield f"  {difference.field}:"
        yield from difference.lines
        return
    if difference.recorded is not None:
        yield f"-   {difference.field}: {difference.recorded}"
    if difference.produced is not None:
        yield f"+   {difference.field}: {difference.produced}"
