"""Tables as data.

Print tables: tab-separated and uncut to a pipe; to a terminal in columns, split into several tables if one is too
wide, and as cards if the terminal is too narrow even for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import msgspec

from mz_cli.terminal.console import is_terminal, may_escape, terminal_width, write_lines, write_text
from mz_cli.terminal.text import shorten, single_line
from mz_cli.terminal.width import display_width as cell_width
from mz_cli.terminal.width import fit, styled_line, wrap

MARKS = ">*~"


class Column(msgspec.Struct, frozen=True):
    name: str
    right: bool = False
    key: bool = False
    """Identifies rows, and is repeated in each part of a split table. Without any key, the first column is one."""
    cut: bool = False
    """On a terminal, cut long cells instead of wrapping them."""
    least: int = 0
    """Minimum width on a terminal, if a cell needs it."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with a cell for each column. Cells may contain any text: it is sanitised when it is printed."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str
    """Text printed on a terminal instead of a table without rows."""


def columns(*names: str) -> tuple[Column, ...]:
    """Return columns by name, with optional prefixes: `>` aligns to the right, `*` is a key, `~` is cut."""
    return tuple(_column(name) for name in names)


def _column(name: str) -> Column:
    bare = name.lstrip(MARKS)
    marks = name[: len(name) - len(bare)]
    return Column(bare, right=">" in marks, key="*" in marks, cut="~" in marks)


CELL_MAX = 400
"""Characters of a cell on a terminal; in a pipe there is no limit."""
WORD_MAX = 18
"""Longer words may be broken; shorter ones determine the minimum width of a column."""
COMFORTABLE_WIDTHS = (22, 16)
"""Preferred minimum widths of wide columns, the best first: two tables are easier to read than a narrow one."""
GAPS = (2, 1)
"""Blanks between columns; the first that fits is used."""


def print_table(table: Table, stream: TextIO | None = None) -> None:
    """Write the table to the stream, by default stdout."""
    stream = stream or sys.stdout
    rows = [[single_line(cell) for cell in row] for row in table.rows]
    if not is_terminal(stream):
        write_text(stream, tab_separated(table.columns, rows))
    elif not rows:
        write_text(stream, f"{table.empty}\n")
    else:
        _draw(table.columns, [[shorten(cell, CELL_MAX) for cell in row] for row in rows], stream)


def tab_separated(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return column names and rows; cells contain neither tabs nor line ends."""
    lines = [[column.name for column in heads], *rows]
    return "".join("\t".join(cells) + "\n" for cells in lines)


def _draw(heads: Sequence[Column], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    room = terminal_width(stream)
    full_widths, word_widths = _widths(heads, rows, cell_width), _widths(heads, rows, _longest_word)
    least_widths = [
        max(low, min(head.least, want)) for head, low, want in zip(heads, word_widths, full_widths, strict=True)
    ]
    keys = [index for index, head in enumerate(heads) if head.key] or [0]
    parts = arrange(least_widths, full_widths, room, keys)
    if not parts:
        write_text(stream, _cards(heads, rows))
    for part in parts:
        gap = next(gap for gap in GAPS if fits([least_widths[index] for index in part], room, gap))
        free = room - gap * (len(part) - 1)
        widths = spread([least_widths[index] for index in part], [full_widths[index] for index in part], free)
        if part is not parts[0]:
            write_text(stream, "\n")
        _draw_part([heads[i] for i in part], [[row[i] for i in part] for row in rows], widths, gap, stream)


def _draw_part(heads: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], gap: int,
               stream: TextIO) -> None:  # fmt: skip
    """Write one table. Long cells continue on the next line, long words are broken."""
    bold = "bold" if may_escape(stream, os.environ) else ""
    lines = [styled_line(text, bold) for text in _row_lines([head.name for head in heads], heads, widths, gap)]
    lines += [styled_line(text) for row in rows for text in _row_lines(row, heads, widths, gap)]
    write_lines(stream, lines)


def _row_lines(cells: Sequence[str], heads: Sequence[Column], widths: Sequence[int], gap: int) -> Iterator[str]:
    wrapped = [
        [fit(cell, width)] if head.cut else wrap(cell, width)
        for cell, head, width in zip(cells, heads, widths, strict=True)
    ]
    for row_line in range(max(map(len, wrapped))):
        parts = [cell[row_line] if row_line < len(cell) else "" for cell in wrapped]
        yield (
            (" " * gap)
            .join(
                " " * (width - cell_width(part)) + part if head.right else part + " " * (width - cell_width(part))
                for part, head, width in zip(parts, heads, widths, strict=True)
            )
            .rstrip()
        )


def fits(widths: Sequence[int], room: int, gap: int) -> bool:
    return sum(widths) + gap * (len(widths) - 1) <= room


def arrange(least: Sequence[int], wanted: Sequence[int], room: int, keys: Sequence[int] = (0,)) -> list[list[int]]:
    """Distribute columns over tables, as `pack` does.

    One table, or two balanced ones, with columns of a preferred width; else as many as needed with minimum widths. Key
    columns are left out, the last first, if there is no room for all of them."""
    for comfort in COMFORTABLE_WIDTHS:
        widths = [max(low, min(want, comfort)) for low, want in zip(least, wanted, strict=True)]
        parts = pack(widths, room, keys)
        if len(parts) == 1:
            return parts
        others = [index for index in range(len(widths)) if index not in keys]
        halves = [[sorted([*keys, *others[:at]]), sorted([*keys, *others[at:]])] for at in range(1, len(others))]
        fitting = [half for half in halves if all(fits([widths[i] for i in part], room, GAPS[-1]) for part in half)]
        if fitting:
            return min(fitting, key=lambda half: max(sum(wanted[i] for i in part) for part in half))
    packings = (pack(least, room, keys[:number]) for number in range(len(keys), 0, -1))
    return next((parts for parts in packings if parts), [])


def pack(least: Sequence[int], room: int, keys: Sequence[int] = (0,)) -> list[list[int]]:
    """Return the column indices of each table, all with the key columns; empty if not even one column fits beside
    them."""
    parts = [list(keys)]
    for index in range(len(least)):
        if index in keys:
            continue
        if not fits([least[i] for i in (*parts[-1], index)], room, GAPS[-1]):
            parts.append(list(keys))
        parts[-1].append(index)
    all_fit = all(fits([least[i] for i in part], room, GAPS[-1]) for part in parts)
    return [sorted(part) for part in parts] if all_fit else []


def spread(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Return widths between `least` and `wanted`; each spare cell goes to the column that lacks most."""
    widths = list(least)
    for _ in range(room - sum(widths)):
        lacking = max(range(len(widths)), key=lambda index: wanted[index] - widths[index])
        if widths[lacking] >= wanted[lacking]:
            break
        widths[lacking] += 1
    return widths


def _widths(heads: Sequence[Column], rows: Sequence[Sequence[str]], measure: Callable[[str], int]) -> list[int]:
    return [max(measure(cell) for cell in (head.name, *(row[i] for row in rows))) for i, head in enumerate(heads)]


def _longest_word(cell: str) -> int:
    """Return the width of the longest word, at most `WORD_MAX`."""
    return max((min(cell_width(word), WORD_MAX) for word in cell.split()), default=0)


def _cards(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return one line per cell, with an empty line between rows."""
    cards = [
        "".join(f"{column.name}: {cell}\n" for column, cell in zip(heads, row, strict=True) if cell) for row in rows
    ]
    return "\n".join(cards)
