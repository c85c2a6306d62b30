"""A function in a process of its own: its answer, its exception, and its end when it takes too long."""

from __future__ import annotations

import time

import pytest
from mz_qa.timeout import TimeLimitExceeded, call_with_timeout


def test_an_answer_and_an_exception_come_back() -> None:
    assert call_with_timeout(60, divmod, 17, 5) == (3, 2)
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(60, divmod, 1, 0)


def test_what_takes_too_long_is_ended() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeLimitExceeded):
        call_with_timeout(0.2, time.sleep, 600)
    assert time.monotonic() - begun < 60
