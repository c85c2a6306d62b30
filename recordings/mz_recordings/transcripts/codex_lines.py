"""Token counts in Codex's streams and rollouts, which are cumulative over a whole thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mz_engine.agents.jsonline import Json, count
from mz_events.catalog.call import Usage

from mz_recordings.transcripts.facts import TELLS, Remark

AGENT = "codex"
UNTOLD = ("reasoning", "cache_write_5m", "cache_write_1h")
"""The first two are reported by newer versions; lifetimes of cache writes by none."""
STANDARD_TIERS = frozenset({"", "auto", "default", "standard"})


class Numbers(NamedTuple):
    """Tokens as Codex reports them: `cached` and `written` are a part of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0

    def usage(self, model: str, *, part: str = "", tier: str = "", requests: int | None = None) -> Usage:
        """Convert to a usage whose parts never exceed their total."""
        read = min(self.cached, self.input)
        return Usage(
            model=model, input=self.input, output=self.output, cache_read=read,
            cache_write_5m=min(self.written, self.input - read), reasoning=min(self.reasoning, self.output),
            requests=requests, part=part, tier="" if tier in STANDARD_TIERS else tier,
        )  # fmt: skip

    def since(self, before: Numbers) -> Numbers | None:
        """Return the difference; None if any number decreased, so that the count restarted."""
        rest = Numbers(*(now - was for now, was in zip(self, before, strict=True)))
        return rest if min(rest) >= 0 else None


def numbers(told: Json) -> Numbers:
    """Read the numbers of a usage object; absent fields are zero."""
    names = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    return Numbers(*(count(told.get(name)) or 0 for name in (*names, "reasoning_output_tokens")))


def numbers_of(usages: tuple[Usage, ...]) -> Numbers:
    """Sum the numbers of usages that `Numbers.usage` made."""
    found = Numbers()
    for usage in usages:
        written = usage.cache_write_5m + usage.cache_write_1h
        mine = Numbers(usage.input, usage.cache_read, written, usage.output, usage.reasoning)
        found = Numbers(*(one + other for one, other in zip(found, mine, strict=True)))
    return found


def remarks(told: Json) -> Iterator[Remark]:
    """Yield a note for each optional field, of newer versions, that is present."""
    if "reasoning_output_tokens" in told:
        yield Remark(code=f"{TELLS}reasoning")
    if "cache_write_input_tokens" in told:
        yield Remark(code=f"{TELLS}cache_write_5m")
