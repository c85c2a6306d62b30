"""The tool that runs a command: in its own process group, with a time limit and bounded output."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from mz_engine.agents.anthropic_api.sandbox import Sandbox, ToolError

TIMEOUT_SECONDS = 120
TIMEOUT_SECONDS_MAX = 600
KEPT_BYTES_MAX = 30_000
"""Bytes kept of the output's beginning, and of its end."""
TICK_SECONDS = 0.2
DRAIN_SECONDS = 1
"""Time to read the last output; background processes may print for ever."""
CHUNK_BYTES = 1 << 16
HIDDEN_PREFIX = "ANTHROPIC_"
"""Prefix of variables hidden from commands, since they hold the API key."""

Heartbeat = Callable[[], None]


class BoundedOutput:
    """The beginning and the end of an output of any length."""

    def __init__(self) -> None:
        self._head, self._tail, self._total = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        room = KEPT_BYTES_MAX - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[:-KEPT_BYTES_MAX]

    def text(self) -> str:
        left_out = self._total - len(self._head) - len(self._tail)
        gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


def run_command(
    sandbox: Sandbox, command: str, timeout_seconds: int, environment: Mapping[str, str], heartbeat: Heartbeat
) -> tuple[str, bool]:
    """Run a command; return its output and whether it failed. Always kills its process group afterwards."""
    if "\0" in command:
        raise ToolError("a command holds no NUL byte")
    seconds = max(1, min(timeout_seconds, TIMEOUT_SECONDS_MAX))
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=sandbox.root,
            env={name: value for name, value in environment.items() if not name.startswith(HIDDEN_PREFIX)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"the command cannot be started: {error}") from None
    output = BoundedOutput()
    try:
        finished = _collect_output(process, output, time.monotonic() + seconds, heartbeat)
    finally:
        _kill(process)
    text = output.text()
    if not finished:
        return f"{text}\n[ended after {seconds} s, its time limit]", True
    code = process.returncode
    return (f"{text}\n[exit {code}]" if code else text or "[no output]"), code != 0


def _collect_output(
    process: subprocess.Popen[bytes], output: BoundedOutput, deadline: float, heartbeat: Heartbeat
) -> bool:
    """Collect output until the command ends; False if the deadline passed. Does not wait for background processes."""
    assert process.stdout is not None
    stream, is_open = process.stdout.fileno(), True
    while process.poll() is None:
        if time.monotonic() >= deadline:
            return False
        if is_open:
            is_open = _read_available(stream, output, TICK_SECONDS)
        else:
            time.sleep(TICK_SECONDS / 10)
        heartbeat()
    last = time.monotonic() + DRAIN_SECONDS
    while is_open and time.monotonic() < last and select.select([stream], [], [], 0)[0]:
        is_open = _read_available(stream, output, 0)
    return True


def _read_available(stream: int, output: BoundedOutput, seconds: float) -> bool:
    """Read available output within a time; False at the end of the output."""
    if not select.select([stream], [], [], seconds)[0]:
        return True
    data = os.read(stream, CHUNK_BYTES)
    output.add(data)
    return bool(data)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
