"""Tables: columns or cards on a terminal, tabs in a pipe."""

from __future__ import annotations

import io
import os
import pty
import re
import struct
from fcntl import ioctl
from termios import TIOCSWINSZ

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.terminal.console import FORMAT_KEY
from mz_cli.terminal.table import Table, arrange, columns, print_table, spread

HOSTILE = "\x1b[31mred\x1b[0m\nsecond\tline \x1b]0;x\x07 🎉 [bold]no markup[/bold] :smile: "
TABLE = Table(columns=columns("feature", ">count"), rows=(("login", "3"), (HOSTILE, "12")), empty="Nothing.")


def drawn(table: Table, width: int) -> str:
    """What a terminal of that width receives."""
    mine, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    received = bytearray()
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        print_table(table, terminal)
        terminal.flush()
        os.set_blocking(mine, False)
        try:
            while chunk := os.read(mine, 65536):
                received += chunk
        except BlockingIOError:
            pass
    os.close(mine)
    return received.decode().replace("\r\n", "\n")


def test_a_pipe_gets_tabs() -> None:
    out = io.StringIO()
    print_table(TABLE, out)
    assert out.getvalue().splitlines() == [
        "feature\tcount", "login\t3", r"red\nsecond\tline  🎉 [bold]no markup[/bold] :smile: " + "\t12",
    ]  # fmt: skip


def test_nothing_is_cut_in_a_pipe() -> None:
    out = io.StringIO()
    print_table(Table(columns=columns("title"), rows=(("x" * 10_000,),), empty=""), out)
    assert "x" * 10_000 in out.getvalue()


def test_a_table_without_rows() -> None:
    empty = Table(columns=columns("a", "b"), rows=(), empty="Nothing.")
    out = io.StringIO()
    print_table(empty, out)
    assert out.getvalue() == "a\tb\n"
    assert drawn(empty, 80) == "Nothing.\n"


def test_a_terminal_gets_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    lines = [line.rstrip() for line in drawn(TABLE, 80).splitlines()]
    assert lines[0].split() == ["feature", "count"]
    assert lines[1].endswith(" 3")
    assert "red second line 🎉 [bold]no markup[/bold] :smile:" in lines[2]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", [1, 5, 10])
def test_a_narrow_terminal_gets_cards(width: int) -> None:
    shown = drawn(TABLE, width)
    assert "feature: login\ncount: 3\n" in shown.replace(":\n  ", ": ")
    assert "\x1b" not in shown


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_value_is_cut_or_broken(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    digest = "y" * 70
    shown = drawn(Table(columns=columns("~a", "b"), rows=(("word " * 300, digest),), empty=""), width)
    assert digest in shown
    assert shown.count("word") == 300
    assert max(map(len, shown.splitlines())) <= width or shown.startswith("a: ")


def test_columns_in_a_pipe_have_the_width_that_they_need() -> None:
    out = io.StringIO()
    with click.Context(click.Command("status")) as context:
        context.meta[FORMAT_KEY] = "table"
        print_table(Table(columns=columns("a", "b"), rows=(("x" * 200, "y"),), empty=""), out)
    assert out.getvalue().splitlines() == [f"a{' ' * 201}b", f"{'x' * 200}  y"]


def test_a_terminal_gets_tabs_on_request() -> None:
    with click.Context(click.Command("status")) as context:
        context.meta[FORMAT_KEY] = "tsv"
        assert drawn(TABLE, 40).splitlines()[:2] == ["feature\tcount", "login\t3"]


def test_a_wide_table_repeats_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    rows = (("r1", "worktree", "a" * 30, "b" * 30, "c" * 30), ("r1", "capture", "d" * 30, "e" * 30, "f" * 30))
    table = Table(columns=columns("*run", "*what", "one", "two", "three"), rows=rows, empty="")
    first, second = drawn(table, 80).split("\n\n")
    for part in (first, second):
        keys = [line.split()[:2] for line in part.splitlines()]
        assert keys == [["run", "what"], ["r1", "worktree"], ["r1", "capture"]]
    assert {"one", "two", "three"} <= set(f"{first} {second}".split())


def test_keys_give_way_where_there_is_no_room_for_them() -> None:
    """Rather than cards, a table with the first key alone."""
    assert arrange([10, 10, 10], [10, 10, 10], 40, [0, 1]) == [[0, 1, 2]]
    assert arrange([10, 10, 10], [10, 10, 10], 25, [0, 1]) == [[0, 1], [0, 2]]
    assert arrange([10, 10, 10], [10, 10, 10], 15, [0, 1]) == []


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 60)), min_size=1, max_size=8), st.integers(0, 300))
def test_widths_stay_between_least_and_wanted(pairs: list[tuple[int, int]], room: int) -> None:
    least = [pair[0] for pair in pairs]
    wanted = [max(pair) for pair in pairs]
    widths = spread(least, wanted, room)
    assert all(low <= width <= high for low, width, high in zip(least, widths, wanted, strict=True))
    assert sum(widths) <= max(room, sum(least))
    assert sum(widths) == min(max(room, sum(least)), sum(wanted))


VALUES = st.sampled_from((
    "165.3k in, 4,905 out", "2026-11-23 16:03:28Z", "not reported", "14.1 kB", "- rejected", "(main conversation)",
    "mz/run/month-filter", "12,345", "$0.0311",
))  # fmt: skip
LISTS = st.sampled_from(("-", "7 (techspec 2, code 3)", "12 delivered, 1 waiting"))
PROSE = st.sampled_from(("-", "a long text that people read and that wraps", "Filter by month"))


@given(
    st.lists(st.tuples(VALUES, VALUES, VALUES, LISTS, VALUES, PROSE), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(30, 120),
)
def test_only_prose_and_lists_wrap(rows: list[tuple[str, ...]], count: int, width: int) -> None:
    names = ("one", "two words", ">three", ",four", ">five", "~six")[:count]
    shown = drawn(Table(columns=columns(*names), rows=[row[:count] for row in rows], empty=""), width)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= width
    for name, *cells in zip(names, *rows, strict=False):
        unbroken = [part for cell in cells for part in (cell.split(", ") if "," in name else [cell])]
        for text in [word for part in unbroken for word in (part.split() if "~" in name else [part])]:
            assert text in plain


def test_many_rows_are_cards_rather_than_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    names = tuple(f"name{number}" for number in range(9))
    table = Table(columns=columns(*names), rows=[["v" * 20] * 9] * 26, empty="")
    assert drawn(table, 80).count("name8: " + "v" * 20) == 26
