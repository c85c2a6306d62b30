"""`mz cost --gate`: compare the cost of two runs.

Compares the average cost of a delivered feature, wasted attempts included, in total and per phase. A call counts with
its computed cost, else the reported one, else the amount charged to the budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import msgspec
from mz_engine.exits import Exit
from mz_projections.cost import CallCost, paid_nanousd

from mz_cli.render.table import Table, columns
from mz_cli.render.text import counted, money, usd
from mz_cli.shapes.cost import CostGate, GateLine

FLOOR_NANOUSD = 10_000_000
"""One cent per feature: a prompt cache that expires between two calls may cost as much."""
CALLS_MIN = 3
"""An average over fewer calls depends on the length of single replies."""
IN_ALL = "a delivered feature"
Verdict = Literal["ok", "worse", "better", "noise", "few-calls", "unpriced", "new", "gone"]
_ALLOWED = re.compile(r"\+?([0-9]{1,4}(?:\.[0-9]{1,2})?) ?%\Z")


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one run, and the number of features that it delivered."""

    run: str
    calls: tuple[CallCost, ...]
    delivered: int
    borrowed: int = 0
    """Features with calls that another run made and paid for (of a fork)."""


class Side(msgspec.Struct, frozen=True):
    """Cost of a phase, or of all phases, of one run."""

    calls: int
    nanousd: int | None
    """None: the cost of some call is unknown."""
    each: Fraction | None
    """Nano-dollars for one delivered feature."""


class Compared(msgspec.Struct, frozen=True):
    phase: str | None
    baseline: Side
    run: Side
    verdict: Verdict

    @property
    def change(self) -> float | None:
        before, now = self.baseline.each, self.run.each
        return None if before is None or now is None or not before else float(now / before) - 1


def parse_allowed(text: str) -> Fraction:
    """`+15%` -> 3/20. Raises ValueError."""
    found = _ALLOWED.match(text.strip())
    if found is None:
        raise ValueError(f"{text[:20]!r} is not a percentage; write it as +15%")
    return Fraction(found[1]) / 100


def compare(baseline: Bill, run: Bill, allowed: Fraction) -> tuple[Compared, ...]:
    """Compare all phases together, then each in the order of the first calls."""
    phases = dict.fromkeys(call.phase for bill in (baseline, run) for call in bill.calls)
    return tuple(_compared(phase, baseline, run, allowed) for phase in (None, *phases))


def _compared(phase: str | None, baseline: Bill, run: Bill, allowed: Fraction) -> Compared:
    before, now = (_side(bill, phase) for bill in (baseline, run))
    return Compared(phase, before, now, _verdict(before, now, allowed))


def _side(bill: Bill, phase: str | None) -> Side:
    amounts = [_amount(call) for call in bill.calls if phase is None or call.phase == phase]
    known = [amount for amount in amounts if amount is not None]
    total = sum(known) if len(known) == len(amounts) else None
    return Side(len(amounts), total, None if total is None or not bill.delivered else Fraction(total, bill.delivered))


def _amount(call: CallCost) -> int | None:
    """Return the cost of a call; None if unknown. A settled amount of 0 counts only if money was reserved."""
    paid = paid_nanousd(call)
    if paid is not None:
        return paid
    return call.settled_nanousd if call.settled_nanousd or call.estimated_nanousd else None


def _verdict(before: Side, now: Side, allowed: Fraction) -> Verdict:
    if not before.calls:
        return "new"
    if not now.calls:
        return "gone"
    if before.each is None or now.each is None:
        return "unpriced"
    if min(before.calls, now.calls) < CALLS_MIN:
        return "few-calls"
    more = now.each - before.each
    if abs(more) <= FLOOR_NANOUSD:
        return "ok" if abs(more) <= before.each * allowed else "noise"
    if more > before.each * allowed:
        return "worse"
    return "better" if -more > before.each * allowed else "ok"


# the verdict ----------------------------------------------------------------------------------------------------------
def gate(baseline: Bill, run: Bill, allowed: Fraction) -> CostGate:
    """Return the result of the comparison: any line that is worse fails it; without delivered features the runs are
    not comparable."""
    lines = compare(baseline, run, allowed)
    exit_, why = _judged(lines, baseline, run)
    verdicts = {Exit.OK: "passed", Exit.VERDICT: "failed"}
    return CostGate(
        run=run.run,
        baseline=baseline.run,
        allowed=float(allowed),
        floor_usd=usd(FLOOR_NANOUSD) or "",
        calls_min=CALLS_MIN,
        delivered=run.delivered,
        baseline_delivered=baseline.delivered,
        lines=tuple(map(_line, lines)),
        verdict=verdicts.get(exit_, "not-comparable"),
        why=why,
        exit=int(exit_),
    )


def _judged(lines: Sequence[Compared], baseline: Bill, run: Bill) -> tuple[Exit, str]:
    for bill in (baseline, run):
        if not bill.delivered:
            return Exit.NOT_COMPARABLE, f"run {bill.run} delivered no feature"
        if bill.borrowed:
            said = f"run {bill.run} continues features of another run, so both runs contain their cost"
            return Exit.NOT_COMPARABLE, said
        if not bill.calls:
            return Exit.NOT_COMPARABLE, f"run {bill.run} called no agent"
    worse = [line.phase or IN_ALL for line in lines if line.verdict == "worse"]
    if worse:
        return Exit.VERDICT, f"more than allowed: {', '.join(worse)}"
    whole = lines[0]
    if whole.verdict == "unpriced":
        return Exit.NOT_COMPARABLE, "some calls have no price, so their cost is unknown"
    if whole.verdict == "few-calls":
        return Exit.NOT_COMPARABLE, f"fewer than {CALLS_MIN} calls: too few to compare"
    return Exit.OK, "nothing costs more than allowed"


def _line(compared: Compared) -> GateLine:
    return GateLine(
        phase=compared.phase,
        baseline_usd=usd(_whole(compared.baseline.each)),
        usd=usd(_whole(compared.run.each)),
        change=None if compared.change is None else round(compared.change, 4),
        baseline_calls=compared.baseline.calls,
        calls=compared.run.calls,
        verdict=compared.verdict,
    )


def _whole(amount: Fraction | None) -> int | None:
    return None if amount is None else round(amount)


def delivered(statuses: Iterable[str]) -> int:
    return sum(status == "delivered" for status in statuses)


# for people -----------------------------------------------------------------------------------------------------------
def gate_table(found: CostGate, whole: bool) -> Table:
    """Return the comparison. `exact`: for a pipe, with exact amounts."""
    rows = tuple(
        (
            line.phase or IN_ALL,
            _money(line.baseline_usd, whole),
            _money(line.usd, whole),
            "-" if line.change is None else f"{line.change:+.1%}",
            f"{line.baseline_calls}",
            f"{line.calls}",
            line.verdict,
        )
        for line in found.lines
    )
    heads = columns("phase", ">baseline", ">run", ">change", ">calls before", ">calls", "verdict")
    return Table(columns=heads, rows=rows, empty="")


def _money(amount: str | None, whole: bool) -> str:
    if amount is None:
        return "unpriced"
    return amount if whole else money(int(Decimal(amount).scaleb(9))) or ""


def gate_words(found: CostGate) -> str:
    """Return the verdict with its reason."""
    counts = f"{counted(found.delivered, 'delivered feature')} against {found.baseline_delivered} of {found.baseline}"
    rules = f"allowed: +{found.allowed:.1%}; less than ${found.floor_usd} or {found.calls_min} calls is not judged"
    return f"{found.verdict}: {found.why}\n{counts}; {rules}"
