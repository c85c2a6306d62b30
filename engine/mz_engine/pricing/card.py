"""Pure: what tokens cost by one rate card, in whole numbers.

A rate has steps by the size of a request: a request above a step pays that step's price for all of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage

SCALE = 10**18
"""Prices are kept in this part of a dollar for a million tokens, so that no digit of a price table is lost."""
_NANO = SCALE // 1000
"""So many of them are a nano-dollar for one token."""

Rate = tuple[tuple[int, int], ...]
"""Steps, upwards: (a request of more tokens than this, scaled price). The first is (-1, price): any request."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model at one time in one service tier."""

    input: Rate | None
    """None: the table does not say, so nothing that has such tokens has a price."""
    output: Rate | None
    cache_read: Rate | None
    cache_write_5m: Rate | None
    cache_write_1h: Rate | None

    @property
    def steps(self) -> tuple[int, ...]:
        """Sizes of requests at which a price changes, upwards."""
        rates = (self.input, self.output, self.cache_read, self.cache_write_5m, self.cache_write_1h)
        return tuple(sorted({above for rate in rates for above, _ in rate or () if above >= 0}))


def scaled(usd_per_mtok: Decimal) -> int | None:
    """None: the price has more digits than we keep."""
    price = usd_per_mtok * SCALE
    return int(price) if price == price.to_integral_value() else None


def flat(price: int) -> Rate:
    return ((-1, price),)


def cost(card: Card, usage: Usage, size: int | None = None) -> int | None:
    """Nano-dollars, rounded half to even; None where the card lacks a price for some of the tokens. `size` puts the
    request at another size than its own, which decides the step."""
    read, short, hour = usage.cache_read, usage.cache_write_5m, usage.cache_write_1h
    plain = max(usage.input - read - short - hour, 0)
    total = 0
    for tokens, rate in (
        (plain, card.input),
        (read, card.cache_read),
        (short, card.cache_write_5m),
        (hour, card.cache_write_1h),
        (usage.output, card.output),
    ):
        if tokens:
            if rate is None:
                return None
            if size is None and len(rate) > 1:
                size = size_of(usage)
            total += tokens * (rate[0][1] if size is None else _at(rate, size))
    whole, rest = divmod(total, _NANO)
    return whole + 1 if rest * 2 > _NANO or (rest * 2 == _NANO and whole % 2) else whole


def _at(rate: Rate, size: int) -> int:
    for above, price in reversed(rate):
        if size > above:
            return price
    return rate[0][1]


def size_of(usage: Usage) -> int:
    """Input tokens that decide the step: of the request; of the average one, where this is a sum. Nothing where nobody
    knows of how many: most requests are short, and as one they would all cost what only long ones do."""
    if usage.requests is None:
        return 0
    return tokens_in(usage) // max(usage.requests, 1)


def tokens_in(usage: Usage) -> int:
    """All input tokens, also where an agent leaves those of the cache out of its sum."""
    return max(usage.input, usage.cache_read + usage.cache_write_5m + usage.cache_write_1h)


def may_cross(card: Card, usage: Usage) -> bool:
    """Whether this is a sum of requests of which some, but not all, may have been above a step."""
    return usage.requests != 1 and any(tokens_in(usage) > above for above in card.steps)


def in_parts(card: Card, percent: int) -> Card:
    """All prices at so many hundredths."""

    def part(rate: Rate | None) -> Rate | None:
        return None if rate is None else tuple((above, price * percent // 100) for above, price in rate)

    return Card(
        input=part(card.input),
        output=part(card.output),
        cache_read=part(card.cache_read),
        cache_write_5m=part(card.cache_write_5m),
        cache_write_1h=part(card.cache_write_1h),
    )


def all_short(usage: Usage) -> Usage:
    """With every cache write taken for one of five minutes."""
    return replace(usage, cache_write_5m=usage.cache_write_5m + usage.cache_write_1h, cache_write_1h=0)


def all_hour(usage: Usage) -> Usage:
    """With every cache write taken for one of an hour."""
    return replace(usage, cache_write_1h=usage.cache_write_5m + usage.cache_write_1h, cache_write_5m=0)


def distinct(cards: Iterable[Card]) -> tuple[Card, ...]:
    return tuple(dict.fromkeys(cards))
