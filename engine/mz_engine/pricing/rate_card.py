"""Cost of tokens by one rate card, in integers.

A rate has steps by the size of a request: a request above a step pays that step's price for all of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage

SCALE = 10**18
"""Prices are integers in this fraction of a dollar per million tokens, so that no digit of a price table is lost."""
_SCALED_PER_NANO = SCALE // 1000
"""Scaled units per nano-dollar for one token."""

Rate = tuple[tuple[int, int], ...]
"""Ascending steps: (lower bound of tokens, exclusive; scaled price). The first is (-1, price): any request."""


class RateCard(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model at one time in one service tier."""

    input: Rate | None
    """None: unknown, so usage with such tokens has no price."""
    output: Rate | None
    cache_read: Rate | None
    cache_write_5m: Rate | None
    cache_write_1h: Rate | None

    @property
    def step_sizes(self) -> tuple[int, ...]:
        """Ascending sizes of requests at which a price changes."""
        rates = filter(None, msgspec.structs.astuple(self))
        return tuple(sorted({above for rate in rates for above, _ in rate if above >= 0}))


def card_of(rates: Mapping[str, Rate]) -> RateCard:
    """Return the card; absent cache rates are those of other input, or of shorter cache writes."""
    input_rate = rates.get("input")
    cache_write_rate = rates.get("cache_write_5m", input_rate)
    return RateCard(
        input=input_rate,
        output=rates.get("output"),
        cache_read=rates.get("cache_read", input_rate),
        cache_write_5m=cache_write_rate,
        cache_write_1h=rates.get("cache_write_1h", cache_write_rate),
    )


def scale_price(usd_per_mtok: Decimal) -> int | None:
    """Return the scaled price; None: it has more digits than SCALE keeps."""
    price = usd_per_mtok * SCALE
    return int(price) if price == price.to_integral_value() else None


def flat_rate(price: int) -> Rate:
    return ((-1, price),)


def usage_cost(card: RateCard, usage: Usage, request_size: int | None = None) -> int | None:
    """Return nano-dollars, rounded half to even; None if the card lacks a price for some of the tokens. `size`
    overrides the size of the request, which decides the step."""
    read, short_writes, long_writes = usage.cache_read, usage.cache_write_5m, usage.cache_write_1h
    uncached = max(usage.input - read - short_writes - long_writes, 0)
    total = 0
    for tokens, rate in (
        (uncached, card.input),
        (read, card.cache_read),
        (short_writes, card.cache_write_5m),
        (long_writes, card.cache_write_1h),
        (usage.output, card.output),
    ):
        if tokens:
            if rate is None:
                return None
            if request_size is None and len(rate) > 1:
                request_size = average_request_size(usage)
            total += tokens * (rate[0][1] if request_size is None else _step_price(rate, request_size))
    nanousd, remainder = divmod(total, _SCALED_PER_NANO)
    return nanousd + (remainder * 2 > _SCALED_PER_NANO or (remainder * 2 == _SCALED_PER_NANO and nanousd % 2 == 1))


def _step_price(rate: Rate, request_size: int) -> int:
    for above, price in reversed(rate):
        if request_size > above:
            return price
    return rate[0][1]


def average_request_size(usage: Usage) -> int:
    """Return the input tokens that decide the step: of the request, or the average if this is a sum. 0 if the number of
    requests is unknown: most are short, and as one request they would all get the price of long ones."""
    if usage.requests is None:
        return 0
    return total_input_tokens(usage) // max(usage.requests, 1)


def total_input_tokens(usage: Usage) -> int:
    """Return all input tokens, also where an agent does not include those of the cache in its sum."""
    return max(usage.input, usage.cache_read + usage.cache_write_5m + usage.cache_write_1h)


def may_cross_step(card: RateCard, usage: Usage) -> bool:
    """Return True if this is a sum of requests of which some, but not all, may have been above a step."""
    return usage.requests != 1 and any(total_input_tokens(usage) > above for above in card.step_sizes)


def scale_card(card: RateCard, percent: int) -> RateCard:
    """Return the card with all prices at a percentage."""

    def scaled_rate(rate: Rate | None) -> Rate | None:
        return None if rate is None else tuple((above, price * percent // 100) for above, price in rate)

    return RateCard(**{name: scaled_rate(getattr(card, name)) for name in RateCard.__struct_fields__})


def writes_as_5m(usage: Usage) -> Usage:
    """Return the usage with every cache write as one of five minutes."""
    return replace(usage, cache_write_5m=usage.cache_write_5m + usage.cache_write_1h, cache_write_1h=0)


def writes_as_1h(usage: Usage) -> Usage:
    """Return the usage with every cache write as one of an hour."""
    return replace(usage, cache_write_1h=usage.cache_write_5m + usage.cache_write_1h, cache_write_5m=0)
