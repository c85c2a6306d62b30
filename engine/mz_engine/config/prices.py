"""The user's prices as they are written, in `mz.yaml` and in the user's own file, and their validation.

Missing prices fall back as in the price table: cache reads and writes to other input, one-hour writes to five-minute
writes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from mz_engine.decoding.quantity import parse_usd
from mz_engine.decoding.structs import DecodeError, KeyPath, format_key_path
from mz_engine.model.config import PriceRow, Rates

Usd = Annotated[
    int | float | str, Meta(description="US dollars for a million tokens, best as a quoted decimal.", examples=["3.00"])
]
AMOUNT_HINT = 'write US dollars for a million tokens as a quoted decimal, such as "3.00"'
DATE_HINT = "write it as YYYY-MM-DD"
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z")


class PriceFormBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the written prices."""


class RatesForm(PriceFormBase, frozen=True, kw_only=True):
    input: Annotated[Usd, Meta(description="Input without any cache.")]
    output: Annotated[Usd, Meta(description="Output, reasoning included.")]
    cache_read: Annotated[Usd | None, Meta(description="Input read from a cache; absent: as other input.")] = None
    cache_write_5m: Annotated[
        Usd | None, Meta(description="Input kept in a cache for five minutes; absent: as other input.")
    ] = None
    cache_write_1h: Annotated[
        Usd | None, Meta(description="Input kept in a cache for an hour; absent: as for five minutes.")
    ] = None


class LongRequestForm(RatesForm, frozen=True, kw_only=True):
    tokens: Annotated[int, Meta(ge=1, description="These prices apply to all of a request with more input than this.")]


class TiersForm(PriceFormBase, frozen=True, kw_only=True):
    batch: Annotated[RatesForm | None, Meta(description="Requests that may take hours.")] = None
    flex: Annotated[RatesForm | None, Meta(description="Requests that may wait.")] = None
    priority: Annotated[RatesForm | None, Meta(description="Requests that go before others.")] = None
    fast: Annotated[RatesForm | None, Meta(description="Requests that are answered faster.")] = None


class PriceForm(RatesForm, frozen=True, kw_only=True):
    model: Annotated[str, Meta(description="The model as the agent names it; `*` stands for anything.")]
    since: Annotated[str | None, Meta(description="First day of these prices, YYYY-MM-DD in UTC; absent: always.")] = (
        msgspec.field(name="from", default=None)
    )
    above: Annotated[LongRequestForm | None, Meta(description="Prices of long requests.")] = None
    tiers: Annotated[TiersForm, Meta(description="Prices by service tier; without one there is none.")] = TiersForm()


class PricesFile(PriceFormBase, frozen=True, kw_only=True):
    """The user's own price file, with the same form as the key `prices` in `mz.yaml`."""

    prices: tuple[PriceForm, ...] = ()


def to_rows(forms: tuple[PriceForm, ...]) -> tuple[tuple[PriceRow, ...], tuple[DecodeError, ...]]:
    """Return the rows and all errors in them; the rows are valid only without errors. Key paths begin with `prices`."""
    errors: list[DecodeError] = []
    rows = tuple(_row(form, ("prices", index), errors) for index, form in enumerate(forms))
    errors += _duplicate_rows(rows)
    return rows, tuple(errors)


def _row(form: PriceForm, key_path: KeyPath, errors: list[DecodeError]) -> PriceRow:
    if not form.model.strip() or any(character.isspace() for character in form.model):
        message = f"`{format_key_path((*key_path, 'model'))}`: {form.model[:40]!r} is not the name of a model"
        hint = "write it as `mz cost --by model` shows it"
        errors.append(DecodeError(key_path=(*key_path, "model"), code="MZ2013", message=message, hint=hint))
    if form.since is not None and not _is_date(form.since):
        message = f"`{format_key_path((*key_path, 'from'))}`: {form.since[:40]!r} is not a date"
        errors.append(DecodeError(key_path=(*key_path, "from"), code="MZ2013", message=message, hint=DATE_HINT))
    long = form.above
    return PriceRow(
        model=form.model,
        since=form.since or "",
        rates=_rates(form, key_path, errors),
        above_tokens=long.tokens if long else None,
        above=_rates(long, (*key_path, "above"), errors) if long else None,
        tiers={
            tier: _rates(rates, (*key_path, "tiers", tier), errors)
            for tier, rates in asdict(form.tiers).items()
            if rates is not None
        },
    )


def _rates(form: RatesForm, key_path: KeyPath, errors: list[DecodeError]) -> Rates:
    parsed: dict[str, int] = {}
    for name in Rates.__struct_fields__:
        written = getattr(form, name)
        if written is None:
            continue
        try:
            parsed[name] = parse_usd(written)
        except ValueError as error:
            message = f"`{format_key_path((*key_path, name))}`: {error}"
            errors.append(DecodeError(key_path=(*key_path, name), code="MZ2010", message=message, hint=AMOUNT_HINT))
            parsed[name] = 0
    return Rates(**parsed)


def _is_date(text: str) -> bool:
    """Return True for a date of the Gregorian calendar, `YYYY-MM-DD`."""
    match = _DAY.match(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return 1 <= month <= 12 and 1 <= day <= days[month - 1]


def _duplicate_rows(rows: tuple[PriceRow, ...]) -> Iterator[DecodeError]:
    first_rows: dict[tuple[str, str], int] = {}
    for index, row in enumerate(rows):
        first = first_rows.setdefault((row.model.lower(), row.since), index)
        if first != index:
            since = f" from {row.since}" if row.since else ""
            duplicate, original = format_key_path(("prices", index)), format_key_path(("prices", first))
            message = f"`{duplicate}`: {row.model}{since} already has prices in `{original}`"
            yield DecodeError(
                key_path=("prices", index, "model"), code="MZ2013", message=message, hint="remove one of the two"
            )


def digest_of(rows: tuple[PriceRow, ...]) -> str:
    """Return a SHA-256 digest of the rows' content, wherever they were written; empty without rows."""
    if not rows:
        return ""
    plain = [asdict(row) | {"rates": asdict(row.rates)} for row in rows]
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
