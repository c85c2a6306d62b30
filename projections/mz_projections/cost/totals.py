"""Totals of agent calls: in groups, overall, and wasted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Literal, get_args

import msgspec
from msgspec.structs import asdict

from mz_projections.feature.calls import WASTED, Call, CallOutcome
from mz_projections.usage import sum_known

GroupBy = Literal["run", "phase", "feature", "agent", "model", "day", "week", "month", "cause", "attempt"]
CauseCode = Literal["match", "cache-lifetime", "tier", "promotion", "sub-agent", "killed", "unexplained", "unknown"]
CAUSE_CODES: tuple[CauseCode, ...] = get_args(CauseCode)
"""Causes of a match or mismatch between reported and computed cost, in the order of reports."""
DayOf = Callable[[int], date]
"""Maps microseconds since the epoch to a local day."""


class PricedCall(msgspec.Struct, frozen=True):
    """A call and the cause of a cost mismatch."""

    call: Call
    cause: CauseCode = "unknown"
    detail: str = ""
    """Explanation of the cause; may be empty."""
    alternative_nanousd: int | None = None
    """Cost of the same tokens with another model, if requested."""


class Totals(msgspec.Struct, frozen=True):
    """Sums of the known values over some calls; None if none is known. JSON documents contain it."""

    calls: int
    open_calls: int
    """Calls that have not ended."""
    unpriced_calls: int
    """Ended calls missing in the computed sum: no price, or unknown token counts."""
    duration_us: int | None
    """Sum over the ended calls, also where they ran at the same time."""
    input_tokens: int | None
    """Including cache reads and writes."""
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    estimated_nanousd: int | None
    """Estimated before the calls."""
    reported_nanousd: int | None
    """Reported by the agents."""
    computed_nanousd: int | None
    """Tokens of each request at the price of its day."""
    charged_nanousd: int | None
    """Charged to the budgets: the highest known amount of each call."""
    difference_nanousd: int | None
    """Reported minus computed, over the calls with both."""
    underestimate_nanousd: int | None
    """Paid (computed, else reported) minus estimated, over the calls with both."""


class CauseTotals(msgspec.Struct, frozen=True):
    """Calls with the same cause."""

    cause: CauseCode
    calls: int
    difference_nanousd: int | None
    """Reported minus computed, over the calls with both."""


class CallSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Position and outcome of one call."""

    run: str
    feature: str
    phase: str
    unit: str = ""
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    requested_at_us: int
    outcome: CallOutcome
    cause: CauseCode
    cause_detail: str
    """Explanation of `cause`; may be empty."""
    prices: str
    """Name, version and digest of the price table; empty: not priced."""


class Group(Totals, frozen=True, kw_only=True):
    name: str
    wasted: Totals
    """Wasted calls of the group."""
    call: CallSummary | None
    """With `--by attempt`."""
    causes: tuple[CauseTotals, ...]
    what_if_nanousd: int | None
    """With `--what-if`."""
    what_if_change_nanousd: int | None
    """`what_if_usd` minus the paid amount, over the calls with both."""


class OutcomeTotals(Totals, frozen=True, kw_only=True):
    outcome: CallOutcome


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of the same tokens with other models."""

    models: dict[str, str]
    """A model, a tier, or `model` for all -> the other model."""
    nanousd: int | None
    paid_nanousd: int | None
    """Known cost of the same calls as paid."""
    change_nanousd: int | None
    """`usd` minus the paid amount, over the calls with both."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    by: GroupBy
    groups: tuple[Group, ...]
    """In the order of their first call."""
    total: Totals
    causes: tuple[CauseTotals, ...]
    wasted: Totals
    """Wasted calls: failed, lost or rejected, or superseded by a rollback."""
    wasted_by_outcome: tuple[OutcomeTotals, ...]
    """Only outcomes that occurred."""
    what_if: WhatIf | None
    estimate_error: float | None
    """Error of cost estimates: median over the calls of |estimated - paid| / paid."""


def totals(calls: Iterable[Call]) -> Totals:
    call_list = tuple(calls)
    return Totals(
        len(call_list),
        sum(call.status == "open" for call in call_list),
        sum(call.computed_nanousd is None and call.status != "open" for call in call_list),
        *(sum_known(getattr(call, name) for call in call_list) for name in Totals.__struct_fields__[3:]),
    )


def priced_calls(calls: Iterable[Call]) -> tuple[PricedCall, ...]:
    """Return the calls in the order of their requests."""
    return tuple(map(PricedCall, sorted(calls, key=lambda call: call.requested_at_us)))


def utc_day(at_us: int) -> date:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).date()


def spending(
    calls: Iterable[PricedCall], by: GroupBy, day_of: DayOf = utc_day, models: dict[str, str] | None = None
) -> Spending:
    """Return the totals. Every call is in exactly one group, so the groups add up to the total. `models`: those that
    the alternative costs are of."""
    call_list = tuple(calls)
    groups: dict[str, list[PricedCall]] = {}
    for priced in call_list:
        groups.setdefault(group_name(priced, by, day_of), []).append(priced)
    compared = [priced for priced in call_list if priced.alternative_nanousd is not None]
    what_if = WhatIf(
        models=models or {},
        nanousd=sum_known(priced.alternative_nanousd for priced in call_list),
        paid_nanousd=sum_known(priced.call.paid_nanousd for priced in compared),
        change_nanousd=_change_nanousd(call_list),
    )
    wasted = [priced.call for priced in call_list if priced.call.outcome in WASTED]
    by_outcome = [(outcome, totals(call for call in wasted if call.outcome == outcome)) for outcome in WASTED]
    return Spending(
        by=by,
        groups=tuple(_group(name, members, by) for name, members in groups.items()),
        total=_sum(call_list),
        causes=cause_totals(call_list),
        wasted=totals(wasted),
        wasted_by_outcome=tuple(
            OutcomeTotals(**asdict(sums), outcome=outcome) for outcome, sums in by_outcome if sums.calls
        ),
        what_if=what_if if models else None,
        estimate_error=_estimate_error(call_list),
    )


def _group(name: str, members: list[PricedCall], by: GroupBy) -> Group:
    return Group(
        **asdict(_sum(members)),
        name=name,
        wasted=_sum(priced for priced in members if priced.call.outcome in WASTED),
        call=_call_summary(members[0]) if by == "attempt" else None,
        causes=cause_totals(members),
        what_if_nanousd=sum_known(priced.alternative_nanousd for priced in members),
        what_if_change_nanousd=_change_nanousd(members),
    )


def _call_summary(priced: PricedCall) -> CallSummary:
    names = set(CallSummary.__struct_fields__) - {"cause", "cause_detail"}
    values = {name: getattr(priced.call, name) for name in names}
    return CallSummary(**values, cause=priced.cause, cause_detail=priced.detail)


def _sum(members: Iterable[PricedCall]) -> Totals:
    return totals(priced.call for priced in members)


def _change_nanousd(members: Iterable[PricedCall]) -> int | None:
    pairs = ((priced.alternative_nanousd, priced.call.paid_nanousd) for priced in members)
    return sum_known(None if alternative is None or paid is None else alternative - paid for alternative, paid in pairs)


def cause_totals(members: Iterable[PricedCall]) -> tuple[CauseTotals, ...]:
    """Return the causes of ended calls."""
    ended = [priced for priced in members if priced.call.status != "open"]
    calls_by_cause = [(cause, [priced.call for priced in ended if priced.cause == cause]) for cause in CAUSE_CODES]
    return tuple(
        CauseTotals(cause, len(calls), sum_known(call.difference_nanousd for call in calls))
        for cause, calls in calls_by_cause
        if calls
    )


def _estimate_error(members: Iterable[PricedCall]) -> float | None:
    from statistics import median  # Slow, and other commands import this module for its types.

    errors = [(priced.call.underestimate_nanousd, priced.call.paid_nanousd) for priced in members]
    relative_errors = [abs(error) / paid for error, paid in errors if error is not None and paid]
    return round(median(relative_errors), 4) if relative_errors else None


def has_calibration_data(call: Call) -> bool:
    """Return True if the call succeeded with known tokens, so that it can be used for calibration."""
    has_tokens = bool(call.input_tokens) and call.output_tokens is not None
    return call.status == "replied" and call.ending == "success" and has_tokens


def group_name(priced: PricedCall, by: GroupBy, day_of: DayOf = utc_day) -> str:
    """Return the group of a call; an attempt is named by its key, which is unique.

    Times are those of the request.
    """
    call = priced.call
    match by:
        case "attempt":
            return call.key
        case "cause":
            return "open" if call.status == "open" else priced.cause
        case "day" | "week" | "month":
            return time_group(day_of(call.requested_at_us), by)
    return str(getattr(call, by))


def time_group(day: date, by: Literal["day", "week", "month"]) -> str:
    """Return `2026-03-01`, `2026-W09` (ISO 8601) or `2026-03`."""
    return day.strftime({"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}[by])
