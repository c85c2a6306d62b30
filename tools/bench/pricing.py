"""What a price costs: requests priced a second, against `genai_prices.calc_price` for the same requests. Every
sum is compared on the way: what is fast and wrong is of no use."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import ROUND_HALF_EVEN
from functools import partial

from mz_engine.pricing.table import EPOCH, GenaiPrices
from mz_events.catalog.call import Usage

from tools.bench.clock import alternate, rate
from tools.bench.figure import Figure, compare

REQUESTS, REFERENCES, ROUNDS = 100_000, 2_000, 5
RATIO_MIN = 10.0
SEED = 1
FIRST_US, YEAR_US = 1_767_225_600_000_000, 365 * 86_400_000_000
"""Requests of the year 2026."""
MODELS = ("claude-sonnet-4-5", "claude-opus-4-8", "claude-haiku-4-5", "gpt-5.5", "gemini-2.5-pro")
NANO = 10**9


def requests(count: int) -> list[tuple[Usage, int]]:
    """So many requests with their times, the same ones each time."""
    dice = random.Random(SEED)
    result = []
    for _ in range(count):
        read, written = dice.randrange(150_000), dice.randrange(20_000)
        usage = Usage(
            model=dice.choice(MODELS), input=read + written + dice.randrange(2_000), output=dice.randrange(4_000),
            cache_read=read, cache_write_5m=written, requests=1,
        )  # fmt: skip
        result.append((usage, FIRST_US + dice.randrange(YEAR_US)))
    return result


def priced(prices: GenaiPrices, of: list[tuple[Usage, int]]) -> list[int | None]:
    return [prices.price_entry(usage, at_us) for usage, at_us in of]


def reference(of: list[tuple[Usage, int]]) -> list[int]:
    """The same by the package itself."""
    import genai_prices

    return [
        int(
            (
                genai_prices.calc_price(
                    genai_prices.Usage(
                        input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=usage.cache_read,
                        cache_write_tokens=usage.cache_write_5m,
                    ),
                    model_ref=usage.model,
                    genai_request_timestamp=EPOCH + timedelta(microseconds=at_us),
                ).total_price
                * NANO
            ).to_integral_value(ROUND_HALF_EVEN)
        )
        for usage, at_us in of
    ]  # fmt: skip


def pricing(*, requests_count: int, references_count: int, rounds: int) -> tuple[Figure, ...]:
    """Raises RuntimeError where the two disagree."""
    of = requests(requests_count)
    some = of[:references_count]
    prices = GenaiPrices()
    if priced(prices, some) != reference(some):
        raise RuntimeError("the prices are not those of the table")
    speeds = alternate(
        rounds,
        {
            "mz": lambda: rate(len(of), partial(priced, GenaiPrices(), of)),
            "table": lambda: rate(len(some), partial(reference, some)),
        },
    )
    return (
        compare(
            "pricing.requests", speeds["mz"], "requests/s", "genai_prices.calc_price", speeds["table"],
            at_least=RATIO_MIN,
        ),
    )  # fmt: skip
