"""`mz cost`: sums of money and tokens, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import field
from msgspec.structs import replace
from mz_engine.pricing.calibration import FITTING_RATIOS, GROUP_CALLS_MIN
from mz_projections.cost.totals import CallSummary, CauseTotals, PricedCall, Spending, Totals, has_calibration_data

from mz_cli.app.selectors import part_text
from mz_cli.common.run_text import NOT_REPORTED, UNPRICED
from mz_cli.terminal.table import Cell, Table, columns, count_cell, elapsed_cell, usd_cell
from mz_cli.terminal.text import compact_number, count_noun, exact_usd, rounded_usd

NO_CALLS = "No agent was called."
DETAILS_MAX = 5
DETAILED_CAUSES = ("cache-lifetime", "tier", "promotion", "sub-agent")
"""Causes that are explained below the table."""


class CostReport(Spending, frozen=True, kw_only=True):
    """`mz cost --json`. Every call is in exactly one group: the groups add up to `total`."""

    repository: str
    run: str | None
    """Null: all runs."""
    feature: str | None
    """Null: all features."""
    phase: str | None
    attempt: int | None
    since_us: int | None = field(name="since")
    until_us: int | None = field(name="until")
    """End of the period, exclusive."""
    prices_on: str | None
    """With `--prices`: the day whose prices were used."""
    notes: tuple[str, ...]
    """Known gaps in the sums."""


def in_backlog_order(spending: Spending, features: Sequence[str]) -> Spending:
    """Return the spending with groups by feature in the order of the backlog; other groups stay as they are."""
    if spending.by != "feature":
        return spending
    positions = {feature: position for position, feature in enumerate(features)}
    ordered = sorted(spending.groups, key=lambda group: positions.get(group.name, len(positions)))
    return replace(spending, groups=tuple(ordered))


# tables ---------------------------------------------------------------------------------------------------------------
def cost_table(spending: Spending) -> Table:
    """Return the groups, their total, and the wasted part. In a pipe a first column names the section."""
    single, what_if = spending.by == "attempt", spending.what_if
    heads = columns(
        "|of", f"{spending.by}|name", "outcome" if single else "|outcome", ">calls", ">time|duration_s", ">tokens|",
        ">|in", ">|out", ">estimated", ">reported", ">computed", ">difference", ">|underestimate", ">|unpriced",
        "cause", *((">what if", ">change") if what_if else ()),
    )  # fmt: skip

    def row(section: str, name: Cell, totals: Totals, outcome: str = "", cause: str = "",
            other: tuple[int | None, int | None] = (None, None)) -> tuple[str, ...]:  # fmt: skip
        other_cells = (usd_cell(other[0]), _difference_cell(other[1])) if what_if else ()
        return section, name, outcome, *_cells(totals), cause, *other_cells

    rows = []
    for group in spending.groups:
        name = Cell(call_name(group.call) if group.call else group.name, group.name)
        outcome, other = group.call.outcome if group.call else "", (group.what_if_nanousd, group.what_if_change_nanousd)
        rows.append(row(spending.by, name, group, outcome, _cause_cell(group.causes), other))
    total = (what_if.nanousd, what_if.change_nanousd) if what_if else (None, None)
    rows.append(row("total", Cell("total", ""), spending.total, "", _cause_cell(spending.causes), total))
    if spending.wasted.calls:
        rows.append(row("wasted", Cell("wasted", ""), spending.wasted))
    for totals in spending.wasted_by_outcome:
        rows.append(row("wasted", Cell(f"- {totals.outcome}", totals.outcome), totals))
    return Table(columns=heads, rows=rows if spending.groups else (), empty=NO_CALLS)


def _cells(totals: Totals) -> tuple[str, ...]:
    tokens = (totals.input_tokens, totals.output_tokens)
    together = None if None in tokens else sum(filter(None, tokens))
    return (
        count_cell(totals.calls), elapsed_cell(totals.duration_us), compact_number(together),
        *map(count_cell, tokens), usd_cell(totals.estimated_nanousd, UNPRICED),
        reported_cell(totals.reported_nanousd), usd_cell(totals.computed_nanousd, UNPRICED),
        _difference_cell(totals.difference_nanousd),
        _difference_cell(totals.underestimate_nanousd), count_cell(totals.unpriced_calls),
    )  # fmt: skip


def reported_cell(nanousd: int | None) -> Cell:
    return Cell(rounded_usd(nanousd) or "-", exact_usd(nanousd) or NOT_REPORTED)


def _difference_cell(nanousd: int | None) -> Cell:
    """Return a difference with its sign; `-` if unknown."""
    if nanousd is None:
        return Cell("-", "-")
    sign = "-" if nanousd < 0 else "+" if nanousd else ""
    return Cell(f"{sign}{rounded_usd(abs(nanousd))}", f"{sign}{exact_usd(abs(nanousd))}")


def _cause_cell(causes: Sequence[CauseTotals]) -> Cell:
    """Return the only cause, or all with their numbers of calls. On a terminal matches are left out beside mismatches,
    and several causes are only counted."""
    if len(causes) == 1:
        return Cell(causes[0].cause, causes[0].cause)
    shown = cause_counts(cause for cause in causes if cause.cause != "match")
    return Cell(shown[0] if len(shown) == 1 else count_noun(len(shown), "cause"), ", ".join(cause_counts(causes)))


def cause_counts(causes: Iterable[CauseTotals]) -> tuple[str, ...]:
    """Return `3 match`, `1 tier`."""
    return tuple(f"{cause.calls:,} {cause.cause}" for cause in causes)


def call_name(call: CallSummary) -> str:
    """Return the selector of a call, without the run."""
    return f"{call.feature}{part_text(call.phase, call.unit, call.iteration, call.attempt, call.role)}"


# notes ----------------------------------------------------------------------------------------------------------------
def remarks(spending: Spending, calls: Sequence[PricedCall]) -> tuple[str, ...]:
    """Return notes on missing amounts and on the quality of estimates."""
    lines = []
    if len(spending.causes) > 1:
        lines.append(f"reported compared with computed: {', '.join(cause_counts(spending.causes))}")
    if spending.total.unpriced_calls:
        unpriced = count_noun(spending.total.unpriced_calls, "call")
        lines.append(f"{unpriced} without a computed price: the cost may be more than `computed` says")
    if spending.total.open_calls:
        lines.append(f"{count_noun(spending.total.open_calls, 'call')} not ended yet")
    error = spending.estimate_error
    if error is not None and error > FITTING_RATIOS[1] - 1:
        usable_calls = Counter(priced.call.agent for priced in calls if has_calibration_data(priced.call))
        can_calibrate = max(usable_calls.values(), default=0) >= GROUP_CALLS_MIN
        hint = "; `mz calibrate` improves token estimates" if can_calibrate else ""
        lines.append(f"error of estimated money: {error:.0%} (median of the calls){hint}")
    return tuple(lines)


def cause_details(calls: Sequence[PricedCall]) -> tuple[str, ...]:
    """Return explanations of the causes, each once, preceded by agents that report no money."""
    details = (f"{call.cause}: {call.detail}" for call in calls if call.detail and call.cause in DETAILED_CAUSES)
    explanations = list(dict.fromkeys(details))
    more = len(explanations) - DETAILS_MAX
    omitted = [f"and {more} more: mz cost --by attempt"] if more > 0 else []
    return (*_agents_without_costs(calls), *explanations[:DETAILS_MAX], *omitted)


def _agents_without_costs(calls: Sequence[PricedCall]) -> tuple[str, ...]:
    """Return a note on agents whose calls have no cause because none of them reported money."""
    reporting = {priced.call.agent for priced in calls if priced.call.reported_nanousd is not None}
    unknown = (priced.call for priced in calls if priced.cause == "unknown")
    silent = sorted({call.agent for call in unknown if call.computed_nanousd is not None} - reporting)
    return (f"{', '.join(silent)} reported no money: nothing to compare with `computed`",) if silent else ()
