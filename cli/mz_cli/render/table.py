"""Facts: a table before it is drawn."""

from __future__ import annotations

import msgspec


class Column(msgspec.Struct, frozen=True):
    name: str
    right: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells, one for each column. Cells may hold anything: they are made harmless when they are drawn."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str
    """Said on a terminal in place of a table without rows."""


def columns(*names: str) -> tuple[Column, ...]:
    """Columns by name; a `>` before the name aligns to the right."""
    return tuple(Column(name.removeprefix(">"), name.startswith(">")) for name in names)
