"""Facts: the shape of the JSON that `mz run --dry-run` prints."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class HoldShape(Shape, frozen=True, kw_only=True):
    """Why a feature will have to wait, or may have to."""

    why: str
    """`dependency`: until another one is delivered; `run-budget`: when the features before it cost what is estimated,
    the budget of the run has no room for it; `feature-budget`: the estimate is above what one feature may cost."""
    because: str | None
    """The feature that it waits for."""


class PlannedFeature(Shape, frozen=True, kw_only=True):
    id: str
    title: str
    branch: str
    depends_on: tuple[str, ...]
    quarantined: bool
    score: int
    """Of the injection screen."""
    holds: tuple[HoldShape, ...]
    estimated_tokens: int | None
    """Every phase at its first attempt; null: the agent is not known."""
    estimated_usd: str | None


class PlannedCall(Shape, frozen=True, kw_only=True):
    """An agent that a phase calls, once where all goes well."""

    role: str
    tier: str
    model: str | None
    """Null: the agent is not known."""
    tools: tuple[str, ...]


class PlannedPhase(Shape, frozen=True, kw_only=True):
    phase: str
    calls: tuple[PlannedCall, ...]
    """The builder's, then the reviewer's."""
    per_unit: bool
    """The calls are made for each unit of work that an earlier phase lists; estimates count one."""
    gates: tuple[str, ...]
    """Commands and rules that decide, commands that mz.yaml does not name left out."""
    asks: tuple[str, ...]
    """When a person is asked, under this autonomy: `checkpoint` is always, else the rule or field that asks."""
    delivers: tuple[str, ...]
    estimated_tokens: int | None
    """Of all features of the plan."""
    estimated_usd: str | None


class LeftOutShape(Shape, frozen=True, kw_only=True):
    id: str
    why: str
    because: str | None


class PlanShape(Shape, frozen=True, kw_only=True):
    """`mz run --dry-run --json`, with the schema mz.plan/1."""

    pipeline: str
    phases: tuple[str, ...]
    base: str
    agent: str
    failover: tuple[str, ...]
    """Agents that go on, in this order, where that one cannot."""
    autonomy: str
    parallel_max: int
    budget_run_usd: str | None
    """Null: no limit."""
    budget_feature_usd: str | None
    goes_on: str | None
    """The unfinished run that these features join."""
    steps: tuple[PlannedPhase, ...]
    """What each phase calls, checks and asks."""
    features: tuple[PlannedFeature, ...]
    """In the order of readiness."""
    left_out: tuple[LeftOutShape, ...]
    estimated_tokens: int | None
    """Of all features."""
    estimated_usd: str | None
    within_budget: bool | None
    """Whether the estimate is; null: no budget, or no estimate."""
