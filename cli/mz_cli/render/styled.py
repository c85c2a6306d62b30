"""Pure: text with a look. Styles are names; terminals make of them the colours of their reader's own theme."""

from __future__ import annotations

from typing import NamedTuple

from mz_cli.render.text import clean

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


def line_of(text: str, style: str = "") -> Line:
    return (Span(text, style),)


def plain(line: Line) -> str:
    """The line's text without its looks."""
    return "".join(span.text for span in line)


def harmless(line: Line) -> Line:
    """The same without escapes, controls and line ends."""
    return tuple(Span(clean(span.text).replace("\n", " ").replace("\t", "    "), span.style) for span in line)


def escaped(line: Line) -> str:
    """The line with escape sequences; it ends plain."""
    return "".join(
        f"{SGR.format(STYLES[span.style])}{span.text}{SGR.format('')}" if STYLES[span.style] else span.text
        for span in line
    )
