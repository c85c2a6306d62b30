"""Output as JSON Lines: complete lines only, with progress lines during long work."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mz_engine.agents.anthropic_loop.wording import clean

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRESS_SECONDS = 10
CUT_CHARACTERS = 1000

Write = Callable[[bytes], None]


class Voice:
    """Writes the output events of a call."""

    def __init__(self, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._last = self._began = clock()

    def say(self, kind: str, **fields: object) -> None:
        """Write one event as a line. Raises what `write` raises."""
        line = json.dumps(clean({"type": kind, **fields}), ensure_ascii=False)
        with undisturbed():
            self._write(line.encode() + b"\n")
        self._last = self._clock()

    def alive(self) -> None:
        """Note activity; write a progress line if none was written for a while."""
        now = self._clock()
        if now - self._last >= PROGRESS_SECONDS:
            self.say("progress", seconds=round(now - self._began))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay terminating signals until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cut(value: Any) -> Any:
    """Shorten long texts at any depth."""
    match value:
        case str() if len(value) > CUT_CHARACTERS:
            return f"{value[:CUT_CHARACTERS]}... ({len(value)} characters)"
        case dict():
            return {str(key): cut(item) for key, item in value.items()}
        case list():
            return [cut(item) for item in value]
        case _:
            return value
