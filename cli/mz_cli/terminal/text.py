"""Format texts and numbers for display; lines of text with styles, and their width in terminal cells. Agents wrote much
of it, so nothing may act on a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

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
"""Characters that move the cursor or change the writing direction, except tabs and line ends."""
SURROGATES = re.compile("[\ud800-\udfff]")


def strip_escapes(text: str) -> str:
    """Return the text without terminal escapes, control characters and direction marks; line ends and tabs stay."""
    text = ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return SURROGATES.sub("\ufffd", CONTROLS.sub("", text))


def single_line(text: str) -> str:
    """Return the text without escapes on one line, with single spaces."""
    return " ".join(strip_escapes(text).split())


def shorten(text: str, characters_max: int) -> str:
    """Cut the text to at most that many characters, with an ellipsis at the end."""
    return text if len(text) <= characters_max else text[: max(characters_max - 1, 0)] + "…"


def exact_usd(nanousd: int | None) -> str | None:
    """Return an exact decimal string of USD with at least two decimals; None stays None."""
    if nanousd is None:
        return None
    dollars, _, decimals = format(Decimal(nanousd).scaleb(-NANO), "f").partition(".")
    return f"{dollars}.{decimals.rstrip('0').ljust(2, '0')}"


def rounded_usd(nanousd: int | None) -> str | None:
    """Return dollars rounded to four decimals, or `<$0.0001`; None stays None."""
    if nanousd is None:
        return None
    if nanousd < 0:
        return f"-{rounded_usd(-nanousd)}"
    if 0 < nanousd < CENT_OF_A_CENT:
        return "<$0.0001"
    return f"${Decimal(nanousd).scaleb(-NANO):.4f}"


def parse_usd(amount: str) -> int:
    """Return nano-dollars of an exact decimal string of USD, as `exact_usd` returns it."""
    dollars, _, decimals = amount.partition(".")
    return int(dollars + decimals.ljust(NANO, "0"))


def format_count(number: int | None) -> str:
    """Return `12,345`, or `-` for None."""
    return "-" if number is None else f"{number:,}"


def count_noun(number: int, noun: str) -> str:
    """Return `1 file`, `2 files`, `12,345 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def compact_number(number: int | None) -> str:
    """Return `9,999`, `275.5k`, `1.2M`; `-` for None."""
    if number is None or number < 10_000:
        return format_count(number)
    return f"{number / 1_000_000:.1f}M" if number >= 999_950 else f"{number / 1000:.1f}k"


def format_size(size_bytes: int) -> str:
    """Return `999 B`, `12.3 kB`, `4.0 MB`, `1.2 GB`, in powers of 1000."""
    value, unit = float(size_bytes), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.95 or unit == "GB":
            break
        value /= 1000
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def format_elapsed(seconds: float) -> str:
    """Return `8s`, `3m 12s`, `2h 05m`, `4d 03h`."""
    total_seconds = max(int(seconds), 0)
    minutes, hours, days = total_seconds // 60, total_seconds // 3600, total_seconds // 86400
    if days:
        return f"{days}d {hours % 24:02d}h"
    if hours:
        return f"{hours}h {minutes % 60:02d}m"
    return f"{minutes}m {total_seconds % 60:02d}s" if minutes else f"{total_seconds}s"


def iso_time(us: int | None) -> str | None:
    """Return ISO 8601 in UTC with microseconds, `2026-03-01T12:00:00.000000Z`, of a time since the epoch."""
    if us is None:
        return None
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{us % 1_000_000:06d}Z"


def format_time(us: int) -> str:
    """Return `2026-03-01 12:00:00Z`."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def local_date_time(us: int) -> str:
    """Return date, time and zone in the local zone, `2026-03-01 12:00:00 UTC`."""
    return f"{datetime.fromtimestamp(us / 1_000_000).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def local_time(us: int | None) -> str:
    """Return the time of day in the local zone, `12:00:00`."""
    return "-" if us is None else datetime.fromtimestamp(us / 1_000_000).strftime("%H:%M:%S")


# lines ----------------------------------------------------------------------------------------------------------------
SGR = "\x1b[{}m"
STYLES = {
    "": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold cyan": "1;36",
    "bold yellow": "1;33", "bold red": "1;31", "bold green": "1;32",
}  # fmt: skip
"""Terminal colours by name; they follow the user's theme."""


class Span(NamedTuple):
    """A piece of one line."""

    text: str
    style: str = ""
    """A key of `STYLES`."""


Line = tuple[Span, ...]


def styled_line(text: str, style: str = "") -> Line:
    return (Span(text, style),)


def plain_text(line: Line) -> str:
    """Return the line's text without styles."""
    return "".join(span.text for span in line)


def sanitised(line: Line) -> Line:
    """Return the line without escapes, control characters and line ends."""
    return tuple(Span(strip_escapes(span.text).replace("\n", " ").replace("\t", "    "), span.style) for span in line)


def ansi_text(line: Line) -> str:
    """Return the line with escape sequences, reset at the end of each span."""
    return "".join(
        f"{SGR.format(STYLES[span.style])}{span.text}{SGR.format('')}" if STYLES[span.style] else span.text
        for span in line
    )


def display_width(text: str) -> int:
    """Return the width in terminal cells."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, cells: int, separator: str = " ") -> list[str]:
    """Return the text in lines of at most that many cells, broken only at the separator, which may be ", "; empty: the
    text is one line. A longer word stays whole."""
    *parts, last_part = text.split(separator) if separator else [text]
    lines = [""]
    for word in (*(f"{part}{separator.rstrip()}" for part in parts), last_part):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and display_width(longer) > cells:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
