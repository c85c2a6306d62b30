"""Pictures in a real tmux, which keeps the rules of xterm that the emulator of the other tests does not have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

COLUMNS, LINES = 30, 8
PROGRAM = """
import sys, time
from mz_cli.live.progress import Painter
from mz_cli.terminal.text import styled_line

painter = Painter(sys.stderr)
for text in {pictures!r}:
    painter.paint([styled_line(line) for line in text])
    time.sleep(0.05)
time.sleep(60)
"""


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """Paints pictures one after the other; returns the lines on the screen once the last one stands there."""
    program = shutil.which("tmux")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("CI has to have tmux")
        pytest.skip("needs tmux")
    server = [program, "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    environment = {**os.environ, "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(sys.path)}

    def tell(*arguments: str) -> str:
        return subprocess.run(
            [*server, *arguments], env=environment, check=True, capture_output=True, encoding="utf-8"
        ).stdout

    def paint(*pictures: tuple[str, ...]) -> list[str]:
        script = tmp_path / "painter.py"
        script.write_text(PROGRAM.format(pictures=pictures))
        tell("-u", "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), f"{sys.executable} {script}")
        deadline, shown = time.monotonic() + 20, list[str]()
        while pictures[-1][-1] not in shown and time.monotonic() < deadline:
            time.sleep(0.05)
            shown = tell("capture-pane", "-p").rstrip("\n").split("\n")
        return shown

    yield paint
    tell("kill-server")


@pytest.mark.slow
def test_lines_as_wide_as_the_terminal_keep_their_last_cell(tmux: Callable[..., list[str]]) -> None:
    first, second = "a" * (COLUMNS - 1) + "|", "b" * (COLUMNS - 1) + "!"
    assert tmux((first, first, "begin"), (first, second, "end")) == [first, second, "end"]


@pytest.mark.slow
def test_a_picture_as_large_as_the_terminal_keeps_its_last_cells(tmux: Callable[..., list[str]]) -> None:
    pictures = [tuple(f"{letter}{number}".ljust(COLUMNS - 1, ".") + "|" for number in range(LINES)) for letter in "ab"]
    assert tmux(*pictures) == list(pictures[-1])
