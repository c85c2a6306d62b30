"""The price table of `genai-prices`: implements `ports.Prices`. Offline: its data are in the installed package.

Each usage entry is priced at the time of its request. A model without a price is named, never counted as zero. The
table is converted to a rate card once per model, day and service tier; after that, pricing is integer arithmetic. Rows
of the user or the repository take precedence over the table."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mz_events.catalog.call import Usage

from mz_engine.config import PriceRow
from mz_engine.ports import Price
from mz_engine.priceform import digest_of
from mz_engine.pricing.card import Card, Rate, cost, distinct, flat, in_parts, may_cross, scaled
from mz_engine.pricing.listed import LISTED
from mz_engine.pricing.names import candidates
from mz_engine.pricing.rows import card_of, row_for

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

PACKAGE, DATA = "genai-prices", "genai_prices/data.py"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 24 * 3600 * 1_000_000
STANDARD = frozenset({"", "standard", "default", "auto", "on_demand"})
"""Names of the default service tier."""
BATCH = "batch"
HALVED = frozenset({"anthropic", "google", "openai"})
"""Providers that charge half price for batches even where the table has no batch price."""
CONTEXT = ("processing", "service_tier", "speed")
"""The table's keys for kinds of tiers; their names do not overlap within a provider."""
RATES = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h",
}
"""The table's keys -> fields of a rate card."""
FOREIGN = ("_text_", "requests", "reasoning", "write_5m")
"""Parts of keys for which the table counts tokens in another way than a rate card."""


class GenaiPrices:
    """Implements `mz_engine.ports.Prices`. The table is loaded for the first price (0.3 s). `own`: layers of custom
    rows; the first layer with a matching row wins. Thread-safe."""

    def __init__(self, *own: tuple[PriceRow, ...]) -> None:
        self._own = own
        self._cards: dict[tuple[str, str, int], Card | None] = {}

    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        """Price the entries at that time. `nanousd` is None if any of their models has no price."""
        total, unpriced, more = 0, set[str](), False
        for entry in usage:
            card = self.card(entry.model, at_us, entry.tier)
            nanousd = None if card is None else cost(card, entry)
            if card is None or nanousd is None:
                unpriced.add(f"{entry.model} ({entry.tier})" if entry.tier else entry.model)
            else:
                total, more = total + nanousd, more or may_cross(card, entry)
        nanousd = None if unpriced else total
        return Price(nanousd=nanousd, unpriced=tuple(sorted(unpriced)), prices=self.table, may_be_more=more)

    def estimate(
        self, model: str, input_tokens: int, output_tokens: int, at_us: int, cache_read: int = 0, cache_write: int = 0
    ) -> int | None:
        """Return the nano-dollars of these token counts; None: the model has no price."""
        expected = Usage(
            model=model,
            input=input_tokens,
            output=output_tokens,
            cache_read=cache_read,
            cache_write_5m=cache_write,
            requests=1,
        )
        return self.entry(expected, at_us)

    def entry(self, usage: Usage, at_us: int) -> int | None:
        """Return the nano-dollars of one entry; None: it has no price."""
        card = self.card(usage.model, at_us, usage.tier)
        return None if card is None else cost(card, usage)

    def card(self, model: str, at_us: int, tier: str = "") -> Card | None:
        """Return the rate card in force at that time; None: there is none."""
        day = at_us // DAY_US
        try:
            return self._cards[model, tier, day]
        except KeyError:
            pass
        card, lasts_a_day = self._card(model, at_us, "" if tier in STANDARD else tier)
        if lasts_a_day:
            self._cards[model, tier, day] = card
        return card

    def history(self, model: str) -> tuple[Card, ...]:
        """Return all cards that the model ever had, including those that agents use beside the table's."""
        found = _find(model)
        rows = (row for layer in self._own for row in layer if row_for((row,), model, date.max) is not None)
        own = [card for card in map(card_of, rows) if card is not None]
        if found is None:
            return distinct(own)
        provider, info = found
        cards = [_card_of_table(provider, info, day, "") for day in (EPOCH, *_first_days(info))]
        listed = [Card(**{name: _flat(price) for name, price in rates.items()}) for rates in LISTED.get(info.id, ())]
        return distinct(card for card in (*cards, *listed, *own) if card is not None)

    @cached_property
    def table(self) -> str:
        """`genai-prices <version> sha256:<digest of its data module>`: the package does not version its data. With
        custom rows, ` own sha256:<digest of the rows>` follows."""
        own = digest_of(tuple(row for layer in self._own for row in layer))
        return f"{_table()} own sha256:{own}" if own else _table()

    def _card(self, model: str, at_us: int, tier: str) -> tuple[Card | None, bool]:
        """Return the card at a time, and True if it holds for the whole day."""
        at = EPOCH + timedelta(microseconds=at_us)
        for layer in self._own:
            row = row_for(layer, model, at.date())
            if row is not None:
                return card_of(row, tier), True
        found = _find(model)
        if found is None:
            return None, True
        provider, info = found
        return _card_of_table(provider, info, at, tier), _lasts_a_day(info)


# the table ------------------------------------------------------------------------------------------------------------
@cache
def _table() -> str:
    """Name the table without importing the package, which is slow."""
    import importlib.metadata

    package = importlib.metadata.distribution(PACKAGE)
    data = Path(str(package.locate_file(DATA))).read_bytes()
    return f"{PACKAGE} {package.version} sha256:{hashlib.sha256(data).hexdigest()}"


@cache
def _find(model: str) -> tuple[Provider, ModelInfo] | None:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    for name in candidates(model):
        try:
            return snapshot.find_provider_model(name.model, None, name.provider, None)
        except LookupError:
            continue
    return None


def _card_of_table(provider: Provider, info: ModelInfo, at: datetime, tier: str) -> Card | None:
    """Return the table's card; None: it has no price for that tier, or counts in an unsupported way."""
    named = _named_prices(provider, info, at, tier)
    if named is not None:
        return _card_of_prices(named)
    if tier == BATCH and provider.id in HALVED:
        standard = _card_of_prices(info.get_prices(at))
        return None if standard is None else in_parts(standard, 50)
    return None


def _named_prices(provider: Provider, info: ModelInfo, at: datetime, tier: str) -> ModelPrice | None:
    if not tier:
        return info.get_prices(at)
    context = dict.fromkeys(CONTEXT, tier)
    is_listed = any(info is model for model in provider.models)
    has_price = any(
        variant.constraint is None or variant.constraint.active(at)
        for variant in (info.price_variants or () if is_listed else ())
        if all(context.get(key) == value for key, value in variant.when.items())
    )
    return info.get_prices(at, context) if has_price else None


def _card_of_prices(prices: ModelPrice) -> Card | None:
    rates: dict[str, Rate] = {}
    for key, value in prices.__dict__.items():
        if value is None or key.startswith("_"):
            continue
        if key in RATES:
            rate = _rate(value)
            if rate is None:
                return None
            rates[RATES[key]] = rate
        elif any(part in key for part in FOREIGN):
            return None
    plain = rates.get("input")
    short = rates.get("cache_write_5m", plain)
    return Card(
        input=plain,
        output=rates.get("output"),
        cache_read=rates.get("cache_read", plain),
        cache_write_5m=short,
        cache_write_1h=rates.get("cache_write_1h", short),
    )


def _rate(value: object) -> Rate | None:
    from genai_prices.types import TieredPrices

    if isinstance(value, TieredPrices):
        steps = [(-1, value.base), *((tier.start, tier.price) for tier in value.tiers)]
        scaled_steps = tuple((above, amount) for above, price in steps if (amount := scaled(price)) is not None)
        return scaled_steps if len(scaled_steps) == len(steps) else None
    return _flat(value) if isinstance(value, Decimal) else None


def _flat(price: Decimal) -> Rate | None:
    amount = scaled(price)
    return None if amount is None else flat(amount)


def _lasts_a_day(info: ModelInfo) -> bool:
    """Return True if the model's prices change at midnight only; some change by the time of day."""
    from genai_prices.types import StartDateConstraint

    constraints = [] if not isinstance(info.prices, list) else [price.constraint for price in info.prices]
    constraints += [variant.constraint for variant in info.price_variants or ()]
    return all(constraint is None or isinstance(constraint, StartDateConstraint) for constraint in constraints)


def _first_days(info: ModelInfo) -> list[datetime]:
    """Return the start of each price that has one."""
    from genai_prices.types import StartDateConstraint

    if not isinstance(info.prices, list):
        return []
    starts = [each.constraint.start_date for each in info.prices if isinstance(each.constraint, StartDateConstraint)]
    return [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in starts]
