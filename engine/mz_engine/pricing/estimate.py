"""Estimates of a feature's tokens and cost, before any agent is called.

A prompt counts one token for every four characters. Everything else that an agent reads and writes is a baseline by the
phase's tools, unless calibration knows typical calls. The range around it reaches from a call that answers at once to
one that works for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import sum_all

from mz_engine.model.pipeline import AgentReview, AgentUse, Phase
from mz_engine.prompts.ledger import CHARACTERS_PER_TOKEN

WRITING_TOKENS = 8_000
"""Baseline of a phase whose agent reads and writes texts: a third of Monozukuri's 25,000 for planning."""
BUILDING_TOKENS = 24_000
"""Baseline of a phase whose agent runs commands: three tasks at Monozukuri's 8,000 each."""
OUTPUT_SHARE_PERCENT = 30
"""Share of output in a total, as in Monozukuri."""
SMALL_CALL = Usage(model="", input=3_000, output=150, requests=1)
"""A call that answers at once: less than all but a few recorded ones."""
LARGE_WRITING_CALL = Usage(
    model="", input=350_000, output=6_000, cache_read=300_000, cache_write_5m=40_000, requests=10
)
"""A call that reads much of a repository: each request repeats the conversation, most of it from the cache."""
LARGE_BUILDING_CALL = Usage(
    model="", input=2_000_000, output=25_000, cache_read=1_800_000, cache_write_5m=160_000, requests=40
)
"""The same with commands, and tests that fail at first."""
CALIBRATED_SPREAD = 2.5
"""Most calls of a calibrated group are within its median divided and multiplied by this."""

PriceLookup = Callable[[Usage], int | None]
"""Usage of a call -> nano-dollars; None: unpriced."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int
    nanousd: int | None
    """None: a model has no price."""
    low_nanousd: int | None = None
    high_nanousd: int | None = None
    """Bounds that most runs are within; None as above."""


CallsOf = Callable[[Phase, AgentUse | AgentReview], Sequence[tuple[str, str]]]
"""Returns agent and model of a call, and what else they may be."""
TypicalEstimate = Callable[[str, str, str], Estimate | None]
"""Agent, model and phase -> what such calls typically took; None: unknown."""


def estimate_phase(
    phase: Phase, text: str, calls_of: CallsOf, price: PriceLookup, typical: TypicalEstimate | None = None
) -> Estimate:
    """Estimate one phase of one feature: one call of each agent that it names. The bounds hold for all that may
    be called instead."""
    calls = []
    for use in phase.calls:
        choices = [
            (typical and typical(agent, model, phase.phase)) or _estimate_call(phase, text, model, price)
            for agent, model in calls_of(phase, use)
        ]
        low = [choice.low_nanousd for choice in choices if choice.low_nanousd is not None]
        high = [choice.high_nanousd for choice in choices if choice.high_nanousd is not None]
        bounds = (min(low), max(high)) if len(low) == len(high) == len(choices) else (None, None)
        calls.append(replace(choices[0], low_nanousd=bounds[0], high_nanousd=bounds[1]))
    return total_estimate(calls)


def _estimate_call(phase: Phase, text: str, model: str, price: PriceLookup) -> Estimate:
    text_tokens = len(text) // CHARACTERS_PER_TOKEN
    total = text_tokens + baseline_tokens(phase)
    output = total * OUTPUT_SHARE_PERCENT // 100
    large = LARGE_BUILDING_CALL if is_building(phase) else LARGE_WRITING_CALL
    low, high = (replace(usage, model=model, input=usage.input + text_tokens) for usage in (SMALL_CALL, large))
    expected = Usage(model=model, input=total - output, output=output, requests=1)
    return Estimate(tokens=total, nanousd=price(expected), low_nanousd=price(low), high_nanousd=price(high))


def typical_estimate(usage: Usage, nanousd: int | None) -> Estimate:
    """Return the estimate of a call whose group is calibrated."""
    tokens = usage.input + usage.output
    if nanousd is None:
        return Estimate(tokens=tokens, nanousd=None)
    low, high = round(nanousd / CALIBRATED_SPREAD), round(nanousd * CALIBRATED_SPREAD)
    return Estimate(tokens=tokens, nanousd=nanousd, low_nanousd=low, high_nanousd=high)


def total_estimate(estimates: Iterable[Estimate]) -> Estimate:
    """Return the sum, unpriced if any of the estimates is."""
    nothing = Estimate(tokens=0, nanousd=0, low_nanousd=0, high_nanousd=0)
    parts = (nothing, *estimates)
    return Estimate(
        tokens=sum(part.tokens for part in parts),
        nanousd=sum_all(part.nanousd for part in parts),
        low_nanousd=sum_all(part.low_nanousd for part in parts),
        high_nanousd=sum_all(part.high_nanousd for part in parts),
    )


def is_building(phase: Phase) -> bool:
    return phase.agent is not None and "shell" in phase.agent.tools


def baseline_tokens(phase: Phase) -> int:
    return BUILDING_TOKENS if is_building(phase) else WRITING_TOKENS
