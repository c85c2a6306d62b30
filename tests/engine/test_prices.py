"""Computed money: exact, dated, and honest about what has no price."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

from mz_engine.adapters.prices import GenaiPrices
from mz_events.catalog.call import Usage

PRICES = GenaiPrices()


def at(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp()) * 1_000_000


NOW = at(2026, 6, 1)


def test_a_record_worked_out_by_hand() -> None:
    """.003 input + .030 output + .015 read + .0375 five-minute writes + .024 one-hour writes."""
    usage = Usage(
        model="claude-sonnet-4-5",
        input=1_000 + 50_000 + 10_000 + 4_000,
        output=2_000,
        cache_read=50_000,
        cache_write_5m=10_000,
        cache_write_1h=4_000,
    )
    assert PRICES.price((usage,), NOW).nanousd == 109_500_000


def test_entries_are_priced_one_by_one() -> None:
    """Two requests below the long-context step cost less than one of both lengths."""
    half = Usage(model="claude-sonnet-4-5", input=150_000, output=10)
    whole = Usage(model="claude-sonnet-4-5", input=300_000, output=20)
    two, one = PRICES.price((half, half), NOW).nanousd, PRICES.price((whole,), NOW).nanousd
    assert two is not None
    assert one is not None
    assert two < one


def test_a_price_is_the_one_of_its_day() -> None:
    long = (Usage(model="claude-sonnet-4-6", input=300_000, output=0),)
    before, after = PRICES.price(long, at(2026, 3, 1)).nanousd, PRICES.price(long, at(2026, 4, 1)).nanousd
    assert before == 2 * (after or 0)


def test_unknown_is_unpriced_never_zero() -> None:
    price = PRICES.price(
        (Usage(model="claude-sonnet-4-6", input=1, output=1), Usage(model="<synthetic>", input=1, output=1)), NOW
    )
    assert price.nanousd is None
    assert price.unpriced == ("<synthetic>",)


def test_nothing_used_costs_nothing() -> None:
    assert PRICES.price((), NOW).nanousd == 0


def test_the_long_context_mark_is_no_part_of_the_name() -> None:
    marked = PRICES.estimate("claude-opus-4-8[1m]", 1000, 1000, NOW)
    assert marked == PRICES.estimate("claude-opus-4-8", 1000, 1000, NOW) == 30_000_000


def test_an_alias_has_no_price() -> None:
    assert PRICES.estimate("sonnet", 1000, 1000, NOW) is None


def test_the_table_is_named_with_version_and_digest() -> None:
    name, version, digest = PRICES.table.split(" ")
    assert name == "genai-prices"
    assert version == "0.2.3"
    assert len(digest.removeprefix("sha256:")) == 64


def test_the_table_is_loaded_when_it_is_needed() -> None:
    code = "import sys, mz_engine.adapters.prices; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
