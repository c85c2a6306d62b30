"""Facts: the shape of the JSON of `mz transcript`."""

from __future__ import annotations

from typing import Literal

from mz_cli.shapes.base import Shape


class TranscriptUsage(Shape, frozen=True, kw_only=True):
    """Tokens of all requests, each counted once; null where the file does not say."""

    input: int | None
    """All of it, what a cache had or took included."""
    output: int | None
    """Reasoning included."""
    cache_read: int | None
    cache_write_5m: int | None
    """Cache writes that live for five minutes, and those whose lifetime is not told."""
    cache_write_1h: int | None
    reasoning: int | None


class TranscriptReport(Shape, frozen=True, kw_only=True):
    """`mz transcript FILE --json`."""

    agent: str
    version: str | None
    """Of the agent's program."""
    session_id: str | None
    status: Literal["success", "error", "no-terminal"]
    """Of the last terminal event; a session's log has none, and is no-terminal."""
    models: tuple[str, ...]
    """In the order in which they are met."""
    usage: TranscriptUsage
    reported_usd: str | None
    """By the agent, once where it tells it again and again."""
    computed_usd: str | None
    """Tokens of each request by the price then in force; null where a model has no price."""
    unpriced: tuple[str, ...]
    """Models without a price."""
    final_text: str | None
    bad_lines: int
    """Lines that cannot be read."""
    notes: tuple[str, ...]
    """What to know about these numbers: `code: words`, with codes that stay."""
