"""A terminal that a program writes to, and what stands on its screen at any time."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import pyte


class Terminal:
    """A pseudo-terminal with an emulator behind it. `stream` is what a program writes to."""

    def __init__(self, columns: int, lines: int) -> None:
        self._mine, self._theirs = pty.openpty()
        self.screen = pyte.Screen(columns, lines)
        self._emulator = pyte.ByteStream(self.screen)
        self.received: list[tuple[float, bytes]] = []
        """When, in seconds since the beginning, and what."""
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self.resize(columns, lines)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def open(self) -> TextIO:
        """The end that a program in this process writes to; to be closed by it."""
        return os.fdopen(os.dup(self._theirs), "w", encoding="utf-8")

    def run(self, texts: Sequence[str], home: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts a program whose stdin, stdout and stderr are this terminal."""
        end = self._theirs
        variables = {**environment, "TERM": "xterm-256color"}
        return subprocess.Popen(texts, cwd=home, env=variables, stdin=end, stdout=end, stderr=end)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        with self._lock:
            self.screen.resize(lines, columns)

    def text(self) -> list[str]:
        """Lines on the screen now, without blanks at their ends, down to the last that holds something."""
        with self._lock:
            lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def until(self, true: Callable[[list[str]], bool], seconds: float = 20.0) -> list[str]:
        """The screen as soon as that is true of it."""
        deadline = time.monotonic() + seconds
        while not true(self.text()):
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)
        return self.text()

    def close(self) -> bytes:
        """Everything that was received. All other ends must be closed by now."""
        os.close(self._theirs)
        self._reader.join(10)
        os.close(self._mine)
        return b"".join(data for _, data in self.received)

    def _read(self) -> None:
        try:
            while data := os.read(self._mine, 65536):
                with self._lock:
                    self.received.append((time.monotonic() - self._began, data))
                    self._emulator.feed(data)
        except OSError:
            return
