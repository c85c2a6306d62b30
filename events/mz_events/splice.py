"""Replaces parts of a text by tokens so that JSON stays JSON of the same structure."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

TOKEN = b"<redacted>"
"""Contains no character of an escape or of JSON syntax."""

ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
ESCAPE_BYTES_MAX = 6
JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')

Span = tuple[int, int]
"""Start and end, offsets in bytes."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, overlapping ones joined."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def replaced(data: bytes, spans: Sequence[Span]) -> bytes:
    """Return the data with TOKEN in place of each span; `spans` are in order and do not overlap.

    Nothing of a span is kept except JSON syntax. A line of JSON still parses afterwards: strings stay strings, numbers
    become 0, and their count is the same. In other text, a span is extended over escape sequences that it would cut in
    half.
    """
    pieces, done, at = [], 0, 0
    while at < len(spans):
        begin = data.rfind(b"\n", 0, spans[at][0]) + 1
        group: list[Span] = []
        end = spans[at][0]
        while at < len(spans) and spans[at][0] <= end:
            group.append((spans[at][0] - begin, spans[at][1] - begin))
            newline = data.find(b"\n", spans[at][1])
            end = newline if newline >= 0 else len(data)
            at += 1
        line = data[begin:end]
        pieces += [data[done:begin], _in_json(line, group) if _is_json(line) else _in_text(line, group)]
        done = end
    return b"".join((*pieces, data[done:]))


def _is_json(line: bytes) -> bool:
    if line.lstrip()[:1] not in (b"{", b"[", b'"'):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _in_json(line: bytes, spans: Sequence[Span]) -> bytes:
    starts, ends = [start for start, _ in spans], [end for _, end in spans]

    def renewed(match: re.Match[bytes]) -> bytes:
        start, end = match.span()
        hits = spans[bisect_right(ends, start) : bisect_left(starts, end)]
        if not hits:
            return match[0]
        if match[0][:1] != b'"':
            return b"0.0" if re.search(rb"[.eE]", match[0]) else b"0"
        inner = [(max(low, start + 1) - start - 1, min(high, end - 1) - start - 1) for low, high in hits]
        return b'"' + _in_text(match[0][1:-1], [(low, high) for low, high in inner if low < high]) + b'"'

    return JSON_TOKEN.sub(renewed, line)


def _in_text(text: bytes, spans: Sequence[Span]) -> bytes:
    pieces, done = [], 0
    for start, end in merged((_escape_at(text, start)[0], _escape_at(text, end)[1]) for start, end in spans):
        pieces += [text[done:start], TOKEN]
        done = end
    return b"".join((*pieces, text[done:]))


def _escape_at(text: bytes, place: int) -> Span:
    """Return the escape sequence that contains `offset`; an empty span there if there is none."""
    for slash in range(place - 1, max(-1, place - ESCAPE_BYTES_MAX), -1):
        if text[slash] == 0x5C:
            run = slash
            while run and text[run - 1] == 0x5C:
                run -= 1
            match = ESCAPE.match(text, run + (slash - run) // 2 * 2)
            if match and match.start() < place < match.end():
                return match.span()
    return place, place
