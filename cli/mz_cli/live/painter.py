"""Paint frames over each other at the bottom of a terminal, without flicker.

Only changed lines are written, all at once, with automatic wrapping off, so that a character of unexpected width cannot
break the frame. Earlier terminal content stays above it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from mz_cli.terminal.width import Line, ansi_text, display_width, plain_text

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
        text = self._erase() if size != self._size and self._painted else self._move_to_top()
        drawn = [ansi_text(line) for line in lines]
        for index, line in enumerate(drawn):
            text += "\r\n" if index else ""
            # The terminal echoes pressed keys behind the last line.
            if self._painted[index : index + 1] != [line] or index == len(drawn) - 1:
                text += line + ERASE_LINE
        text += ERASE_BELOW if len(self._painted) > len(drawn) else ""
        self._painted, self._widths, self._size = drawn, [display_width(plain_text(line)) for line in lines], size
        self._write(BEGIN + text + END)

    def show_text(self, text: str) -> None:
        """Print permanent lines; the next `paint` draws the frame below them."""
        self._write(self._erase() + WRAP + text.replace("\n", "\r\n") + "\r\n")

    def close(self) -> None:
        """Remove the frame, and show the cursor."""
        self._write(self._erase() + WRAP + SHOW_CURSOR)

    def _move_to_top(self) -> str:
        lines_up = len(self._painted) - 1
        return "\r" + (f"{CSI}{lines_up}A" if lines_up > 0 else "")

    def _erase(self) -> str:
        """Move to the top of the frame, and erase everything below. After a resize the terminal may have wrapped long
        lines."""
        columns, lines = self.size()
        rows = sum(max(-(-line_width // columns), 1) for line_width in self._widths)
        lines_up = min(rows, lines) - 1
        self._painted, self._widths = [], []
        return "\r" + (f"{CSI}{lines_up}A" if lines_up > 0 else "") + ERASE_BELOW

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def restore_terminal(stream: TextIO) -> None:
    """Reset the terminal when the process is killed. Safe in signal handlers, since it takes no lock."""
    try:
        os.write(stream.fileno(), f"{WRAP}{SHOW_CURSOR}\r\n".encode())
    except (OSError, ValueError):
        return
