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


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, overlapping ones joined."""
    merged_spans: list[Span] = []
    for start, end in sorted(spans):
        if merged_spans and start < merged_spans[-1][1]:
            merged_spans[-1] = merged_spans[-1][0], max(end, merged_spans[-1][1])
        else:
            merged_spans.append((start, end))
    return merged_spans


def redact_spans(data: bytes, spans: Sequence[Span]) -> bytes:
    """Return the data with TOKEN in place of each span; `spans` are in order and do not overlap.

    Nothing of a span is kept except JSON syntax. A line of JSON still parses afterwards: strings stay strings, numbers
    become 0, and their count is the same. In other text, a span is extended over escape sequences that it would cut in
    half.
    """
    pieces, copied_end, index = [], 0, 0
    while index < len(spans):
        line_start = data.rfind(b"\n", 0, spans[index][0]) + 1
        group: list[Span] = []
        line_end = spans[index][0]
        while index < len(spans) and spans[index][0] <= line_end:
            group.append((spans[index][0] - line_start, spans[index][1] - line_start))
            newline = data.find(b"\n", spans[index][1])
            line_end = newline if newline >= 0 else len(data)
            index += 1
        line = data[line_start:line_end]
        pieces += [data[copied_end:line_start], _in_json(line, group) if _is_json(line) else _redact_text(line, group)]
        copied_end = line_end
    return b"".join((*pieces, data[copied_end:]))


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
        return b'"' + _redact_text(match[0][1:-1], [(low, high) for low, high in inner if low < high]) + b'"'

    return JSON_TOKEN.sub(renewed, line)


def _redact_text(text: bytes, spans: Sequence[Span]) -> bytes:
    pieces, copied_end = [], 0
    for start, end in merge_spans((_escape_at(text, start)[0], _escape_at(text, end)[1]) for start, end in spans):
        pieces += [text[copied_end:start], TOKEN]
        copied_end = end
    return b"".join((*pieces, text[copied_end:]))


def _escape_at(text: bytes, offset: int) -> Span:
    """Return the escape sequence that contains `offset`; an empty span there if there is none."""
    for slash in range(offset - 1, max(-1, offset - ESCAPE_BYTES_MAX), -1):
        if text[slash] == 0x5C:
            run_start = slash
            while run_start and text[run_start - 1] == 0x5C:
                run_start -= 1
            match = ESCAPE.match(text, run_start + (slash - run_start) // 2 * 2)
            if match and match.start() < offset < match.end():
                return match.span()
    return offset, offset
