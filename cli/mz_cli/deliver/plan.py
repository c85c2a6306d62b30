"""`mz run --dry-run`: plan a run without writing anything or calling an agent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import msgspec
from mz_engine.decide.caller import planned_calls
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.errors.diagnostics import format_diagnostic
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase, Pipeline, label_of
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
from mz_events.names import BUILDER, digest_of
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


class CallChoice(Shape, frozen=True, kw_only=True):
    agent: str
    tier: str
    model: str


class PlannedCall(CallChoice, frozen=True, kw_only=True):
    """An agent call of a phase, made once if nothing fails."""

    role: str
    agent: str
    """By routing and `independence`; so is `tier`. Without routes of single units, which `others` has."""
    tools: tuple[str, ...]
    others: tuple[CallChoice, ...]
    """What else is called while nothing fails: for units with routes of their own, and to check what they built. The
    estimated range covers it."""


class PlannedPhase(Shape, frozen=True, kw_only=True):
    phase: str
    kind: str | None
    """The kind of items that go through it; null: all."""
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


class AddedKind(Shape, frozen=True, kw_only=True):
    """Items that the run adds itself, if nothing prevents it."""

    kind: str
    source: str
    """`start`: one before all others; `cycle`: one in each cycle; `output`: what such a one lists, in each cycle;
    `finish`, `cancel`: one when a person ends the run."""
    items_max: int
    """Most items; of `cycle` and `output` in each cycle."""
    attempts_max: int
    """How often one that fails is begun in all, once in each cycle."""
    phases: tuple[str, ...]
    calls: int
    """Agent calls of one item, if nothing fails."""
    calls_max: int
    """The same, if rules and gates reject as many replies as the phases allow."""


class PlannedCycle(Shape, frozen=True, kw_only=True):
    """What one cycle is at most, without items that failed in an earlier one."""

    cycles_max: int
    unchanged_max: int
    """So many cycles in a row that deliver nothing are the last."""
    calls: int
    """Agent calls, if nothing fails."""
    calls_max: int
    """The same, if rules and gates reject as many replies as the phases allow."""
    estimated_tokens: int | None
    estimated_nanousd: int | None
    estimated_low_nanousd: int | None
    estimated_high_nanousd: int | None
    """Bounds of the estimate that most runs are within."""


class PlanShape(Shape, frozen=True, kw_only=True):
    """`mz run --dry-run --json`, with the schema mz.run-plan/1."""

    pipeline: str
    phases: tuple[str, ...]
    base: str
    integration: str | None
    """Branch into which items of the run are merged; `{time}` is its start."""
    agent: str
    failover: tuple[str, ...]
    """Agents to switch to, in this order, when `agent` fails."""
    autonomy: str
    parallel_max: int
    """Items that are worked on at the same time."""
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
    """Features of the backlog in the order of their start."""
    adds: tuple[AddedKind, ...]
    """What the run adds to them."""
    cycle: PlannedCycle | None
    """Null: the pipeline has no cycles."""
    left_out: tuple[ExcludedItem, ...]
    estimated_tokens: int | None
    """Estimate over all features of the backlog."""
    estimated_nanousd: int | None
    estimated_low_nanousd: int | None
    estimated_high_nanousd: int | None
    """Bounds of the estimate that most runs are within."""
    within_budget: bool | None
    """The estimate is within the budget; null: no budget, or no estimate."""


IN_EACH_CYCLE = "cycle", "output"
SOURCE_TEXTS = {
    "start": "before all others", "cycle": "in each cycle", "output": "as an output lists them",
    "finish": "by mz finish", "cancel": "by mz cancel RUN",
}  # fmt: skip
HOLD_TEXTS = {"run-budget": "exceeds the run's budget", "feature-budget": "exceeds the budget of a feature"}


Costs = Mapping[str, Mapping[str, Estimate]]
"""Feature -> phase -> estimate."""


Estimator = Callable[[Phase, str], Estimate]
"""Phase and text of an item -> the calls of the phase."""


def estimator(config: Config, pipeline: Pipeline) -> Estimator:
    """Return a function that estimates at current prices."""
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

    def calls_of(phase: Phase, use: AgentUse | AgentReview) -> list[tuple[str, str]]:
        calls = planned_calls(config, pipeline, phase, use)
        return [(agent, model_of(config, agent, tier)) for agent, tier in calls]

    return lambda phase, text: estimate_phase(phase, text, calls_of, price, typical_call)


def estimated_costs(plan: RunPlan, estimate: Estimator) -> Costs:
    """Return estimates of all added features."""
    texts = {item.id: item.title + item.body for item in plan.items}
    return {
        item.feature: {
            phase.phase: estimate(phase, texts[item.feature]) for phase in plan.pins.pipeline.of_kind(item.kind).phases
        }
        for item in plan.intake.added
    }


def plan_shape(plan: RunPlan, resumed_run: str | None, day: DaySpending = ()) -> PlanShape:
    """Return the plan. `resumed_run`: the unfinished run that would continue with these features."""
    config, pipeline, estimate = plan.pins.config, plan.pins.pipeline, estimator(plan.pins.config, plan.pins.pipeline)
    costs = estimated_costs(plan, estimate)
    adds = tuple(_added_kinds(plan.pins))
    total = total_estimate(estimate for phases in costs.values() for estimate in phases.values())
    return PlanShape(
        pipeline=pipeline.pipeline,
        phases=tuple(phase.phase for phase in pipeline.phases),
        base=plan.base,
        integration=_integration(plan) or None,
        agent=config.agent,
        failover=tuple(name for name in dict.fromkeys(config.failover) if name != config.agent),
        autonomy=config.autonomy,
        parallel_max=_parallel_max(plan.pins),
        budget_run_nanousd=config.budget.run_nanousd,
        budget_feature_nanousd=config.budget.feature_nanousd,
        budget=budget_text(config.budget, day),
        continued_run=resumed_run,
        steps=tuple(_phase_step(phase, plan.pins, costs) for phase in pipeline.phases),
        features=tuple(_planned_features(plan, costs)),
        adds=adds,
        cycle=_planned_cycle(plan.pins, adds, estimate),
        left_out=tuple(shape_of(ExcludedItem, item, id=item.item.id) for item in plan.intake.left_out),
        within_budget=_is_within_budget(total.nanousd, config.budget.run_nanousd),
        **_estimated(total),
    )


def _integration(plan: RunPlan) -> str:
    """Return the integration branch, which has its name from the time when the run starts."""
    pins = plan.pins
    return plan.integration if plan.unfinished else pins.config.integration or pins.pipeline.integration


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
                plan.pins.pipeline.find_kind(item.kind).branch, item.feature, plan.base, _integration(plan)
            ),
            depends_on=item.depends_on,
            quarantined=item.quarantined,
            score=item.score,
            holds=tuple(holds),
            **_estimated(cost),
        )


def _added_kinds(pins: Pins) -> Iterator[AddedKind]:
    for kind in pins.pipeline.items:
        phases = pins.pipeline.of_kind(kind.kind).phases
        for source in kind.sources:
            if source != "backlog":
                yield AddedKind(
                    kind=kind.kind,
                    source=source,
                    items_max=pins.config.limits.items_max if source == "output" else 1,
                    attempts_max=pins.config.limits.resolve(kind.attempts),
                    phases=tuple(phase.phase for phase in phases),
                    calls=sum(len(phase.calls) for phase in phases),
                    calls_max=sum(len(phase.calls) * phase.attempts for phase in phases),
                )


def _parallel_max(pins: Pins) -> int:
    """Return how many items are worked on at the same time. Those that the run itself adds are worked on alone."""
    config, kinds = pins.config, [kind for kind in pins.pipeline.kinds if {"backlog", "output"} & {*kind.sources}]
    limits = (config.limits.resolve(kind.parallel or config.parallel_max) for kind in kinds)
    return min(config.parallel_max, sum(limits))


def _planned_cycle(pins: Pins, adds: tuple[AddedKind, ...], estimate: Estimator) -> PlannedCycle | None:
    cycle, parts = pins.pipeline.cycle, [part for part in adds if part.source in IN_EACH_CYCLE]
    if cycle is None:
        return None
    phases = [(phase, part.items_max) for part in parts for phase in pins.pipeline.of_kind(part.kind).phases]
    return PlannedCycle(
        cycles_max=pins.config.limits.resolve(cycle.max),
        unchanged_max=pins.config.limits.resolve(cycle.unchanged_max),
        calls=sum(part.items_max * part.calls for part in parts),
        calls_max=sum(part.items_max * part.calls_max for part in parts),
        **_estimated(total_estimate(estimate(phase, "") for phase, number in phases for _ in range(number))),
    )


def _planned_call(pins: Pins, phase: Phase, use: AgentUse | AgentReview) -> PlannedCall:
    first, *others = [
        CallChoice(agent=agent, tier=tier, model=model_of(pins.config, agent, tier))
        for agent, tier in planned_calls(pins.config, pins.pipeline, phase, use)
    ]
    role = BUILDER if isinstance(use, AgentUse) else use.role
    return shape_of(PlannedCall, first, role=role, tools=use.tools, others=tuple(others))


def _phase_step(phase: Phase, pins: Pins, costs: Costs) -> PlannedPhase:
    config = pins.config
    total = total_estimate(phases[phase.phase] for phases in costs.values() if phase.phase in phases)
    return PlannedPhase(
        phase=phase.phase,
        kind=phase.kind or None,
        calls=tuple(_planned_call(pins, phase, use) for use in phase.calls),
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
    branch = f" into {shape.integration}" if shape.integration else ""
    return (
        f"{run}: {shape.pipeline} on {shape.base}{branch}, agent {agents}, autonomy {shape.autonomy}, {at_once}\n"
        f"budget: {shape.budget}"
    )


def steps_table(shape: PlanShape) -> Table:
    has_kinds = any(step.kind for step in shape.steps)
    rows = tuple(
        (
            step.phase,
            *((step.kind or "-",) if has_kinds else ()),
            ", ".join(_call_text(call, shape.agent) for call in step.calls) or "-",
            " ".join(step.gates) or "-",
            " ".join(step.asks) or "-",
            *(
                (
                    format_count(step.estimated_tokens),
                    rounded_usd(step.estimated_nanousd) or UNPRICED,
                    range_text(step) or "-",
                )
                if step.estimated_tokens
                else "---"
            ),
        )
        for step in shape.steps
    )
    heads = columns(
        "phase", *(("for",) if has_kinds else ()), ",calls", "~gates", "~asks you", ">tokens", ">estimated", ">range"
    )
    return Table(columns=heads, rows=rows, empty="The pipeline has no phases.")


def _call_text(call: PlannedCall, agent: str) -> str:
    choices = [
        f"{choice.tier}: {'' if choice.agent == agent else f'{choice.agent} '}{choice.model}"
        for choice in (call, *call.others)
    ]
    return f"{call.role} ({' or '.join(choices)})"


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
    return Table(columns=heads, rows=rows, empty="The backlog has no new features.")


def added_table(shape: PlanShape) -> Table:
    """Return what the run adds itself."""
    rows = tuple(
        (
            part.kind,
            SOURCE_TEXTS[part.source],
            f"{part.items_max}{' a cycle' if part.source in IN_EACH_CYCLE else ''}",
            " ".join(part.phases),
            _number_range(part.calls, part.calls_max),
            str(part.attempts_max),
        )
        for part in shape.adds
    )
    return Table(columns=columns("kind", "~added", ">at most", "~phases", ">calls each", ">attempts"), rows=rows)


def cycle_text(cycle: PlannedCycle) -> str:
    """Return what a cycle is at most, and how many there are."""
    costs = rounded_usd(cycle.estimated_nanousd) or UNPRICED
    bounds = f" ({text})" if (text := range_text(cycle)) else ""
    return (
        f"a cycle: at most {_number_range(cycle.calls, cycle.calls_max)} calls, about "
        f"{format_count(cycle.estimated_tokens)} tokens, {costs}{bounds}; what failed before is begun again in it\n"
        f"at most {count_noun(cycle.cycles_max, 'cycle')}, and none after {cycle.unchanged_max} in a row that deliver "
        "nothing; `--cycles N` stops earlier"
    )


def _number_range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def range_text(part: PlannedPhase | PlannedFeature | PlannedCycle | PlanShape) -> str:
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


def print_plan(root: Path, flags: Mapping[str, object], only: tuple[str, ...], as_json: bool, is_new: bool) -> bool:
    """Print the plan; return True if there is something to do. Raises MzError as `mz run` would."""
    log = root / MZ_FOLDER / LOG_FILE
    with ExitStack() as stack:
        store = stack.enter_context(SqliteStore(log, read_only=True)) if log.exists() else None
        plan = make_plan(root, os.environ, flags, only, store, digest_of, keeps_views=False, is_new=is_new)
        resumed_run = plan.unfinished.started.run if plan.unfinished and plan.unfinished.started else None
    warnings = summarise_warnings(plan.warnings, plan.pins.pipeline, plan.pins.config)
    for warning in (*warnings, *preflight_warnings(root, plan.pins.config, os.environ)):
        print_note(format_diagnostic(warning))
    day = SpendingRecord(spending_folder(os.environ)).day(time.time_ns() // 1_000)
    shape = plan_shape(plan, resumed_run, day)
    if as_json:
        print_document("run-plan", shape)
    else:
        print_plan_text(shape)
    if plan.unfinished is not None and not as_json and (waiting := waiting_features(plan.unfinished)):
        print_note(f"waiting for an answer: {', '.join(waiting)}; see `mz review list`")
    return bool(shape.features or shape.adds) or resumed_run is not None


def waiting_features(run: RunState) -> list[str]:
    stops = {name: track.stop for name, track in run.tracks.items()}
    return [name for name, stop in stops.items() if stop is not None and stop.status is FeatureOutcome.WAITING]


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
    if shape.adds:
        print_line("\nthe run adds:")
        print_table(added_table(shape))
    if shape.cycle:
        print_line("\n" + cycle_text(shape.cycle))
    for item in shape.left_out:
        print_line(f"left out: {item.id}: {item.reason}{f' {item.blocked_by}' if item.blocked_by else ''}")
