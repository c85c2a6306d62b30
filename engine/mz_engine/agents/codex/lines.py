"""What Codex's streams and rollouts share: token counts, which are cumulative over a whole thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.agents.reading.json_lines import Json, token_count
from mz_engine.agents.reading.records import REPORTS_FIELD, ModelRequest, Note, Reader, ReaderState

UNREPORTED_FIELDS = ("reasoning", "cache_write_5m", "cache_write_1h")
"""The first two are reported by newer versions; lifetimes of cache writes by none."""
STANDARD_TIERS = frozenset({"", "auto", "default", "standard"})


class TokenCounts(NamedTuple):
    """Tokens as Codex reports them: `cached` and `written` are a part of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0

    def usage(self, model: str, *, subagent: str = "", tier: str = "", requests: int | None = None) -> Usage:
        """Convert to a usage whose parts never exceed their total."""
        read = min(self.cached, self.input)
        return Usage(
            model=model, input=self.input, output=self.output, cache_read=read,
            cache_write_5m=min(self.written, self.input - read), reasoning=min(self.reasoning, self.output),
            requests=requests, subagent=subagent, tier="" if tier in STANDARD_TIERS else tier,
        )  # fmt: skip

    def since(self, before: TokenCounts) -> TokenCounts | None:
        """Return the difference; None if any number decreased, so that the count restarted."""
        difference = TokenCounts(*(current - previous for current, previous in zip(self, before, strict=True)))
        return difference if min(difference) >= 0 else None


def token_counts(usage: Json) -> TokenCounts:
    """Read the numbers of a usage object; absent fields are zero."""
    names = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    return TokenCounts(*(token_count(usage, name) for name in (*names, "reasoning_output_tokens")))


def counts_of_usages(usages: tuple[Usage, ...]) -> TokenCounts:
    """Sum the numbers of usages that `TokenCounts.usage` made."""
    total = TokenCounts()
    for usage in usages:
        written = usage.cache_write_5m + usage.cache_write_1h
        counts = TokenCounts(usage.input, usage.cache_read, written, usage.output, usage.reasoning)
        total = TokenCounts(*(number + added for number, added in zip(total, counts, strict=True)))
    return total


def usage_notes(usage: Json) -> Iterator[Note]:
    """Yield a note for each optional field, of newer versions, that is present."""
    if "reasoning_output_tokens" in usage:
        yield Note(code=f"{REPORTS_FIELD}reasoning")
    if "cache_write_input_tokens" in usage:
        yield Note(code=f"{REPORTS_FIELD}cache_write_5m")


class ThreadReader(Reader):
    """Base class of the readers of streams and of rollouts."""

    agent = "codex"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._total = counts_of_usages(state.total) if state.total else None
        self._turn = self._origin = self._tier = ""

    def state(self) -> ReaderState:
        return replace(super().state(), total=(self._total.usage(""),) if self._total is not None else ())

    def _request_records(
        self, usage: Json, total: TokenCounts, added: TokenCounts, at_us: int | None = None, subagent: str = ""
    ) -> Iterator[Note | ModelRequest]:
        """Yield the request that brought the thread to this total; a line that repeats a total adds nothing."""
        if total == self._total or not (added.input or added.output):
            return
        self._total = total
        yield from usage_notes(usage)
        yield ModelRequest(
            id=f"{self._turn or self._origin or self._session}:{'.'.join(map(str, total))}",
            usage=added.usage(self._model, subagent=subagent, tier=self._tier, requests=1),
            at_us=at_us,
        )
