"""`mz cost --gate`: compare the cost of two runs.

Compares the average cost of a delivered feature, wasted attempts included, in total and per phase. A call counts with
its computed cost, else the reported one, else the amount charged to the budget.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import msgspec
from mz_engine.errors.diagnostics import Exit
from mz_projections.feature.calls import Call

from mz_cli.common.run_text import UNPRICED
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Table, columns, usd_cell
from mz_cli.terminal.text import count_noun, exact_usd

FLOOR_NANOUSD = 10_000_000
"""One cent per feature: a prompt cache that expires between two calls may cost as much."""
CALLS_MIN = 3
"""An average over fewer calls depends on the length of single replies."""
PER_FEATURE = "a delivered feature"
Verdict = Literal["ok", "worse", "better", "noise", "few-calls", "unpriced", "new", "gone"]
_ALLOWED = re.compile(r"\+?([0-9]{1,4}(?:\.[0-9]{1,2})?) ?%\Z")


class CostGateLine(Shape, frozen=True, kw_only=True):
    """Average cost of one delivered feature, in total or in one phase."""

    phase: str | None
    """Null: all phases."""
    baseline_nanousd: int | None
    nanousd: int | None
    change: float | None
    """Relative to the baseline: 0.15 is 15 % more."""
    baseline_calls: int
    calls: int
    verdict: Verdict


class CostGate(Shape, frozen=True, kw_only=True):
    """`mz cost --gate --json`."""

    run: str
    baseline: str
    allowed: float
    """Allowed increase, as a share."""
    floor_nanousd: int
    """Differences below this amount are noise."""
    calls_min: int
    """Minimum number of calls on each side for a verdict."""
    delivered: int
    baseline_delivered: int
    lines: tuple[CostGateLine, ...]
    verdict: Literal["passed", "failed", "not-comparable"]
    reason: str
    exit: int


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one run, and the number of features that it delivered."""

    run: str
    calls: tuple[Call, ...]
    delivered: int
    shared_features: int = 0
    """Features with calls that another run made and paid for (of a fork)."""


def parse_allowed_increase(text: str) -> Fraction:
    """`+15%` -> 3/20. Raises ValueError."""
    match = _ALLOWED.match(text.strip())
    if match is None:
        raise ValueError(f"{text[:20]!r} is not a percentage; write it as +15%")
    return Fraction(match[1]) / 100


def _compare_phase(phase: str | None, baseline: RunCost, run: RunCost, allowed: Fraction) -> CostGateLine:
    (calls_before, before), (calls, now) = (_phase_cost(run_cost, phase) for run_cost in (baseline, run))
    verdict: Verdict
    if not calls_before or not calls:
        verdict = "gone" if calls_before else "new"
    elif before is None or now is None:
        verdict = "unpriced"
    elif min(calls_before, calls) < CALLS_MIN:
        verdict = "few-calls"
    elif abs(now - before) <= before * allowed:
        verdict = "ok"
    elif abs(now - before) <= FLOOR_NANOUSD:
        verdict = "noise"
    else:
        verdict = "worse" if now > before else "better"
    return CostGateLine(
        phase=phase,
        baseline_nanousd=None if before is None else round(before),
        nanousd=None if now is None else round(now),
        change=None if now is None or not before else round(float(now / before) - 1, 4),
        baseline_calls=calls_before,
        calls=calls,
        verdict=verdict,
    )


def _phase_cost(run_cost: RunCost, phase: str | None) -> tuple[int, Fraction | None]:
    """Return the number of calls of a phase, or of all, and their nano-dollars for one delivered feature; None if the
    cost of some call is unknown."""
    amounts = [_call_nanousd(call) for call in run_cost.calls if phase is None or call.phase == phase]
    priced = [amount for amount in amounts if amount is not None]
    if len(priced) < len(amounts) or not run_cost.delivered:
        return len(amounts), None
    return len(amounts), Fraction(sum(priced), run_cost.delivered)


def _call_nanousd(call: Call) -> int | None:
    """Return the cost of a call; None if unknown. A charge of 0 counts only if money was reserved."""
    paid = call.paid_nanousd
    if paid is not None:
        return paid
    return call.charged_nanousd if call.charged_nanousd or call.estimated_nanousd else None


# the verdict ----------------------------------------------------------------------------------------------------------
def cost_gate(baseline: RunCost, run: RunCost, allowed: Fraction) -> CostGate:
    """Compare all phases together, then each in the order of the first calls: any line that is worse fails the gate;
    without delivered features the runs are not comparable."""
    phases = dict.fromkeys(call.phase for run_cost in (baseline, run) for call in run_cost.calls)
    lines = tuple(_compare_phase(phase, baseline, run, allowed) for phase in (None, *phases))
    exit_code, reason = _gate_verdict(lines, baseline, run)
    verdicts: dict[Exit, Literal["passed", "failed"]] = {Exit.OK: "passed", Exit.VERDICT: "failed"}
    return CostGate(
        run=run.run,
        baseline=baseline.run,
        allowed=float(allowed),
        floor_nanousd=FLOOR_NANOUSD,
        calls_min=CALLS_MIN,
        delivered=run.delivered,
        baseline_delivered=baseline.delivered,
        lines=lines,
        verdict=verdicts.get(exit_code, "not-comparable"),
        reason=reason,
        exit=int(exit_code),
    )


def _gate_verdict(lines: Sequence[CostGateLine], baseline: RunCost, run: RunCost) -> tuple[Exit, str]:
    for run_cost in (baseline, run):
        if not run_cost.delivered:
            return Exit.NOT_COMPARABLE, f"run {run_cost.run} delivered no feature"
        if run_cost.shared_features:
            message = f"run {run_cost.run} continues features of another run, so both runs contain their cost"
            return Exit.NOT_COMPARABLE, message
        if not run_cost.calls:
            return Exit.NOT_COMPARABLE, f"run {run_cost.run} called no agent"
    worse_phases = [line.phase or PER_FEATURE for line in lines if line.verdict == "worse"]
    if worse_phases:
        return Exit.VERDICT, f"more than allowed: {', '.join(worse_phases)}"
    total = lines[0]
    if total.verdict == "unpriced":
        return Exit.NOT_COMPARABLE, "some calls have no price, so their cost is unknown"
    if total.verdict == "few-calls":
        return Exit.NOT_COMPARABLE, f"fewer than {CALLS_MIN} calls: too few to compare"
    return Exit.OK, "nothing costs more than allowed"


# for people -----------------------------------------------------------------------------------------------------------
def gate_table(result: CostGate) -> Table:
    rows = tuple(
        (
            line.phase or PER_FEATURE,
            usd_cell(line.baseline_nanousd, UNPRICED),
            usd_cell(line.nanousd, UNPRICED),
            "-" if line.change is None else f"{line.change:+.1%}",
            str(line.baseline_calls),
            str(line.calls),
            line.verdict,
        )
        for line in result.lines
    )
    heads = columns("phase", ">baseline", ">run", ">change", ">calls before", ">calls", "verdict")
    return Table(columns=heads, rows=rows)


def gate_text(result: CostGate) -> str:
    """Return the verdict with its reason."""
    counts = (
        f"{count_noun(result.delivered, 'delivered feature')} against {result.baseline_delivered} of {result.baseline}"
    )
    floor = f"less than ${exact_usd(result.floor_nanousd)} or {result.calls_min} calls is not judged"
    rules = f"allowed: +{result.allowed:.1%}; {floor}"
    return f"{result.verdict}: {result.reason}\n{counts}; {rules}"
