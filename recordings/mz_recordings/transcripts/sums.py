"""Token sums by model, which can be compared."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mz_events.catalog.call import Usage

from mz_recordings.transcripts.facts import StreamEnd


class TokenSum(NamedTuple):
    """Tokens of one model."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    @property
    def cache_write(self) -> int:
        return self.cache_write_5m + self.cache_write_1h

    def plus(self, usage: Usage, sign: int = 1) -> TokenSum:
        return TokenSum(*(number + sign * getattr(usage, name) for name, number in zip(self._fields, self, strict=True)))

    def minus(self, other: TokenSum) -> TokenSum | None:
        """Return the difference; None if it would be negative anywhere. If this sum does not distinguish cache writes
        by lifetime, the other's lifetimes apply."""
        hour = self.cache_write_1h or min(other.cache_write_1h, self.cache_write)
        with_lifetimes = self._replace(cache_write_5m=self.cache_write - hour, cache_write_1h=hour)
        with_lifetimes = with_lifetimes._replace(reasoning=max(with_lifetimes.reasoning, other.reasoning))
        difference = TokenSum(*(minuend - subtrahend for minuend, subtrahend in zip(with_lifetimes, other, strict=True)))
        return difference if min(difference) >= 0 else None

    def usage(self, model: str) -> Usage:
        return Usage(model=model, **self._asdict())


class TokenSums(UserDict[str, TokenSum]):
    """Token sums by model."""

    def of_model(self, model: str) -> TokenSum:
        return self.get(model, TokenSum())

    def covers(self, other: TokenSums, *, input_only: bool = False) -> bool:
        """Return True if no tokens of the other are missing here."""
        return all(
            self.of_model(model).input >= sum_.input and (input_only or self.of_model(model).output >= sum_.output)
            for model, sum_ in other.items()
        )

    def add_all(self, other: TokenSums) -> None:
        for model, sum_ in other.items():
            self[model] = TokenSum(*(number + added for number, added in zip(self.of_model(model), sum_, strict=True)))


def add_usage(sums: TokenSums, usage: Usage) -> None:
    sums[usage.model] = sums.of_model(usage.model).plus(usage)


def subtract_usage(sums: TokenSums, usage: Usage) -> None:
    """Subtract a usage, but not below zero."""
    difference = sums.of_model(usage.model).plus(usage, -1)
    sums[usage.model] = TokenSum(*(max(number, 0) for number in difference))


def sum_usages(usages: Iterable[Usage]) -> TokenSums:
    sums = TokenSums()
    for usage in usages:
        add_usage(sums, usage)
    return sums


def includes_previous_end(end: StreamEnd, previous: StreamEnd, *, has_requests: bool, is_enough: Callable[[TokenSums], bool]) -> bool:
    """Return True if an end's money and totals include those of the previous end in the same session. A file may hold
    the output of several processes one after the other: then numbers fall, or are not `enough` for the `requests` since
    the process started."""
    if end == previous:
        return True
    if not (end.cumulative and previous.cumulative and has_requests):
        return False
    if (end.reported_nanousd or 0) < (previous.reported_nanousd or 0):
        return False
    sums = sum_usages(end.usage)
    return not sums or (sums.covers(sum_usages(previous.usage)) and is_enough(sums))


def subagents_of(usages: Iterable[Usage]) -> tuple[str, ...]:
    """Return the names of subagents, sorted."""
    return tuple(sorted({usage.subagent for usage in usages if usage.subagent}))
