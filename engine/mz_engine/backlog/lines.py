"""Lines of a Markdown text, classified as far as a backlog needs: text, code, comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*\Z)|~{3,})")
_FEATURE = re.compile(r" {0,3}##[ \t]+\[")
_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # control sequences
    "|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # operating system commands, such as window titles and links
    "|\x1b[@-Z\\\\-_]?"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"
)


class Kind(Enum):
    TEXT = "text"
    CODE = "code"
    """A fence or a line between two."""
    COMMENT = "comment"
    UNCLOSED = "unclosed"
    """Not a line: `text` names a block that begins at `number`, never ends, and contains features."""


class Line(NamedTuple):
    number: int
    """From 1."""
    kind: Kind
    text: str
    """Unchanged, without the line end."""


def classify(text: str) -> Iterator[Line]:
    """Yield all lines with their kinds; after the last one, at most one of kind UNCLOSED."""
    fence, began, comment, hidden = "", 0, False, False
    for number, line in enumerate(split_lines(text), 1):
        hidden = hidden or bool((fence or comment) and _FEATURE.match(line))
        mark = _FENCE.match(line)
        if comment:
            comment, hidden = "-->" not in line, hidden and "-->" not in line
            yield Line(number, Kind.COMMENT, line)
        elif fence:
            closes = mark and mark[1].startswith(fence) and not line[mark.end() :].strip()
            fence, hidden = ("", False) if closes else (fence, hidden)
            yield Line(number, Kind.CODE, line)
        elif mark:
            fence, began = mark[1], number
            yield Line(number, Kind.CODE, line)
        elif line.lstrip(" \t").startswith("<!--"):
            comment, began = "-->" not in line, number
            yield Line(number, Kind.COMMENT, line)
        else:
            yield Line(number, Kind.TEXT, line)
    if hidden:
        yield Line(began, Kind.UNCLOSED, "code fence" if fence else "comment")


def split_lines(text: str) -> list[str]:
    """Split lines as editors do: only CR LF, LF and CR end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def without_controls(text: str) -> str:
    """Remove terminal escapes and control characters, line ends included; tabs stay."""
    return _ESCAPES.sub("", text).replace("\n", "") if not text.isprintable() else text
