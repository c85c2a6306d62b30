"""JSON documents of `mz cost` and `mz calibrate`."""

from __future__ import annotations

from mz_projections.cost.totals import CauseCode, CauseTotals, Totals
from mz_projections.feature.calls import CallOutcome

from mz_cli.terminal.json import Shape


class CallOutcomeShape(Shape, frozen=True, kw_only=True):
    """Position and outcome of one call."""

    run: str
    feature: str
    phase: str
    unit: str | None
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    requested_at: str | None
    outcome: CallOutcome
    why: CauseCode
    why_detail: str
    """Explanation of `why`; may be empty."""
    prices: str
    """Name, version and digest of the price table; empty: not priced."""


class CostGroup(Totals, frozen=True, kw_only=True):
    name: str
    thrown_away: Totals
    """Wasted calls of the group."""
    call: CallOutcomeShape | None
    """With `--by attempt`."""
    why: tuple[CauseTotals, ...]
    what_if_usd: str | None
    """With `--what-if`."""


class OutcomeAmounts(Totals, frozen=True, kw_only=True):
    outcome: CallOutcome


class WhatIf(Shape, frozen=True, kw_only=True):
    """Cost of the same tokens with other models."""

    models: dict[str, str]
    """A model, a tier, or `model` for all -> the other model."""
    usd: str | None
    paid_usd: str | None
    """Known cost of the same calls as paid."""
    change_usd: str | None
    """`usd` minus the paid amount, over the calls with both."""


class CostReport(Shape, frozen=True, kw_only=True):
    """`mz cost --json`. Every call is in exactly one group: the groups add up to `total`."""

    repository: str
    run: str | None
    """Null: all runs."""
    feature: str | None
    """Null: all features."""
    phase: str | None
    attempt: int | None
    by: str
    since: str | None
    until: str | None
    """End of the period, exclusive."""
    prices_on: str | None
    """With `--prices`: the day whose prices were used."""
    groups: tuple[CostGroup, ...]
    total: Totals
    why: tuple[CauseTotals, ...]
    thrown_away: Totals
    """Wasted calls: failed, lost or rejected, or superseded by a rollback."""
    thrown_away_by_outcome: tuple[OutcomeAmounts, ...]
    what_if: WhatIf | None
    estimate_error: float | None
    """Error of cost estimates: median over the calls of |estimated - paid| / paid."""
    notes: tuple[str, ...]
    """Known gaps in the sums."""


class CostGateLine(Shape, frozen=True, kw_only=True):
    """Average cost of one delivered feature, in total or in one phase."""

    phase: str | None
    """Null: all phases."""
    baseline_usd: str | None
    usd: str | None
    change: float | None
    """Relative to the baseline: 0.15 is 15 % more."""
    baseline_calls: int
    calls: int
    verdict: str
    """ok, worse, better, noise, few-calls, unpriced, new or gone."""


class CostGate(Shape, frozen=True, kw_only=True):
    """`mz cost --gate --json`."""

    run: str
    baseline: str
    allowed: float
    """Allowed increase, as a share."""
    floor_usd: str
    """Differences below this amount are noise."""
    calls_min: int
    """Minimum number of calls on each side for a verdict."""
    delivered: int
    baseline_delivered: int
    lines: tuple[CostGateLine, ...]
    verdict: str
    """passed, failed or not-comparable."""
    why: str
    exit: int


class CalibrationShape(Shape, frozen=True, kw_only=True):
    """Calibration of one agent, of one of its models, or of one phase with that model."""

    agent: str
    model: str | None
    phase: str | None
    calls: int
    input: float
    """Input tokens used per reserved token; in a session, reservations cover all that it holds."""
    output: float
    """Output tokens used per estimated reply token."""
    cache_read: float
    """Cache reads as a share of the input."""
    cache_write: float
    input_tokens: int
    """Input tokens of a typical call."""
    output_tokens: int
    error_before: float
    """Median of |estimated - used| / used over all tokens, without calibration."""
    error_after: float
    """The same with the calibration, leave-one-out."""
    ratio: float
    """Tokens used per estimated token, without calibration: below 0.9 estimates are high, above 1.1 low."""
    estimates: str
    """Quality of token estimates: fits, low (more were used than estimated) or high."""
    helps: bool
    """The calibration improves estimates; otherwise it is not written."""


class UncalibratedPhase(Shape, frozen=True, kw_only=True):
    """A phase with too few calls for coefficients of its own."""

    agent: str
    model: str
    phase: str
    calls: int


class CalibrateResult(Shape, frozen=True, kw_only=True):
    """`mz calibrate --json`."""

    calls: int
    """Number of successful calls with known tokens."""
    calls_min: int
    fitted: tuple[CalibrationShape, ...]
    too_few: tuple[UncalibratedPhase, ...]
    written: str | None
    """Path of the written file, with `--write`."""


class SessionSums(Shape, frozen=True, kw_only=True):
    """Sums over the calls of one feature, or of all features."""

    name: str | None
    """Null: all."""
    calls: int
    continued_calls: int
    """Calls that continued a session."""
    sessions: int
    """Sessions started to be continued, without calls of reviewers and of phases that start new sessions."""
    broken: dict[str, int]
    """Number of dropped sessions by reason."""
    sent_tokens: int
    """Estimated tokens of the continued calls' prompts as sent."""
    full_prompt_tokens: int
    """Estimated tokens of the same prompts in full."""
    saved: float | None
    """Saved share of `full_prompt_tokens`; null: no call continued a session."""


class SessionFigure(Shape, frozen=True, kw_only=True):
    """One measured figure over the features that both runs delivered."""

    figure: str
    """input (all input), new-input (input not in a cache), cache-reads, output, calls or usd."""
    baseline: str
    """Integer, or a decimal number for usd."""
    run: str
    saved: float | None
    """Saved share of the baseline; negative: an increase. Null: the baseline is zero."""


class SessionsReport(Shape, frozen=True, kw_only=True):
    """`mz cost --sessions --json`."""

    run: str
    baseline: str | None
    """Null: no run to compare with, so nothing is measured."""
    total: SessionSums
    features: tuple[SessionSums, ...]
    compared: tuple[str, ...]
    """Features that both runs delivered."""
    measured: tuple[SessionFigure, ...]
    notes: tuple[str, ...]
