"""JSON document of `mz run --dry-run`."""

from __future__ import annotations

from mz_cli.terminal.json import Shape


class HoldShape(Shape, frozen=True, kw_only=True):
    """A certain or possible reason for a feature to wait."""

    why: str
    """`dependency`: until another feature is delivered; `run-budget`: earlier features are estimated to use up the
    run's budget; `feature-budget`: the estimate exceeds the budget of one feature."""
    blocked_by: str | None
    """Feature that must be delivered first."""


class PlannedFeature(Shape, frozen=True, kw_only=True):
    id: str
    title: str
    branch: str
    depends_on: tuple[str, ...]
    quarantined: bool
    score: int
    """Score of the injection screen."""
    holds: tuple[HoldShape, ...]
    estimated_tokens: int | None
    """Estimate for one attempt per phase; null: unknown agent."""
    estimated_usd: str | None


class PlannedCall(Shape, frozen=True, kw_only=True):
    """An agent call of a phase, made once if nothing fails."""

    role: str
    tier: str
    model: str | None
    """Null: unknown agent."""
    tools: tuple[str, ...]


class PlannedPhase(Shape, frozen=True, kw_only=True):
    phase: str
    calls: tuple[PlannedCall, ...]
    """The builder's call, then the reviewer's."""
    per_unit: bool
    """The calls are made for each unit that an earlier phase lists; estimates count one unit."""
    gates: tuple[str, ...]
    """Deciding commands and rules, without commands that mz.yaml does not define."""
    asks: tuple[str, ...]
    """Occasions to ask a person at this autonomy: `checkpoint` is always, otherwise the asking rule or field."""
    delivers: tuple[str, ...]
    estimated_tokens: int | None
    """Estimate over all features of the plan."""
    estimated_usd: str | None


class ExcludedItem(Shape, frozen=True, kw_only=True):
    id: str
    why: str
    blocked_by: str | None


class PlanShape(Shape, frozen=True, kw_only=True):
    """`mz run --dry-run --json`, with the schema mz.plan/1."""

    pipeline: str
    phases: tuple[str, ...]
    base: str
    agent: str
    failover: tuple[str, ...]
    """Agents to switch to, in this order, when `agent` fails."""
    autonomy: str
    parallel_max: int
    budget_run_usd: str | None
    """Null: no limit."""
    budget_feature_usd: str | None
    continued_run: str | None
    """Unfinished run that these features join."""
    steps: tuple[PlannedPhase, ...]
    """Calls, gates and questions of each phase."""
    features: tuple[PlannedFeature, ...]
    """Features in the order of their start."""
    left_out: tuple[ExcludedItem, ...]
    estimated_tokens: int | None
    """Estimate over all features."""
    estimated_usd: str | None
    within_budget: bool | None
    """The estimate is within the budget; null: no budget, or no estimate."""
