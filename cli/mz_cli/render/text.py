"""Pure: words and numbers as people read them. Agents wrote much of it, so nothing here may act on a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

NANO = 9
CENT_OF_A_CENT = 100_000
"""$0.0001 in nano-dollars."""
ESCAPES = re.compile(
    r"""\x1b\[ [0-?]* [\ -/]* [@-~]?                 # CSI: colours, cursor movements
      | \x1b[\]PX^_] [^\x07\x1b\x9c\n]* (?:\x07|\x1b\\|\x9c)?  # OSC, DCS, SOS, PM, APC: titles, links, clipboard
      | \x1b [\ -/]* [0-~]?                          # the other escapes
      | \x9b [0-?]* [\ -/]* [@-~]?                   # CSI as one character
    """,
    re.VERBOSE,
)
CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
"""Everything that moves a cursor or turns the direction of writing; tabs and ends of lines are dealt with apart."""
SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without terminal escapes, controls and direction marks; line ends and tabs stay."""
    text = ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return SURROGATES.sub("\ufffd", CONTROLS.sub("", text))


def line(text: str) -> str:
    """The same on one line: every run of white space is one space."""
    return " ".join(clean(text).split())


def shorten(text: str, characters_max: int) -> str:
    """At most that many characters, the last one an ellipsis where something is left out."""
    return text if len(text) <= characters_max else text[: max(characters_max - 1, 0)] + "…"


def usd(nanousd: int | None) -> str | None:
    """Exact decimal string of USD, at least two decimals; None stays None: unknown is never zero."""
    if nanousd is None:
        return None
    whole, _, decimals = format(Decimal(nanousd).scaleb(-NANO), "f").partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def money(nanousd: int | None) -> str | None:
    """Dollars for people: four decimals always, so that columns align; what is smaller still is said to be so. None
    stays None."""
    if nanousd is None:
        return None
    if 0 < nanousd < CENT_OF_A_CENT:
        return "<$0.0001"
    return f"${Decimal(nanousd).scaleb(-NANO):.4f}"


def nanousd_of(amount: str) -> int:
    """Nano-dollars of an exact decimal string of USD, as `usd` makes them."""
    whole, _, decimals = amount.partition(".")
    return int(whole + decimals.ljust(NANO, "0"))


def count(number: int | None) -> str:
    """`12,345`, or `-` where the number is not known."""
    return "-" if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`, `12,345 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def compact(number: int | None) -> str:
    """`9,999`, `275.5k`, `1.2M`; `-` where the number is not known."""
    if number is None or number < 10_000:
        return count(number)
    return f"{number / 1_000_000:.1f}M" if number >= 999_950 else f"{number / 1000:.1f}k"


def size(size_bytes: int) -> str:
    """`999 B`, `12.3 kB`, `4.0 MB`, `1.2 GB`: powers of 1000."""
    value, unit = float(size_bytes), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.95 or unit == "GB":
            break
        value /= 1000
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """`8s`, `3m 12s`, `2h 05m`, `4d 03h`."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d {hours % 24:02d}h"
    if hours:
        return f"{hours}h {minutes % 60:02d}m"
    return f"{minutes}m {whole % 60:02d}s" if minutes else f"{whole}s"


def instant(us: int | None) -> str | None:
    """ISO 8601 in UTC with microseconds, `2026-03-01T12:00:00.000000Z`; the input counts from the epoch."""
    if us is None:
        return None
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{us % 1_000_000:06d}Z"


def moment(us: int) -> str:
    """`2026-03-01 12:00:00Z`: to the second, for people."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def clock(us: int | None) -> str:
    """The time of day in the reader's zone, `12:00:00`."""
    return "-" if us is None else datetime.fromtimestamp(us / 1_000_000).strftime("%H:%M:%S")
