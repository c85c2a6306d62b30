"""Lines of text with styles, their width in terminal cells, and fitting. Some characters take two cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mz_cli.terminal.text import strip_escapes

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


ELLIPSIS = "…"
CHARACTERS_PER_CELL_MAX = 8
"""Combining characters have no width; more of them than this are cut off."""


def display_width(text: str) -> int:
    """Return the width in terminal cells."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, cells: int) -> str:
    """Cut the text to at most that many cells, with an ellipsis at the end."""
    text = text[: (cells + 1) * CHARACTERS_PER_CELL_MAX]
    if display_width(text) <= cells:
        return text
    text = text[: max(cells - 1, 0)]
    while display_width(text) > cells - 1 and text:
        text = text[:-1]
    return text + ELLIPSIS if cells > 0 else ""


def fit_line(line: Line, cells: int) -> Line:
    """Cut the line to at most that many cells."""
    fitting: list[Span] = []
    left = cells
    for span in line:
        text = fit(span.text, left)
        if text:
            fitting.append(Span(text, span.style))
        left -= display_width(text)
        if text != span.text:
            break
    return tuple(fitting)


def align_both_sides(left: Line, right: Line, cells: int, left_min: int) -> Line:
    """Return one line with `right` at its right edge. `left` is cut to `left_min` cells before `right` is left out."""
    room = cells - display_width(plain_text(right)) - 2
    if not right or room < min(left_min, display_width(plain_text(left))):
        return fit_line(left, cells)
    left = fit_line(left, room)
    return (*left, Span(" " * (cells - display_width(plain_text(left)) - display_width(plain_text(right)))), *right)


def keep_fitting(parts: Sequence[str], cells: int, gap: str = "  ") -> str:
    """Join as many of the parts as fit, in order; the first is cut if it is too long."""
    shown = ""
    for part in parts:
        longer = f"{shown}{gap}{part}" if shown else part
        if shown and display_width(longer) > cells:
            break
        shown = longer
    return fit(shown, cells)


def wrap(text: str, cells: int) -> list[str]:
    """Return the text in lines of at most that many cells, broken between words; a longer word stays whole."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and display_width(longer) > cells:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
