"""Findings of a past-run replay, in the form that all replays share."""

from __future__ import annotations

from collections.abc import Iterator

from mz_recordings.findings import Finding
from mz_recordings.history.divergence import (
    DIVERGENCE_DESCRIPTIONS,
    Divergence,
    DivergenceCause,
    EventFieldDifference,
    RunReplay,
    group_by_cause,
)

FIX = "revert the change of mz, or add it to mz_recordings/history/changes.py"
FIELDS_MAX = 20


def findings_of(history: RunReplay) -> tuple[Finding, ...]:
    """Return one finding per cause, in order of first occurrence."""
    return tuple(_finding(cause) for cause in group_by_cause(history.divergences))


def _finding(cause: DivergenceCause) -> Finding:
    first, more = cause.first, len(cause.event_refs) - 1
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
        yield f"- {divergence.recorded or 'nothing'}" if divergence.kind != "extra" else f"- nothing; next is {divergence.recorded}"
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
