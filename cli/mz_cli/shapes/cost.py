"""Facts: the shapes of the JSON about money: cost, and its gate."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class Amounts(Shape, frozen=True, kw_only=True):
    """Sums over some agent calls, of what is known."""

    calls: int
    open_calls: int
    """Their end is not known yet."""
    unpriced_calls: int
    """They ended, and `computed_usd` lacks them."""
    input_tokens: int | None
    """Cache reads and writes included."""
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    estimated_usd: str | None
    """Before the calls."""
    reported_usd: str | None
    """By the agents."""
    computed_usd: str | None
    """Tokens of each request by the price then in force."""
    settled_usd: str | None
    """What the budgets count: of each call the worst of what is known."""
    difference_usd: str | None
    """Reported less computed, over the calls of which both are known."""
    missed_usd: str | None
    """Computed (or reported, where nobody computed) less estimated, over the calls of which both are known."""


class CallFate(Shape, frozen=True, kw_only=True):
    """Where a call stands, and what became of it."""

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
    fate: str
    """open, stands, refused, failed, lost or superseded."""
    why: str
    """agree, cache-lifetime, tier, promotion, sub-agent, killed, unexplained or unknown."""
    why_detail: str
    """More of it in words; may be empty."""
    prices: str
    """Name, version and digest of the table that priced it; empty: nobody did."""


class WhyCount(Shape, frozen=True, kw_only=True):
    """Calls whose reported and computed money differ, or agree, for one reason."""

    why: str
    calls: int
    difference_usd: str | None


class CostGroup(Amounts, frozen=True, kw_only=True):
    name: str
    thrown_away: Amounts
    """Of these calls, those that were for nothing."""
    call: CallFate | None
    """With `--by attempt`."""
    why: tuple[WhyCount, ...]
    what_if_usd: str | None
    """With `--what-if`."""


class FateAmounts(Amounts, frozen=True, kw_only=True):
    fate: str


class WhatIf(Shape, frozen=True, kw_only=True):
    """The same tokens under other models."""

    models: dict[str, str]
    """A model, a tier, or `model` for all -> the other model."""
    usd: str | None
    paid_usd: str | None
    """What was paid for those same calls, as far as it is known."""
    change_usd: str | None
    """What `usd` is more than what was paid, over the calls of which both are known."""


class CostReport(Shape, frozen=True, kw_only=True):
    """`mz cost --json`. Every call is in one group, so that the groups add up to `total`."""

    repository: str
    run: str | None
    """Null: all runs."""
    by: str
    since: str | None
    until: str | None
    """The first moment that is not in it."""
    prices_on: str | None
    """With `--prices`: the day whose prices computed all of it."""
    groups: tuple[CostGroup, ...]
    total: Amounts
    why: tuple[WhyCount, ...]
    thrown_away: Amounts
    """Calls that failed, were lost or refused, or whose work was superseded when a feature went back."""
    thrown_away_by_fate: tuple[FateAmounts, ...]
    what_if: WhatIf | None
    estimate_error: float | None
    """Of money: median over the calls of |estimated - paid| / paid."""
    notes: tuple[str, ...]
    """What the sums lack."""


class GateLine(Shape, frozen=True, kw_only=True):
    """What one delivered feature cost on average, in all or in one phase."""

    phase: str | None
    """Null: all phases."""
    baseline_usd: str | None
    usd: str | None
    change: float | None
    """As a share of the baseline's: 0.15 is 15 % more."""
    baseline_calls: int
    calls: int
    verdict: str
    """ok, worse, better, noise, few-calls, unpriced, new or gone."""


class CostGate(Shape, frozen=True, kw_only=True):
    """`mz cost --gate --json`."""

    run: str
    baseline: str
    allowed: float
    """Share that is allowed to be more."""
    floor_usd: str
    """Smaller differences are noise."""
    calls_min: int
    """With fewer calls on either side nothing is judged."""
    delivered: int
    baseline_delivered: int
    lines: tuple[GateLine, ...]
    verdict: str
    """passed, failed or not-comparable."""
    why: str
    exit: int
