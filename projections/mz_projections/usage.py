"""Sums of token usage."""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.call import Usage

TOKEN_FIELDS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning")
"""The fields of `Usage` that count tokens."""


def add_usage(first: Usage, second: Usage, sign: int = 1) -> Usage:
    """Return the sum, or with `sign` -1 the difference; other fields are those of `first`."""
    return replace(first, **{name: getattr(first, name) + sign * getattr(second, name) for name in TOKEN_FIELDS})
