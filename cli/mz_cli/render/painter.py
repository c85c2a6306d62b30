"""Paint frames over each other at the bottom of a terminal, without flicker.

Only changed lines are written, all at once, with automatic wrapping off, so that a character of unexpected width cannot
break the frame. Earlier terminal content stays above it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from mz_cli.render.cells import width
from mz_cli.render.styled import Line, escaped, plain

CSI = "\x1b["
BEGIN, END = f"{CSI}?2026h{CSI}?25l{CSI}?7l", f"{CSI}?7h{CSI}?2026l"
"""Synchronised update, hidden cursor, no wrapping; and their end."""
SHOW_CURSOR, WRAP = f"{CSI}?25h", f"{CSI}?7h"
ERASE_LINE, ERASE_BELOW = f"{CSI}K", f"{CSI}J"
SIZE = 80, 24
"""Default columns and lines, if the terminal does not report them."""


class Painter:
    """Painter of frames; not thread-safe. Raises OSError and ValueError if the terminal is closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._painted: list[str] = []
        self._widths: list[int] = []
        self._size = (0, 0)

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return SIZE
        return columns or SIZE[0], lines or SIZE[1]

    def paint(self, lines: Sequence[Line]) -> None:
        """Replace the frame by these lines, which must fit the size."""
        size = self.size()
        text = self._erased() if size != self._size and self._painted else self._to_top()
        drawn = [escaped(line) for line in lines]
        for place, line in enumerate(drawn):
            text += "\r\n" if place else ""
            # The terminal echoes pressed keys behind the last line.
            if self._painted[place : place + 1] != [line] or place == len(drawn) - 1:
                text += line + ERASE_LINE
        text += ERASE_BELOW if len(self._painted) > len(drawn) else ""
        self._painted, self._widths, self._size = drawn, [width(plain(line)) for line in lines], size
        self._write(BEGIN + text + END)

    def say(self, text: str) -> None:
        """Print permanent lines; the next `paint` draws the frame below them."""
        self._write(self._erased() + WRAP + text.replace("\n", "\r\n") + "\r\n")

    def close(self) -> None:
        """Remove the frame, and show the cursor."""
        self._write(self._erased() + WRAP + SHOW_CURSOR)

    def _to_top(self) -> str:
        above = len(self._painted) - 1
        return "\r" + (f"{CSI}{above}A" if above > 0 else "")

    def _erased(self) -> str:
        """Move to the top of the frame, and erase everything below. After a resize the terminal may have wrapped long
        lines."""
        columns, lines = self.size()
        rows = sum(max(-(-each // columns), 1) for each in self._widths)
        above = min(rows, lines) - 1
        self._painted, self._widths = [], []
        return "\r" + (f"{CSI}{above}A" if above > 0 else "") + ERASE_BELOW

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def restore(stream: TextIO) -> None:
    """Reset the terminal when the process is killed. Safe in signal handlers, since it takes no lock."""
    try:
        os.write(stream.fileno(), f"{WRAP}{SHOW_CURSOR}\r\n".encode())
    except (OSError, ValueError):
        return
