"""Custom price rows: find the row for a model, and convert it to a rate card."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from fnmatch import fnmatchcase

from mz_engine.config import PriceRow, Rates
from mz_engine.pricing.card import SCALE, Card, Rate, flat
from mz_engine.pricing.names import bare, candidates

NANO = SCALE // 10**9
"""Rows hold nano-dollars per million tokens."""
_PLAIN = re.compile(r"[?\[]")
"""Wildcards of `fnmatch` other than `*`."""


def row_for(rows: Iterable[PriceRow], model: str, day: date) -> PriceRow | None:
    """Return the row in force on that day: of those that match the model, the one with the latest start; of several
    with the same start, the first."""
    names = {bare(model), *(name.model for name in candidates(model))}
    fitting = [
        row
        for row in rows
        if row.since <= day.isoformat() and any(fnmatchcase(name, _pattern(row.model)) for name in names)
    ]
    return max(fitting, key=lambda row: row.since, default=None)


def _pattern(model: str) -> str:
    """Return a glob in which only `*` is a wildcard, without the mark of a long context window."""
    return _PLAIN.sub(r"[\g<0>]", bare(model))


def card_of(row: PriceRow, tier: str = "") -> Card | None:
    """Return the row's rate card; None: it has no prices for that service tier."""
    if tier:
        return _card(row.tiers[tier], None, None) if tier in row.tiers else None
    return _card(row.rates, row.above_tokens, row.above)


def _card(rates: Rates, above_tokens: int | None, above: Rates | None) -> Card:
    low, high = _filled(rates), _filled(above) if above else None

    def rate(name: str) -> Rate:
        base = flat(low[name] * NANO)
        return base if high is None or above_tokens is None else (*base, (above_tokens, high[name] * NANO))

    return Card(**{name: rate(name) for name in Card.__struct_fields__})


def _filled(rates: Rates) -> dict[str, int]:
    short = rates.input if rates.cache_write_5m is None else rates.cache_write_5m
    return {
        "input": rates.input,
        "output": rates.output,
        "cache_read": rates.input if rates.cache_read is None else rates.cache_read,
        "cache_write_5m": short,
        "cache_write_1h": short if rates.cache_write_1h is None else rates.cache_write_1h,
    }
