"""Computed money: exact, dated, and honest about what has no price."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

import genai_prices
import msgspec
import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import Provider
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.decoding.yaml import load_yaml
from mz_engine.pricing.table import (
    EPOCH,
    UNSUPPORTED_KEYS,
    GenaiPrices,
    RateCard,
    _providers,
    may_cross_step,
    scaled_rate,
    usage_cost,
)
from mz_engine.pricing.types import find_model
from mz_events.catalog.call import Usage

from tests.support.examples import examples
from tests.support.tree import ROOT

CASES = ROOT / "tests" / "cases" / "prices"
PRICES = GenaiPrices()


class Priced(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    at: date
    usage: tuple[Usage, ...]
    usd: str | None
    unpriced: tuple[str, ...] = ()


PRICED = msgspec.convert(load_yaml((CASES / "priced.yaml").read_text("utf-8")), list[Priced])
NAMES: dict[str, str | None] = load_yaml((CASES / "names.yaml").read_text("utf-8"))


def at(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000


NOW = at(date(2026, 11, 1))


def nano(usd: str | None) -> int | None:
    return None if usd is None else int(Decimal(usd).scaleb(9))


# sums worked out by hand ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", PRICED, ids=lambda case: case.name)
def test_sums_are_those_worked_out_by_hand(case: Priced) -> None:
    result = PRICES.price(case.usage, at(case.at))
    assert (result.nanousd, result.unpriced) == (nano(case.usd), case.unpriced)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_found_whatever_it_is_called(name: str) -> None:
    assert PRICES.estimate(name, 1000, 1000, NOW) == nano(NAMES[name])


def test_nothing_used_costs_nothing() -> None:
    assert PRICES.price((), NOW).nanousd == 0


def test_cached_tokens_of_an_estimate_are_part_of_its_input() -> None:
    usage = Usage(model="claude-sonnet-4-5", input=1000, output=0, cache_read=600, cache_write_5m=400, requests=1)
    assert PRICES.price_entry(usage, NOW) == 600 * 300 + 400 * 3750


def test_sums_that_may_cross_a_step_are_known() -> None:
    card = PRICES.card("claude-sonnet-4-5", NOW)
    assert card is not None
    assert card.step_sizes == (200_000,)
    some, many, usage = (Usage(model="claude-sonnet-4-5", input=300_000, output=0, requests=n) for n in (None, 9, 1))
    assert [may_cross_step(card, item) for item in (some, many, usage)] == [True, True, False]
    assert not may_cross_step(card, Usage(model="claude-sonnet-4-5", input=200_000, output=0))


def test_a_sum_of_nobody_knows_how_many_requests_is_priced_as_short_ones() -> None:
    """Most requests are; as one request it would cost twice as much. Where it may be wrong, it says so."""
    some = Usage(model="claude-sonnet-4-5", input=300_000, output=1000)
    prices = {n: PRICES.price((replace(some, requests=n),), NOW) for n in (None, 1, 2)}
    assert {n: price.nanousd for n, price in prices.items()} == {
        None: 300_000 * 3000 + 1000 * 15_000, 1: 300_000 * 6000 + 1000 * 22_500, 2: 300_000 * 3000 + 1000 * 15_000,
    }  # fmt: skip
    assert {n: price.may_be_higher for n, price in prices.items()} == {None: True, 1: False, 2: True}
    assert not PRICES.price((replace(some, input=200_000),), NOW).may_be_higher


def test_an_estimate_is_priced_as_one_request() -> None:
    """A reservation is rather too high."""
    assert PRICES.estimate("claude-sonnet-4-5", 300_000, 0, NOW) == 300_000 * 6000


@pytest.mark.parametrize(("tokens", "nanousd"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (7, 4)])
def test_half_a_nano_dollar_goes_to_the_even_one(tokens: int, nanousd: int) -> None:
    """As the table's own code rounds: nothing leans to one side."""
    rate = scaled_rate((-1, Decimal("0.0005")))
    card = RateCard(input=rate, output=None, cache_read=rate, cache_write_5m=rate, cache_write_1h=rate)
    assert usage_cost(card, Usage(model="m", input=tokens, output=0)) == nanousd
    assert usage_cost(card, Usage(model="m", input=tokens, output=1)) is None, "a kind of token without a price"


# against the table itself ---------------------------------------------------------------------------------------------
TOKENS = st.integers(min_value=0, max_value=600_000)
MAKERS = ("anthropic", "openai", "google", "deepseek", "mistral", "x-ai", "moonshotai")


def models_of(provider: Provider) -> list[tuple[str, str]]:
    return [
        (provider.id, model.id)
        for model in provider.models
        for prices in [model.get_prices(EPOCH).__dict__]
        if prices.get("input_mtok") is not None and prices.get("output_mtok") is not None
        if not any(part in key for key in prices for part in UNSUPPORTED_KEYS)
    ]


MODELS = [
    (provider, model)
    for item in get_snapshot().providers
    if item.id in MAKERS
    for provider, model in models_of(item)
    if PRICES.estimate(model, 1, 1, NOW) is not None
]


@examples(150)
@given(
    st.sampled_from(MODELS), TOKENS, TOKENS, TOKENS, TOKENS, TOKENS,
    st.integers(at(date(2024, 1, 1)), at(date(2027, 1, 1))), st.sampled_from(["", "", "flex", "priority", "fast"]),
)  # fmt: skip
def test_a_request_costs_what_the_table_says(
    of: tuple[str, str], plain: int, read: int, short: int, hour: int, output: int, at_us: int, tier: str
) -> None:
    """To the nano-dollar, for every model, day, time of day, size and tier that the table knows."""
    usage = Usage(
        model=of[1], input=plain + read + short + hour, output=output, cache_read=read, cache_write_5m=short,
        cache_write_1h=hour, requests=1, tier=tier,
    )  # fmt: skip
    count = PRICES.price_entry(usage, at_us)
    if count is None:
        assert tier, "only a tier that is not in the table has no price"
        return
    expected = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.input, output_tokens=output, cache_read_tokens=read, cache_write_tokens=short + hour,
            cache_write_1h_tokens=hour,
        ),
        model_ref=of[1],
        genai_request_timestamp=EPOCH + timedelta(microseconds=at_us),
        price_context=dict.fromkeys(("processing", "service_tier", "speed"), tier) if tier else None,
    )  # fmt: skip
    assert count == int((expected.total_price * 10**9).to_integral_value(ROUND_HALF_EVEN))


def test_many_models_are_compared() -> None:
    assert len(MODELS) > 150
    assert {provider for provider, _ in MODELS} >= {"anthropic", "openai", "google"}


def test_a_price_by_the_time_of_day_is_not_kept_for_the_day() -> None:
    """One maker asks less at night."""
    cards = {PRICES.card("deepseek-reasoner", at(date(2025, 3, 1)) + hour * 3_600_000_000) for hour in range(24)}
    assert len(cards) == 2


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_name_is_too_odd(name: str) -> None:
    count = PRICES.estimate(name, 10, 10, NOW)
    assert count is None or count >= 0


# the table ------------------------------------------------------------------------------------------------------------
def test_the_table_is_named_with_version_and_digest() -> None:
    name, version, digest = PRICES.table.split(" ")
    assert name == "genai-prices"
    assert version == "0.2.3"
    assert len(digest.removeprefix("sha256:")) == 64


@pytest.mark.slow
def test_the_table_is_loaded_when_it_is_needed_and_alone() -> None:
    code = (
        "import sys; from mz_engine.pricing.table import GenaiPrices\n"
        "loaded = ['mz_engine.pricing.data' in sys.modules]\n"
        "GenaiPrices().estimate('claude-sonnet-4-5', 1, 1, 0); loaded.append('mz_engine.pricing.data' in sys.modules)\n"
        "print(*loaded, *{'genai_prices', 'pydantic', 'asyncio'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False True\n"


ALL_NAMES = [
    (f"{model.id}{ending}", name)
    for provider in get_snapshot().providers
    for model in provider.models
    for name in (None, provider.id)
    for ending in ("", "-20251211", "-20251399", "x")
]


@examples(200)
@given(st.sampled_from(ALL_NAMES), st.datetimes(datetime(2023, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)))
def test_models_are_those_of_the_package(name: tuple[str, str | None], when: datetime) -> None:
    model, provider = name
    try:
        expected, info = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        assert find_model(_providers(), model, provider) is None
        return
    match = find_model(_providers(), model, provider)
    assert match is not None
    assert (match[0].id, match[1].id) == (expected.id, info.id)
    assert {key: repr(value) for key, value in match[1].prices_at(when).items()} == {
        key: repr(value) for key, value in info.get_prices(when).__dict__.items()
    }


def test_threads_share_a_table() -> None:
    prices, rate_cards = GenaiPrices(), set[RateCard | None]()
    threads = [
        threading.Thread(target=lambda: rate_cards.add(prices.card("claude-opus-4-8", NOW, "batch"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rate_cards) == 1
