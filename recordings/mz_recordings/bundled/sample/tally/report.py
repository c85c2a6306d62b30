"""Totals by category, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import money
from .journal import Entry


def totals(entries: Iterable[Entry]) -> dict[str, int]:
    """Cents spent in each category, in alphabetical order."""
    sums: dict[str, int] = {}
    for entry in entries:
        sums[entry.category] = sums.get(entry.category, 0) + entry.cents
    return dict(sorted(sums.items()))


def render(sums: Mapping[str, int]) -> str:
    """A line for each category and one for the total; amounts stand below each other."""
    rows = [*sums.items(), ("total", sum(sums.values()))]
    return "".join(f"{label:<10}{money.show(cents):>12}\n" for label, cents in rows)
