"""Pure: what agent calls cost, in groups, in all, and for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from statistics import median
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.names import StreamId, feature_stream

from mz_projections.cost import CallCost, Totals, difference, missed, paid_nanousd, totals
from mz_projections.fates import WASTED, Course, Fate, fate_of

By = Literal["run", "phase", "feature", "agent", "model", "day", "week", "month", "why", "attempt"]
Why = Literal["agree", "cache-lifetime", "tier", "promotion", "sub-agent", "killed", "unexplained", "unknown"]
WHYS: tuple[Why, ...] = (
    "agree", "cache-lifetime", "tier", "promotion", "sub-agent", "killed", "unexplained", "unknown",
)  # fmt: skip
"""Why what an agent reported is, or is not, what its tokens come to; in the order in which they are reported."""
DayOf = Callable[[int], date]
"""Microseconds since the epoch -> the day that people call it."""


class Judged(msgspec.Struct, frozen=True):
    """A call and what became of it."""

    call: CallCost
    fate: Fate
    why: Why = "unknown"
    detail: str = ""
    """More of why, in words; empty where there is no more to say."""
    other_nanousd: int | None = None
    """What the same tokens would have cost under another model, where that was asked."""


class Reason(msgspec.Struct, frozen=True):
    """Calls with one and the same reason."""

    why: Why
    calls: int
    difference_nanousd: int | None
    """Reported less computed, where both are known."""


class Group(msgspec.Struct, frozen=True):
    name: str
    totals: Totals
    wasted: Totals
    """Of the group's calls, those that were thrown away."""
    only: Judged | None = None
    """The call, where each is a group of its own."""
    reasons: tuple[Reason, ...] = ()
    other_nanousd: int | None = None
    """As in `Judged`, over the calls of which it is known."""
    change_nanousd: int | None = None
    """What that is more than what was paid, over the calls of which both are known."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    by: By
    groups: tuple[Group, ...]
    """In the order in which they first cost something."""
    total: Totals
    wasted: Totals
    """Calls that were thrown away."""
    wasted_by_fate: tuple[tuple[Fate, Totals], ...]
    """Fates that some call had."""
    reasons: tuple[Reason, ...] = ()
    other_nanousd: int | None = None
    compared_nanousd: int | None = None
    """What was paid for the calls of which `other_nanousd` is known."""
    change_nanousd: int | None = None
    """As in `Group`."""
    estimate_error: float | None = None
    """Median of |estimate - paid| / paid over the calls of which both are known; None without any."""
    told: int = 0
    """Calls that ended well and told their tokens, of the agent that has most of them: what a calibration goes by."""


def judged(calls: Iterable[CallCost], courses: Mapping[StreamId, Course]) -> tuple[Judged, ...]:
    """The calls in the order of their requests, each with its fate."""
    ordered = sorted(calls, key=lambda call: call.requested_at_us)
    return tuple(Judged(call, fate_of(call, _course(call, courses))) for call in ordered)


def _course(call: CallCost, courses: Mapping[StreamId, Course]) -> Course:
    return courses.get(feature_stream(call.run, call.feature)) or Course(call.run, call.feature)


def utc_day(at_us: int) -> date:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).date()


def spending(calls: Iterable[Judged], by: By, day_of: DayOf = utc_day) -> Spending:
    """The sums. Every call is in exactly one group, so the groups add up to the total."""
    listed = tuple(calls)
    groups: dict[str, list[Judged]] = {}
    for each in listed:
        groups.setdefault(name_of(each, by, day_of), []).append(each)
    compared = [each for each in listed if each.other_nanousd is not None]
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
        reasons=reasons(listed),
        other_nanousd=_other(listed),
        compared_nanousd=_known(paid_nanousd(each.call) for each in compared),
        change_nanousd=_change(listed),
        estimate_error=_estimate_error(listed),
        told=max(Counter(each.call.agent for each in listed if tells(each.call)).values(), default=0),
    )


def _group(name: str, members: list[Judged], by: By) -> Group:
    wasted = _sum(each for each in members if each.fate in WASTED)
    only = members[0] if by == "attempt" else None
    return Group(name, _sum(members), wasted, only, reasons(members), _other(members), _change(members))


def _sum(members: Iterable[Judged]) -> Totals:
    return totals(each.call for each in members)


def _other(members: Iterable[Judged]) -> int | None:
    return _known(each.other_nanousd for each in members)


def _change(members: Iterable[Judged]) -> int | None:
    both = ((each.other_nanousd, paid_nanousd(each.call)) for each in members)
    return _known(None if other is None or paid is None else other - paid for other, paid in both)


def _known(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def reasons(members: Iterable[Judged]) -> tuple[Reason, ...]:
    """Those that some call that ended has."""
    ended = [each for each in members if each.call.outcome != "open"]
    counted = [(why, [each.call for each in ended if each.why == why]) for why in WHYS]
    return tuple(Reason(why, len(calls), _known(map(difference, calls))) for why, calls in counted if calls)


def _estimate_error(members: Iterable[Judged]) -> float | None:
    offs = [(missed(each.call), paid_nanousd(each.call)) for each in members]
    shares = [abs(off) / paid for off, paid in offs if off is not None and paid]
    return median(shares) if shares else None


def tells(call: CallCost) -> bool:
    """Whether it ended well and its tokens are known: others say nothing of what the work takes."""
    return call.outcome == "replied" and call.terminal == "success" and bool(call.input) and call.output is not None


def name_of(judged: Judged, by: By, day_of: DayOf = utc_day) -> str:
    """The group that a call belongs to; an attempt is named by its key, which is unique. Times are those of the
    request: `2026-03-01`, `2026-W09` (ISO 8601), `2026-03`."""
    call = judged.call
    match by:
        case "attempt":
            return call.key
        case "why":
            return "open" if call.outcome == "open" else judged.why
        case "day":
            return day_of(call.requested_at_us).isoformat()
        case "week":
            year, week, _ = day_of(call.requested_at_us).isocalendar()
            return f"{year}-W{week:02d}"
        case "month":
            return day_of(call.requested_at_us).isoformat()[:7]
    return str(getattr(call, by))


def computed_anew(judged: Judged, nanousd: int | None) -> Judged:
    """The call as if another table had priced it."""
    return replace(judged, call=replace(judged.call, computed_nanousd=nanousd))
