"""How much work something is, counted: a slow machine fails nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.support.examples import amount

TIMES = 4
GROWTH_MAX = 8.0
"""For `TIMES` as much work: 4 where the steps grow with the work, 16 where they grow with its square."""
ENDS = pytest.mark.timeout(150)
"""For tests with `grows_evenly`: within it ends whatever takes even time, and nothing that takes square time."""


def grows_evenly(work: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Whether four times as much takes about four times as many steps; `work` prepares so much of it. What is one step
    of Python, such as a search for a pattern, is only seen to end: where time grows with the square, it does not."""
    work(amount(15, 4) * size)()
    return steps(work(TIMES * size // 10)) < GROWTH_MAX * steps(work(size // 10))


def steps(what: Callable[[], object]) -> int:
    """Lines that are executed and functions of C that are called."""
    count = 0

    def on_line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return on_line

    def on_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    traced = sys.gettrace()
    sys.settrace(on_line)
    sys.setprofile(on_call)
    try:
        what()
    finally:
        sys.setprofile(None)
        sys.settrace(traced)
    return count
