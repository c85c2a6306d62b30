"""Pure: `mz cost`: sums of money and tokens, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from mz_projections.cost import CallCost, Totals
from mz_projections.spending import Group, Judged, Spending

from mz_cli.render.table import Table, columns
from mz_cli.render.text import compact, counted, instant, money, usd
from mz_cli.shapes.cost import Amounts, CallFate, CostGroup, CostReport, FateAmounts
from mz_cli.summary import NOT_REPORTED, UNPRICED

THROWN_AWAY = "thrown away"
NO_CALLS = "No agent was called."
NUMBERS = (">calls", ">in", ">out", ">estimated", ">reported", ">computed", ">difference")


def in_order(spending: Spending, features: Sequence[str]) -> Spending:
    """By feature: the groups in the order of the backlog; others as they are."""
    if spending.by != "feature":
        return spending
    places = {feature: place for place, feature in enumerate(features)}
    ordered = sorted(spending.groups, key=lambda group: places.get(group.name, len(places)))
    return replace(spending, groups=tuple(ordered))


def cost_report(spending: Spending, repository: str, run: str | None) -> CostReport:
    return CostReport(
        repository=repository, run=run, by=spending.by,
        groups=tuple(_group(group) for group in spending.groups),
        total=amounts(spending.total), thrown_away=amounts(spending.wasted),
        thrown_away_by_fate=tuple(
            FateAmounts(fate=fate, **_amounts(sums)) for fate, sums in spending.wasted_by_fate
        ),
    )  # fmt: skip


def amounts(sums: Totals) -> Amounts:
    """The sums for JSON."""
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
    }


def _group(group: Group) -> CostGroup:
    call = _fate(group.only) if group.only else None
    return CostGroup(name=group.name, call=call, thrown_away=amounts(group.wasted), **_amounts(group.totals))


def _fate(judged: Judged) -> CallFate:
    call = judged.call
    return CallFate(
        run=call.run, feature=call.feature, phase=call.phase, unit=call.unit or None, iteration=call.iteration,
        attempt=call.attempt, role=call.role, agent=call.agent, model=call.model,
        requested_at=instant(call.requested_at_us), fate=judged.fate,
    )  # fmt: skip


# tables ---------------------------------------------------------------------------------------------------------------
def cost_table(spending: Spending, whole: bool) -> Table:
    """The groups, their total, and what of it was thrown away. In a pipe (`whole`) a first column tells these apart,
    and money and tokens are exact."""
    single = spending.by == "attempt"
    rows = [
        (spending.by, _name(group, whole), group.only.fate if group.only else "", *_cells(group.totals, whole))
        for group in spending.groups
    ]
    rows.append(("total", "", "", *_cells(spending.total, whole)))
    rows.append((THROWN_AWAY, "", "", *_cells(spending.wasted, whole)))
    rows += [(THROWN_AWAY, fate, "", *_cells(sums, whole)) for fate, sums in spending.wasted_by_fate]
    if whole:
        return Table(columns=columns("of", "name", "fate", *NUMBERS, ">unpriced"), rows=tuple(rows), empty=NO_CALLS)
    shown = tuple((_label(of, name), *([fate] if single else []), *cells) for of, name, fate, *cells in rows)
    heads = columns(spending.by, *(["fate"] if single else []), *NUMBERS)
    return Table(columns=heads, rows=shown if spending.groups else (), empty=NO_CALLS)


def _label(of: str, name: str) -> str:
    return f"- {name}" if of == THROWN_AWAY and name else name or of


def _name(group: Group, whole: bool) -> str:
    return group.name if whole or group.only is None else call_name(group.only.call)


def call_name(call: CallCost) -> str:
    """The call for people: feature, phase, unit, and what is not as usual."""
    where = "/".join(part for part in (call.feature, call.phase, call.unit) if part)
    again = f" iteration {call.iteration}" if call.iteration > 1 else ""
    role = "" if call.role == "builder" else f" {call.role}"
    return f"{where}{role}{again} #{call.attempt}"


def _cells(sums: Totals, whole: bool) -> tuple[str, ...]:
    if not sums.calls:
        return ("0", *["-"] * (len(NUMBERS) - 1), *(["0"] if whole else []))
    return (
        str(sums.calls),
        _tokens(sums.input, whole),
        _tokens(sums.output, whole),
        _money(sums.estimated_nanousd, whole) or UNPRICED,
        _money(sums.reported_nanousd, whole) or NOT_REPORTED,
        _money(sums.computed_nanousd, whole) or UNPRICED,
        _signed(sums.difference_nanousd, whole),
        *((str(sums.unpriced),) if whole else ()),
    )


def _tokens(number: int | None, whole: bool) -> str:
    return compact(number) if not whole else "-" if number is None else str(number)


def _money(nanousd: int | None, whole: bool) -> str | None:
    return usd(nanousd) if whole else money(nanousd)


def _signed(nanousd: int | None, whole: bool) -> str:
    """With its sign, for a difference; `-` where it is not known."""
    if nanousd is None:
        return "-"
    sign = "-" if nanousd < 0 else "+" if nanousd else ""
    return f"{sign}{_money(abs(nanousd), whole)}"


def remarks(spending: Spending) -> tuple[str, ...]:
    """What the sums lack, for people."""
    found = []
    if spending.total.unpriced:
        unpriced = counted(spending.total.unpriced, "call")
        found.append(f"{unpriced} without a computed price: `computed` is more than it says")
    if spending.total.open:
        found.append(f"{counted(spending.total.open, 'call')} not ended yet")
    return tuple(found)
