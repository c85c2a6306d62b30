"""The gate: whether features cost more than before, beyond noise."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.cost.gate import CALLS_MIN, FLOOR_NANOUSD, RunCost, cost_gate, parse_allowed_increase
from mz_projections.feature.calls import Call

CENT = 10_000_000
ALLOWED = Fraction(15, 100)


def call(nanousd: int | None, phase: str = "code", settled: int | None = None, estimated: int | None = None) -> Call:
    return Call(key="k", run="r", feature="f", phase=phase, unit="", iteration=1, attempt=1, role="builder", agent="a",
                model="m", requested_at_us=0, estimated_tokens=0, estimated_nanousd=estimated, status="replied",
                computed_nanousd=nanousd, charged_nanousd=settled)  # fmt: skip


def bill(*amounts: int | None, delivered: int = 1, run: str = "new", phase: str = "code") -> RunCost:
    return RunCost(run=run, calls=tuple(call(amount, phase) for amount in amounts), delivered=delivered)


@pytest.mark.parametrize(
    ("before", "now", "verdict", "code"),
    [
        (bill(*[10 * CENT] * 3), bill(*[10 * CENT] * 3), "ok", 0),
        (bill(*[10 * CENT] * 3), bill(*[11 * CENT] * 3), "ok", 0),
        (bill(*[10 * CENT] * 3), bill(*[12 * CENT] * 3), "worse", 1),
        (bill(*[10 * CENT] * 3), bill(*[12 * CENT] * 6, delivered=2), "worse", 1),
        (bill(*[10 * CENT] * 3), bill(*[10 * CENT] * 6, delivered=2), "ok", 0),
        (bill(*[10 * CENT] * 3), bill(*[5 * CENT] * 3), "better", 0),
        (bill(*[CENT // 10] * 3), bill(*[CENT // 5] * 3), "noise", 0),
        (bill(*[10 * CENT] * 2), bill(*[30 * CENT] * 2), "few-calls", 125),
        (bill(*[10 * CENT] * 3), bill(30 * CENT, None, 5, 5), "unpriced", 125),
        (bill(*[10 * CENT] * 3, delivered=0), bill(*[10 * CENT] * 3), "unpriced", 125),
        (bill(*[0] * 3), bill(*[10 * CENT] * 3), "worse", 1),
    ],
)
def test_verdicts(before: RunCost, now: RunCost, verdict: str, code: int) -> None:
    result = cost_gate(before, now, ALLOWED)
    assert (result.lines[0].verdict, result.exit) == (verdict, code)


def test_a_phase_alone_can_fail_it() -> None:
    """What one phase saves does not hide what another wastes."""
    before = RunCost(run="a", calls=(*[call(30 * CENT, "plan")] * 3, *[call(CENT * 10)] * 3), delivered=1)
    now = RunCost(run="b", calls=(*[call(10 * CENT, "plan")] * 3, *[call(CENT * 20)] * 3), delivered=1)
    result = cost_gate(before, now, ALLOWED)
    assert [line.verdict for line in result.lines] == ["better", "better", "worse"]
    assert (result.exit, result.reason) == (1, "more than allowed: code")


def test_phases_that_only_one_run_has() -> None:
    cost_gate_lines = cost_gate(bill(*[CENT] * 3, phase="old"), bill(*[CENT] * 3, phase="young"), ALLOWED).lines
    assert {line.phase: line.verdict for line in cost_gate_lines} == {None: "ok", "old": "gone", "young": "new"}


def test_what_the_budget_counts_stands_for_what_nobody_told() -> None:
    killed = RunCost(run="b", calls=(call(10 * CENT), call(10 * CENT), call(None, settled=25 * CENT)), delivered=1)
    (cost_gate_line, _) = cost_gate(bill(*[10 * CENT] * 3), killed, ALLOWED).lines
    assert (cost_gate_line.nanousd, cost_gate_line.verdict) == (45 * CENT, "worse")


@pytest.mark.parametrize(("estimated", "code"), [(CENT, 0), (None, 125), (0, 125)])
def test_a_call_that_was_refused_cost_nothing(estimated: int | None, code: int) -> None:
    """Where money was set aside for it, the budget counts nothing only because nothing was taken; without a price the
    same nothing says that nobody knows."""
    refused = RunCost(run="b", calls=(*[call(10 * CENT)] * 3, call(None, settled=0, estimated=estimated)), delivered=1)
    assert cost_gate(bill(*[10 * CENT] * 3), refused, ALLOWED).exit == code


@pytest.mark.parametrize("count", [0, 1])
def test_a_run_without_calls_is_no_measure(count: int) -> None:
    bills = (bill(run="empty"), bill(*[10 * CENT] * 3))
    result = cost_gate(bills[count], bills[1 - count], ALLOWED)
    assert (result.exit, result.verdict) == (125, "not-comparable")
    assert result.reason == "run empty called no agent"


def test_features_that_another_run_began_are_no_measure() -> None:
    """What they cost is in the log of both runs."""
    forked = RunCost(run="b", calls=(call(10 * CENT),) * 3, delivered=1, shared_features=1)
    result = cost_gate(bill(*[10 * CENT] * 3), forked, ALLOWED)
    assert (result.exit, result.verdict) == (125, "not-comparable")
    assert "run b continues features of another run" in result.reason


@pytest.mark.parametrize(
    ("text", "share"), [("+15%", ALLOWED), ("15 %", ALLOWED), ("0%", 0), ("+2.5%", Fraction(1, 40))]
)
def test_shares(text: str, share: Fraction) -> None:
    assert parse_allowed_increase(text) == share


@pytest.mark.parametrize("text", ["", "15", "-15%", "+%", "15%%", "+1e3%", "٣%"])
def test_no_shares(text: str) -> None:
    with pytest.raises(ValueError, match=r"write it as \+15%"):
        parse_allowed_increase(text)


AMOUNTS = st.lists(st.integers(0, 10**9), min_size=CALLS_MIN, max_size=8)


@given(AMOUNTS, AMOUNTS, st.integers(0, 50))
def test_nothing_within_the_floor_or_the_share_fails(before: list[int], now: list[int], percent: int) -> None:
    (cost_gate_line, _) = cost_gate(bill(*before), bill(*now), Fraction(percent, 100)).lines
    more = sum(now) - sum(before)
    assert (cost_gate_line.verdict == "worse") == (more > FLOOR_NANOUSD and more * 100 > sum(before) * percent)
