"""Tables as data."""

from __future__ import annotations

import msgspec

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
