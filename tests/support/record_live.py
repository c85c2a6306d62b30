"""Adapter: `python -m tests.support.record_live docs/live.svg` records `mz demo` on a terminal, for the README."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyte

from tests.support.film import INK, Cell, Frame, Row, film
from tests.support.terminal import Terminal

COLUMNS, LINES = 100, 26
PROMPT = "$ mz demo\r\n"
PAINTED = b"\x1b[?2026l"
"""What ends a picture."""
SECONDS_MIN, SECONDS_MAX, SECONDS_LAST = 0.3, 1.0, 5.0
READING = 0.6
"""Seconds that a picture stays at least: recorded agents are faster than people read."""
TITLE = "mz demo"
DESCRIPTION = (
    "A terminal. mz works on a backlog of three features: for each it shows the phases that are done, the one at work, "
    "the attempt, the last words of the agent, tokens and money; at the end, a table of what was delivered."
)
FAINT = 2
GREY = 90


class Screen(pyte.Screen):
    """Knows faint text, which the emulator leaves out: it shows it in grey."""

    def select_graphic_rendition(self, *attrs: int, **_: Any) -> None:
        super().select_graphic_rendition(*(GREY if attr == FAINT else attr for attr in attrs))


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        received = record(Path(home))
    shots = list(shown(received))
    frames = [
        Frame(rows, max(READING, min(later - at, SECONDS_MAX)))
        for (at, rows), (later, _) in zip(shots, [*shots[1:], (shots[-1][0] + SECONDS_LAST, ())], strict=True)
    ]
    frames[-1] = frames[-1]._replace(seconds=SECONDS_LAST)
    folder.write_text(film(frames, telling(frames), TITLE, DESCRIPTION), encoding="utf-8")


def telling(frames: Sequence[Frame]) -> int:
    """The frame that stands for all: where agents say most, and most is done."""

    def marks(frame: Frame, mark: str) -> int:
        return sum(cell.text == mark for row in frame.rows for cell in row)

    return max(range(len(frames)), key=lambda index: (marks(frames[index], "»"), marks(frames[index], "✓")))


def record(home: Path) -> Sequence[tuple[float, bytes]]:
    """What the demo writes to a terminal: seconds since the beginning, and bytes."""
    terminal = Terminal(COLUMNS, LINES)
    with terminal.open() as prompt:
        prompt.write(PROMPT)
    outside = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    programs = os.pathsep.join([str(Path(sys.executable).parent), outside["PATH"]])
    child = terminal.run(["mz", "demo"], home, {**outside, "PATH": programs})
    code = child.wait(300)
    terminal.close()
    if code:
        raise SystemExit(f"mz demo ended with {code}")
    return terminal.received


def shown(received: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, tuple[Row, ...]]]:
    """What stood on the screen, and since when: pictures that were there for a while, and the end."""
    screen = Screen(COLUMNS, LINES)
    emulator = pyte.ByteStream(screen)
    last, before = -SECONDS_MIN, tuple[Row, ...]()
    for at, data in received:
        emulator.feed(data)
        rows = rows_of(screen)
        if data.endswith(PAINTED) and at - last >= SECONDS_MIN and rows != before:
            yield at, rows
            last, before = at, rows
    yield received[-1][0], rows_of(screen)


def rows_of(screen: pyte.Screen) -> tuple[Row, ...]:
    return tuple(
        tuple(
            Cell(cell.data, cell.fg if cell.fg in INK else "default", cell.bold)
            for cell in (screen.buffer[line][column] for column in range(COLUMNS))
        )
        for line in range(LINES)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
