"""The table of figures on a page. `python -m tools.bench.page FIGURES PAGE` renews it."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tools.bench.figure import SCHEMA, Figure, number

BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
HEAD = "| figure | value | unit | against | its value | ratio | goal | |\n|---|--:|---|---|--:|--:|--:|---|\n"


class Document(msgspec.Struct, frozen=True):
    """What `python -m tools.bench --out` writes."""

    schema: str
    figures: tuple[Figure, ...]


def renewed(page: str, figures: Sequence[Figure], machine: str) -> str:
    """The page with this table between its two marks. Raises ValueError where they are missing."""
    before, begin, text = page.partition(BEGIN)
    _, end, after = text.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN.strip()} or {END.strip()}")
    return f"{before}{BEGIN}{machine}\n\n{table(figures)}{END}{after}"


def table(figures: Sequence[Figure]) -> str:
    """Markdown."""
    return HEAD + "".join(
        f"| `{figure.name}` | {number(figure.value)} | {figure.unit} | {figure.reference} "
        f"| {number(figure.reference_value)} | {figure.ratio:.2f} "
        f"| {'≥' if figure.better == 'higher' else '≤'} {figure.goal:.2f} | {'met' if figure.met else '**missed**'} |\n"
        for figure in figures
    )


def machine() -> str:
    """What the figures were measured on, in a line."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, git {git}."
    )


def main(figures: Path, page: Path) -> None:
    """Raises msgspec.DecodeError for what is no document of figures."""
    document = msgspec.json.decode(figures.read_bytes(), type=Document)
    assert document.schema == SCHEMA, document.schema
    page.write_text(renewed(page.read_text("utf-8"), document.figures, machine()), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
