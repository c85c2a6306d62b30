"""Lines of text with styles, and their width in terminal cells. Some characters take two cells."""

from __future__ import annotations

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
