"""`mz run --dry-run`: plan a run without writing anything or calling an agent."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import msgspec
from mz_engine.decide.caller import planned_call
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.errors.diagnostics import format_diagnostic
from mz_engine.model.config import Config
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase, label_of
from mz_engine.paths import LOG_FILE, MZ_FOLDER, spending_folder
from mz_engine.pipelines.lint import summarise_warnings
from mz_engine.pricing.calibration import coefficients_for, typical_tokens
from mz_engine.pricing.estimate import Estimate, estimate_phase, total_estimate, typical_estimate
from mz_engine.pricing.table import price_table
from mz_engine.run.plan import RunPlan, make_plan, model_of, preflight_warnings
from mz_engine.run.spending_record import SpendingRecord
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import Usage
from mz_events.catalog.run import FeatureOutcome
from mz_events.names import BUILDER, Digest
from mz_projections.run.fold import RunState
from mz_projections.run.spending import DaySpending, budget_text

from mz_cli.common.run_text import UNPRICED
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import Shape, print_document, shape_of
from mz_cli.terminal.table import Cell, Table, columns, count_cell, print_table, prints_tsv, usd_cell
from mz_cli.terminal.text import count_noun, exact_usd, format_count, rounded_usd, single_line


class HoldShape(Shape, frozen=True, kw_only=True):
    """A certain or possible reason for a feature to wait."""

    reason: str
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
    estimated_nanousd: int | None
    estimated_low_nanousd: int | None
    estimated_high_nanousd: int | None
    """Bounds of the estimate that most runs are within."""


class PlannedCall(Shape, frozen=True, kw_only=True):
    """An agent call of a phase, made once if nothing fails."""

    role: str
    agent: str
    """By routing; so is `tier`, without routes of single units."""
    tier: str
    model: str
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
    estimated_nanousd: int | None
    estimated_low_nanousd: int | None
    estimated_high_nanousd: int | None
    """Bounds of the estimate that most runs are within."""


class ExcludedItem(Shape, frozen=True, kw_only=True):
    id: str
    reason: str
    blocked_by: str | None


class PlanShape(Shape, frozen=True, kw_only=True):
    """`mz run --dry-run --json`, with the schema mz.run-plan/1."""

    pipeline: str
    phases: tuple[str, ...]
    base: str
    agent: str
    failover: tuple[str, ...]
    """Agents to switch to, in this order, when `agent` fails."""
    autonomy: str
    parallel_max: int
    budget_run_nanousd: int | None
    """Null: no limit."""
    budget_feature_nanousd: int | None
    budget: str
    """All budgets, and what is left of that of the day."""
    continued_run: str | None
    """Unfinished run that these features join."""
    steps: tuple[PlannedPhase, ...]
    """Calls, gates and questions of each phase."""
    features: tuple[PlannedFeature, ...]
    """Features in the order of their start."""
    left_out: tuple[ExcludedItem, ...]
    estimated_tokens: int | None
    """Estimate over all features."""
    estimated_nanousd: int | None
    estimated_low_nanousd: int | None
    estimated_high_nanousd: int | None
    """Bounds of the estimate that most runs are within."""
    within_budget: bool | None
    """The estimate is within the budget; null: no budget, or no estimate."""


HOLD_TEXTS = {"run-budget": "exceeds the run's budget", "feature-budget": "exceeds the budget of a feature"}


Costs = Mapping[str, Mapping[str, Estimate]]
"""Feature -> phase -> estimate."""


def estimated_costs(plan: RunPlan) -> Costs:
    """Return estimates of all added features at current prices."""
    config = plan.pins.config
    prices, now_us = price_table(config, os.environ), time.time_ns() // 1_000

    def price(usage: Usage) -> int | None:
        return prices.price_entry(usage, now_us)

    @cache
    def typical_call(agent: str, model: str, phase: str) -> Estimate | None:
        coefficients = coefficients_for(config.calibration, agent, model, phase)
        if coefficients is None:
            return None
        usage = typical_tokens(coefficients, model)
        return typical_estimate(usage, price(usage))

    def call_of(phase: Phase, use: AgentUse | AgentReview) -> tuple[str, str]:
        agent, tier = planned_call(config, phase, use)
        return agent, model_of(config, agent, tier)

    texts = {item.id: item.title + item.body for item in plan.items}
    return {
        item.feature: {
            phase.phase: estimate_phase(phase, texts[item.feature], call_of, price, typical_call)
            for phase in plan.pins.pipeline.phases
        }
        for item in plan.intake.added
    }


def plan_shape(plan: RunPlan, resumed_run: str | None, day: DaySpending = ()) -> PlanShape:
    """Return the plan. `resumed_run`: the unfinished run that would continue with these features."""
    config, pipeline, costs = plan.pins.config, plan.pins.pipeline, estimated_costs(plan)
    total = total_estimate(estimate for phases in costs.values() for estimate in phases.values())
    return PlanShape(
        pipeline=pipeline.pipeline,
        phases=tuple(phase.phase for phase in pipeline.phases),
        base=plan.base,
        agent=config.agent,
        failover=tuple(name for name in dict.fromkeys(config.failover) if name != config.agent),
        autonomy=config.autonomy,
        parallel_max=config.parallel_max,
        budget_run_nanousd=config.budget.run_nanousd,
        budget_feature_nanousd=config.budget.feature_nanousd,
        budget=budget_text(config.budget, day),
        continued_run=resumed_run,
        steps=tuple(_phase_step(phase, config, costs) for phase in pipeline.phases),
        features=tuple(_planned_features(plan, costs)),
        left_out=tuple(shape_of(ExcludedItem, item, id=item.item.id) for item in plan.intake.left_out),
        within_budget=_is_within_budget(total.nanousd, config.budget.run_nanousd),
        **_estimated(total),
    )


def _estimated(estimate: Estimate) -> dict[str, int | None]:
    return {f"estimated_{name}": value for name, value in msgspec.structs.asdict(estimate).items()}


def _is_within_budget(nanousd: int | None, budget: int | None) -> bool | None:
    return None if nanousd is None or budget is None else nanousd <= budget


def _planned_features(plan: RunPlan, costs: Costs) -> Iterator[PlannedFeature]:
    config, titles = plan.pins.config, {item.id: item.title for item in plan.items}
    committed_nanousd = 0
    for item in plan.intake.added:
        cost = total_estimate(costs[item.feature].values())
        committed_nanousd += cost.nanousd or 0
        holds = [HoldShape(reason="dependency", blocked_by=other) for other in item.depends_on if other in costs]
        if _is_within_budget(committed_nanousd, config.budget.run_nanousd) is False:
            holds.append(HoldShape(reason="run-budget", blocked_by=None))
        if _is_within_budget(cost.nanousd, config.budget.feature_nanousd) is False:
            holds.append(HoldShape(reason="feature-budget", blocked_by=None))
        yield PlannedFeature(
            id=item.feature,
            title=single_line(titles[item.feature]),
            branch=plan.pins.branch(
                plan.pins.pipeline.find_kind(item.kind).branch, item.feature, plan.base, plan.integration
            ),
            depends_on=item.depends_on,
            quarantined=item.quarantined,
            score=item.score,
            holds=tuple(holds),
            **_estimated(cost),
        )


def _planned_call(config: Config, phase: Phase, use: AgentUse | AgentReview) -> PlannedCall:
    agent, tier = planned_call(config, phase, use)
    role, model = BUILDER if isinstance(use, AgentUse) else use.role, model_of(config, agent, tier)
    return PlannedCall(role=role, agent=agent, tier=tier, model=model, tools=use.tools)


def _phase_step(phase: Phase, config: Config, costs: Costs) -> PlannedPhase:
    total = total_estimate(phases[phase.phase] for phases in costs.values())
    return PlannedPhase(
        phase=phase.phase,
        calls=tuple(_planned_call(config, phase, use) for use in phase.calls),
        per_unit=phase.for_each is not None,
        gates=tuple(gate.name for gate in phase.gates if gate.run is None or gate.run in config.commands),
        asks=tuple(gate.name for gate in phase.ask_person if config.autonomy in gate.autonomy),
        delivers=tuple(map(label_of, phase.deliver)),
        **_estimated(total),
    )


# for people -----------------------------------------------------------------------------------------------------------
def heading(shape: PlanShape) -> str:
    run = f"continues run {shape.continued_run}" if shape.continued_run else "a new run"
    agents = ", then ".join((shape.agent, *shape.failover))
    at_once = f"{shape.parallel_max} at once" if shape.parallel_max > 1 else "one at a time"
    return (
        f"{run}: {shape.pipeline} on {shape.base}, agent {agents}, autonomy {shape.autonomy}, {at_once}\n"
        f"budget: {shape.budget}"
    )


def steps_table(shape: PlanShape) -> Table:
    rows = tuple(
        (
            step.phase,
            ", ".join(_call_text(call, shape.agent) for call in step.calls) or "-",
            " ".join(step.gates) or "-",
            " ".join(step.asks) or "-",
            format_count(step.estimated_tokens),
            rounded_usd(step.estimated_nanousd) or UNPRICED,
            range_text(step) or "-",
        )
        for step in shape.steps
    )
    heads = columns("phase", ",calls", "~gates", "~asks you", ">tokens", ">estimated", ">range")
    return Table(columns=heads, rows=rows, empty="The pipeline has no phases.")


def _call_text(call: PlannedCall, agent: str) -> str:
    routed = f"{call.agent} " if call.agent != agent else ""
    return f"{call.role} ({call.tier}: {routed}{call.model})"


def features_table(shape: PlanShape) -> Table:
    """Return the features in start order."""
    rows = tuple(
        (
            str(number),
            feature.id,
            feature.branch,
            " ".join(feature.depends_on) or "-",
            "quarantined" if feature.quarantined else "-",
            count_cell(feature.estimated_tokens),
            usd_cell(feature.estimated_nanousd, UNPRICED),
            range_text(feature) or "-",
            Cell(feature.title + (" (quarantined)" if feature.quarantined else ""), feature.title),
            holds_text(feature) or "-",
        )
        for number, feature in enumerate(shape.features, start=1)
    )
    costs = ">tokens", ">estimated", ">range"
    heads = columns(">order", "feature", "|branch", "|after", "|screen", *costs, "~title", "~holds")
    return Table(columns=heads, rows=rows, empty="There are no new features.")


def range_text(part: PlannedPhase | PlannedFeature | PlanShape) -> str:
    """Return the bounds of an estimate, such as `$0.08-$4.20`; empty without prices."""
    if part.estimated_low_nanousd is None or part.estimated_high_nanousd is None:
        return ""
    low, high = (nanousd / NANOUSD_PER_USD for nanousd in (part.estimated_low_nanousd, part.estimated_high_nanousd))
    return f"${low:.2f}-${high:.2f}"


def holds_text(feature: PlannedFeature) -> str:
    """Return why the feature will or may be held."""
    after = [hold.blocked_by or "" for hold in feature.holds if hold.reason == "dependency"]
    others = [HOLD_TEXTS[hold.reason] for hold in feature.holds if hold.reason != "dependency"]
    return "; ".join([*([f"after {', '.join(after)}"] if after else []), *others])


def totals_text(shape: PlanShape) -> str:
    """Return the sum of all features, compared with the budget."""
    budget = f" of ${exact_usd(shape.budget_run_nanousd)}" if shape.budget_run_nanousd is not None else ""
    features, tokens = count_noun(len(shape.features), "feature"), format_count(shape.estimated_tokens)
    text = f"total: {features}, about {tokens} tokens, {rounded_usd(shape.estimated_nanousd) or UNPRICED}{budget}"
    text += f"; most runs cost {bounds} in all" if (bounds := range_text(shape)) else ""
    over_budget = [
        feature.id for feature in shape.features if any(hold.reason == "run-budget" for hold in feature.holds)
    ]
    return f"{text}\nthe budget is too low: it will be used up at about {over_budget[0]}" if over_budget else text


def print_plan(root: Path, flags: Mapping[str, object], only: tuple[str, ...], as_json: bool) -> bool:
    """Print the plan; return True if there is something to do. Raises MzError as `mz run` would."""
    log = root / MZ_FOLDER / LOG_FILE
    with ExitStack() as stack:
        store = stack.enter_context(SqliteStore(log, read_only=True)) if log.exists() else None
        plan = make_plan(root, os.environ, flags, only, store, text_digest, keeps_views=False)
        resumed_run = plan.unfinished.started.run if plan.unfinished and plan.unfinished.started else None
    warnings = summarise_warnings(plan.warnings, plan.pins.pipeline, plan.pins.config.commands)
    for warning in (*warnings, *preflight_warnings(root, plan.pins.config, os.environ)):
        print_note(format_diagnostic(warning))
    day = SpendingRecord(spending_folder(os.environ)).day(time.time_ns() // 1_000)
    shape = plan_shape(plan, resumed_run, day)
    print_document("run-plan", shape) if as_json else print_plan_text(shape)
    if plan.unfinished is not None and not as_json and (waiting := waiting_features(plan.unfinished)):
        print_note(f"waiting for an answer: {', '.join(waiting)}; see `mz review list`")
    return bool(shape.features) or resumed_run is not None


def waiting_features(run: RunState) -> list[str]:
    stops = {name: track.stop for name, track in run.tracks.items()}
    return [name for name, stop in stops.items() if stop is not None and stop.status is FeatureOutcome.WAITING]


def text_digest(text: str) -> Digest:
    """Return the digest that storing the text would return."""
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def print_plan_text(shape: PlanShape) -> None:
    """Print the plan; tab-separated, the features alone."""
    if prints_tsv():
        print_table(features_table(shape))
        return
    print_line(heading(shape) + "\n")
    print_table(steps_table(shape))
    print_line("")
    print_table(features_table(shape))
    if shape.features:
        print_line("\n" + totals_text(shape))
    for item in shape.left_out:
        print_line(f"left out: {item.id}: {item.reason}{f' {item.blocked_by}' if item.blocked_by else ''}")
