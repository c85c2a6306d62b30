"""How many examples a property is tried with, and which cases are tried in `make quick` too."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

T = TypeVar("T")
USUAL = 100
"""What a profile tries that is not to be quick."""


def examples(count: int, quick: int | None = None, **more: Any) -> settings:
    """`count` of them, without a deadline; where the profile is a quick one no more than it says, or than `quick`."""
    return settings(max_examples=amount(count, quick or settings().max_examples), deadline=None, **more)


def amount(count: int, quick: int) -> int:
    """`count`, or as few as `quick` where the profile is a quick one."""
    return count if settings().max_examples >= USUAL else min(count, quick)


def first_of_each(cases: Iterable[T], kind: Callable[[T], Hashable]) -> list[ParameterSet]:
    """The cases as parameters: `make quick` tries the first of each kind, since the others take the same way."""
    kinds: set[Hashable] = set()
    parameters = []
    for case in cases:
        marks = (pytest.mark.slow,) if kind(case) in kinds else ()
        kinds.add(kind(case))
        parameters.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks))
    return parameters
