"""How long something takes against something else in the same process: a slow machine fails nothing."""

from __future__ import annotations

import resource
from collections.abc import Callable

ROUNDS = 3
TIMES = 4
GROWTH_MAX = 9.0
"""For `TIMES` as much work: 4 where time grows with the work, 16 where it grows with its square."""


def ratio(item: Callable[[], object], other: Callable[[], object], rounds: int = ROUNDS) -> float:
    """CPU time of the one against that of the other, children that ended included: they take turns, and of each the
    fastest round counts."""
    ones, others = zip(*((_seconds(item), _seconds(other)) for _ in range(rounds)), strict=True)
    return float(min(ones) / max(min(others), 1e-4))


def grows_evenly(work: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Whether four times as much takes about four times as long; `work` prepares so much of it."""
    return ratio(work(TIMES * size), work(size)) < GROWTH_MAX


def _seconds(what: Callable[[], object]) -> float:
    began = _used()
    what()
    return _used() - began


def _used() -> float:
    getrusages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in getrusages)
