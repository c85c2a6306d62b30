"""The clock of a replay: starts when the recorded run started, and skips waiting times."""

from __future__ import annotations

import threading
import time

from mz_recordings.cassette.model import parse_time


class ReplayClock:
    """Implements `mz_engine.ports.Clock`. Thread-safe, monotonic."""

    def __init__(self, start: str) -> None:
        """`start`: UTC, `2026-11-21T10:28:00Z`. Raises ValueError."""
        self._start_us = int(parse_time(start).timestamp()) * 1_000_000
        self._created_ns = time.monotonic_ns()
        self._lock = threading.Lock()

    def now_us(self) -> int:
        with self._lock:
            return self._now_us()

    def skip_to(self, until_us: int) -> None:
        """Advance the clock to at least this time."""
        with self._lock:
            self._start_us += max(0, until_us - self._now_us())

    def _now_us(self) -> int:
        return self._start_us + (time.monotonic_ns() - self._created_ns) // 1_000
