"""Tables as data, printed in columns, as tab-separated values, or as cards where columns have no room.

No value is cut or broken. Only prose wraps, between words, and lists wrap between elements. Columns without room
continue in a second table below; a table that needs more than two is printed as cards: one line per cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TextIO

import click
import msgspec
from msgspec.structs import replace

from mz_cli.terminal.console import (
    FORMAT_KEY,
    is_terminal,
    print_line,
    print_note,
    terminal_width,
    write_lines,
    write_text,
)
from mz_cli.terminal.json import print_document
from mz_cli.terminal.text import (
    Line,
    display_width,
    exact_usd,
    format_count,
    format_elapsed,
    format_size,
    format_time,
    iso_time,
    parse_usd,
    rounded_usd,
    single_line,
    strip_escapes,
    styled_line,
    wrap,
)

MARKS = ">*~,"
SECOND_US = 1_000_000
COMFORTABLE_WIDTH = 22
"""Preferred minimum width of a wide column: two tables are easier to read than a narrow one."""
UNLIMITED_WIDTH = 1_000_000
GAPS = 2, 1
"""Blanks between columns; the first that fits is used."""
PARTS_MAX = 2
"""Tables beside which rows can still be compared."""
TSV_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n"})


class Cell(str):
    """A text for terminals, with an exact one for pipes."""

    exact: str

    def __new__(cls, shown: str, exact: str) -> Cell:
        cell = super().__new__(cls, shown)
        cell.exact = exact
        return cell


class Column(msgspec.Struct, frozen=True):
    name: str
    """Empty: not shown on a terminal."""
    exact_name: str
    """Name in a pipe; empty: not printed there."""
    right: bool = False
    key: bool = False
    """Identifies rows, and is repeated in each part of a split table. Without any key, the first column is one."""
    separator: str = ""
    """Cells wrap there; empty: never."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with a cell for each column. Cells may contain any text: it is sanitised when it is printed."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]
    empty: str = ""
    """Text printed instead of a table without rows."""


def columns(*names: str) -> tuple[Column, ...]:
    """Return columns by name, with optional prefixes: `>` aligns to the right, `*` is a key, cells of `~` wrap
    between words as prose does, those of `,` after commas.

    `size|bytes` has another name in a pipe, `size|` is only for terminals, `|bytes` only for pipes."""
    return tuple(_column(name) for name in names)


def _column(marked_name: str) -> Column:
    both_names = marked_name.lstrip(MARKS)
    marks = marked_name.removesuffix(both_names)
    name, different, exact_name = both_names.partition("|")
    separator = " " if "~" in marks else ", " if "," in marks else ""
    return Column(name, exact_name if different else name, ">" in marks, "*" in marks, separator)


def usd_cell(nanousd: int | None, unknown: str = "-") -> Cell:
    return Cell(rounded_usd(nanousd) or unknown, exact_usd(nanousd) or unknown)


def count_cell(number: int | None) -> Cell:
    return Cell(format_count(number), "-" if number is None else str(number))


def time_cell(us: int | None) -> Cell:
    return Cell("-" if us is None else format_time(us), iso_time(us) or "-")


def size_cell(size_bytes: int | None) -> Cell:
    return Cell("-" if size_bytes is None else format_size(size_bytes), "-" if size_bytes is None else str(size_bytes))


def elapsed_cell(duration_us: int | None) -> Cell:
    """Return `3m 12s`, in a pipe seconds."""
    if duration_us is None:
        return Cell("-", "-")
    return Cell(format_elapsed(duration_us / SECOND_US), f"{duration_us / SECOND_US:.3f}")


def labelled(name: str, text: str) -> tuple[str, str]:
    """Return a field of a JSON document and its value as words for people."""
    if name.endswith("_usd"):
        return name.removesuffix("_usd").replace("_", " "), rounded_usd(parse_usd(text)) or text
    if name.endswith("_ms"):
        return name.removesuffix("_ms").replace("_", " "), format_elapsed(int(text) / 1000)
    return name.replace("_", " "), text


def prints_tsv(stream: TextIO | None = None) -> bool:
    """Return True if tables on the stream (default: stdout) are tab-separated, with exact values: as `--format` says,
    else in a pipe."""
    context = click.get_current_context(silent=True)
    chosen = context.meta.get(FORMAT_KEY) if context else None
    return chosen == "tsv" or (chosen is None and not is_terminal(stream or sys.stdout))


def print_table(table: Table, stream: TextIO | None = None) -> None:
    """Write the table to the stream, by default stdout."""
    stream = stream or sys.stdout
    exact = prints_tsv(stream)
    chosen = [i for i, column in enumerate(table.columns) if (column.exact_name if exact else column.name)]
    heads = [table.columns[i] for i in chosen]
    rows = [[row[i] for i in chosen] for row in table.rows]
    if exact:
        exact_rows = ([cell.exact if isinstance(cell, Cell) else cell for cell in row] for row in rows)
        write_text(stream, tab_separated([head.exact_name for head in heads], exact_rows))
    elif not rows:
        write_text(stream, f"{table.empty}\n")
    else:
        _draw(heads, [[single_line(text) for text in row] for row in rows], stream)


def print_output(
    as_json: bool, command: str, body: msgspec.Struct, text: Table | Iterable[str], notes: Iterable[str] = ()
) -> None:
    """Print what a command returns: as its document, else as text, which is a table or lines, with notes on stderr."""
    if as_json:
        print_document(command, body)
        return
    if isinstance(text, Table):
        print_table(text)
    else:
        print_line(*text)
    print_note(*notes)


def write_output(stream: TextIO, as_json: bool, command: str, body: msgspec.Struct, lines: Iterable[Line]) -> None:
    """Print what a command returns: its document to stdout, else styled lines to the stream."""
    if as_json:
        print_document(command, body)
    else:
        write_lines(stream, lines)


def tab_separated(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return column names and rows, a line for each; in cells a tab is `\t`, a line end `\n`, a backslash `\\`."""
    lines = (names, *rows)
    return "".join("\t".join(strip_escapes(cell).translate(TSV_ESCAPES) for cell in cells) + "\n" for cells in lines)


def _draw(heads: Sequence[Column], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    room = terminal_width(stream) if is_terminal(stream) else UNLIMITED_WIDTH
    names, cells = [head.name for head in heads], list(zip(*rows, strict=True))
    full_widths = [max(map(display_width, (name, *column))) for name, column in zip(names, cells, strict=True)]
    least_widths = [
        max(_least_width(name, " "), *(_least_width(cell, head.separator) for cell in column))
        for head, name, column in zip(heads, names, cells, strict=True)
    ]
    parts = arrange(least_widths, full_widths, room, [index for index, head in enumerate(heads) if head.key] or [0])
    if not parts:
        write_text(stream, _cards(heads, rows, room))
    for part in parts:
        least, wanted = [least_widths[index] for index in part], [full_widths[index] for index in part]
        gap = next(gap for gap in GAPS if _fits(least_widths, part, room, gap))
        widths = spread(least, wanted, room - gap * (len(part) - 1))
        chosen = [heads[index] for index in part]
        if part is not parts[0]:
            write_text(stream, "\n")
        named = [replace(head, separator=" ") for head in chosen]
        lines = [styled_line(text, "bold") for text in _row_lines([head.name for head in chosen], named, widths, gap)]
        for row in rows:
            lines += map(styled_line, _row_lines([row[index] for index in part], chosen, widths, gap))
        write_lines(stream, lines)


def _row_lines(cells: Sequence[str], heads: Sequence[Column], widths: Sequence[int], gap: int) -> Iterator[str]:
    wrapped = [wrap(cell, width, head.separator) for cell, head, width in zip(cells, heads, widths, strict=True)]
    for texts in zip_longest(*wrapped, fillvalue=""):
        padded = []
        for text, head, width in zip(texts, heads, widths, strict=True):
            blank = " " * (width - display_width(text))
            padded.append(blank + text if head.right else text + blank)
        yield (" " * gap).join(padded).rstrip()


def arrange(least: Sequence[int], wanted: Sequence[int], room: int, keys: Sequence[int] = (0,)) -> list[list[int]]:
    """Return the columns of each of at most two tables: columns have a comfortable width, else the least width, else
    the first key is repeated alone; empty if there is no room for all columns."""
    comfortable = [max(low, min(want, COMFORTABLE_WIDTH)) for low, want in zip(least, wanted, strict=True)]
    for widths, kept in ((comfortable, keys), (least, keys), (least, keys[:1])):
        parts = pack(widths, room, kept)
        # Tables of about the same width: those that would fit the narrowest terminal.
        while len(parts) > 1 and len(narrower := pack(widths, room - 1, kept)) == len(parts):
            parts, room = narrower, room - 1
        if 0 < len(parts) <= PARTS_MAX:
            return parts
    return []


def pack(widths: Sequence[int], room: int, keys: Sequence[int]) -> list[list[int]]:
    """Return the column indices of each table, all with the key columns; empty if not even one column fits beside
    them."""
    parts: list[list[int]] = [[*keys]]
    for index in range(len(widths)):
        if index in keys:
            continue
        if not _fits(widths, [*parts[-1], index], room):
            parts.append([*keys])
        parts[-1].append(index)
    return [sorted(part) for part in parts] if all(_fits(widths, part, room) for part in parts) else []


def _fits(widths: Sequence[int], part: Sequence[int], room: int, gap: int = GAPS[-1]) -> bool:
    return sum(widths[index] for index in part) + gap * (len(part) - 1) <= room


def spread(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Return widths between `least` and `wanted`; each spare cell goes to the column that lacks most."""
    widths = list(least)
    for _ in range(min(room - sum(widths), sum(wanted))):
        lacking = max(range(len(widths)), key=lambda index: wanted[index] - widths[index])
        if widths[lacking] >= wanted[lacking]:
            break
        widths[lacking] += 1
    return widths


def _least_width(text: str, separator: str) -> int:
    return max(map(display_width, wrap(text, 0, separator)))


def _cards(heads: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> str:
    """Return one line per cell, with an empty line between rows. A value that fits only below its name is there."""
    cards = []
    for row in rows:
        lines = []
        for column, cell in zip(heads, row, strict=True):
            text = f"{column.name}: {cell}"
            if not column.separator and display_width(text) > room >= display_width(f"  {cell}"):
                lines += [f"{column.name}:", f"  {cell}"]
            elif cell:
                lines.append("\n  ".join(wrap(text, room - len("  "), column.separator)))
        cards.append("".join(f"{line}\n" for line in lines))
    return "\n".join(cards)
