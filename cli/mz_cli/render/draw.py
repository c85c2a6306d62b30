"""Adapter: draws tables. A terminal gets columns, or cards where it is narrow; a pipe gets tabs, and nothing is cut."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from mz_cli.render.console import console, is_terminal, put, terminal_width
from mz_cli.render.table import Column, Table
from mz_cli.render.text import line, shorten

CELL_MAX = 400
"""Characters of a cell on a terminal; in a pipe there is no limit."""
WORD_MAX = 18
"""A longer word may be broken by its column; shorter ones make a table too wide, and it is shown as cards."""
GAPS = (2, 1)
"""Blanks between columns, the best that fits."""


def show(table: Table, stream: TextIO | None = None) -> None:
    """Writes the table to the stream, by default stdout."""
    stream = stream or sys.stdout
    rows = [[line(cell) for cell in row] for row in table.rows]
    if not is_terminal(stream):
        put(stream, separated(table.columns, rows))
    elif not rows:
        put(stream, f"{table.empty}\n")
    else:
        _draw(table.columns, [[shorten(cell, CELL_MAX) for cell in row] for row in rows], stream)


def separated(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """The names of the columns, then the rows; cells hold neither tab nor line end."""
    lines = [[column.name for column in heads], *rows]
    return "".join("\t".join(cells) + "\n" for cells in lines)


def _draw(heads: Sequence[Column], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    room = terminal_width(stream)
    least = _widths(heads, rows, _longest_word)
    gap = next((gap for gap in GAPS if room >= sum(least) + gap * (len(least) - 1)), None)
    if gap is None:
        put(stream, _cards(heads, rows))
        return
    from rich.table import Table as Drawn
    from rich.text import Text

    widths = spread(least, _widths(heads, rows, _length), room - gap * (len(least) - 1))
    drawn = Drawn(box=None, padding=(0, gap, 0, 0), header_style="bold", show_edge=False, pad_edge=False)
    for column, width in zip(heads, widths, strict=True):
        drawn.add_column(column.name, justify="right" if column.right else "left", overflow="fold", width=width)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console(stream, room).print(drawn)


def spread(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Widths between `least` and `wanted`; what room is left goes, one by one, to the column that lacks most."""
    widths = list(least)
    for _ in range(room - sum(widths)):
        lacking = max(range(len(widths)), key=lambda index: wanted[index] - widths[index])
        if widths[lacking] >= wanted[lacking]:
            break
        widths[lacking] += 1
    return widths


def _widths(heads: Sequence[Column], rows: Sequence[Sequence[str]], measure: Callable[[str], int]) -> list[int]:
    return [max(measure(cell) for cell in (head.name, *(row[i] for row in rows))) for i, head in enumerate(heads)]


def _length(cell: str) -> int:
    from rich.cells import cell_len

    return cell_len(cell)


def _longest_word(cell: str) -> int:
    """Up to a bound: longer words may be broken."""
    return max((min(_length(word), WORD_MAX) for word in cell.split()), default=0)


def _cards(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """One line a cell, an empty line between rows."""
    cards = [
        "".join(f"{column.name}: {cell}\n" for column, cell in zip(heads, row, strict=True) if cell) for row in rows
    ]
    return "\n".join(cards)
