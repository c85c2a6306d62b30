"""Adapter: standard output: one JSON object a line, whole lines only, and a sign of life where it takes long."""

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
    """What the loop says."""

    def __init__(self, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._last = self._began = clock()

    def say(self, kind: str, **fields: object) -> None:
        """One line. Raises what `write` raises."""
        line = json.dumps(clean({"type": kind, **fields}), ensure_ascii=False)
        with undisturbed():
            self._write(line.encode() + b"\n")
        self._last = self._clock()

    def alive(self) -> None:
        """Called whenever something goes on; now and then a line of it."""
        now = self._clock()
        if now - self._last >= PROGRESS_SECONDS:
            self.say("progress", seconds=round(now - self._began))


@contextmanager
def undisturbed() -> Iterator[None]:
    """No signal ends the process in the middle of this; it does so right after."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cut(value: Any) -> Any:
    """With long texts cut, wherever they are: the stream is a summary."""
    match value:
        case str() if len(value) > CUT_CHARACTERS:
            return f"{value[:CUT_CHARACTERS]}... ({len(value)} characters)"
        case dict():
            return {str(name): cut(part) for name, part in value.items()}
        case list():
            return [cut(part) for part in value]
        case _:
            return value
