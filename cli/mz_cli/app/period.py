"""Parse periods of time and time zones, and map times to days."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import NamedTuple

import click

SECOND_US = 1_000_000
QUARTER_US = 15 * 60 * SECOND_US
"""All zones in use have offsets in quarters of an hour, so a quarter never spans two days."""
_SPAN = re.compile(r"(?:([0-9]{1,4})w)?(?:([0-9]{1,5})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,7})m)?\Z")
ACCEPTED_FORMS = "a day (2026-06-01, today, yesterday), a time (2026-06-01T14:30), or how long ago (7d, 36h, 2w)"


class Period(NamedTuple):
    """Period in microseconds since the epoch, the end excluded; None: open."""

    since_us: int | None = None
    until_us: int | None = None

    def contains(self, at_us: int) -> bool:
        after = self.since_us is None or at_us >= self.since_us
        return after and (self.until_us is None or at_us < self.until_us)


def parse_period(since: str | None, until: str | None, now_us: int, zone: tzinfo | None) -> Period:
    """Parse start and end; a day as the end is included. Raises UsageError that names the accepted forms."""
    try:
        period = Period(
            None if since is None else _parse_time(since, now_us, zone, end_of_day=False),
            None if until is None else _parse_time(until, now_us, zone, end_of_day=True),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if period.since_us is not None and period.until_us is not None and period.since_us >= period.until_us:
        raise click.UsageError(f"{since!r} is not before {until!r}")
    return period


def _parse_time(text: str, now_us: int, zone: tzinfo | None, *, end_of_day: bool) -> int:
    """Parse a time; a day means its start, or with `end_of_day` the start of the next one."""
    stripped = text.strip()
    if stripped and (span := _SPAN.match(stripped)):
        weeks, days, hours, minutes = (int(number or 0) for number in span.groups())
        return now_us - (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 * SECOND_US
    try:
        day = _parse_day(stripped, now_us, zone)
        if day is not None:
            day += timedelta(days=1 if end_of_day else 0)
            return _epoch_us(_localise(datetime(day.year, day.month, day.day), zone))
        moment = datetime.fromisoformat(stripped)
        return _epoch_us(moment if moment.tzinfo else _localise(moment, zone))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text[:40]!r} is not a time; write {ACCEPTED_FORMS}") from None


def _parse_day(text: str, now_us: int, zone: tzinfo | None) -> date | None:
    """Parse a day; None if the text is not a day."""
    if text in ("today", "yesterday"):
        today = datetime.fromtimestamp(now_us / SECOND_US, UTC).astimezone(zone).date()
        return today if text == "today" else today - timedelta(days=1)
    return date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None


def _localise(naive: datetime, zone: tzinfo | None) -> datetime:
    return naive.replace(tzinfo=zone) if zone is not None else naive.astimezone()


def _epoch_us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def parse_zone(name: str | None) -> tzinfo | None:
    """Return the zone of an IANA name, such as Europe/Berlin, or UTC; None: the machine's own. Raises ValueError."""
    if name is None or name == "local":
        return None
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name[:60]!r}; write a name such as Europe/Berlin, or UTC") from None


def day_function(zone: tzinfo | None) -> Callable[[int], date]:
    """Return a function from microseconds since the epoch to the day in that zone. It caches quarters of an hour,
    since conversions into a zone are slow."""

    @cache
    def day_of_quarter(quarter: int) -> date:
        return datetime.fromtimestamp(quarter * QUARTER_US // SECOND_US, UTC).astimezone(zone).date()

    return lambda at_us: day_of_quarter(at_us // QUARTER_US)
