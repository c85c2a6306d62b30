"""Styled text. Styles are names of terminal colours, which follow the user's theme."""

from __future__ import annotations

from typing import NamedTuple

from mz_cli.render.text import strip_escapes

SGR = "\x1b[{}m"
STYLES = {
    "": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold cyan": "1;36",
    "bold yellow": "1;33", "bold red": "1;31", "bold green": "1;32",
}  # fmt: skip


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
