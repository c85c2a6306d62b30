"""Adapter: `mz run --dry-run`: what a run would do. Nothing is written, no agent is called."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace
from mz_engine.adapters.prices import GenaiPrices
from mz_engine.agents.registry import built_in
from mz_engine.errors import format_diagnostic
from mz_engine.estimate import Estimate, estimate
from mz_engine.planning import Plan, make_plan, unfinished
from mz_engine.preflight import known_agent
from mz_events.adapters.sqlite import SqliteStore
from mz_events.names import Digest

from mz_cli.context import HOME
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import line, money, usd
from mz_cli.shapes import LeftOutShape, PlannedFeature, PlanShape

NO_LIMIT = "no limit"


def show_plan(home: Path, flags: Mapping[str, object], only: tuple[str, ...], as_json: bool) -> None:
    """Prints the plan. Raises MzError as `mz run` would."""
    log = home / HOME / "mz.db"
    with ExitStack() as stack:
        store = stack.enter_context(SqliteStore(log, read_only=True)) if log.is_file() else None
        plan = make_plan(home, os.environ, flags, only, store, digest_of)
        known_agent(plan.pins.config.agent)
        waiting = unfinished(store) if store else None
        goes_on = waiting.started.run if waiting and waiting.started else None
    for shown in dict.fromkeys(format_diagnostic(replace(warning, place=None)) for warning in plan.warnings):
        note(shown)
    shape = plan_shape(plan, goes_on)
    show_document("plan", shape) if as_json else show_text(plan, shape)


def tokens(feature: PlannedFeature) -> str:
    return "-" if feature.estimated_tokens is None else str(feature.estimated_tokens)


def digest_of(text: str) -> Digest:
    """What keeping the text would answer."""
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def plan_shape(plan: Plan, goes_on: str | None) -> PlanShape:
    config, titles = plan.pins.config, {item.id: item.title for item in plan.items}
    expected = estimates(plan)
    return PlanShape(
        pipeline=plan.pins.pipeline.pipeline,
        phases=tuple(phase.phase for phase in plan.pins.pipeline.phases),
        base=plan.base,
        agent=config.agent,
        autonomy=config.autonomy,
        parallel_max=config.parallel_max,
        budget_run_usd=usd(config.budget.run_nanousd),
        budget_feature_usd=usd(config.budget.feature_nanousd),
        goes_on=goes_on,
        features=tuple(
            PlannedFeature(
                id=item.feature,
                title=line(titles[item.feature]),
                branch=f"{config.branch_prefix}/{item.feature}",
                depends_on=item.depends_on,
                quarantined=item.quarantined,
                score=item.score,
                estimated_tokens=expected[item.feature].tokens if expected else None,
                estimated_usd=usd(expected[item.feature].nanousd) if expected else None,
            )
            for item in plan.taken.added
        ),
        left_out=tuple(LeftOutShape(id=out.item.id, why=out.why, because=out.because) for out in plan.taken.left_out),
    )


def estimates(plan: Plan) -> dict[str, Estimate]:
    """By feature; empty where the agent is not known."""
    config, adapter, prices = plan.pins.config, built_in().get(plan.pins.config.agent), GenaiPrices()
    if adapter is None:
        return {}
    models, now_us = adapter.capabilities().models, time.time_ns() // 1_000

    def model_of(tier: str) -> str:
        return str(getattr(config.models, tier) or models[tier])

    def price(model: str, into: int, out: int) -> int | None:
        return prices.estimate(model, into, out, now_us)

    return {item.id: estimate(plan.pins.pipeline, item.title + item.body, model_of, price) for item in plan.items}


def show_text(plan: Plan, shape: PlanShape) -> None:
    """A pipe gets the table alone."""
    terminal = is_terminal(sys.stdout)
    if terminal:
        budget = plan.pins.config.budget
        answer(
            f"{f'run {shape.goes_on} goes on' if shape.goes_on else 'a new run'}: "
            f"{shape.pipeline} on {shape.base}, agent {shape.agent}, autonomy {shape.autonomy}\n"
            f"phases: {', '.join(shape.phases)}\n"
            f"at once: {shape.parallel_max}; budget: {money(budget.run_nanousd) or NO_LIMIT} for the run, "
            f"{money(budget.feature_nanousd) or NO_LIMIT} for a feature\n"
        )
    rows = tuple(
        (str(number), each.id, each.branch, " ".join(each.depends_on) or "-",
         "quarantined" if each.quarantined else "-", tokens(each), each.estimated_usd or "unpriced", each.title)
        for number, each in enumerate(shape.features, start=1)
    )  # fmt: skip
    heads = columns(">order", "feature", "branch", "after", "screen", ">tokens", ">estimated", "title")
    show(Table(columns=heads, rows=rows, empty="Nothing new is to be done."))
    say = answer if terminal else note
    for out in shape.left_out:
        say(f"left out: {out.id}: {out.why}{f' {out.because}' if out.because else ''}")
