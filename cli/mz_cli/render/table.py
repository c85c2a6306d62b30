"""Facts: a table before it is drawn."""

from __future__ import annotations

import msgspec

MARKS = ">*~"


class Column(msgspec.Struct, frozen=True):
    name: str
    right: bool = False
    key: bool = False
    """It tells rows apart, and stands in each of the tables that a wide one is split into. Without any, the first
    column does."""
    cut: bool = False
    """On a terminal a cell has one line, and what does not fit is left out; else it goes on below."""
    least: int = 0
    """On a terminal it is at least so wide, where a cell wants that."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells, one for each column. Cells may hold anything: they are made harmless when they are drawn."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str
    """Said on a terminal in place of a table without rows."""


def columns(*names: str) -> tuple[Column, ...]:
    """Columns by name; marks before it say more: `>` aligns to the right, `*` is a key, `~` is cut."""
    return tuple(_column(name) for name in names)


def _column(name: str) -> Column:
    bare = name.lstrip(MARKS)
    marks = name[: len(name) - len(bare)]
    return Column(bare, right=">" in marks, key="*" in marks, cut="~" in marks)
