"""Pure: what a feature will probably take, before anything is called: the seeds' estimators, said to be estimates.

Prompts count a token for every four characters. What an agent reads and writes on the way is a baseline per phase, by
what the phase lets it do, unless calibration says what such calls took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from mz_engine.pipelines.definition import Phase, Pipeline

CHARACTERS_PER_TOKEN = 4
WRITING_TOKENS = 8_000
"""A phase whose agent reads and writes texts: a third of the seed's 25,000 for planning."""
BUILDING_TOKENS = 24_000
"""A phase whose agent runs commands: three tasks at the seed's 8,000 each."""
OUTPUT_SHARE_PERCENT = 30
"""Of a total: the seed's split of 70 to 30."""

Price = Callable[[str, int, int], int | None]
"""Model, input and output tokens -> nano-dollars; None: unpriced."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int
    nanousd: int | None
    """None: a model has no price."""


Typical = Callable[[str, str], Estimate | None]
"""Model and phase -> what such a call took before; None: nobody knows."""


def unknown(model: str, phase: str) -> Estimate | None:
    """Where no calls were calibrated."""
    return None


def estimate(pipeline: Pipeline, words: str, model_of: Callable[[str], str], price: Price) -> Estimate:
    """One feature through every phase at its first attempt. `words`: title and body; `model_of`: tier -> model."""
    return together(estimate_phase(phase, words, model_of, price) for phase in pipeline.phases)


def estimate_phase(
    phase: Phase, words: str, model_of: Callable[[str], str], price: Price, typical: Typical = unknown
) -> Estimate:
    """One phase of one feature: a call of each agent that it names, by what such calls took where that is known."""
    calls = []
    for tier in tiers_of(phase):
        model = model_of(tier)
        spent = len(words) // CHARACTERS_PER_TOKEN + baseline(phase)
        output = spent * OUTPUT_SHARE_PERCENT // 100
        by_baseline = Estimate(tokens=spent, nanousd=price(model, spent - output, output))
        calls.append(typical(model, phase.phase) or by_baseline)
    return together(calls)


def together(estimates: Iterable[Estimate]) -> Estimate:
    """The sum; unpriced where any of them is."""
    tokens, nanousd = 0, 0
    unpriced = False
    for each in estimates:
        tokens += each.tokens
        nanousd += each.nanousd or 0
        unpriced = unpriced or each.nanousd is None
    return Estimate(tokens=tokens, nanousd=None if unpriced else nanousd)


def tiers_of(phase: Phase) -> tuple[str, ...]:
    """Of the calls that the phase makes: the builder's and the reviewer's."""
    builder = (phase.agent.tier,) if phase.agent else ()
    return (*builder, phase.review.tier) if phase.review else builder


def baseline(phase: Phase) -> int:
    return BUILDING_TOKENS if phase.agent and "shell" in phase.agent.tools else WRITING_TOKENS
