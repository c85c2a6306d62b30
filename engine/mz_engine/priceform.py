"""Pure: prices of one's own as they are written, in `mz.yaml` and in the user's own file, and what is wrong with them.

A price without a kind of token falls back as the table does: cache reads and writes cost what other input costs, and
writes for an hour what those for five minutes do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from mz_engine.config import PriceRow, Rates
from mz_engine.quantity import parse_usd
from mz_engine.shape import Mismatch, Route, describe

Usd = Annotated[
    int | float | str, Meta(description="US dollars for a million tokens, best as a quoted decimal.", examples=["3.00"])
]
AMOUNT = 'write US dollars for a million tokens as a quoted decimal, such as "3.00"'
DATE = "write it as YYYY-MM-DD"
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z")


class PriceFormBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base."""


class RatesForm(PriceFormBase, frozen=True, kw_only=True):
    input: Annotated[Usd, Meta(description="Input that no cache is involved in.")]
    output: Annotated[Usd, Meta(description="Output, reasoning included.")]
    cache_read: Annotated[Usd | None, Meta(description="Input read from a cache; absent: as other input.")] = None
    cache_write_5m: Annotated[
        Usd | None, Meta(description="Input kept in a cache for five minutes; absent: as other input.")
    ] = None
    cache_write_1h: Annotated[
        Usd | None, Meta(description="Input kept in a cache for an hour; absent: as for five minutes.")
    ] = None


class LongForm(RatesForm, frozen=True, kw_only=True):
    tokens: Annotated[int, Meta(ge=1, description="A request with more input than this costs these prices, all of it.")]


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
    above: Annotated[LongForm | None, Meta(description="Prices of long requests.")] = None
    tiers: Annotated[TiersForm, Meta(description="Prices by service tier; without one there is none.")] = TiersForm()


class PricesFile(PriceFormBase, frozen=True, kw_only=True):
    """A user's own file: as the key of the same name in `mz.yaml`."""

    prices: tuple[PriceForm, ...] = ()


def to_rows(forms: tuple[PriceForm, ...]) -> tuple[tuple[PriceRow, ...], tuple[Mismatch, ...]]:
    """The rows, and all that is wrong with them; the rows hold only when nothing is. Routes begin with `prices`."""
    found: list[Mismatch] = []
    rows = tuple(_row(form, ("prices", at), found) for at, form in enumerate(forms))
    found += _twice(rows)
    return rows, tuple(found)


def _row(form: PriceForm, route: Route, found: list[Mismatch]) -> PriceRow:
    if not form.model.strip() or any(character.isspace() for character in form.model):
        said = f"`{describe((*route, 'model'))}`: {form.model[:40]!r} is not the name of a model"
        hint = "write it as `mz cost --by model` shows it"
        found.append(Mismatch(route=(*route, "model"), code="MZ2013", message=said, hint=hint))
    if form.since is not None and not _is_day(form.since):
        said = f"`{describe((*route, 'from'))}`: {form.since[:40]!r} is not a day"
        found.append(Mismatch(route=(*route, "from"), code="MZ2013", message=said, hint=DATE))
    long = form.above
    return PriceRow(
        model=form.model,
        since=form.since or "",
        rates=_rates(form, route, found),
        above_tokens=long.tokens if long else None,
        above=_rates(long, (*route, "above"), found) if long else None,
        tiers={
            tier: _rates(each, (*route, "tiers", tier), found)
            for tier, each in asdict(form.tiers).items()
            if each is not None
        },
    )


def _rates(form: RatesForm, route: Route, found: list[Mismatch]) -> Rates:
    parsed: dict[str, int] = {}
    for name in Rates.__struct_fields__:
        written = getattr(form, name)
        if written is None:
            continue
        try:
            parsed[name] = parse_usd(written)
        except ValueError as error:
            said = f"`{describe((*route, name))}`: {error}"
            found.append(Mismatch(route=(*route, name), code="MZ2010", message=said, hint=AMOUNT))
            parsed[name] = 0
    return Rates(**parsed)


def _is_day(text: str) -> bool:
    """In the calendar that everybody goes by."""
    found = _DAY.match(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return 1 <= month <= 12 and 1 <= day <= days[month - 1]


def _twice(rows: tuple[PriceRow, ...]) -> Iterator[Mismatch]:
    seen: dict[tuple[str, str], int] = {}
    for at, row in enumerate(rows):
        first = seen.setdefault((row.model.lower(), row.since), at)
        if first != at:
            since = f" from {row.since}" if row.since else ""
            said = f"`{describe(('prices', at))}`: {row.model}{since} has its prices in `{describe(('prices', first))}`"
            yield Mismatch(route=("prices", at, "model"), code="MZ2013", message=said, hint="keep one of the two")


def digest_of(rows: tuple[PriceRow, ...]) -> str:
    """Of what the rows say, wherever they were written; empty without any."""
    if not rows:
        return ""
    plain = [asdict(row) | {"rates": asdict(row.rates)} for row in rows]
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
