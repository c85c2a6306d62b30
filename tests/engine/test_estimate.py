"""Estimates before anything is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from mz_engine.agents.registry import all_adapters
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase, Pipeline
from mz_engine.pipelines.load import load_pipeline
from mz_engine.pricing.estimate import (
    BUILDING_TOKENS,
    WRITING_TOKENS,
    CallsOf,
    Estimate,
    PriceLookup,
    estimate_phase,
    total_estimate,
    typical_estimate,
)
from mz_engine.pricing.table import GenaiPrices
from mz_events.catalog.call import Usage
from mz_qa.simulation import trial
from mz_recordings.cassette.files import find_cassettes, load

from tests.support.tree import ROOT

AT_US = 1_790_000_000_000_000
PIPELINE, _ = load_pipeline("monozukuri", Path("/nowhere"))


def estimate_feature(pipeline: Pipeline, text: str, model_of: Callable[[str], str], price: PriceLookup) -> Estimate:
    """Estimate every phase once."""

    def calls_of(phase: Phase, use: AgentUse | AgentReview) -> list[tuple[str, str]]:
        return [("", model_of(use.tier))]

    return total_estimate(estimate_phase(phase, text, calls_of, price) for phase in pipeline.phases)


def test_every_call_of_every_phase_is_counted() -> None:
    estimate = estimate_feature(PIPELINE, "x" * 400, lambda tier: tier, lambda usage: usage.input + usage.output)
    assert estimate.tokens == estimate.nanousd == 6 * 100 + 4 * WRITING_TOKENS + 2 * BUILDING_TOKENS


def test_a_reviewer_is_a_call_of_its_own() -> None:
    texts: list[str] = []
    estimate_feature(trial.pins().pipeline, "", lambda tier: texts.append(tier) or tier, lambda usage: 0)  # type: ignore[func-returns-value]
    assert texts == ["mid", "mid", "premium", "cheap"]


def test_one_model_without_a_price_makes_the_whole_unpriced() -> None:
    estimate = estimate_feature(PIPELINE, "", lambda tier: tier, lambda usage: None if usage.model == "cheap" else 1)
    assert estimate.nanousd is None
    assert estimate.tokens > 0


def test_real_prices_give_real_money() -> None:
    price = GenaiPrices()
    result = estimate_feature(
        PIPELINE, "", lambda tier: "claude-sonnet-4-6", lambda usage: price.price_entry(usage, AT_US)
    )
    assert result.nanousd == 80_000 * (70 * 3_000 + 30 * 15_000) // 100


# the range ------------------------------------------------------------------------------------------------------------
FOLDERS = (ROOT / "recordings" / "library", ROOT / "recordings" / "mz_recordings" / "bundled")
LIBRARY = [folder for folder in find_cassettes(FOLDERS) if folder.name.startswith("monozukuri")]
TIERS = {"mid": "claude-sonnet-4-6", "cheap": "claude-haiku-4-5"}


def price_at(prices: GenaiPrices) -> PriceLookup:
    return lambda usage: prices.price_entry(usage, AT_US)


def always(model: str) -> CallsOf:
    return lambda phase, use: [("", model)]


@pytest.mark.slow
@pytest.mark.parametrize("folder", LIBRARY, ids=lambda folder: folder.name)
def test_the_range_holds_what_recorded_features_cost(folder: Path) -> None:
    """Real command lines with a scripted model, which says little: the lower bound is just below them."""
    cassette, prices, adapters = load(folder, evidence=False), GenaiPrices(), all_adapters({})
    pipeline, _ = load_pipeline(cassette.manifest.pipeline, ROOT)
    cost, models = Counter[str](), dict[str, dict[str, str]]()
    for call in cassette.calls:
        identity, recording = call.recording.identity, call.recording
        usage = adapters[recording.agent].parse_output(call.result()).usage
        cost[identity.feature] += prices.price(usage, AT_US).nanousd or 0
        models.setdefault(identity.feature, {})[identity.phase] = recording.model
    for feature, by_phase in models.items():
        estimate = total_estimate(
            estimate_phase(pipeline.find_phase(phase), "", always(model), price_at(prices))
            for phase, model in by_phase.items()
        )
        if estimate.low_nanousd is not None and estimate.high_nanousd is not None:
            assert estimate.low_nanousd <= cost[feature] <= estimate.high_nanousd, feature


@pytest.mark.parametrize("dollars", [0.35, 0.71, 0.83, 2.10, 4.0])
def test_the_range_holds_what_features_of_real_projects_cost(dollars: float) -> None:
    estimate = estimate_feature(PIPELINE, "x" * 800, lambda tier: TIERS[tier], price_at(GenaiPrices()))
    assert estimate.low_nanousd is not None
    assert estimate.high_nanousd is not None
    assert estimate.low_nanousd <= dollars * NANOUSD_PER_USD <= estimate.high_nanousd


def test_calibration_narrows_the_range() -> None:
    usage = Usage(model="m", input=1000, output=100)
    assert typical_estimate(usage, 500) == Estimate(tokens=1100, nanousd=500, low_nanousd=200, high_nanousd=1250)
    assert typical_estimate(usage, None) == Estimate(tokens=1100, nanousd=None)
