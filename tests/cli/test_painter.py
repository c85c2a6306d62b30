"""Pictures on a terminal: what stands on its screen, told by an emulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

import pytest
from mz_cli.live.progress import END, Painter
from mz_cli.terminal.text import Line, Span, styled_line

from tests.support.terminal import Terminal


class Easel:
    """A terminal and its painter."""

    def __init__(self, columns: int, lines: int) -> None:
        self.terminal = Terminal(columns, lines)
        self.stream: TextIO = self.terminal.open()
        self.painter = Painter(self.stream)
        self.pictures = 0

    def paint(self, *texts: str) -> list[str]:
        """What stands on the screen once that is painted."""
        self.painter.paint([styled_line(text) for text in texts])
        self.pictures += 1
        return self.terminal.until(lambda _: self.received().count(END.encode()) == self.pictures)

    def received(self) -> bytes:
        return b"".join(data for _, data in self.terminal.received)


@pytest.fixture
def easel() -> Iterator[Easel]:
    made = Easel(20, 6)
    yield made
    made.stream.close()
    made.terminal.close()


def test_a_picture_takes_the_place_of_the_one_before(easel: Easel) -> None:
    easel.stream.write("before\r\n")
    assert easel.paint("a", "b", "c") == ["before", "a", "b", "c"]
    assert easel.paint("a", "x") == ["before", "a", "x"]
    assert easel.paint("1", "2", "3", "4") == ["before", "1", "2", "3", "4"]


def test_only_lines_that_changed_are_written(easel: Easel) -> None:
    easel.paint("a stays", "b", "end")
    before = len(easel.terminal.received)
    assert easel.paint("a stays", "c", "end") == ["a stays", "c", "end"]
    later = b"".join(data for _, data in easel.terminal.received[before:])
    assert b"stays" not in later
    assert b"c" in later


def test_a_picture_as_high_as_the_screen(easel: Easel) -> None:
    easel.stream.write("before\r\n")
    full = [str(number) for number in range(6)]
    assert easel.paint(*full) == full
    assert easel.paint(*reversed(full)) == full[::-1]


def test_words_stay_above_the_picture(easel: Easel) -> None:
    easel.paint("a", "b")
    easel.painter.show_text("said")
    assert easel.paint("a", "b") == ["said", "a", "b"]
    easel.painter.show_text("more\nand more")
    assert easel.paint("c") == ["said", "more", "and more", "c"]


def test_the_end_leaves_nothing(easel: Easel) -> None:
    easel.stream.write("before\r\n")
    easel.paint("a", "b", "c")
    easel.painter.close()
    easel.stream.write("after\r\n")
    easel.stream.flush()
    assert easel.terminal.until(lambda shown: "after" in shown) == ["before", "after"]
    assert not easel.terminal.screen.cursor.hidden


def test_a_picture_after_a_resize(easel: Easel) -> None:
    easel.paint("aaaaaaaaaaaaaaaaaaa", "b", "c")
    before = len(easel.terminal.received)
    easel.terminal.resize(10, 5)
    assert easel.paint("aaaaaaaaa…", "b")[-2:] == ["aaaaaaaaa…", "b"]
    assert "c" not in easel.terminal.text()
    later = b"".join(data for _, data in easel.terminal.received[before:])
    assert b"\x1b[3A" in later, "the first line may take two rows now"
    assert b"aaaaaaaaa" in later
    easel.terminal.resize(40, 10)
    easel.paint("wide again", "b")
    assert [line for line in easel.terminal.text() if line.startswith("wide")] == ["wide again"]


def test_what_is_wider_than_thought_breaks_nothing(easel: Easel) -> None:
    easel.painter.paint([styled_line("x" * 50), styled_line("end")])
    easel.terminal.until(lambda shown: shown[-1:] == ["end"])
    assert len(easel.terminal.text()) == 2


def test_keys_that_are_echoed_do_not_stay(easel: Easel) -> None:
    easel.paint("a", "end")
    easel.stream.write("^C")
    easel.stream.flush()
    easel.terminal.until(lambda shown: shown[-1:] == ["end^C"])
    assert easel.paint("a", "end") == ["a", "end"]


def test_looks(easel: Easel) -> None:
    line: Line = (Span("good", "green"), Span(" plain "), Span("bad", "bold red"))
    easel.painter.paint([line])
    easel.terminal.until(lambda shown: shown == ["good plain bad"])
    cells = easel.terminal.screen.buffer[0]
    assert [(cells[at].fg, cells[at].bold) for at in (0, 5, 11)] == [
        ("green", False), ("default", False), ("red", True),
    ]  # fmt: skip
