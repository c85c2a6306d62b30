"""The price table of `genai-prices`: implements `ports.Prices`. Offline: its data are in the installed package.

Each usage entry is priced at the time of its request. A model without a price is named, never counted as zero. The
table is converted to a rate card once per model, day and service tier; after that, pricing is integer arithmetic. Rows
of the repository, then of the user's own price file, take precedence over the table.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import product
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.decoding.quantity import encode_quantity
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Config, PriceRow, Rates, SettingsBase
from mz_engine.ports import Price
from mz_engine.pricing.models import AGENT_PRICES, base_name, candidate_names
from mz_engine.pricing.types import ModelInfo, ModelPrice, Provider, StartDateConstraint, TieredPrices, find_model

PRICES_PACKAGE, PRICES_DATA_FILE = "genai-prices", "genai_prices/data.py"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 24 * 3600 * 1_000_000
STANDARD_TIERS = frozenset({"", "standard", "default", "auto", "on_demand"})
"""Names of the default service tier."""
BATCH = "batch"
HALF_PRICE_BATCH_PROVIDERS = frozenset({"anthropic", "google", "openai"})
"""Providers that charge half price for batches even where the table has no batch price."""
TIER_KEYS = ("processing", "service_tier", "speed")
"""The table's keys for kinds of tiers; their names do not overlap within a provider."""
RATE_FIELDS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h",
}
"""The table's keys -> fields of a rate card."""
UNSUPPORTED_KEYS = ("_text_", "requests", "reasoning", "write_5m")
"""Parts of keys for which the table counts tokens in another way than a rate card."""
SCALE = 10**18
"""Prices are integers in this fraction of a dollar per million tokens, so that no digit of a price table is lost."""
TOKEN_SCALE = SCALE // 1000
"""Scaled units per nano-dollar for one token."""

Rate = tuple[tuple[int, int], ...]
"""Ascending steps: (lower bound of tokens, exclusive; scaled price). The first is (-1, price): any request."""


class GenaiPrices:
    """Implements `mz_engine.ports.Prices`. The table is loaded for the first price. `own`: layers of custom
    rows; the first layer with a matching row wins. Thread-safe."""

    def __init__(self, *own: tuple[PriceRow, ...]) -> None:
        self._custom_rows = own
        self._cards: dict[tuple[str, str, int], RateCard | None] = {}

    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        """Price the entries at that time. `nanousd` is None if any of their models has no price."""
        total, unpriced, may_be_higher = 0, set[str](), False
        for entry in usage:
            card = self.card(entry.model, at_us, entry.tier)
            nanousd = None if card is None else usage_cost(card, entry)
            if card is None or nanousd is None:
                unpriced.add(f"{entry.model} ({entry.tier})" if entry.tier else entry.model)
            else:
                total, may_be_higher = total + nanousd, may_be_higher or may_cross_step(card, entry)
        nanousd = None if unpriced else total
        return Price(nanousd=nanousd, unpriced=tuple(sorted(unpriced)), prices=self.table, may_be_higher=may_be_higher)

    def estimate(self, model: str, input_tokens: int, output_tokens: int, at_us: int) -> int | None:
        """Return the nano-dollars of one request without a cache; None: the model has no price."""
        return self.price_entry(Usage(model=model, input=input_tokens, output=output_tokens, requests=1), at_us)

    def price_entry(self, usage: Usage, at_us: int) -> int | None:
        """Return the nano-dollars of one entry; None: it has no price."""
        card = self.card(usage.model, at_us, usage.tier)
        return None if card is None else usage_cost(card, usage)

    def card(self, model: str, at_us: int, tier: str = "") -> RateCard | None:
        """Return the rate card in force at that time; None: there is none."""
        day = at_us // DAY_US
        if (model, tier, day) in self._cards:
            return self._cards[model, tier, day]
        card, lasts_a_day = self._find_card(model, at_us, "" if tier in STANDARD_TIERS else tier)
        if lasts_a_day:
            self._cards[model, tier, day] = card
        return card

    def history(self, model: str) -> tuple[RateCard, ...]:
        """Return all cards that the model ever had, including those that agents use beside the table's."""
        cards: list[RateCard | None] = []
        if match := _find_model(model):
            provider, info = match
            constraints = [row.constraint for row in info.standard_prices]
            starts = [limit.start_date for limit in constraints if isinstance(limit, StartDateConstraint)]
            days = [EPOCH, *(datetime(day.year, day.month, day.day, tzinfo=UTC) for day in starts)]
            cards += [_table_card(provider, info, day, "") for day in days]
            if rates := AGENT_PRICES.get(info.id):
                cards.append(RateCard(**{name: scaled_rate((-1, Decimal(price))) for name, price in rates.items()}))
        cards += [row_card(row) for layer in self._custom_rows for row in layer if find_row((row,), model, date.max)]
        return tuple(dict.fromkeys(filter(None, cards)))

    @cached_property
    def table(self) -> str:
        """`genai-prices <version> sha256:<digest of its data module>`: the package does not version its data. With
        custom rows, ` own sha256:<digest of the rows>` follows."""
        rows = [row for layer in self._custom_rows for row in layer]
        if not rows:
            return _table_name()
        data = msgspec.json.encode(rows, enc_hook=encode_quantity, order="deterministic")
        return f"{_table_name()} own sha256:{hashlib.sha256(data).hexdigest()}"

    def _find_card(self, model: str, at_us: int, tier: str) -> tuple[RateCard | None, bool]:
        """Return the card at a time, and True if it holds for the whole day."""
        at = EPOCH + timedelta(microseconds=at_us)
        for name, layer in product((base_name(model), model), self._custom_rows):
            row = find_row(layer, name, at.date())
            if row is not None:
                return row_card(row, tier), True
        match = _find_model(model)
        if match is None:
            return None, True
        provider, info = match
        rows = [*info.standard_prices, *(info.price_variants or ())]
        # Some prices change by the time of day, not at midnight only.
        is_daily = all(row.constraint is None or isinstance(row.constraint, StartDateConstraint) for row in rows)
        return _table_card(provider, info, at, tier), is_daily


# the table ------------------------------------------------------------------------------------------------------------
@cache
def _data_file() -> tuple[str, Path]:
    """Return the version of the package and its data module."""
    import importlib.metadata  # Slow.

    package = importlib.metadata.distribution(PRICES_PACKAGE)
    return package.version, Path(str(package.locate_file(PRICES_DATA_FILE)))


@cache
def _table_name() -> str:
    version, path = _data_file()
    return f"{PRICES_PACKAGE} {version} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@cache
def _providers() -> list[Provider]:
    """Run the package's data module as one of this package, so that it gets the classes of `types`."""
    spec = importlib.util.spec_from_file_location(f"{__package__}.data", _data_file()[1])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    providers: list[Provider] = module.providers
    return providers


def known_models(model: str) -> tuple[str, ...]:
    """Return the names of all models in the price table from the provider of this one; empty if it has no price."""
    match = _find_model(model)
    return tuple(info.id for info in match[0].models) if match else ()


@cache
def _find_model(model: str) -> tuple[Provider, ModelInfo] | None:
    matches = (find_model(_providers(), name.model, name.provider) for name in candidate_names(model))
    return next(filter(None, matches), None)


def _table_card(provider: Provider, info: ModelInfo, at: datetime, tier: str) -> RateCard | None:
    """Return the table's card; None: it has no price for that tier, or counts in an unsupported way."""
    prices = info.prices_at(at)
    is_listed = any(info is model for model in provider.models)
    variants = info.variants_at(at, dict.fromkeys(TIER_KEYS, tier)) if tier and is_listed else []
    for variant in reversed(variants):
        prices = ModelPrice(prices | {key: price for key, price in variant.prices.items() if price is not None})
    if variants or not tier:
        return _to_card(prices)
    has_half_price = tier == BATCH and provider.id in HALF_PRICE_BATCH_PROVIDERS
    if not has_half_price or (standard := _to_card(prices)) is None:
        return None
    rates = ((name, getattr(standard, name) or ()) for name in RateCard.__struct_fields__)
    return RateCard(**{name: tuple((above, price // 2) for above, price in rate) or None for name, rate in rates})


def _to_card(prices: ModelPrice) -> RateCard | None:
    rates: dict[str, Rate] = {}
    for key, value in prices.items():
        if value is None:
            continue
        if key in RATE_FIELDS:
            tiered = value if isinstance(value, TieredPrices) else TieredPrices(value, [])
            rate = scaled_rate((-1, tiered.base), *sorted((tier.start, tier.price) for tier in tiered.tiers))
            if rate is None:
                return None
            rates[RATE_FIELDS[key]] = rate
        elif any(part in key for part in UNSUPPORTED_KEYS):
            return None
    return card_of(rates)


# a rate card, in integers: a request above a step pays that step's price for all of its tokens ------------------------
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


def scaled_rate(*steps: tuple[int, Decimal]) -> Rate | None:
    """Return the rate of prices in dollars per million tokens; None: one has more digits than SCALE keeps."""
    prices = [price * SCALE for _, price in steps]
    is_exact = all(price == price.to_integral_value() for price in prices)
    return tuple((above, int(price)) for (above, _), price in zip(steps, prices, strict=True)) if is_exact else None


def usage_cost(card: RateCard, usage: Usage, request_size: int | None = None) -> int | None:
    """Return nano-dollars, rounded half to even; None if the card lacks a price for some of the tokens.
    `request_size` replaces that of the usage, which decides the step: the input tokens of the request, or the average
    if this is a sum; 0 if the number of requests is unknown, since most are short."""
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
                requests = usage.requests
                request_size = 0 if requests is None else total_input_tokens(usage) // max(requests, 1)
            steps = (price for above, price in reversed(rate) if request_size is not None and request_size > above)
            total += tokens * next(steps, rate[0][1])
    nanousd, remainder = divmod(total, TOKEN_SCALE)
    return nanousd + (remainder * 2 > TOKEN_SCALE or (remainder * 2 == TOKEN_SCALE and nanousd % 2 == 1))


def total_input_tokens(usage: Usage) -> int:
    """Return all input tokens, also where an agent does not include those of the cache in its sum."""
    return max(usage.input, usage.cache_read + usage.cache_write_5m + usage.cache_write_1h)


def may_cross_step(card: RateCard, usage: Usage) -> bool:
    """Return True if this is a sum of requests of which some, but not all, may have been above a step."""
    return usage.requests != 1 and any(total_input_tokens(usage) > above for above in card.step_sizes)


def writes_as_5m(usage: Usage) -> Usage:
    """Return the usage with every cache write as one of five minutes."""
    return replace(usage, cache_write_5m=usage.cache_write_5m + usage.cache_write_1h, cache_write_1h=0)


def writes_as_1h(usage: Usage) -> Usage:
    """Return the usage with every cache write as one of an hour."""
    return replace(usage, cache_write_1h=usage.cache_write_5m + usage.cache_write_1h, cache_write_5m=0)


# prices of the user ---------------------------------------------------------------------------------------------------
SCALED_PER_NANO = SCALE // 10**9
"""Rows hold nano-dollars per million tokens."""


def find_row(rows: Iterable[PriceRow], model: str, day: date) -> PriceRow | None:
    """Return the row in force on that day: of those that match the model, the one with the latest start; of several
    with the same start, the first."""
    names = {base_name(model), *(name.model for name in candidate_names(model))}
    matching_rows = [
        row
        for row in rows
        if (row.since or "") <= day.isoformat()  # Only `*` is a wildcard; the mark of a long context window is none.
        and any(fnmatchcase(name, "*".join(map(glob.escape, base_name(row.model).split("*")))) for name in names)
    ]
    return max(matching_rows, key=lambda row: row.since or "", default=None)


def row_card(row: PriceRow, tier: str = "") -> RateCard | None:
    """Return the row's rate card; None: it has no prices for that service tier."""
    if tier:
        rates = getattr(row.tiers, tier) if tier in row.tiers.__struct_fields__ else None
        return _flat_card(rates, -1) if rates else None
    low = _flat_card(row, -1)
    if row.above is None:
        return low
    high = _flat_card(row.above, row.above.tokens)
    return RateCard(**{name: getattr(low, name) + getattr(high, name) for name in RateCard.__struct_fields__})


def _flat_card(rates: Rates, above: int) -> RateCard:
    prices = {name: getattr(rates, name) for name in RateCard.__struct_fields__}
    return card_of({name: ((above, price * SCALED_PER_NANO),) for name, price in prices.items() if price is not None})


PRICE_FILE = Path("mz", "prices.yaml")
"""Path below the user's configuration directory."""


class PricesFile(SettingsBase, frozen=True, kw_only=True):
    """The user's own price file, with the same form as the key `prices` in `mz.yaml`."""

    prices: tuple[PriceRow, ...] = ()


def price_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's price file by the XDG rules; None without a home directory."""
    config_home = environment.get("XDG_CONFIG_HOME", "")
    if config_home.startswith("/"):
        return Path(config_home) / PRICE_FILE
    home = environment.get("HOME", "")
    return Path(home) / ".config" / PRICE_FILE if home.startswith("/") else None


def user_prices(environment: Mapping[str, str]) -> tuple[PriceRow, ...]:
    """Return the rows of the user's file, empty without one. Raises MzError (MZ20nn) with the location of every
    error."""
    path = price_file(environment)
    if path is None or not os.path.lexists(path):
        return ()
    from mz_engine.config.schema import check_prices  # Slow, like YAML: few users have the file.
    from mz_engine.decoding.yaml import decode_document, parse_yaml

    document = parse_yaml(read_text(path, str(path)), str(path))
    rows = decode_document(document, PricesFile).prices
    if errors := [document.diagnostic(error) for error in check_prices(rows)]:
        raise MzError.from_diagnostics(errors)
    return rows


def price_table(config: Config, environment: Mapping[str, str]) -> GenaiPrices:
    """Return the table of the repository's prices, then the user's, then the built-in ones. Raises MzError as
    `user_prices` does."""
    return GenaiPrices(config.prices, user_prices(environment))
