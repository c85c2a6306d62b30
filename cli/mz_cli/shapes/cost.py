"""Facts: the shapes of the JSON about money: cost."""

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


class CostGroup(Amounts, frozen=True, kw_only=True):
    name: str
    thrown_away: Amounts
    """Of these calls, those that were for nothing."""
    call: CallFate | None
    """With `--by attempt`."""


class FateAmounts(Amounts, frozen=True, kw_only=True):
    fate: str


class CostReport(Shape, frozen=True, kw_only=True):
    """`mz cost --json`. Every call is in one group, so that the groups add up to `total`."""

    repository: str
    run: str | None
    """Null: all runs."""
    by: str
    groups: tuple[CostGroup, ...]
    total: Amounts
    thrown_away: Amounts
    """Calls that failed, were lost or refused, or whose work was superseded when a feature went back."""
    thrown_away_by_fate: tuple[FateAmounts, ...]
