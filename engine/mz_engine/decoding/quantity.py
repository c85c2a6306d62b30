"""Parsing of durations and amounts of money as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

SECONDS_MAX = 7 * 24 * 3600
NANOUSD_PER_USD = 10**9
USD_MAX = 10**6

_DURATION = re.compile(
    r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s?)?\Z",
)
_USD = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,9})?\Z")


def parse_duration(written: int | str) -> int:
    """Return seconds, 1 to a week, from `600`, `"90s"`, `"30m"`, `"1h30m"`. Raises ValueError."""
    seconds = written if isinstance(written, int) else _parse_units(written)
    if not 1 <= seconds <= SECONDS_MAX:
        raise ValueError(f"{written!r} is not between a second and a week")
    return seconds


def _parse_units(text: str) -> int:
    plain = text.strip().replace(" ", "")
    match = _DURATION.match(plain)
    if not match or not plain:
        raise ValueError(f"{text[:40]!r} is not a duration")
    days, hours, minutes, seconds = (int(digits or 0) for digits in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def format_duration(seconds: int) -> str:
    """Return seconds as text that `parse_duration` reads, such as `1h30m`."""
    text = ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def parse_usd(written: object) -> int:
    """Return exact nano-dollars from `5`, `"5.00"`, `0.25`: at least 0, at most nine decimals. Raises ValueError."""
    text = f"{Decimal(str(written)):f}" if isinstance(written, float) else str(written).strip()
    if not _USD.match(text):
        raise ValueError(f"{text[:40]!r} is not an amount of dollars")
    amount = Decimal(text)
    if amount > USD_MAX:
        raise ValueError(f"{text!r} is more than {USD_MAX:,} dollars")
    return int(amount * NANOUSD_PER_USD)
