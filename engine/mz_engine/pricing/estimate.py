"""Estimates of a feature's tokens and cost, before any agent is called.

A prompt counts one token for every four characters. Everything else that an agent reads and writes is a baseline by the
phase's tools, unless calibration knows typical calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from mz_engine.model.pipeline import Phase

CHARACTERS_PER_TOKEN = 4
WRITING_TOKENS = 8_000
"""Baseline of a phase whose agent reads and writes texts: a third of Monozukuri's 25,000 for planning."""
BUILDING_TOKENS = 24_000
"""Baseline of a phase whose agent runs commands: three tasks at Monozukuri's 8,000 each."""
OUTPUT_SHARE_PERCENT = 30
"""Share of output in a total, as in Monozukuri."""

PriceLookup = Callable[[str, int, int], int | None]
"""Model, input and output tokens -> nano-dollars; None: unpriced."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int
    nanousd: int | None
    """None: a model has no price."""


TypicalEstimate = Callable[[str, str], Estimate | None]
"""Model and phase -> what such calls typically took; None: unknown."""


def estimate_phase(
    phase: Phase, text: str, model_of: Callable[[str], str], price: PriceLookup, typical: TypicalEstimate | None = None
) -> Estimate:
    """Estimate one phase of one feature: one call of each agent that it names."""
    calls = []
    for call in phase.calls:
        model = model_of(call.tier)
        total = len(text) // CHARACTERS_PER_TOKEN + baseline_tokens(phase)
        output = total * OUTPUT_SHARE_PERCENT // 100
        by_baseline = Estimate(tokens=total, nanousd=price(model, total - output, output))
        calls.append((typical and typical(model, phase.phase)) or by_baseline)
    return total_estimate(calls)


def total_estimate(estimates: Iterable[Estimate]) -> Estimate:
    """Return the sum, unpriced if any of the estimates is."""
    parts = tuple(estimates)
    amounts = [part.nanousd for part in parts if part.nanousd is not None]
    nanousd = sum(amounts) if len(amounts) == len(parts) else None
    return Estimate(tokens=sum(part.tokens for part in parts), nanousd=nanousd)


def baseline_tokens(phase: Phase) -> int:
    return BUILDING_TOKENS if phase.agent and "shell" in phase.agent.tools else WRITING_TOKENS
