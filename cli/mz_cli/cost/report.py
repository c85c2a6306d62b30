"""`mz cost`: sums of money and tokens, as JSON, table and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_engine.pricing.calibration import FITTING_RATIOS, GROUP_CALLS_MIN
from mz_projections.cost.totals import CauseTotals, Group, PricedCall, Spending, Totals
from mz_projections.feature.calls import Call

from mz_cli.app.selectors import Selector
from mz_cli.common.run_text import NOT_REPORTED, UNPRICED
from mz_cli.cost.json import Amounts, CallOutcomeShape, CostGroup, CostReport, MismatchCount, OutcomeAmounts, WhatIf
from mz_cli.terminal.json import shape_of
from mz_cli.terminal.table import Table, columns, elapsed_cell
from mz_cli.terminal.text import compact_number, count_noun, exact_usd, iso_time, rounded_usd, single_line

WASTED = "wasted"
NO_CALLS = "No agent was called."
NUMBERS = (">calls", ">duration_s", ">in", ">out", ">estimated", ">reported", ">computed", ">difference")
TERMINAL_HEADS = (">calls", ">time", ">tokens", ">estimated", ">reported", ">computed", ">difference")
"""On a terminal, where the table has to fit."""
PIPE_HEADS = (*NUMBERS, ">missed", ">unpriced", "cause")
"""In a pipe."""
WHAT_IF_HEADS = (">what if", ">change")
LAST_CSV_COLUMNS = ("reasons", "thrown_away_calls", "thrown_away_usd", "what_if_usd", "change_usd")
"""Last columns of the CSV."""
DETAILS_MAX = 5
DETAILED_CAUSES = ("cache-lifetime", "tier", "promotion", "sub-agent")
"""Causes that are explained below the table."""
"""Display texts of causes and of call outcomes, where they differ from the JSON value."""


class CostReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a cost report."""

    repository: str
    selected: Selector | None
    """None: all runs."""
    since_us: int | None = None
    until_us: int | None = None
    prices_on: str | None = None
    what_if: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def in_backlog_order(spending: Spending, features: Sequence[str]) -> Spending:
    """Return the spending with groups by feature in the order of the backlog; other groups stay as they are."""
    if spending.by != "feature":
        return spending
    positions = {feature: position for position, feature in enumerate(features)}
    ordered = sorted(spending.groups, key=lambda group: positions.get(group.name, len(positions)))
    return replace(spending, groups=tuple(ordered))


def cost_report(spending: Spending, options: CostReportOptions) -> CostReport:
    selected = options.selected
    what_if = WhatIf(
        models=dict(options.what_if),
        usd=exact_usd(spending.alternative_nanousd),
        paid_usd=exact_usd(spending.compared_nanousd),
        change_usd=exact_usd(spending.change_nanousd),
    )
    return CostReport(
        repository=options.repository, by=spending.by,
        run=selected.run if selected else None, feature=selected.feature if selected else None,
        phase=selected.phase if selected else None, attempt=selected.attempt if selected else None,
        since=iso_time(options.since_us), until=iso_time(options.until_us), prices_on=options.prices_on,
        groups=tuple(_group_shape(group) for group in spending.groups),
        total=amounts(spending.total), why=_cause_counts(spending.causes), thrown_away=amounts(spending.wasted),
        thrown_away_by_outcome=tuple(
            shape_of(OutcomeAmounts, sums, outcome=outcome, **_renamed_amounts(sums))
            for outcome, sums in spending.wasted_by_outcome
        ),
        what_if=what_if if options.what_if else None,
        estimate_error=None if spending.estimate_error is None else round(spending.estimate_error, 4),
        notes=(*remarks(spending), *options.notes),
    )  # fmt: skip


def _cause_counts(reasons: Sequence[CauseTotals]) -> tuple[MismatchCount, ...]:
    return tuple(shape_of(MismatchCount, reason, why=reason.cause) for reason in reasons)


def amounts(sums: Totals) -> Amounts:
    """Return the sums for JSON."""
    return shape_of(Amounts, sums, **_renamed_amounts(sums))


def _renamed_amounts(sums: Totals) -> dict[str, Any]:
    """Return the amounts whose names differ in JSON."""
    tokens = ("input", "output", "cache_read", "cache_write")
    return {
        **{f"{name}_tokens": getattr(sums, name) for name in tokens},
        "open_calls": sums.open,
        "unpriced_calls": sums.unpriced,
        "duration_ms": None if sums.duration_us is None else sums.duration_us // 1000,
        "settled_usd": exact_usd(sums.charged_nanousd),
        "missed_usd": exact_usd(sums.underestimate_nanousd),
    }


def _group_shape(group: Group) -> CostGroup:
    call = _call_shape(group.single_call) if group.single_call else None
    return shape_of(
        CostGroup, group.totals, name=group.name, call=call, thrown_away=amounts(group.wasted),
        why=_cause_counts(group.causes), what_if_usd=exact_usd(group.alternative_nanousd),
        **_renamed_amounts(group.totals),
    )  # fmt: skip


def _call_shape(priced_call: PricedCall) -> CallOutcomeShape:
    return shape_of(
        CallOutcomeShape,
        priced_call.call,
        outcome=priced_call.outcome,
        why=priced_call.cause,
        why_detail=priced_call.detail,
    )


# tables ---------------------------------------------------------------------------------------------------------------
def cost_table(spending: Spending, exact: bool, *, compared: bool = False) -> Table:
    """Return the groups, their total, and the wasted part. In a pipe (`exact`) a first column names the section, and
    money and tokens are exact. `compared`: with columns for the cost under another model."""
    single = spending.by == "attempt"

    def other(nanousd: int | None, change: int | None) -> tuple[str, ...]:
        return (_money(nanousd, exact) or "-", _signed(change, exact)) if compared else ()

    rows = [
        (spending.by, _group_name(spending, group, exact), group.single_call.outcome if group.single_call else "",
         *_cells(group.totals, exact), _cause_cell(group.causes, exact),
         *other(group.alternative_nanousd, group.change_nanousd))
        for group in spending.groups
    ]  # fmt: skip
    no_what_if = other(None, None)
    rows.append(
        ("total", "", "", *_cells(spending.total, exact), _cause_cell(spending.causes, exact),
         *other(spending.alternative_nanousd, spending.change_nanousd))
    )  # fmt: skip
    if exact or spending.wasted.calls:
        rows.append((WASTED, "", "", *_cells(spending.wasted, exact), "", *no_what_if))
    rows += [(WASTED, fate, "", *_cells(sums, exact), "", *no_what_if) for fate, sums in spending.wasted_by_outcome]
    if exact:
        heads = columns("of", "name", "outcome", *PIPE_HEADS, *(WHAT_IF_HEADS if compared else ()))
        return Table(columns=heads, rows=tuple(rows), empty=NO_CALLS)
    terminal_rows = tuple(
        (_row_label(section, name), *([outcome] if single else []), *cells) for section, name, outcome, *cells in rows
    )
    heads_shown = (*(["outcome"] if single else []), *TERMINAL_HEADS, "cause", *(WHAT_IF_HEADS if compared else ()))
    return Table(
        columns=columns(spending.by, *heads_shown), rows=terminal_rows if spending.groups else (), empty=NO_CALLS
    )


def _cause_cell(reasons: Sequence[CauseTotals], exact: bool) -> str:
    """Return the only cause, or all with their numbers of calls. On a terminal matches are left out beside mismatches,
    and several causes are only counted."""
    listed = [reason for reason in reasons if exact or reason.cause != "match"] or list(reasons)
    if len(reasons) == 1:
        return reasons[0].cause
    return ", ".join(cause_counts(listed)) if exact or len(listed) < 2 else count_noun(len(listed), "cause")


def cause_counts(reasons: Iterable[CauseTotals]) -> tuple[str, ...]:
    """Return `3 match`, `1 tier`."""
    return tuple(f"{reason.calls:,} {reason.cause}" for reason in reasons)


def _row_label(section: str, name: str) -> str:
    return f"- {name}" if section == WASTED and name else name or section


def _group_name(spending: Spending, group: Group, exact: bool) -> str:
    return group.name if exact or group.single_call is None else call_name(group.single_call.call)


def call_name(call: Call) -> str:
    """Return feature, phase, unit and attempt of a call, with iteration and role where they are not the usual ones."""
    where = "/".join(part for part in (call.feature, call.phase, call.unit) if part)
    again = f" iteration {call.iteration}" if call.iteration > 1 else ""
    role = "" if call.role == "builder" else f" {call.role}"
    return f"{where}{role}{again} #{call.attempt}"


def _cells(sums: Totals, exact: bool) -> tuple[str, ...]:
    if not sums.calls:
        return ("0", *["-"] * (len(PIPE_HEADS) - 3), "0") if exact else ("0", *["-"] * (len(TERMINAL_HEADS) - 1))
    elapsed = elapsed_cell(sums.duration_us)
    duration = elapsed.exact if exact else elapsed
    figures = (
        _money(sums.estimated_nanousd, exact) or UNPRICED,
        _money(sums.reported_nanousd, exact) or (NOT_REPORTED if exact else "-"),
        _money(sums.computed_nanousd, exact) or UNPRICED,
        _signed(sums.difference_nanousd, exact),
    )
    if exact:
        tokens = (_token_cell(sums.input), _token_cell(sums.output))
        return (
            str(sums.calls),
            duration,
            *tokens,
            *figures,
            _signed(sums.underestimate_nanousd, exact),
            str(sums.unpriced),
        )
    together = None if sums.input is None or sums.output is None else sums.input + sums.output
    return (str(sums.calls), duration, compact_number(together), *figures)


def _token_cell(number: int | None) -> str:
    return "-" if number is None else str(number)


def _money(nanousd: int | None, exact: bool) -> str | None:
    return exact_usd(nanousd) if exact else rounded_usd(nanousd)


def _signed(nanousd: int | None, exact: bool) -> str:
    """Return a difference with its sign; `-` if unknown."""
    if nanousd is None:
        return "-"
    sign = "-" if nanousd < 0 else "+" if nanousd else ""
    return f"{sign}{_money(abs(nanousd), exact)}"


def remarks(spending: Spending) -> tuple[str, ...]:
    """Return notes on missing amounts and on the quality of estimates."""
    lines = []
    if len(spending.causes) > 1:
        lines.append(f"reported compared with computed: {', '.join(cause_counts(spending.causes))}")
    if spending.total.unpriced:
        unpriced = count_noun(spending.total.unpriced, "call")
        lines.append(f"{unpriced} without a computed price: the cost may be more than `computed` says")
    if spending.total.open:
        lines.append(f"{count_noun(spending.total.open, 'call')} not ended yet")
    if spending.estimate_error is not None and not is_calibrated(spending.estimate_error):
        error_text = f"error of estimated money: {spending.estimate_error:.0%} (median of the calls)"
        calibration_hint = (
            "; `mz calibrate` improves token estimates" if spending.calibration_calls >= GROUP_CALLS_MIN else ""
        )
        lines.append(error_text + calibration_hint)
    return tuple(lines)


def is_calibrated(error: float) -> bool:
    """Return True if estimates are as good as after a calibration."""
    return error <= FITTING_RATIOS[1] - 1


def cause_details(calls: Iterable[PricedCall]) -> tuple[str, ...]:
    """Return explanations of the causes, each once, preceded by agents that report no money."""
    listed = tuple(calls)
    explanations = dict.fromkeys(
        f"{priced_call.cause}: {priced_call.detail}"
        for priced_call in listed
        if priced_call.detail and priced_call.cause in DETAILED_CAUSES
    )
    shown = list(explanations)[:DETAILS_MAX]
    more = len(explanations) - len(shown)
    return (*_agents_without_costs(listed), *shown, *([f"and {more} more: mz cost --by attempt"] if more > 0 else []))


def _agents_without_costs(calls: Sequence[PricedCall]) -> tuple[str, ...]:
    """Return a note on agents whose calls have no cause because none of them reported money."""
    reporting = {priced_call.call.agent for priced_call in calls if priced_call.call.reported_nanousd is not None}
    unknown = {
        priced_call.call.agent
        for priced_call in calls
        if priced_call.cause == "unknown" and priced_call.call.computed_nanousd is not None
    }
    silent = sorted(unknown - reporting)
    return (f"{', '.join(silent)} reported no money: nothing to compare with `computed`",) if silent else ()


def cost_csv(spending: Spending) -> str:
    """Return the groups as CSV, unknown values empty. There is no total, since spreadsheets would add it up too."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [name for name in Amounts.__struct_fields__ if name != "calls"]
    writer.writerow([spending.by, "calls", *names, *LAST_CSV_COLUMNS])
    for group in spending.groups:
        sums = amounts(group.totals)
        wasted = (group.wasted.calls, exact_usd(group.wasted.computed_nanousd))
        other = (exact_usd(group.alternative_nanousd), exact_usd(group.change_nanousd))
        cells = (sums.calls, *(getattr(sums, name) for name in names), _cause_cell(group.causes, True), *wasted, *other)
        writer.writerow(
            [csv_name(_group_name(spending, group, True)), *("" if cell is None else cell for cell in cells)]
        )
    return out.getvalue()


def csv_name(name: str) -> str:
    """Return the name on one line, escaped if a spreadsheet would take it for a formula."""
    plain = single_line(name)
    return f"'{plain}" if plain.startswith(("=", "+", "-", "@")) else plain
