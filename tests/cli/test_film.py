"""The recording of the live view that the pages show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tests.support.film import Cell, Frame, Row, film
from tests.support.tree import ROOT

BYTES_MAX = 150_000
SVG = "{http://www.w3.org/2000/svg}"


def row(text: str, ink: str = "default", bold: bool = False) -> Row:
    return tuple(Cell(character, ink, bold) for character in text)


def drawn(*frames: Frame) -> ElementTree.Element:
    return ElementTree.fromstring(film(frames, still=0, title="a <b> & c", description="d"))


def test_what_stands_on_the_screen_stands_in_the_picture() -> None:
    root = drawn(
        Frame((row("✓ done  ──", "green"), row("          ")), 1), Frame((row("<&>       "), row("x" * 10)), 2)
    )
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts == ["a <b> & c", "✓", "done", "<&>", "xxxxxxxxxx"]
    assert len(list(root.iter(f"{SVG}use"))) == 3, "rows without a mark take no place"
    (title,) = root.iter(f"{SVG}title")
    assert title.text == "a <b> & c"


def test_rules_are_drawn_and_marks_stand_alone() -> None:
    root = drawn(Frame((row("━━──ab✓✓"),), 1))
    rules = [element for element in root.iter(f"{SVG}rect") if "class" in element.attrib]
    assert [(rule.get("x"), rule.get("width")) for rule in rules] == [("0", "16.8"), ("16.8", "16.8")]
    assert [item.get("x") for item in root.iter(f"{SVG}text")][1:] == ["33.6", "50.4", "58.8"]


def test_frames_follow_each_other() -> None:
    text = film([Frame((row("a"),), 1), Frame((row("b"),), 3)], still=1, title="t", description="d")
    assert "0%{transform:translateY(0px)}25%{transform:translateY(-18px)}" in text
    assert "animation:film 4s step-end infinite" in text
    assert "prefers-reduced-motion" in text


def test_the_recording_is_whole_and_light() -> None:
    """Made by `python -m tests.support.record_live docs/live.svg`."""
    data = (ROOT / "docs" / "live.svg").read_bytes()
    assert len(data) < BYTES_MAX
    shown = " ".join(element.text or "" for element in ElementTree.fromstring(data).iter(f"{SVG}text"))
    for args in ("$ mz demo", "month-filter", "attempt 1", "Ctrl-C", "delivered", "mz show"):
        assert args in shown, args
    places = set(re.findall(r"(?<![\w.>])/(\w+)/", shown))
    assert places <= {"tmp"}, "it names no place on the machine where it was made"
