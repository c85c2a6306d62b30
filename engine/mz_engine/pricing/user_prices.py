"""Custom price rows: find the row for a model, and convert it to a rate card."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from fnmatch import fnmatchcase

from mz_engine.model.config import LongRequestRates, PriceRow, Rates
from mz_engine.pricing.models import base_name, candidate_names
from mz_engine.pricing.rate_card import SCALE, Rate, RateCard, flat_rate

SCALED_PER_NANO = SCALE // 10**9
"""Rows hold nano-dollars per million tokens."""
_OTHER_WILDCARDS = re.compile(r"[?\[]")
"""Wildcards of `fnmatch` other than `*`."""


def find_row(rows: Iterable[PriceRow], model: str, day: date) -> PriceRow | None:
    """Return the row in force on that day: of those that match the model, the one with the latest start; of several
    with the same start, the first."""
    names = {base_name(model), *(name.model for name in candidate_names(model))}
    matching_rows = [
        row
        for row in rows
        if (row.since or "") <= day.isoformat() and any(fnmatchcase(name, _pattern(row.model)) for name in names)
    ]
    return max(matching_rows, key=lambda row: row.since or "", default=None)


def _pattern(model: str) -> str:
    """Return a glob in which only `*` is a wildcard, without the mark of a long context window."""
    return _OTHER_WILDCARDS.sub(r"[\g<0>]", base_name(model))


def row_card(row: PriceRow, tier: str = "") -> RateCard | None:
    """Return the row's rate card; None: it has no prices for that service tier."""
    if tier:
        rates = getattr(row.tiers, tier) if tier in row.tiers.__struct_fields__ else None
        return _card(rates, None) if rates else None
    return _card(row, row.above)


def _card(rates: Rates, above: LongRequestRates | None) -> RateCard:
    low, high = _fill_defaults(rates), _fill_defaults(above) if above else None

    def rate(name: str) -> Rate:
        base = flat_rate(low[name] * SCALED_PER_NANO)
        return base if above is None or high is None else (*base, (above.tokens, high[name] * SCALED_PER_NANO))

    return RateCard(**{name: rate(name) for name in RateCard.__struct_fields__})


def _fill_defaults(rates: Rates) -> dict[str, int]:
    cache_write = rates.input if rates.cache_write_5m is None else rates.cache_write_5m
    return {
        "input": rates.input,
        "output": rates.output,
        "cache_read": rates.input if rates.cache_read is None else rates.cache_read,
        "cache_write_5m": cache_write,
        "cache_write_1h": cache_write if rates.cache_write_1h is None else rates.cache_write_1h,
    }
