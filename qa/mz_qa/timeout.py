"""Calls a function in a separate process with a time limit."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import TimeoutError as PoolTimeout
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")


class TimeLimitExceeded(Exception):
    """The function did not end in time, or its process died."""


def call_with_timeout(seconds: float, function: Callable[..., T], *arguments: object) -> T:
    """Call a function in another process; function, arguments and result must be picklable. Raises TimeLimitExceeded
    and what the function raises."""
    with get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply_async(function, arguments).get(seconds)
        except PoolTimeout:
            raise TimeLimitExceeded from None
