"""`mz run --dry-run`: plan a run without writing anything or calling an agent."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from mz_engine.adapters.pricefile import prices_of
from mz_engine.calibration import coefficients_for, typical
from mz_engine.config import Config
from mz_engine.errors import format_diagnostic
from mz_engine.estimate import Estimate
from mz_engine.home import HOME, LOG
from mz_engine.pipelines.lint import in_short
from mz_engine.planning import make_plan, unfinished
from mz_engine.preflight import known_agent, lacks
from mz_events.adapters.sqlite import SqliteStore
from mz_events.names import Digest

from mz_cli.planpage import Market, features_table, heading, left_out_line, plan_shape, steps_table, totals
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.shapes.plan import PlanShape


def show_plan(home: Path, flags: Mapping[str, object], only: tuple[str, ...], as_json: bool) -> bool:
    """Print the plan; return True if there is something to do. Raises MzError as `mz run` would."""
    log = home / HOME / LOG
    with ExitStack() as stack:
        store = stack.enter_context(SqliteStore(log, read_only=True)) if log.exists() else None
        plan = make_plan(home, os.environ, flags, only, store, digest_of, keeps_views=False)
        known_agent(plan.pins.config.agent, plan.pins.config.agents)
        waiting = unfinished(store) if store else None
        goes_on = waiting.started.run if waiting and waiting.started else None
    for warning in in_short(plan.warnings, plan.pins.pipeline, plan.pins.config.commands):
        note(format_diagnostic(warning))
    for lacking in lacks(home, plan.pins.config, os.environ):
        note(format_diagnostic(lacking))
    shape = plan_shape(plan, goes_on, market_of(plan.pins.config))
    show_document("plan", shape) if as_json else show_text(shape)
    return bool(shape.features) or goes_on is not None


def digest_of(text: str) -> Digest:
    """Return the digest that storing the text would return."""
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def market_of(config: Config) -> Market:
    """Return the agent's models and current prices. Raises MzError (MZ1004) for an unknown agent."""
    models = known_agent(config.agent, config.agents).capabilities().models
    prices, now_us = prices_of(config, os.environ), time.time_ns() // 1_000

    def model_of(tier: str) -> str:
        return str(getattr(config.models, tier) or models[tier])

    @cache
    def price(model: str, into: int, out: int) -> int | None:
        return prices.estimate(model, into, out, now_us)

    @cache
    def typical_call(model: str, phase: str) -> Estimate | None:
        coefficients = coefficients_for(config.calibration, config.agent, model, phase)
        if coefficients is None:
            return None
        usage = typical(coefficients)
        nanousd = prices.estimate(model, usage.input, usage.output, now_us, usage.cache_read, usage.cache_write)
        return Estimate(tokens=usage.input + usage.output, nanousd=nanousd)

    return Market(model_of=model_of, price=price, typical=typical_call)


def show_text(shape: PlanShape) -> None:
    """Print the plan; a pipe gets only the table of features on stdout."""
    terminal = is_terminal(sys.stdout)
    say = answer if terminal else note
    if terminal:
        answer(heading(shape) + "\n")
        show(steps_table(shape))
        answer("")
    show(features_table(shape, whole=not terminal))
    if shape.features:
        say(("\n" if terminal else "") + totals(shape))
    for out in shape.left_out:
        say(left_out_line(out))
