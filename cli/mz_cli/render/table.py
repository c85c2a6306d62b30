"""Adapter: tables. A terminal gets columns, or cards where it is too narrow; a pipe gets tab-separated lines, never cut."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec

from mz_cli.render.console import console, is_terminal
from mz_cli.render.text import line, shorten

CELL_MAX = 400
"""Characters of a cell on a terminal; in a pipe there is no limit."""
COLUMN_MIN = 6
"""A table whose columns would get less is shown as cards."""


class Column(msgspec.Struct, frozen=True):
    name: str
    right: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells, one for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str
    """Said on a terminal in place of a table without rows."""


def columns(*names: str) -> tuple[Column, ...]:
    """Columns by name; a `>` before the name aligns to the right."""
    return tuple(Column(name.removeprefix(">"), name.startswith(">")) for name in names)


def show(table: Table, stream: TextIO | None = None) -> None:
    """Writes the table to the stream, by default stdout."""
    stream = stream or sys.stdout
    rows = [[line(cell) for cell in row] for row in table.rows]
    if not is_terminal(stream):
        stream.write(separated(table.columns, rows))
    elif not rows:
        stream.write(f"{table.empty}\n")
    else:
        _draw(table.columns, [[shorten(cell, CELL_MAX) for cell in row] for row in rows], stream)


def separated(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """The names of the columns, then the rows; cells hold neither tab nor line end."""
    lines = [[column.name for column in heads], *rows]
    return "".join("\t".join(cells) + "\n" for cells in lines)


def _draw(heads: Sequence[Column], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    screen = console(stream)
    if screen.width < _width_min(heads, rows):
        screen.out(_cards(heads, rows), end="")
        return
    from rich import box
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in heads:
        drawn.add_column(column.name, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    screen.print(drawn)


def _width_min(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Terminal columns below which words would be broken: the longest word of each column, up to a bound."""
    longest = [
        max((min(len(word), 18) for cell in (column.name, *(row[index] for row in rows)) for word in cell.split()),
            default=COLUMN_MIN)
        for index, column in enumerate(heads)
    ]  # fmt: skip
    return sum(longest) + 2 * (len(heads) - 1)


def _cards(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """One line a cell, an empty line between rows."""
    cards = ("".join(f"{column.name}: {cell}\n" for column, cell in zip(heads, row, strict=True) if cell) for row in rows)
    return "\n".join(cards)
