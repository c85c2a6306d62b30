"""JSON document of `mz transcript`."""

from __future__ import annotations

from typing import Literal

from mz_cli.shapes.base import Shape


class TranscriptUsage(Shape, frozen=True, kw_only=True):
    """Tokens of all requests, each counted once; null: unknown."""

    input: int | None
    """Including cache reads and writes."""
    output: int | None
    """Including reasoning."""
    cache_read: int | None
    cache_write_5m: int | None
    """Cache writes with a lifetime of five minutes or an unknown one."""
    cache_write_1h: int | None
    reasoning: int | None


class TranscriptReport(Shape, frozen=True, kw_only=True):
    """`mz transcript FILE --json`."""

    agent: str
    version: str | None
    """Version of the agent's program."""
    session_id: str | None
    status: Literal["success", "error", "no-terminal"]
    """Status of the last ending event; session logs have none: no-terminal."""
    models: tuple[str, ...]
    """Models in order of appearance."""
    usage: TranscriptUsage
    reported_usd: str | None
    """Reported by the agent; repeated reports count once."""
    computed_usd: str | None
    """Tokens of each request at the price of its day; null if a model has no price."""
    unpriced: tuple[str, ...]
    """Models without a price."""
    final_text: str | None
    bad_lines: int
    """Number of undecodable lines."""
    notes: tuple[str, ...]
    """Remarks about the numbers: `code: text`, with stable codes."""
