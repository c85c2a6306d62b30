"""Findings of a past-run replay, in the form that all replays share."""

from __future__ import annotations

from collections.abc import Iterator

from mz_recordings.findings import Finding
from mz_recordings.history.divergence import PARTINGS, Cause, Difference, Divergence, History, grouped

MEND = "revert the change of mz, or add it to mz_recordings/history/changes.py"
FIELDS_MAX = 20


def findings_of(history: History) -> tuple[Finding, ...]:
    """Return one finding per cause, in order of first occurrence."""
    return tuple(_finding(cause) for cause in grouped(history.divergences))


def _finding(cause: Cause) -> Finding:
    first, more = cause.first, len(cause.places) - 1
    where = f"{first.place}{f' and {more} more events' if more > 1 else ' and 1 more event' if more else ''}"
    return Finding(
        kind=first.finding,
        what=f"at {where}: {PARTINGS[first.kind]}",
        feature=_feature(first.place),
        cause=first.produced or first.recorded or "",
        detail=tuple(lines_of(first)),
        mend=MEND,
    )


def _feature(place: str) -> str:
    """Return the feature of an event reference; empty for the run's stream."""
    _, _, feature = place.partition("@")[0].removeprefix("run/").partition("/")
    return feature


def lines_of(one: Divergence) -> Iterator[str]:
    """Yield the differences, one line per field: `-` recorded, `+` current; then the lines of a text that differ."""
    if one.recorded == one.produced and one.differences:
        yield f"  {one.recorded}"
    else:
        yield f"- {one.recorded or 'nothing'}" if one.kind != "extra" else f"- nothing; next is {one.recorded}"
        yield f"+ {one.produced or 'nothing'}"
    for each in one.differences[:FIELDS_MAX]:
        yield from _field(each)
    if len(one.differences) > FIELDS_MAX:
        yield f"  ... and {len(one.differences) - FIELDS_MAX} more fields"
    if one.note:
        yield f"  {one.note}"


def _field(each: Difference) -> Iterator[str]:
    if each.lines:
        yield f"  {each.field}:"
        yield from each.lines
        return
    if each.recorded is not None:
        yield f"-   {each.field}: {each.recorded}"
    if each.produced is not None:
        yield f"+   {each.field}: {each.produced}"
