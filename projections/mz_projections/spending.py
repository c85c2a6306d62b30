"""Pure: what agent calls cost, in groups, in all, and for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from mz_events.names import StreamId, feature_stream

from mz_projections.cost import CallCost, Totals, totals
from mz_projections.fates import WASTED, Course, Fate, fate_of

By = Literal["run", "phase", "feature", "agent", "model", "attempt"]


class Judged(msgspec.Struct, frozen=True):
    """A call and what became of it."""

    call: CallCost
    fate: Fate


class Group(msgspec.Struct, frozen=True):
    name: str
    totals: Totals
    wasted: Totals
    """Of the group's calls, those that were thrown away."""
    only: Judged | None = None
    """The call, where each is a group of its own."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    by: By
    groups: tuple[Group, ...]
    """In the order in which they first cost something."""
    total: Totals
    wasted: Totals
    """Calls that were thrown away."""
    wasted_by_fate: tuple[tuple[Fate, Totals], ...]
    """Fates that some call had."""


def judged(calls: Iterable[CallCost], courses: Mapping[StreamId, Course]) -> tuple[Judged, ...]:
    """The calls in the order of their requests, each with its fate."""
    ordered = sorted(calls, key=lambda call: call.requested_at_us)
    return tuple(Judged(call, fate_of(call, _course(call, courses))) for call in ordered)


def _course(call: CallCost, courses: Mapping[StreamId, Course]) -> Course:
    return courses.get(feature_stream(call.run, call.feature)) or Course(call.run, call.feature)


def spending(calls: Iterable[Judged], by: By) -> Spending:
    """The sums. Every call is in exactly one group, so the groups add up to the total."""
    listed = tuple(calls)
    groups: dict[str, list[Judged]] = {}
    for each in listed:
        groups.setdefault(name_of(each.call, by), []).append(each)
    return Spending(
        by=by,
        groups=tuple(_group(name, members, by) for name, members in groups.items()),
        total=_sum(listed),
        wasted=_sum(each for each in listed if each.fate in WASTED),
        wasted_by_fate=tuple(
            (fate, _sum(each for each in listed if each.fate == fate))
            for fate in WASTED
            if any(each.fate == fate for each in listed)
        ),
    )


def _group(name: str, members: list[Judged], by: By) -> Group:
    wasted = _sum(each for each in members if each.fate in WASTED)
    return Group(name, _sum(members), wasted, members[0] if by == "attempt" else None)


def _sum(members: Iterable[Judged]) -> Totals:
    return totals(each.call for each in members)


def name_of(call: CallCost, by: By) -> str:
    """The group that a call belongs to; an attempt is named by its key, which is unique."""
    return call.key if by == "attempt" else str(getattr(call, by))
