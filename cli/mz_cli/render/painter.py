"""Adapter: paints pictures one over the other at the bottom of a terminal, without flicker.

Only lines that changed are written, all at once, with the terminal's automatic wrapping off: a character that is wider
than we think cannot break the picture. What was on the screen before stays above it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from mz_cli.render.cells import width
from mz_cli.render.styled import Line, escaped, plain

CSI = "\x1b["
BEGIN, END = f"{CSI}?2026h{CSI}?25l{CSI}?7l", f"{CSI}?7h{CSI}?2026l"
"""Hold the screen until all is there, where the terminal can; hide the cursor; do not wrap."""
SHOW_CURSOR, WRAP = f"{CSI}?25h", f"{CSI}?7h"
ERASE_LINE, ERASE_BELOW = f"{CSI}K", f"{CSI}J"
SIZE = 80, 24
"""Where the terminal does not say."""


class Painter:
    """Not for several threads at once. Raises OSError and ValueError where the terminal is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._painted: list[str] = []
        self._widths: list[int] = []
        self._size = (0, 0)

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return SIZE
        return columns or SIZE[0], lines or SIZE[1]

    def paint(self, lines: Sequence[Line]) -> None:
        """The picture, in place of the one before. Its lines fit the size."""
        size = self.size()
        text = self._erased() if size != self._size and self._painted else self._to_top()
        drawn = [escaped(line) for line in lines]
        for place, line in enumerate(drawn):
            text += "\r\n" if place else ""
            # Keys that somebody presses are echoed behind the last line.
            if self._painted[place : place + 1] != [line] or place == len(drawn) - 1:
                text += line + ERASE_LINE
        text += ERASE_BELOW if len(self._painted) > len(drawn) else ""
        self._painted, self._widths, self._size = drawn, [width(plain(line)) for line in lines], size
        self._write(BEGIN + text + END)

    def say(self, text: str) -> None:
        """Lines that stay, above the picture; the next `paint` draws it below them."""
        self._write(self._erased() + WRAP + text.replace("\n", "\r\n") + "\r\n")

    def close(self) -> None:
        """The picture goes, the cursor comes back."""
        self._write(self._erased() + WRAP + SHOW_CURSOR)

    def _to_top(self) -> str:
        above = len(self._painted) - 1
        return "\r" + (f"{CSI}{above}A" if above > 0 else "")

    def _erased(self) -> str:
        """To the top of the picture, and everything below it gone. After a resize the terminal may have wrapped lines
        that became too long."""
        columns, lines = self.size()
        rows = sum(max(-(-each // columns), 1) for each in self._widths)
        above = min(rows, lines) - 1
        self._painted, self._widths = [], []
        return "\r" + (f"{CSI}{above}A" if above > 0 else "") + ERASE_BELOW

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def restore(stream: TextIO) -> None:
    """What must not stay when the process ends in the middle: for signal handlers, so it takes no lock."""
    try:
        os.write(stream.fileno(), f"{WRAP}{SHOW_CURSOR}\r\n".encode())
    except (OSError, ValueError):
        return
