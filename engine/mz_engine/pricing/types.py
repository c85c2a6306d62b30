"""The classes that the data module of `genai-prices` is written with, and how it finds a model and its prices.

The package's own classes need pydantic and an HTTP client: 0.25 CPU seconds in each process, ten times the data. The
data module imports its classes from `.types`, so `pricing.table` loads it as a module of this folder.
Source of the rules: `genai_prices/types.py` and `genai_prices/data_snapshot.py`; `tests/engine/test_prices.py` compares
every model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal

import msgspec

__all__ = (
    "ArrayMatch", "ClauseAnd", "ClauseContains", "ClauseEndsWith", "ClauseEquals", "ClauseOr", "ClauseRegex",
    "ClauseStartsWith", "ConditionalPrice", "ModelInfo", "ModelPrice", "PriceVariant", "Provider",
    "StartDateConstraint", "Tier", "TieredPrices", "TimeOfDateConstraint", "UsageExtractor", "UsageExtractorMapping",
)  # fmt: skip

_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


class ClauseEquals(msgspec.Struct):
    equals: str

    def matches(self, name: str) -> bool:
        """Return True if the name, in lower case, is meant."""
        return name == self.equals.lower()


class ClauseStartsWith(msgspec.Struct):
    starts_with: str

    def matches(self, name: str) -> bool:
        return name.startswith(self.starts_with.lower())


class ClauseEndsWith(msgspec.Struct):
    ends_with: str

    def matches(self, name: str) -> bool:
        return name.endswith(self.ends_with.lower())


class ClauseContains(msgspec.Struct):
    contains: str

    def matches(self, name: str) -> bool:
        return self.contains.lower() in name


class ClauseRegex(msgspec.Struct):
    regex: str

    def matches(self, name: str) -> bool:
        return re.search(self.regex, name) is not None


class ClauseOr(msgspec.Struct):
    or_: list[Clause]

    def matches(self, name: str) -> bool:
        return any(clause.matches(name) for clause in self.or_)


class ClauseAnd(msgspec.Struct):
    and_: list[Clause]

    def matches(self, name: str) -> bool:
        return all(clause.matches(name) for clause in self.and_)


Clause = ClauseEquals | ClauseStartsWith | ClauseEndsWith | ClauseContains | ClauseRegex | ClauseOr | ClauseAnd


class Tier(msgspec.Struct):
    start: int
    """A request with more tokens pays `price` for all of them."""
    price: Decimal


class TieredPrices(msgspec.Struct):
    base: Decimal
    tiers: list[Tier]


class ModelPrice(dict[str, Decimal | TieredPrices | None]):
    """Prices by the table's keys, in dollars per million tokens."""


class StartDateConstraint(msgspec.Struct):
    start_date: date

    def is_active(self, at: datetime) -> bool:
        """Return True if the price is in force at that time (UTC)."""
        return at.date() >= self.start_date


class TimeOfDateConstraint(msgspec.Struct):
    start_time: time
    end_time: time

    def is_active(self, at: datetime) -> bool:
        start, end, clock = _clock(self.start_time), _clock(self.end_time), at.time()
        return (clock >= start or clock < end) if end < start else start <= clock < end


def _clock(value: time) -> time:
    """Return the time of day in UTC, without its zone."""
    return datetime.combine(date(1970, 1, 2), value, value.tzinfo or UTC).astimezone(UTC).time()


class ConditionalPrice(msgspec.Struct):
    prices: ModelPrice
    constraint: StartDateConstraint | TimeOfDateConstraint | None = None

    def is_active(self, at: datetime) -> bool:
        return self.constraint is None or self.constraint.is_active(at)


class PriceVariant(ConditionalPrice, kw_only=True):
    """Prices of a service tier, in place of the model's."""

    when: dict[str, str]


class ModelInfo(msgspec.Struct):
    id: str
    match: Clause
    name: str | None = None
    description: str | None = None
    context_window: int | None = None
    price_comments: str | None = None
    deprecated: bool | None = None
    prices: ModelPrice | list[ConditionalPrice] = []
    price_variants: list[PriceVariant] | None = None

    @property
    def standard_prices(self) -> list[ConditionalPrice]:
        """The last active one holds; if none is, the first."""
        return self.prices if isinstance(self.prices, list) else [ConditionalPrice(self.prices)]

    def prices_at(self, at: datetime) -> ModelPrice:
        """Return the standard prices at that time (UTC)."""
        rows = self.standard_prices
        return next((row.prices for row in reversed(rows) if row.is_active(at)), rows[0].prices)

    def variants_at(self, at: datetime, context: Mapping[str, str]) -> list[PriceVariant]:
        """Return the variants for such requests, the one that takes precedence first."""
        variants = [variant for variant in self.price_variants or () if variant.is_active(at)]
        return [
            variant for variant in variants if all(context.get(key) == value for key, value in variant.when.items())
        ]


class Provider(msgspec.Struct):
    id: str
    name: str
    api_pattern: str
    pricing_urls: list[str] | None = None
    description: str | None = None
    price_comments: str | None = None
    model_match: Clause | None = None
    provider_match: Clause | None = None
    extractors: object = None
    fallback_model_providers: list[str] = []
    """Identifiers of providers whose models this one offers."""
    models: list[ModelInfo] = []


def UsageExtractor(**fields: object) -> None:  # noqa: N802 - the name is the data module's
    """Leave it out: prices need no usage of HTTP responses."""


ArrayMatch = UsageExtractorMapping = UsageExtractor


def find_model(providers: list[Provider], model: str, provider_id: str | None) -> tuple[Provider, ModelInfo] | None:
    """Return the model with its provider, which is that of the first matching model name if it is not given."""
    model = model.lower()
    provider = _find_provider(providers, model, provider_id)
    if provider is None:
        return None
    by_id = {item.id: item for item in providers}
    sources = [provider, *(by_id[item] for item in provider.fallback_model_providers or () if item in by_id)]
    names = (model, _COMPACT_DATE.sub(_dashed_date, model))
    matches = (info for name in names for source in sources for info in source.models if info.match.matches(name))
    return next(((provider, info) for info in matches), None)


def _find_provider(providers: list[Provider], model: str, provider_id: str | None) -> Provider | None:
    if provider_id is None:
        return next((item for item in providers if item.model_match and item.model_match.matches(model)), None)
    if exact := next((item for item in providers if item.id == provider_id), None):
        return exact
    return next((item for item in providers if item.provider_match and item.provider_match.matches(provider_id)), None)


def _dashed_date(match: re.Match[str]) -> str:
    try:
        return f"-{date(int(match[1]), int(match[2]), int(match[3]))}"
    except ValueError:
        return match[0]
