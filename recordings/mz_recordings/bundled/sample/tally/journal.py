"""The journal: one entry a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from . import money


@dataclass(frozen=True)
class Entry:
    """One amount that was spent."""

    day: date
    category: str
    cents: int
    note: str = ""


class BadLine(ValueError):
    """A line that is no entry; the text says which and why."""


def read(lines: Iterable[str], name: str = "journal") -> Iterator[Entry]:
    """The entries of a journal in their order; raises BadLine with `name` and the number of the line."""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            yield parse(text)
        except ValueError as error:
            raise BadLine(f"{name}:{number}: {error}") from None


def parse(text: str) -> Entry:
    """One entry; raises ValueError."""
    fields = text.split(maxsplit=3)
    if len(fields) < 3:
        raise ValueError(f"{text!r} is not an entry: write DAY CATEGORY AMOUNT [NOTE]")
    day, category, amount, *note = fields
    return Entry(read_day(day), category, money.read(amount), *note)


def read_day(text: str) -> date:
    """A day such as `2026-03-02`; raises ValueError."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a day: write it as 2026-03-02") from None
