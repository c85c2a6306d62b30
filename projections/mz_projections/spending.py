"""Totals of agent calls: in groups, overall, and wasted."""

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
"""Causes of a match or mismatch between reported and computed cost, in the order of reports."""
DayOf = Callable[[int], date]
"""Maps microseconds since the epoch to a local day."""


class Judged(msgspec.Struct, frozen=True):
    """A call, its outcome and the cause of a cost mismatch."""

    call: CallCost
    fate: Fate
    why: Why = "unknown"
    detail: str = ""
    """Explanation of the cause; may be empty."""
    other_nanousd: int | None = None
    """Cost of the same tokens with another model, if requested."""


class Reason(msgspec.Struct, frozen=True):
    """Calls with the same cause."""

    why: Why
    calls: int
    difference_nanousd: int | None
    """Reported minus computed, over the calls with both."""


class Group(msgspec.Struct, frozen=True):
    name: str
    totals: Totals
    wasted: Totals
    """Wasted calls of the group."""
    only: Judged | None = None
    """The call, if each group is a single call."""
    reasons: tuple[Reason, ...] = ()
    other_nanousd: int | None = None
    """As in `PricedCall`, over the calls where it is known."""
    change_nanousd: int | None = None
    """That minus the paid cost, over the calls with both."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    by: By
    groups: tuple[Group, ...]
    """In the order of their first call."""
    total: Totals
    wasted: Totals
    """Wasted calls."""
    wasted_by_fate: tuple[tuple[Fate, Totals], ...]
    """Only outcomes that occurred."""
    reasons: tuple[Reason, ...] = ()
    other_nanousd: int | None = None
    compared_nanousd: int | None = None
    """Paid cost of the calls where `alternative_nanousd` is known."""
    change_nanousd: int | None = None
    """As in `Group`."""
    estimate_error: float | None = None
    """Median of |estimate - paid| / paid over the calls with both; None without any."""
    told: int = 0
    """Successful calls with known tokens, of the agent with most of them: the basis of a calibration."""


def judged(calls: Iterable[CallCost], courses: Mapping[StreamId, Course]) -> tuple[Judged, ...]:
    """Return the calls in the order of their requests, each with its outcome."""
    ordered = sorted(calls, key=lambda call: call.requested_at_us)
    return tuple(Judged(call, fate_of(call, _course(call, courses))) for call in ordered)


def _course(call: CallCost, courses: Mapping[StreamId, Course]) -> Course:
    return courses.get(feature_stream(call.run, call.feature)) or Course(call.run, call.feature)


def utc_day(at_us: int) -> date:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).date()


def spending(calls: Iterable[Judged], by: By, day_of: DayOf = utc_day) -> Spending:
    """Return the totals. Every call is in exactly one group, so the groups add up to the total."""
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
    """Return the causes of ended calls."""
    ended = [each for each in members if each.call.outcome != "open"]
    counted = [(why, [each.call for each in ended if each.why == why]) for why in WHYS]
    return tuple(Reason(why, len(calls), _known(map(difference, calls))) for why, calls in counted if calls)


def _estimate_error(members: Iterable[Judged]) -> float | None:
    offs = [(missed(each.call), paid_nanousd(each.call)) for each in members]
    shares = [abs(off) / paid for off, paid in offs if off is not None and paid]
    return median(shares) if shares else None


def tells(call: CallCost) -> bool:
    """Return True if the call succeeded with known tokens, so that it can be used for calibration."""
    return call.outcome == "replied" and call.terminal == "success" and bool(call.input) and call.output is not None


def name_of(judged: Judged, by: By, day_of: DayOf = utc_day) -> str:
    """Return the group of a call; an attempt is named by its key, which is unique.

    Times are those of the request: `2026-03-01`, `2026-W09` (ISO 8601), `2026-03`.
    """
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
    """Return the call repriced by another table."""
    return replace(judged, call=replace(judged.call, computed_nanousd=nanousd))
