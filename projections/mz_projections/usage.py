"""Sums of token usage and of amounts that may be unknown."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from mz_events.catalog.call import Usage

TOKEN_FIELDS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning")
"""The fields of `Usage` that count tokens."""


def add_usage(first: Usage, second: Usage, sign: int = 1) -> Usage:
    """Return the sum, or with `sign` -1 the difference; other fields are those of `first`."""
    return replace(first, **{name: getattr(first, name) + sign * getattr(second, name) for name in TOKEN_FIELDS})


def usage_since(total: Usage, before: Usage) -> Usage | None:
    """Return the difference of two totals; None if any number decreased, so that the count restarted."""
    difference = add_usage(total, before, -1)
    return difference if min(getattr(difference, name) for name in TOKEN_FIELDS) >= 0 else None


def with_lifetimes(total: Usage, shown: Usage) -> Usage:
    """Return a total with the lifetimes of cache writes that the requests `shown` have, if it has none of its own;
    further writes have the longer lifetime if most of those shown have it."""
    written, covered = total.cache_write_5m + total.cache_write_1h, shown.cache_write_5m + shown.cache_write_1h
    if total.cache_write_1h or not shown.cache_write_1h:
        return total
    hidden = max(written - covered, 0) if shown.cache_write_1h > shown.cache_write_5m else 0
    hour = min(shown.cache_write_1h + hidden, written)
    return replace(total, cache_write_5m=written - hour, cache_write_1h=hour)


def limit_parts(usage: Usage) -> Usage:
    """Return the usage with cached tokens as parts of its input, and reasoning as a part of its output."""
    read, reasoning = min(usage.cache_read, usage.input), min(usage.reasoning, usage.output)
    short = min(usage.cache_write_5m, usage.input - read)
    hour = min(usage.cache_write_1h, usage.input - read - short)
    return replace(usage, cache_read=read, cache_write_5m=short, cache_write_1h=hour, reasoning=reasoning)


def sum_by_model(usages: Iterable[Usage]) -> dict[str, Usage]:
    """Return the sums by model, in order of appearance, requests included; other fields are those of the first."""
    sums: dict[str, Usage] = {}
    for usage in usages:
        if earlier := sums.get(usage.model):
            usage = replace(add_usage(earlier, usage), requests=sum_all((earlier.requests, usage.requests)))
        sums[usage.model] = usage
    return sums


def sum_known(amounts: Iterable[int | None]) -> int | None:
    """Return the sum of the known amounts; None if there are none."""
    known_amounts = [amount for amount in amounts if amount is not None]
    return sum(known_amounts) if known_amounts else None


def sum_all(amounts: Iterable[int | None]) -> int | None:
    """Return the sum; None if any amount is unknown, or there are none."""
    known_amounts = list(amounts)
    return None if not known_amounts or None in known_amounts else sum_known(known_amounts)
