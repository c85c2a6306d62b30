"""The tool that runs a command: in its own process group, with a time limit and bounded output."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

from mz_engine.agents.anthropic_api.model import TERMINATING_SIGNALS, block_signals
from mz_engine.agents.anthropic_api.sandbox import ToolError

TIMEOUT_SECONDS = 120
TIMEOUT_SECONDS_MAX = 600
KEPT_BYTES_MAX = 30_000
"""Bytes kept of the output's beginning, and of its end."""
TICK_SECONDS = 0.2
DRAIN_SECONDS = 1
"""Time to read the last output."""
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
    cwd: Path, command: str, timeout_seconds: int, environment: Mapping[str, str], heartbeat: Heartbeat
) -> tuple[str, bool]:
    """Run a command; return its output and whether it failed. Always kills its process group afterwards."""
    if "\0" in command:
        raise ToolError("a command holds no NUL byte")
    seconds = max(1, min(timeout_seconds, TIMEOUT_SECONDS_MAX))
    output = BoundedOutput()
    process: subprocess.Popen[bytes] | None = None
    try:
        with block_signals():  # Until the process is known. The thread gets no signals at all.
            process = _start(cwd, command, environment)
            # Processes that left the group may keep the pipe open for ever, so nobody waits long for its end.
            reader = Thread(target=_collect_output, args=(process, output), daemon=True)
            reader.start()
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(TICK_SECONDS, max(0, deadline - time.monotonic())))
            heartbeat()
        code = process.poll()
    finally:
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    reader.join(DRAIN_SECONDS)
    text = output.text()
    if code is None:
        return f"{text}\n[ended after {seconds} s, its time limit]", True
    return (f"{text}\n[exit {code}]" if code else text or "[no output]"), code != 0


def _start(cwd: Path, command: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=cwd,
            env={name: value for name, value in environment.items() if not name.startswith(HIDDEN_PREFIX)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATING_SIGNALS),
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"the command cannot be started: {error}") from None


def _collect_output(process: subprocess.Popen[bytes], output: BoundedOutput) -> None:
    assert process.stdout is not None
    with process.stdout as stream:
        while data := os.read(stream.fileno(), CHUNK_BYTES):
            output.add(data)
