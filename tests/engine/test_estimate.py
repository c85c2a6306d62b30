"""Estimates before anything is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mz_engine.model.pipeline import Pipeline
from mz_engine.pipelines.load import load_pipeline
from mz_engine.pricing.estimate import (
    BUILDING_TOKENS,
    WRITING_TOKENS,
    Estimate,
    PriceLookup,
    estimate_phase,
    total_estimate,
)
from mz_engine.pricing.table import GenaiPrices

from tests.support import trial

PIPELINE, _ = load_pipeline("monozukuri", Path("/nowhere"))


def estimate_feature(pipeline: Pipeline, text: str, model_of: Callable[[str], str], price: PriceLookup) -> Estimate:
    """Estimate every phase once."""
    return total_estimate(estimate_phase(phase, text, model_of, price) for phase in pipeline.phases)


def test_every_call_of_every_phase_is_counted() -> None:
    estimate = estimate_feature(PIPELINE, "x" * 400, lambda tier: tier, lambda model, into, out: into + out)
    assert estimate == Estimate(tokens=6 * 100 + 4 * WRITING_TOKENS + 2 * BUILDING_TOKENS, nanousd=estimate.tokens)


def test_a_reviewer_is_a_call_of_its_own() -> None:
    texts: list[str] = []
    estimate_feature(trial.pins().pipeline, "", lambda tier: texts.append(tier) or tier, lambda model, into, out: 0)  # type: ignore[func-returns-value]
    assert texts == ["mid", "mid", "premium", "cheap"]


def test_one_model_without_a_price_makes_the_whole_unpriced() -> None:
    estimate = estimate_feature(
        PIPELINE, "", lambda tier: tier, lambda model, into, out: None if model == "cheap" else 1
    )
    assert estimate.nanousd is None
    assert estimate.tokens > 0


def test_real_prices_give_real_money() -> None:
    price = GenaiPrices()
    result = estimate_feature(
        PIPELINE, "", lambda tier: "claude-sonnet-4-6", lambda m, i, o: price.estimate(m, i, o, 1_790_000_000_000_000)
    )
    assert result.nanousd == 80_000 * (70 * 3_000 + 30 * 15_000) // 100
