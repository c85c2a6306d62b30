"""Adapter: the tool for commands: a process group of its own, a time limit, bounded output."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from mz_engine.agents.anthropic_loop.place import Place, Refused

TIMEOUT_SECONDS = 120
TIMEOUT_SECONDS_MAX = 600
KEPT_BYTES = 30_000
"""Of the output's beginning, and of its end."""
TICK_SECONDS = 0.2
DRAIN_SECONDS = 1
"""For what a command printed last; what it left running may print for ever."""
CHUNK = 1 << 16
HIDDEN = "ANTHROPIC_"
"""Variables of that name are the loop's: what the model runs has no business with the key."""

Alive = Callable[[], None]


class Kept:
    """The beginning and the end of an output of any length."""

    def __init__(self) -> None:
        self._head, self._tail, self._total = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        room = KEPT_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[:-KEPT_BYTES]

    def text(self) -> str:
        left_out = self._total - len(self._head) - len(self._tail)
        gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


def run_command(
    place: Place, command: str, timeout_seconds: int, environment: Mapping[str, str], alive: Alive
) -> tuple[str, bool]:
    """What it printed, and whether it failed. Nothing of its group runs on afterwards, whatever happens here."""
    if "\0" in command:
        raise Refused("a command holds no NUL byte")
    seconds = max(1, min(timeout_seconds, TIMEOUT_SECONDS_MAX))
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=place.root,
            env={name: value for name, value in environment.items() if not name.startswith(HIDDEN)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Refused(f"the command cannot be started: {error}") from None
    kept = Kept()
    try:
        ended = _follow(process, kept, time.monotonic() + seconds, alive)
    finally:
        _end(process)
    text = kept.text()
    if not ended:
        return f"{text}\n[ended after {seconds} s, its time limit]", True
    code = process.returncode
    return (f"{text}\n[exit {code}]" if code else text or "[no output]"), code != 0


def _follow(process: subprocess.Popen[bytes], kept: Kept, deadline: float, alive: Alive) -> bool:
    """Until the command has ended, or False: until its time was up. What it leaves running is not waited for."""
    assert process.stdout is not None
    stream, open_ = process.stdout.fileno(), True
    while process.poll() is None:
        if time.monotonic() >= deadline:
            return False
        if open_:
            open_ = _take(stream, kept, TICK_SECONDS)
        else:
            time.sleep(TICK_SECONDS / 10)
        alive()
    last = time.monotonic() + DRAIN_SECONDS
    while open_ and time.monotonic() < last and select.select([stream], [], [], 0)[0]:
        open_ = _take(stream, kept, 0)
    return True


def _take(stream: int, kept: Kept, seconds: float) -> bool:
    """What has come, if anything comes in that time; False: nothing will come any more."""
    if not select.select([stream], [], [], seconds)[0]:
        return True
    data = os.read(stream, CHUNK)
    kept.add(data)
    return bool(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
