"""Plan of a run, as the object that `mz run --dry-run --json` prints and as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from mz_engine.config import Config
from mz_engine.estimate import Estimate, Typical, estimate_phase, together, unknown
from mz_engine.intake import Taken
from mz_engine.pipelines.definition import AgentUse, Phase, Review
from mz_engine.planning import Plan

from mz_cli.render.table import Table, columns
from mz_cli.render.text import count, counted, line, money, nanousd_of, usd
from mz_cli.shapes.plan import HoldShape, LeftOutShape, PlannedCall, PlannedFeature, PlannedPhase, PlanShape

NO_LIMIT = "no limit"
UNPRICED = "unpriced"
HOLD_WORDS = {"run-budget": "exceeds the run's budget", "feature-budget": "exceeds the budget of a feature"}


class Market(msgspec.Struct, frozen=True, kw_only=True):
    """Models and prices of the chosen agent."""

    model_of: Callable[[str], str]
    """Tier -> model."""
    price: Callable[[str, int, int], int | None]
    """Model, input and output tokens -> nano-dollars."""
    typical: Typical = unknown


Costs = Mapping[str, Mapping[str, Estimate]]
"""Feature -> phase -> estimate."""


def costs_of(plan: Plan, market: Market | None) -> Costs:
    """Return estimates of all added features; empty if the agent is unknown."""
    if market is None:
        return {}
    wanted = {item.feature for item in plan.taken.added}
    return {
        item.id: {
            phase.phase: estimate_phase(phase, item.title + item.body, market.model_of, market.price, market.typical)
            for phase in plan.pins.pipeline.phases
        }
        for item in plan.items
        if item.id in wanted
    }


def plan_shape(plan: Plan, goes_on: str | None, market: Market | None) -> PlanShape:
    """Return the plan. `resumed_run`: the unfinished run that would continue with these features; `price_context`:
    None if the agent is unknown."""
    config, pipeline, costs = plan.pins.config, plan.pins.pipeline, costs_of(plan, market)
    features = _features(plan, costs, market is not None)
    total = together(each for phases in costs.values() for each in phases.values()) if market else None
    return PlanShape(
        pipeline=pipeline.pipeline,
        phases=tuple(phase.phase for phase in pipeline.phases),
        base=plan.base,
        agent=config.agent,
        failover=tuple(name for name in dict.fromkeys(config.failover) if name != config.agent),
        autonomy=config.autonomy,
        parallel_max=config.parallel_max,
        budget_run_usd=usd(config.budget.run_nanousd),
        budget_feature_usd=usd(config.budget.feature_nanousd),
        goes_on=goes_on,
        steps=tuple(_step(phase, config, costs, market) for phase in pipeline.phases),
        features=features,
        left_out=_left_out(plan.taken),
        estimated_tokens=total.tokens if total else None,
        estimated_usd=usd(total.nanousd) if total else None,
        within_budget=_within(total.nanousd if total else None, config.budget.run_nanousd),
    )


def _within(nanousd: int | None, budget: int | None) -> bool | None:
    return None if nanousd is None or budget is None else nanousd <= budget


def _left_out(taken: Taken) -> tuple[LeftOutShape, ...]:
    return tuple(LeftOutShape(id=out.item.id, why=out.why, because=out.because) for out in taken.left_out)


def _features(plan: Plan, costs: Costs, known: bool) -> tuple[PlannedFeature, ...]:
    config, titles = plan.pins.config, {item.id: item.title for item in plan.items}
    added = {item.feature for item in plan.taken.added}
    spent, shapes = 0, []
    for item in plan.taken.added:
        cost = together(costs[item.feature].values()) if known else None
        spent += cost.nanousd or 0 if cost else 0
        after = [HoldShape(why="dependency", because=other) for other in item.depends_on if other in added]
        shapes.append(
            PlannedFeature(
                id=item.feature, title=line(titles[item.feature]), branch=f"{config.branch_prefix}/{item.feature}",
                depends_on=item.depends_on, quarantined=item.quarantined, score=item.score,
                holds=(*after, *_budget_holds(cost, spent, config)),
                estimated_tokens=cost.tokens if cost else None, estimated_usd=usd(cost.nanousd) if cost else None,
            )
        )  # fmt: skip
    return tuple(shapes)


def _budget_holds(cost: Estimate | None, spent: int, config: Config) -> tuple[HoldShape, ...]:
    """Return the exceeded budgets. `committed_nanousd`: estimate of this feature and those before it."""
    if cost is None:
        return ()
    run = _within(spent, config.budget.run_nanousd) is False
    feature = _within(cost.nanousd, config.budget.feature_nanousd) is False
    found = (("run-budget", run), ("feature-budget", feature))
    return tuple(HoldShape(why=why, because=None) for why, holds in found if holds)


def _step(phase: Phase, config: Config, costs: Costs, market: Market | None) -> PlannedPhase:
    uses: list[AgentUse | Review] = [use for use in (phase.agent, phase.review) if use is not None]
    total = together(phases[phase.phase] for phases in costs.values()) if market else None
    return PlannedPhase(
        phase=phase.phase,
        calls=tuple(_call(use, market) for use in uses),
        per_unit=phase.for_each is not None,
        gates=tuple(gate.name for gate in phase.gates if gate.run is None or gate.run in config.commands),
        asks=tuple(gate.name for gate in phase.human if config.autonomy in gate.autonomy),
        delivers=phase.deliver,
        estimated_tokens=total.tokens if total else None,
        estimated_usd=usd(total.nanousd) if total else None,
    )


def _call(use: AgentUse | Review, market: Market | None) -> PlannedCall:
    model = market.model_of(use.tier) if market else None
    return PlannedCall(role=use.role, tier=use.tier, model=model, tools=use.tools)


# for people -----------------------------------------------------------------------------------------------------------
def heading(shape: PlanShape) -> str:
    run = f"continues run {shape.goes_on}" if shape.goes_on else "a new run"
    agents = ", then ".join((shape.agent, *shape.failover))
    at_once = f"{shape.parallel_max} at once" if shape.parallel_max > 1 else "one at a time"
    return (
        f"{run}: {shape.pipeline} on {shape.base}, agent {agents}, autonomy {shape.autonomy}, {at_once}\n"
        f"budget: {_dollars(shape.budget_run_usd)} for the run, {_dollars(shape.budget_feature_usd)} per feature"
    )


def _dollars(amount: str | None) -> str:
    return f"${amount}" if amount is not None else NO_LIMIT


def steps_table(shape: PlanShape) -> Table:
    rows = tuple(
        (
            step.phase,
            ", ".join(f"{call.role} ({call.tier}: {call.model or 'unknown'})" for call in step.calls) or "-",
            " ".join(step.gates) or "-",
            " ".join(step.asks) or "-",
            count(step.estimated_tokens),
            _estimated(step.estimated_usd),
        )
        for step in shape.steps
    )
    heads = columns("phase", "calls", "gates", "asks you", ">tokens", ">estimated")
    return Table(columns=heads, rows=rows, empty="The pipeline has no phases.")


def features_table(shape: PlanShape, whole: bool) -> Table:
    """Return the features in start order. `exact`: for a pipe, with exact numbers and branches."""
    rows = tuple(
        (
            str(number), each.id, each.branch, " ".join(each.depends_on) or "-", _screen(each),
            "-" if each.estimated_tokens is None else str(each.estimated_tokens), each.estimated_usd or UNPRICED,
            each.title, holds_words(each) or "-",
        )
        if whole
        else (
            str(number), each.id, holds_words(each) or "-", count(each.estimated_tokens),
            _estimated(each.estimated_usd), each.title + (" (quarantined)" if each.quarantined else ""),
        )
        for number, each in enumerate(shape.features, start=1)
    )  # fmt: skip
    if whole:
        heads = ("order", "feature", "branch", "after", "screen", "tokens", "estimated", "title", "holds")
        return Table(columns=columns(*heads), rows=rows, empty="")
    heads_short = columns(">order", "feature", "holds", ">tokens", ">estimated", "~title")
    return Table(columns=heads_short, rows=rows, empty="There are no new features.")


def _screen(feature: PlannedFeature) -> str:
    return "quarantined" if feature.quarantined else "-"


def holds_words(feature: PlannedFeature) -> str:
    """Return why the feature will or may be held."""
    after = [hold.because or "" for hold in feature.holds if hold.why == "dependency"]
    others = [HOLD_WORDS[hold.why] for hold in feature.holds if hold.why != "dependency"]
    return "; ".join([*([f"after {', '.join(after)}"] if after else []), *others])


def _estimated(amount: str | None) -> str:
    """Return an exact decimal string of USD rounded for display."""
    return UNPRICED if amount is None else money(nanousd_of(amount)) or ""


def totals(shape: PlanShape) -> str:
    """Return the sum of all features, compared with the budget."""
    text = f"total: {counted(len(shape.features), 'feature')}"
    if shape.estimated_tokens is None:
        return f"{text}; no estimate, because the agent is unknown"
    budget = f" of {_dollars(shape.budget_run_usd)}" if shape.budget_run_usd is not None else ""
    text = f"{text}, about {count(shape.estimated_tokens)} tokens, {_estimated(shape.estimated_usd)}{budget}"
    first = next((each.id for each in shape.features if any(hold.why == "run-budget" for hold in each.holds)), None)
    return f"{text}\nthe budget is too low: it will be used up at about {first}" if first else text


def left_out_line(out: LeftOutShape) -> str:
    return f"left out: {out.id}: {out.why}{f' {out.because}' if out.because else ''}"
