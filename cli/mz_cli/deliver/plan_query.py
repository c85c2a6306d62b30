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

from mz_engine.errors.diagnostics import format_diagnostic
from mz_engine.model.config import Config
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_engine.pipelines.lint import summarise_warnings
from mz_engine.pricing.calibration import coefficients_for, typical_tokens
from mz_engine.pricing.estimate import Estimate
from mz_engine.pricing.table import price_table
from mz_engine.run.plan import make_plan
from mz_engine.run.preflight import find_agent, preflight_warnings
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.names import Digest

from mz_cli.deliver.plan_json import PlanShape
from mz_cli.deliver.plan_text import (
    PriceContext,
    features_table,
    heading,
    left_out_line,
    plan_shape,
    steps_table,
    totals_text,
)
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import print_table, prints_tsv


def print_plan(home: Path, flags: Mapping[str, object], only: tuple[str, ...], as_json: bool) -> bool:
    """Print the plan; return True if there is something to do. Raises MzError as `mz run` would."""
    log = home / MZ_FOLDER / LOG_FILE
    with ExitStack() as stack:
        store = stack.enter_context(SqliteStore(log, read_only=True)) if log.exists() else None
        plan = make_plan(home, os.environ, flags, only, store, text_digest, keeps_views=False)
        find_agent(plan.pins.config.agent, plan.pins.config.agents)
        resumed_run = plan.unfinished.started.run if plan.unfinished and plan.unfinished.started else None
    for warning in summarise_warnings(plan.warnings, plan.pins.pipeline, plan.pins.config.commands):
        print_note(format_diagnostic(warning))
    for missing_tool in preflight_warnings(home, plan.pins.config, os.environ):
        print_note(format_diagnostic(missing_tool))
    shape = plan_shape(plan, resumed_run, price_context(plan.pins.config))
    print_document("plan", shape) if as_json else print_plan_text(shape)
    return bool(shape.features) or resumed_run is not None


def text_digest(text: str) -> Digest:
    """Return the digest that storing the text would return."""
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def price_context(config: Config) -> PriceContext:
    """Return the agent's models and current prices. Raises MzError (MZ1004) for an unknown agent."""
    models = find_agent(config.agent, config.agents).capabilities().models
    prices, now_us = price_table(config, os.environ), time.time_ns() // 1_000

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
        usage = typical_tokens(coefficients)
        nanousd = prices.estimate(model, usage.input, usage.output, now_us, usage.cache_read, usage.cache_write)
        return Estimate(tokens=usage.input + usage.output, nanousd=nanousd)

    return PriceContext(model_of=model_of, price=price, typical=typical_call)


def print_plan_text(shape: PlanShape) -> None:
    """Print the plan; a pipe gets only the table of features on stdout."""
    terminal = not prints_tsv(sys.stdout)
    print_text = print_line if terminal else print_note
    if terminal:
        print_line(heading(shape) + "\n")
        print_table(steps_table(shape))
        print_line("")
    print_table(features_table(shape, exact=not terminal))
    if shape.features:
        print_text(("\n" if terminal else "") + totals_text(shape))
    for item in shape.left_out:
        print_text(left_out_line(item))
