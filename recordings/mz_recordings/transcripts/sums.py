"""Pure: sums of tokens by model, which can be held against one another."""

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
        """What this has more; None where it has less of anything. Lifetimes of cache writes that this does not tell
        apart are taken as the other has them."""
        hour = self.cache_write_1h or min(other.cache_write_1h, self.written)
        mine = self._replace(cache_write_5m=self.written - hour, cache_write_1h=hour)
        mine = mine._replace(reasoning=max(mine.reasoning, other.reasoning))
        rest = Sum(*(one - two for one, two in zip(mine, other, strict=True)))
        return rest if min(rest) >= 0 else None

    def usage(self, model: str) -> Usage:
        return Usage(model=model, **self._asdict())


class Sums(UserDict[str, Sum]):
    """By model."""

    def of(self, model: str) -> Sum:
        return self.get(model, Sum())

    def holds(self, other: Sums, *, input_only: bool = False) -> bool:
        """Whether nothing of the other is missing here."""
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
    """Takes away what was counted before, where it was counted here."""
    rest = sums.of(usage.model).plus(usage, -1)
    sums[usage.model] = Sum(*(max(number, 0) for number in rest))


def total(usages: Iterable[Usage]) -> Sums:
    sums = Sums()
    for usage in usages:
        add(sums, usage)
    return sums


def includes(end: Ended, last: Ended, *, requests: bool, enough: Callable[[Sums], bool]) -> bool:
    """Whether an end's money and sums include those of the end before it, in the same session. A file may hold the
    output of several processes, one after the other; numbers that fell, or that are not `enough` for the `requests`
    since the process began, tell so."""
    if end == last:
        return True
    if not (end.cumulative and last.cumulative and requests):
        return False
    if (end.reported_nanousd or 0) < (last.reported_nanousd or 0):
        return False
    sums = total(end.usage)
    return not sums or (sums.holds(total(last.usage)) and enough(sums))


def parts_of(usages: Iterable[Usage]) -> tuple[str, ...]:
    """Names of sub-agents, sorted."""
    return tuple(sorted({usage.part for usage in usages if usage.part}))
