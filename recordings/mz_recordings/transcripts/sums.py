"""Token sums by model, which can be compared."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mz_events.catalog.call import Usage

from mz_recordings.transcripts.facts import Ended


class Sum(NamedTuple):
    """Tokens of one model."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0

    @property
    def size(self) -> int:
        return self.input + self.output

    @property
    def written(self) -> int:
        return self.cache_write_5m + self.cache_write_1h

    def plus(self, usage: Usage, sign: int = 1) -> Sum:
        return Sum(*(mine + sign * getattr(usage, name) for name, mine in zip(self._fields, self, strict=True)))

    def minus(self, other: Sum) -> Sum | None:
        """Return the difference; None if it would be negative anywhere. If this sum does not distinguish cache writes
        by lifetime, the other's lifetimes apply."""
        hour = self.cache_write_1h or min(other.cache_write_1h, self.written)
        mine = self._replace(cache_write_5m=self.written - hour, cache_write_1h=hour)
        mine = mine._replace(reasoning=max(mine.reasoning, other.reasoning))
        rest = Sum(*(one - two for one, two in zip(mine, other, strict=True)))
        return rest if min(rest) >= 0 else None

    def usage(self, model: str) -> Usage:
        return Usage(model=model, **self._asdict())


class Sums(UserDict[str, Sum]):
    """Token sums by model."""

    def of(self, model: str) -> Sum:
        return self.get(model, Sum())

    def holds(self, other: Sums, *, input_only: bool = False) -> bool:
        """Return True if no tokens of the other are missing here."""
        return all(
            self.of(model).input >= sum_.input and (input_only or self.of(model).output >= sum_.output)
            for model, sum_ in other.items()
        )

    def join(self, other: Sums) -> None:
        for model, sum_ in other.items():
            self[model] = Sum(*(one + two for one, two in zip(self.of(model), sum_, strict=True)))


def add(sums: Sums, usage: Usage) -> None:
    sums[usage.model] = sums.of(usage.model).plus(usage)


def less(sums: Sums, usage: Usage) -> None:
    """Subtract a usage, but not below zero."""
    rest = sums.of(usage.model).plus(usage, -1)
    sums[usage.model] = Sum(*(max(number, 0) for number in rest))


def total(usages: Iterable[Usage]) -> Sums:
    sums = Sums()
    for usage in usages:
        add(sums, usage)
    return sums


def includes(end: Ended, last: Ended, *, requests: bool, enough: Callable[[Sums], bool]) -> bool:
    """Return True if an end's money and totals include those of the previous end in the same session. A file may hold
    the output of several processes one after the other: then numbers fall, or are not `enough` for the `requests` since
    the process started."""
    if end == last:
        return True
    if not (end.cumulative and last.cumulative and requests):
        return False
    if (end.reported_nanousd or 0) < (last.reported_nanousd or 0):
        return False
    sums = total(end.usage)
    return not sums or (sums.holds(total(last.usage)) and enough(sums))


def parts_of(usages: Iterable[Usage]) -> tuple[str, ...]:
    """Return the names of subagents, sorted."""
    return tuple(sorted({usage.part for usage in usages if usage.part}))
