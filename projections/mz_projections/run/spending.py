"""Money and tokens that calls spend, and what counts of all runs of a user in the last 24 hours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

DAY_US = 24 * 3600 * 1_000_000


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    nanousd: Annotated[int, Meta(ge=0)] = 0
    tokens: Annotated[int, Meta(ge=0)] = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(nanousd=self.nanousd + other.nanousd, tokens=self.tokens + other.tokens)


def total(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, Amount())


class SpendingEntry(Amount, frozen=True, kw_only=True):
    """What a call spends: a reservation and, once it ended, a charge instead."""

    at_us: int
    key: str
    """Repository and key of the call."""
    charged: bool


DaySpending = tuple[SpendingEntry, ...]
"""One entry per call, the oldest first."""


def day_spending(entries: Iterable[SpendingEntry], now_us: int) -> DaySpending:
    """Return what counts at this time, from entries in any order: of each call the charge, else the reservation, and of
    several the highest. An entry of the next 24 hours counts: the clock went back. A later one is of a wrong clock."""
    ordered = sorted(entries, key=lambda entry: (entry.charged, entry.nanousd, entry.tokens, entry.at_us))
    calls = {entry.key: entry for entry in ordered if entry.at_us <= now_us + DAY_US}.values()
    counted = (entry for entry in calls if entry.at_us > now_us - DAY_US)
    return tuple(sorted(counted, key=lambda entry: entry.at_us))


def free_at_us(day: DaySpending, unit: str, room: int) -> int | None:
    """Return when no more than `room` counts, in nanousd or tokens, if nothing else is spent; None: never."""
    left = sum(getattr(entry, unit) for entry in day)
    for entry in day:
        left -= getattr(entry, unit)
        if left <= room:
            return entry.at_us + DAY_US
    return None


def budget_text(budgets: msgspec.Struct, day: DaySpending) -> str:
    """Return the budgets, and what is left of the day's, for people."""
    texts = []
    for name, limit in asdict(budgets).items():
        if limit is not None:
            part, _, unit = name.partition("_")
            left = f" ({amount_text(unit, max(0, limit - getattr(total(day), unit)))} left)" if part == "day" else ""
            texts.append(f"{amount_text(unit, limit)} per {part}{left}")
    return ", ".join(texts) or "no limit"


def amount_text(unit: str, amount: int) -> str:
    dollars = f"${amount / 10**9:,.4f}"
    return f"{amount:,} tokens" if unit == "tokens" else dollars[:-2] + dollars[-2:].rstrip("0")
