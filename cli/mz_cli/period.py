"""Parse periods of time and time zones, and map times to days."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

SECOND_US = 1_000_000
QUARTER_US = 15 * 60 * SECOND_US
"""All zones in use have offsets in quarters of an hour, so a quarter never spans two days."""
_SPAN = re.compile(r"(?:([0-9]{1,4})w)?(?:([0-9]{1,5})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,7})m)?\Z")
FORMS = "a day (2026-06-01, today, yesterday), a time (2026-06-01T14:30), or how long ago (7d, 36h, 2w)"


class Period(NamedTuple):
    """Period in microseconds since the epoch, the end excluded; None: open."""

    since_us: int | None = None
    until_us: int | None = None

    def holds(self, at_us: int) -> bool:
        after = self.since_us is None or at_us >= self.since_us
        return after and (self.until_us is None or at_us < self.until_us)


def period_of(since: str | None, until: str | None, now_us: int, zone: tzinfo | None) -> Period:
    """Parse start and end; a day as the end is included. Raises ValueError that names the accepted forms."""
    found = Period(
        None if since is None else _moment(since, now_us, zone, whole_day=False),
        None if until is None else _moment(until, now_us, zone, whole_day=True),
    )
    if found.since_us is not None and found.until_us is not None and found.since_us >= found.until_us:
        raise ValueError(f"{since!r} is not before {until!r}")
    return found


def _moment(text: str, now_us: int, zone: tzinfo | None, *, whole_day: bool) -> int:
    """Parse a time; a day means its start, or with `end_of_day` the start of the next one."""
    plain = text.strip()
    if plain and (span := _SPAN.match(plain)):
        weeks, days, hours, minutes = (int(each or 0) for each in span.groups())
        return now_us - (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 * SECOND_US
    try:
        day = _day(plain, now_us, zone)
        if day is not None:
            return _start_of(day + timedelta(days=1 if whole_day else 0), zone)
        moment = datetime.fromisoformat(plain)
        return _us(moment if moment.tzinfo else _in(moment, zone))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text[:40]!r} is not a time; write {FORMS}") from None


def _day(text: str, now_us: int, zone: tzinfo | None) -> date | None:
    """Parse a day; None if the text is not a day."""
    if text in ("today", "yesterday"):
        today = datetime.fromtimestamp(now_us / SECOND_US, UTC).astimezone(zone).date()
        return today if text == "today" else today - timedelta(days=1)
    return date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None


def _start_of(day: date, zone: tzinfo | None) -> int:
    return _us(_in(datetime(day.year, day.month, day.day), zone))


def _in(naive: datetime, zone: tzinfo | None) -> datetime:
    return naive.replace(tzinfo=zone) if zone is not None else naive.astimezone()


def _us(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * SECOND_US + since.microseconds


def zone_of(name: str | None) -> tzinfo | None:
    """Return the zone of an IANA name, such as Europe/Berlin, or UTC; None: the machine's own. Raises ValueError."""
    if name is None or name == "local":
        return None
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name[:60]!r}; write a name such as Europe/Berlin, or UTC") from None


def days_in(zone: tzinfo | None) -> Callable[[int], date]:
    """Return a function from microseconds since the epoch to the day in that zone. It caches quarters of an hour,
    since conversions into a zone are slow."""
    known: dict[int, date] = {}

    def day_of(at_us: int) -> date:
        quarter = at_us // QUARTER_US
        day = known.get(quarter)
        if day is None:
            at = datetime.fromtimestamp(quarter * QUARTER_US // SECOND_US, UTC)
            day = known[quarter] = at.astimezone(zone).date()
        return day

    return day_of
