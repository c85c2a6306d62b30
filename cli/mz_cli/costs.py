"""`mz cost`: sums of money and tokens, as JSON, table and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_engine.calibration import CALLS_MIN, FITTING
from mz_projections.cost import CallCost, Totals
from mz_projections.spending import Group, Judged, Reason, Spending

from mz_cli.render.table import Table, columns
from mz_cli.render.text import compact, counted, instant, line, money, usd
from mz_cli.shapes.cost import Amounts, CallFate, CostGroup, CostReport, FateAmounts, WhatIf, WhyCount
from mz_cli.summary import NOT_REPORTED, UNPRICED

THROWN_AWAY = "wasted"
NO_CALLS = "No agent was called."
NUMBERS = (">calls", ">in", ">out", ">estimated", ">reported", ">computed", ">difference")
SHOWN = (">calls", ">tokens", ">estimated", ">reported", ">computed", ">difference")
"""On a terminal, where the table has to fit."""
ADDED = (*NUMBERS, ">missed", ">unpriced", "cause")
"""In a pipe."""
OTHER = (">what if", ">change")
AFTER_AMOUNTS = ("reasons", "thrown_away_calls", "thrown_away_usd", "what_if_usd", "change_usd")
"""Last columns of the CSV."""
DETAILS_MAX = 5
TOLD = ("cache-lifetime", "tier", "promotion", "sub-agent")
"""Causes that are explained below the table."""
CAUSE_LABELS = {"agree": "match"}
OUTCOME_LABELS = {"stands": "kept", "refused": "rejected"}
"""Display texts of causes and of call outcomes, where they differ from the JSON value."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a cost report."""

    repository: str
    run: str | None
    since_us: int | None = None
    until_us: int | None = None
    prices_on: str | None = None
    what_if: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def in_order(spending: Spending, features: Sequence[str]) -> Spending:
    """Return the spending with groups by feature in the order of the backlog; other groups stay as they are."""
    if spending.by != "feature":
        return spending
    places = {feature: place for place, feature in enumerate(features)}
    ordered = sorted(spending.groups, key=lambda group: places.get(group.name, len(places)))
    return replace(spending, groups=tuple(ordered))


def cost_report(spending: Spending, asked: Asked) -> CostReport:
    compared = WhatIf(
        models=dict(asked.what_if), usd=usd(spending.other_nanousd), paid_usd=usd(spending.compared_nanousd),
        change_usd=usd(spending.change_nanousd),
    )  # fmt: skip
    return CostReport(
        repository=asked.repository, run=asked.run, by=spending.by,
        since=instant(asked.since_us), until=instant(asked.until_us), prices_on=asked.prices_on,
        groups=tuple(_group(group) for group in spending.groups),
        total=amounts(spending.total), why=_whys(spending.reasons), thrown_away=amounts(spending.wasted),
        thrown_away_by_fate=tuple(
            FateAmounts(fate=fate, **_amounts(sums)) for fate, sums in spending.wasted_by_fate
        ),
        what_if=compared if asked.what_if else None,
        estimate_error=None if spending.estimate_error is None else round(spending.estimate_error, 4),
        notes=(*remarks(spending), *asked.notes),
    )  # fmt: skip


def _whys(reasons: Sequence[Reason]) -> tuple[WhyCount, ...]:
    return tuple(
        WhyCount(why=each.why, calls=each.calls, difference_usd=usd(each.difference_nanousd)) for each in reasons
    )


def amounts(sums: Totals) -> Amounts:
    """Return the sums for JSON."""
    return Amounts(**_amounts(sums))


def _amounts(sums: Totals) -> dict[str, Any]:
    return {
        "calls": sums.calls,
        "open_calls": sums.open,
        "unpriced_calls": sums.unpriced,
        "input_tokens": sums.input,
        "output_tokens": sums.output,
        "cache_read_tokens": sums.cache_read,
        "cache_write_tokens": sums.cache_write,
        "estimated_usd": usd(sums.estimated_nanousd),
        "reported_usd": usd(sums.reported_nanousd),
        "computed_usd": usd(sums.computed_nanousd),
        "settled_usd": usd(sums.settled_nanousd),
        "difference_usd": usd(sums.difference_nanousd),
        "missed_usd": usd(sums.missed_nanousd),
    }


def _group(group: Group) -> CostGroup:
    call = _fate(group.only) if group.only else None
    return CostGroup(
        name=group.name, call=call, thrown_away=amounts(group.wasted), why=_whys(group.reasons),
        what_if_usd=usd(group.other_nanousd), **_amounts(group.totals),
    )  # fmt: skip


def _fate(judged: Judged) -> CallFate:
    call = judged.call
    return CallFate(
        run=call.run, feature=call.feature, phase=call.phase, unit=call.unit or None, iteration=call.iteration,
        attempt=call.attempt, role=call.role, agent=call.agent, model=call.model,
        requested_at=instant(call.requested_at_us), fate=judged.fate, why=judged.why, why_detail=judged.detail,
        prices=call.prices,
    )  # fmt: skip


# tables ---------------------------------------------------------------------------------------------------------------
def cost_table(spending: Spending, whole: bool, *, compared: bool = False) -> Table:
    """Return the groups, their total, and the wasted part. In a pipe (`exact`) a first column names the section, and
    money and tokens are exact. `compared`: with columns for the cost under another model."""
    single = spending.by == "attempt"

    def other(nanousd: int | None, change: int | None) -> tuple[str, ...]:
        return (_money(nanousd, whole) or "-", _signed(change, whole)) if compared else ()

    rows = [
        (spending.by, _name(spending, group, whole), _outcome(group.only.fate) if group.only else "",
         *_cells(group.totals, whole), _why(group.reasons, whole),
         *other(group.other_nanousd, group.change_nanousd))
        for group in spending.groups
    ]  # fmt: skip
    rest = other(None, None)
    rows.append(
        ("total", "", "", *_cells(spending.total, whole), _why(spending.reasons, whole),
         *other(spending.other_nanousd, spending.change_nanousd))
    )  # fmt: skip
    if whole or spending.wasted.calls:
        rows.append((THROWN_AWAY, "", "", *_cells(spending.wasted, whole), "", *rest))
    rows += [
        (THROWN_AWAY, _outcome(fate), "", *_cells(sums, whole), "", *rest) for fate, sums in spending.wasted_by_fate
    ]
    if whole:
        heads = columns("of", "name", "outcome", *ADDED, *(OTHER if compared else ()))
        return Table(columns=heads, rows=tuple(rows), empty=NO_CALLS)
    shown = tuple((_label(of, name), *([outcome] if single else []), *cells) for of, name, outcome, *cells in rows)
    heads_shown = (*(["outcome"] if single else []), *SHOWN, "cause", *(OTHER if compared else ()))
    first, *others = columns("cause" if spending.by == "why" else spending.by, *heads_shown)
    heads = (replace(first, least=len(THROWN_AWAY)), *others)
    return Table(columns=heads, rows=shown if spending.groups else (), empty=NO_CALLS)


def _why(reasons: Sequence[Reason], whole: bool) -> str:
    """Return the only cause, or all with their numbers of calls. On a terminal matches are left out beside mismatches,
    and several causes are only counted."""
    others = [each for each in reasons if whole or each.why != "agree"] or list(reasons)
    if len(reasons) == 1:
        return CAUSE_LABELS.get(reasons[0].why, reasons[0].why)
    return ", ".join(counts(others)) if whole or len(others) < 2 else counted(len(others), "cause")


def counts(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """Return `3 match`, `1 tier`."""
    return tuple(f"{each.calls:,} {CAUSE_LABELS.get(each.why, each.why)}" for each in reasons)


def _outcome(outcome: str) -> str:
    return OUTCOME_LABELS.get(outcome, outcome)


def _label(of: str, name: str) -> str:
    return f"- {name}" if of == THROWN_AWAY and name else name or of


def _name(spending: Spending, group: Group, whole: bool) -> str:
    if spending.by == "why":
        return CAUSE_LABELS.get(group.name, group.name)
    return group.name if whole or group.only is None else call_name(group.only.call)


def call_name(call: CallCost) -> str:
    """Return feature, phase, unit and attempt of a call, with iteration and role where they are not the usual ones."""
    where = "/".join(part for part in (call.feature, call.phase, call.unit) if part)
    again = f" iteration {call.iteration}" if call.iteration > 1 else ""
    role = "" if call.role == "builder" else f" {call.role}"
    return f"{where}{role}{again} #{call.attempt}"


def _cells(sums: Totals, whole: bool) -> tuple[str, ...]:
    if not sums.calls:
        return ("0", *["-"] * (len(ADDED) - 3), "0") if whole else ("0", *["-"] * (len(SHOWN) - 1))
    figures = (
        _money(sums.estimated_nanousd, whole) or UNPRICED,
        _money(sums.reported_nanousd, whole) or (NOT_REPORTED if whole else "-"),
        _money(sums.computed_nanousd, whole) or UNPRICED,
        _signed(sums.difference_nanousd, whole),
    )
    if whole:
        tokens = (_tokens(sums.input), _tokens(sums.output))
        return (str(sums.calls), *tokens, *figures, _signed(sums.missed_nanousd, whole), str(sums.unpriced))
    together = None if sums.input is None or sums.output is None else sums.input + sums.output
    return (str(sums.calls), compact(together), *figures)


def _tokens(number: int | None) -> str:
    return "-" if number is None else str(number)


def _money(nanousd: int | None, whole: bool) -> str | None:
    return usd(nanousd) if whole else money(nanousd)


def _signed(nanousd: int | None, whole: bool) -> str:
    """Return a difference with its sign; `-` if unknown."""
    if nanousd is None:
        return "-"
    sign = "-" if nanousd < 0 else "+" if nanousd else ""
    return f"{sign}{_money(abs(nanousd), whole)}"


def remarks(spending: Spending) -> tuple[str, ...]:
    """Return notes on missing amounts and on the quality of estimates."""
    found = []
    if len(spending.reasons) > 1:
        found.append(f"reported compared with computed: {', '.join(counts(spending.reasons))}")
    if spending.total.unpriced:
        unpriced = counted(spending.total.unpriced, "call")
        found.append(f"{unpriced} without a computed price: the cost may be more than `computed` says")
    if spending.total.open:
        found.append(f"{counted(spending.total.open, 'call')} not ended yet")
    if spending.estimate_error is not None and not within(spending.estimate_error):
        said = f"error of estimated money: {spending.estimate_error:.0%} (median of the calls)"
        better = "; `mz calibrate` improves token estimates" if spending.told >= CALLS_MIN else ""
        found.append(said + better)
    return tuple(found)


def within(error: float) -> bool:
    """Return True if estimates are as good as after a calibration."""
    return error <= FITTING[1] - 1


def details(calls: Iterable[Judged]) -> tuple[str, ...]:
    """Return explanations of the causes, each once, preceded by agents that report no money."""
    listed = tuple(calls)
    told = dict.fromkeys(f"{each.why}: {each.detail}" for each in listed if each.detail and each.why in TOLD)
    shown = list(told)[:DETAILS_MAX]
    more = len(told) - len(shown)
    return (*_silent(listed), *shown, *([f"and {more} more: mz cost --by attempt"] if more > 0 else []))


def _silent(calls: Sequence[Judged]) -> tuple[str, ...]:
    """Return a note on agents whose calls have no cause because none of them reported money."""
    reporting = {each.call.agent for each in calls if each.call.reported_nanousd is not None}
    unknown = {each.call.agent for each in calls if each.why == "unknown" and each.call.computed_nanousd is not None}
    silent = sorted(unknown - reporting)
    return (f"{', '.join(silent)} reported no money: nothing to compare with `computed`",) if silent else ()


def cost_csv(spending: Spending) -> str:
    """Return the groups as CSV, unknown values empty. There is no total, since spreadsheets would add it up too."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [name for name in Amounts.__struct_fields__ if name != "calls"]
    writer.writerow([spending.by, "calls", *names, *AFTER_AMOUNTS])
    for group in spending.groups:
        sums = _amounts(group.totals)
        wasted = (group.wasted.calls, usd(group.wasted.computed_nanousd))
        other = (usd(group.other_nanousd), usd(group.change_nanousd))
        cells = (sums["calls"], *(sums[name] for name in names), _why(group.reasons, True), *wasted, *other)
        writer.writerow([csv_name(_name(spending, group, True)), *("" if cell is None else cell for cell in cells)])
    return out.getvalue()


def csv_name(name: str) -> str:
    """Return the name on one line, escaped if a spreadsheet would take it for a formula."""
    plain = line(name)
    return f"'{plain}" if plain.startswith(("=", "+", "-", "@")) else plain
