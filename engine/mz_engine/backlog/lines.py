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


class LineKind(Enum):
    TEXT = "text"
    CODE = "code"
    """A fence or a line between two."""
    COMMENT = "comment"
    UNCLOSED = "unclosed"
    """Not a line: `text` names a block that begins at `number`, never ends, and contains features."""


class Line(NamedTuple):
    number: int
    """From 1."""
    kind: LineKind
    text: str
    """Unchanged, without the line end."""


def classify_lines(text: str) -> Iterator[Line]:
    """Yield all lines with their kinds; after the last one, at most one of kind UNCLOSED."""
    fence, block_start, in_comment, hides_features = "", 0, False, False
    for number, line in enumerate(split_lines(text), 1):
        hides_features = hides_features or bool((fence or in_comment) and _FEATURE.match(line))
        fence_match = _FENCE.match(line)
        if in_comment:
            in_comment, hides_features = "-->" not in line, hides_features and "-->" not in line
            yield Line(number, LineKind.COMMENT, line)
        elif fence:
            closes = fence_match and fence_match[1].startswith(fence) and not line[fence_match.end() :].strip()
            fence, hides_features = ("", False) if closes else (fence, hides_features)
            yield Line(number, LineKind.CODE, line)
        elif fence_match:
            fence, block_start = fence_match[1], number
            yield Line(number, LineKind.CODE, line)
        elif line.lstrip(" \t").startswith("<!--"):
            in_comment, block_start = "-->" not in line, number
            yield Line(number, LineKind.COMMENT, line)
        else:
            yield Line(number, LineKind.TEXT, line)
    if hides_features:
        yield Line(block_start, LineKind.UNCLOSED, "code fence" if fence else "comment")


def split_lines(text: str) -> list[str]:
    """Split lines as editors do: only CR LF, LF and CR end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def strip_controls(text: str) -> str:
    """Remove terminal escapes and control characters, line ends included; tabs stay."""
    return _ESCAPES.sub("", text).replace("\n", "") if not text.isprintable() else text
