"""What a benchmark says: a value beside a reference of the same run, their ratio, and the goal for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

SCHEMA = "mz.bench/1"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison."""

    name: str
    """`<benchmark>.<what>`."""
    value: float
    unit: str
    """Of `value` and of `reference_value`."""
    reference: str
    """What it is compared with."""
    reference_value: float
    ratio: float
    """`value` / `reference_value`."""
    goal: float
    """For the ratio."""
    better: Literal["higher", "lower"]
    """Which ratios reach the goal: those at or above it, or those at or below it."""

    @property
    def met(self) -> bool:
        return self.ratio >= self.goal if self.better == "higher" else self.ratio <= self.goal


def compare(
    name: str,
    value: float,
    unit: str,
    reference: str,
    reference_value: float,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    """The figure for two measured values; exactly one of the goals is given. Raises ZeroDivisionError."""
    goal = at_least if at_least is not None else at_most
    assert goal is not None
    return Figure(
        name=name, value=value, unit=unit, reference=reference, reference_value=reference_value,
        ratio=value / reference_value, goal=goal, better="lower" if at_least is None else "higher",
    )  # fmt: skip


def document(figures: Iterable[Figure]) -> dict[str, object]:
    """`{"schema": "mz.bench/1", "figures": [...]}`, of builtins."""
    return {"schema": SCHEMA, "figures": [msgspec.to_builtins(figure) for figure in figures]}


def number(value: float) -> str:
    """For people: three or four digits are as many as mean anything."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
