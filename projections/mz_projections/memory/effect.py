"""Compares the work that was given a learning with the work that was not, with intervals of 90 %."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import sqrt
from typing import Literal

import msgspec

from mz_projections.memory.evidence import FeatureMemory
from mz_projections.memory.learnings import Learning, stayed_clean

SIDE_MIN = 8
"""Fewer cells on a side are too few to tell."""
Z = 1.645
"""Of the standard normal distribution, for 90 %."""
Verdict = Literal["helps", "harms", "no difference", "unknown"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Cells of one kind: in how many the problem did not occur."""

    cells: int
    clean: int
    low: float = 0.0
    high: float = 1.0
    """Bounds of the share of clean cells (Wilson)."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the cells that a learning concerns. `difference` is in shares of clean cells."""

    id: str
    key: str
    shown: Side
    left_out: Side
    """For the budget or by the holdout."""
    before: Side
    """Cells of the same phases before the first evidence: weak, since other things changed too."""
    compared: Literal["left out", "before", "nothing"] = "nothing"
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "unknown"


def effects(rows: Iterable[FeatureMemory], learnings: Iterable[Learning]) -> Iterator[Effect]:
    rows = tuple(rows)
    for learning in learnings:
        ended = [result for result in learning.results if result.helped is not None]
        shown = side(result.helped for result in ended if not result.left_out)
        left_out = side(result.helped for result in ended if result.left_out in ("budget", "holdout"))
        before = side(clean for row in rows for clean in _earlier(row, learning))
        yield _compare(Effect(id=learning.id, key=learning.key, shown=shown, left_out=left_out, before=before))


def _earlier(row: FeatureMemory, learning: Learning) -> Iterator[bool]:
    """Yield whether each completed cell of the learning's phases, begun before its first evidence, was clean."""
    first_us = min((item.at_us for item in learning.evidence), default=0)
    for cell in row.cells:
        is_earlier = cell.end and cell.at_us < first_us and cell.phase in learning.phases
        clean = stayed_clean(row, cell, learning.id, learning.kind, cell.version) if is_earlier else None
        if clean is not None:
            yield clean


def side(results: Iterable[bool | None]) -> Side:
    """Return the counts with the Wilson interval of the share."""
    results = tuple(results)
    cells, clean = len(results), results.count(True)
    if not cells:
        return Side(cells=0, clean=0)
    share, square = clean / cells, Z * Z
    middle, width = share + square / (2 * cells), Z * sqrt(share * (1 - share) / cells + square / (4 * cells * cells))
    scale = 1 + square / cells
    return Side(cells=cells, clean=clean, low=(middle - width) / scale, high=(middle + width) / scale)


def _compare(effect: Effect) -> Effect:
    """Compare with what was left out, else with what was before; the interval of the difference is Newcombe's."""
    shown, other = effect.shown, effect.left_out if effect.left_out.cells >= SIDE_MIN else effect.before
    if min(shown.cells, other.cells) < SIDE_MIN:
        return effect
    share, share_of_other = shown.clean / shown.cells, other.clean / other.cells
    difference = share - share_of_other
    low = difference - sqrt((share - shown.low) ** 2 + (other.high - share_of_other) ** 2)
    high = difference + sqrt((shown.high - share) ** 2 + (share_of_other - other.low) ** 2)
    verdict: Verdict = "helps" if low > 0 else "harms" if high < 0 else "no difference"
    compared: Literal["left out", "before"] = "left out" if other is effect.left_out else "before"
    return msgspec.structs.replace(
        effect, compared=compared, difference=difference, low=low, high=high, verdict=verdict
    )
