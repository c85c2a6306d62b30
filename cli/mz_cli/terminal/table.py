"""Tables as data, printed in columns, as tab-separated values, or as cards on a very narrow terminal.

No value is cut or broken: cells wrap between words, and columns without room continue in a second table below.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import click
import msgspec

from mz_cli.terminal.console import FORMAT_KEY, is_terminal, may_escape, terminal_width, write_lines, write_text
from mz_cli.terminal.text import single_line, strip_escapes
from mz_cli.terminal.width import display_width, styled_line, wrap

MARKS = ">*"
COMFORTABLE_WIDTHS = (22, 16)
"""Preferred minimum widths of wide columns, the best first: two tables are easier to read than a narrow one."""
UNLIMITED_WIDTH = 1_000_000
GAPS = (2, 1)
"""Blanks between columns; the first that fits is used."""
TSV_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n"})


class Column(msgspec.Struct, frozen=True):
    name: str
    right: bool = False
    key: bool = False
    """Identifies rows, and is repeated in each part of a split table. Without any key, the first column is one."""
    least: int = 0
    """Minimum width, if a cell needs it."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with a cell for each column. Cells may contain any text: it is sanitised when it is printed."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str
    """Text printed instead of a table without rows."""


def columns(*names: str) -> tuple[Column, ...]:
    """Return columns by name, with optional prefixes: `>` aligns to the right, `*` is a key."""
    return tuple(_column(name) for name in names)


def _column(name: str) -> Column:
    bare = name.lstrip(MARKS)
    marks = name[: len(name) - len(bare)]
    return Column(bare, right=">" in marks, key="*" in marks)


def prints_tsv(stream: TextIO) -> bool:
    """Return True if tables on the stream are tab-separated, with exact values: as `--format` says, else in a pipe."""
    context = click.get_current_context(silent=True)
    chosen = context.meta.get(FORMAT_KEY) if context else None
    return chosen == "tsv" or (chosen is None and not is_terminal(stream))


def print_table(table: Table, stream: TextIO | None = None) -> None:
    """Write the table to the stream, by default stdout."""
    stream = stream or sys.stdout
    if prints_tsv(stream):
        write_text(stream, tab_separated(table))
    elif not table.rows:
        write_text(stream, f"{table.empty}\n")
    else:
        _draw(table.columns, [[single_line(cell) for cell in row] for row in table.rows], stream)


def tab_separated(table: Table) -> str:
    r"""Return column names and rows, a line for each; in cells a tab is `\t`, a line end `\n`, a backslash `\\`."""
    lines = [[column.name for column in table.columns], *table.rows]
    return "".join("\t".join(strip_escapes(cell).translate(TSV_ESCAPES) for cell in cells) + "\n" for cells in lines)


def _draw(heads: Sequence[Column], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    room = terminal_width(stream) if is_terminal(stream) else UNLIMITED_WIDTH
    full_widths, word_widths = _widths(heads, rows, display_width), _widths(heads, rows, _longest_word)
    least_widths = [
        max(low, min(head.least, want)) for head, low, want in zip(heads, word_widths, full_widths, strict=True)
    ]
    parts = arrange(least_widths, full_widths, room, [index for index, head in enumerate(heads) if head.key] or [0])
    if not parts:
        write_text(stream, _cards(heads, rows))
    bold = "bold" if may_escape(stream, os.environ) else ""
    for part in parts:
        least, wanted = [least_widths[index] for index in part], [full_widths[index] for index in part]
        gap = next(gap for gap in GAPS if fits(least, room, gap))
        widths = spread(least, wanted, room - gap * (len(part) - 1))
        part_heads = [heads[index] for index in part]
        if part is not parts[0]:
            write_text(stream, "\n")
        lines = [styled_line(text, bold) for text in _row_lines([h.name for h in part_heads], part_heads, widths, gap)]
        for row in rows:
            lines += map(styled_line, _row_lines([row[index] for index in part], part_heads, widths, gap))
        write_lines(stream, lines)


def _row_lines(cells: Sequence[str], heads: Sequence[Column], widths: Sequence[int], gap: int) -> Iterator[str]:
    wrapped = [wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for row_line in range(max(map(len, wrapped))):
        parts = [lines[row_line] if row_line < len(lines) else "" for lines in wrapped]
        blanks = [" " * (width - display_width(part)) for part, width in zip(parts, widths, strict=True)]
        aligned = (
            blank + part if head.right else part + blank for part, blank, head in zip(parts, blanks, heads, strict=True)
        )
        yield (" " * gap).join(aligned).rstrip()


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
    for _ in range(min(room - sum(widths), sum(wanted))):
        lacking = max(range(len(widths)), key=lambda index: wanted[index] - widths[index])
        if widths[lacking] >= wanted[lacking]:
            break
        widths[lacking] += 1
    return widths


def _widths(heads: Sequence[Column], rows: Sequence[Sequence[str]], measure: Callable[[str], int]) -> list[int]:
    return [max(measure(cell) for cell in (head.name, *(row[i] for row in rows))) for i, head in enumerate(heads)]


def _longest_word(cell: str) -> int:
    return max(map(display_width, cell.split()), default=0)


def _cards(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return one line per cell, with an empty line between rows."""
    cards = [
        "".join(f"{column.name}: {cell}\n" for column, cell in zip(heads, row, strict=True) if cell) for row in rows
    ]
    return "\n".join(cards)
