"""Words and numbers: whatever an agent wrote, nothing acts on a terminal, and unknown is never zero."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.terminal.text import (
    count_noun,
    exact_usd,
    format_count,
    format_elapsed,
    iso_time,
    parse_usd,
    rounded_usd,
    shorten,
    single_line,
    strip_escapes,
)

ANYTHING = st.text(alphabet=st.characters(exclude_categories=())) | st.text(alphabet="\x1b\x9b[]0;31mK\x07\\\n\r\tab")


@given(ANYTHING)
def test_nothing_that_acts_on_a_terminal_is_left(text: str) -> None:
    shown = strip_escapes(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in shown if c not in "\n\t")
    shown.encode()
    assert strip_escapes(shown) == shown


@given(ANYTHING)
def test_one_line_is_one_line(text: str) -> None:
    assert len(single_line(text).splitlines()) <= 1
    assert "\t" not in single_line(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, Grüße 🎉", "plain text, Grüße 🎉"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;https://x.invalid\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGVsbG8=\x07", ""),
        ("\x1b]never closed\nnext line", "\nnext line"),
        ("\x1bP1$r\x1b\\x", "x"),
        ("\x9b31mred", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("a\rb\r\nc", "a\nb\nc"),
        ("b\b\0ell\x07", "bell"),
        ("abc\u202edef", "abcdef"),
        ("\ud800", "\ufffd"),
        ("\x1b", ""),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert strip_escapes(text) == shown


@pytest.mark.parametrize(
    ("nanousd", "exact", "shown"),
    [
        (None, None, None),
        (0, "0.00", "$0.0000"),
        (1, "0.000000001", "<$0.0001"),
        (99_999, "0.000099999", "<$0.0001"),
        (100_000, "0.0001", "$0.0001"),
        (12_345_000, "0.012345", "$0.0123"),
        (1_500_000_000, "1.50", "$1.5000"),
        (20_000_000_000, "20.00", "$20.0000"),
        (1_234_567_891_234_567_891, "1234567891.234567891", "$1234567891.2346"),
    ],
)
def test_money(nanousd: int | None, exact: str | None, shown: str | None) -> None:
    assert exact_usd(nanousd) == exact
    assert rounded_usd(nanousd) == shown


@given(st.integers(min_value=0, max_value=10**24))
def test_money_is_exact(nanousd: int) -> None:
    text, decimals = (exact_usd(nanousd) or "").split(".")
    assert int(text) * 10**9 + int(decimals.ljust(9, "0")) == nanousd
    assert parse_usd(f"{text}.{decimals}") == nanousd


def test_one_is_singular() -> None:
    actual = [count_noun(number, "file") for number in (0, 1, 2, 12_345)]
    assert actual == ["0 files", "1 file", "2 files", "12,345 files"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (-5, "0s"), (59.9, "59s"), (60, "1m 00s"), (192, "3m 12s"), (3600, "1h 00m"), (7500, "2h 05m"),
     (86400 * 4 + 3 * 3600, "4d 03h")],
)  # fmt: skip
def test_duration(seconds: float, shown: str) -> None:
    assert format_elapsed(seconds) == shown


def test_counts_and_times() -> None:
    assert (format_count(None), format_count(0), format_count(1234567)) == ("-", "0", "1,234,567")
    assert iso_time(None) is None
    assert iso_time(1_772_366_400_000_001) == "2026-03-01T12:00:00.000001Z"


@given(ANYTHING, st.integers(min_value=1, max_value=50))
def test_shortened_text_fits(text: str, room: int) -> None:
    short = shorten(text, room)
    assert len(short) <= room
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
