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
from mz_engine.errors.exits import Exit
from mz_projections.feature.calls import Call

from mz_cli.cost.json import CostGate, CostGateLine
from mz_cli.terminal.table import Table, columns
from mz_cli.terminal.text import count_noun, exact_usd, rounded_usd

FLOOR_NANOUSD = 10_000_000
"""One cent per feature: a prompt cache that expires between two calls may cost as much."""
CALLS_MIN = 3
"""An average over fewer calls depends on the length of single replies."""
PER_FEATURE = "a delivered feature"
Verdict = Literal["ok", "worse", "better", "noise", "few-calls", "unpriced", "new", "gone"]
_ALLOWED = re.compile(r"\+?([0-9]{1,4}(?:\.[0-9]{1,2})?) ?%\Z")


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one run, and the number of features that it delivered."""

    run: str
    calls: tuple[Call, ...]
    delivered: int
    shared_features: int = 0
    """Features with calls that another run made and paid for (of a fork)."""


class FeatureCost(msgspec.Struct, frozen=True):
    """Cost of a phase, or of all phases, of one run."""

    calls: int
    nanousd: int | None
    """None: the cost of some call is unknown."""
    per_feature_nanousd: Fraction | None
    """Nano-dollars for one delivered feature."""


class PhaseComparison(msgspec.Struct, frozen=True):
    phase: str | None
    baseline: FeatureCost
    run: FeatureCost
    verdict: Verdict

    @property
    def change(self) -> float | None:
        before, now = self.baseline.per_feature_nanousd, self.run.per_feature_nanousd
        return None if before is None or now is None or not before else float(now / before) - 1


def parse_allowed_increase(text: str) -> Fraction:
    """`+15%` -> 3/20. Raises ValueError."""
    match = _ALLOWED.match(text.strip())
    if match is None:
        raise ValueError(f"{text[:20]!r} is not a percentage; write it as +15%")
    return Fraction(match[1]) / 100


def compare_phases(baseline: RunCost, run: RunCost, allowed: Fraction) -> tuple[PhaseComparison, ...]:
    """Compare all phases together, then each in the order of the first calls."""
    phases = dict.fromkeys(call.phase for run_cost in (baseline, run) for call in run_cost.calls)
    return tuple(_compare_phase(phase, baseline, run, allowed) for phase in (None, *phases))


def _compare_phase(phase: str | None, baseline: RunCost, run: RunCost, allowed: Fraction) -> PhaseComparison:
    before, after = (_phase_cost(bill, phase) for bill in (baseline, run))
    return PhaseComparison(phase, before, after, _phase_verdict(before, after, allowed))


def _phase_cost(run_cost: RunCost, phase: str | None) -> FeatureCost:
    amounts = [_call_nanousd(call) for call in run_cost.calls if phase is None or call.phase == phase]
    priced = [amount for amount in amounts if amount is not None]
    total = sum(priced) if len(priced) == len(amounts) else None
    return FeatureCost(
        len(amounts), total, None if total is None or not run_cost.delivered else Fraction(total, run_cost.delivered)
    )


def _call_nanousd(call: Call) -> int | None:
    """Return the cost of a call; None if unknown. A settled amount of 0 counts only if money was reserved."""
    paid = call.paid_nanousd
    if paid is not None:
        return paid
    return call.charged_nanousd if call.charged_nanousd or call.estimated_nanousd else None


def _phase_verdict(before: FeatureCost, after: FeatureCost, allowed: Fraction) -> Verdict:
    if not before.calls:
        return "new"
    if not after.calls:
        return "gone"
    if before.per_feature_nanousd is None or after.per_feature_nanousd is None:
        return "unpriced"
    if min(before.calls, after.calls) < CALLS_MIN:
        return "few-calls"
    increase = after.per_feature_nanousd - before.per_feature_nanousd
    if abs(increase) <= FLOOR_NANOUSD:
        return "ok" if abs(increase) <= before.per_feature_nanousd * allowed else "noise"
    if increase > before.per_feature_nanousd * allowed:
        return "worse"
    return "better" if -increase > before.per_feature_nanousd * allowed else "ok"


# the verdict ----------------------------------------------------------------------------------------------------------
def cost_gate(baseline: RunCost, run: RunCost, allowed: Fraction) -> CostGate:
    """Return the result of the comparison: any line that is worse fails it; without delivered features the runs are
    not comparable."""
    lines = compare_phases(baseline, run, allowed)
    exit_code, reason = _gate_verdict(lines, baseline, run)
    verdicts = {Exit.OK: "passed", Exit.VERDICT: "failed"}
    return CostGate(
        run=run.run,
        baseline=baseline.run,
        allowed=float(allowed),
        floor_usd=exact_usd(FLOOR_NANOUSD) or "",
        calls_min=CALLS_MIN,
        delivered=run.delivered,
        baseline_delivered=baseline.delivered,
        lines=tuple(map(_gate_line, lines)),
        verdict=verdicts.get(exit_code, "not-comparable"),
        why=reason,
        exit=int(exit_code),
    )


def _gate_verdict(lines: Sequence[PhaseComparison], baseline: RunCost, run: RunCost) -> tuple[Exit, str]:
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


def _gate_line(comparison: PhaseComparison) -> CostGateLine:
    return CostGateLine(
        phase=comparison.phase,
        baseline_usd=exact_usd(_rounded(comparison.baseline.per_feature_nanousd)),
        usd=exact_usd(_rounded(comparison.run.per_feature_nanousd)),
        change=None if comparison.change is None else round(comparison.change, 4),
        baseline_calls=comparison.baseline.calls,
        calls=comparison.run.calls,
        verdict=comparison.verdict,
    )


def _rounded(amount: Fraction | None) -> int | None:
    return None if amount is None else round(amount)


def delivered_count(statuses: Iterable[str]) -> int:
    return sum(status == "delivered" for status in statuses)


# for people -----------------------------------------------------------------------------------------------------------
def gate_table(result: CostGate, exact: bool) -> Table:
    """Return the comparison. `exact`: for a pipe, with exact amounts."""
    rows = tuple(
        (
            line.phase or PER_FEATURE,
            _money(line.baseline_usd, exact),
            _money(line.usd, exact),
            "-" if line.change is None else f"{line.change:+.1%}",
            f"{line.baseline_calls}",
            f"{line.calls}",
            line.verdict,
        )
        for line in result.lines
    )
    table_columns = columns("phase", ">baseline", ">run", ">change", ">calls before", ">calls", "verdict")
    return Table(columns=table_columns, rows=rows, empty="")


def _money(amount: str | None, exact: bool) -> str:
    if amount is None:
        return "unpriced"
    return amount if exact else rounded_usd(int(Decimal(amount).scaleb(9))) or ""


def gate_text(result: CostGate) -> str:
    """Return the verdict with its reason."""
    counts = (
        f"{count_noun(result.delivered, 'delivered feature')} against {result.baseline_delivered} of {result.baseline}"
    )
    rules = f"allowed: +{result.allowed:.1%}; less than ${result.floor_usd} or {result.calls_min} calls is not judged"
    return f"{result.verdict}: {result.why}\n{counts}; {rules}"
