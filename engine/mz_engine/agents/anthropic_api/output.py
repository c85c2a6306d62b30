"""Output as JSON Lines: complete lines only, with progress lines during long work."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mz_engine.agents.anthropic_api.prompts import replace_surrogates

TERMINATING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRESS_SECONDS = 10
TEXT_CHARS_MAX = 1000

Write = Callable[[bytes], None]


class OutputWriter:
    """Writes the output events of a call."""

    def __init__(self, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._last_written = self._started = clock()

    def write_event(self, kind: str, **fields: object) -> None:
        """Write one event as a line. Raises what `write` raises."""
        line = json.dumps(replace_surrogates({"type": kind, **fields}), ensure_ascii=False)
        with block_signals():
            self._write(line.encode() + b"\n")
        self._last_written = self._clock()

    def heartbeat(self) -> None:
        """Note activity; write a progress line if none was written for a while."""
        now = self._clock()
        if now - self._last_written >= PROGRESS_SECONDS:
            self.write_event("progress", seconds=round(now - self._started))


@contextmanager
def block_signals() -> Iterator[None]:
    """Delay terminating signals until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def shorten(value: Any) -> Any:
    """Shorten long texts at any depth."""
    match value:
        case str() if len(value) > TEXT_CHARS_MAX:
            return f"{value[:TEXT_CHARS_MAX]}... ({len(value)} characters)"
        case dict():
            return {str(key): shorten(item) for key, item in value.items()}
        case list():
            return [shorten(item) for item in value]
        case _:
            return value
