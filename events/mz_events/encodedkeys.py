"""Finds keys of well-known services in base64, as printed by `kubectl get secret`.

The prefix of a key has a fixed encoding at each of the three base64 alignments. Where such an encoding occurs, the text
around it is decoded and matched.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import NamedTuple

from mz_events.keyshapes import SHAPES, Shape

BEGINNINGS = {
    "anthropic-key": (b"sk-ant-",),
    "openai-key": (b"sk-proj-", b"sk-svcacct-", b"sk-admin-"),
    "github-token": (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
    "gitlab-token": (b"glpat-",),
    "google-key": (b"AIza",),
    "slack-token": (b"xoxb-", b"xoxp-", b"xoxa-", b"xoxs-"),
}
"""Key prefixes by pattern name; shorter prefixes occur everywhere in base64."""
WORD_BYTES_MAX = 4096
"""Number of base64 characters to decode; keys are shorter."""
ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


class Mark(NamedTuple):
    """Base64 encoding of a key prefix at one alignment."""

    needle: bytes
    """The characters determined by the key prefix alone."""
    ahead: int
    """Number of base64 characters before `needle` in its group of four."""
    patterns: tuple[re.Pattern[bytes], ...]
    shape: Shape


def _marks() -> Iterator[Mark]:
    for name, beginnings in BEGINNINGS.items():
        shapes = [shape for shape in SHAPES if shape.name == name]
        for beginning in beginnings:
            for before in range(3):
                first, last = -(-before * 8 // 6), (before + len(beginning)) * 8 // 6
                needle = b64encode(bytes(before) + beginning)[first:last]
                yield Mark(needle, first, tuple(re.compile(shape.pattern) for shape in shapes), shapes[0])


MARKS = tuple(_marks())


def encoded_keys(data: bytes) -> Iterator[tuple[int, int, Shape]]:
    """Yield start and end (byte offsets) and pattern of each base64-encoded key."""
    for mark in MARKS:
        at = data.find(mark.needle)
        while at >= 0:
            found = _around(data, at - mark.ahead, mark)
            if found is not None:
                yield (*found, mark.shape)
            at = data.find(mark.needle, at + 1)


def _around(data: bytes, group: int, mark: Mark) -> tuple[int, int] | None:
    """Return the span of the key that begins in this group of four; None if there is none."""
    end = max(group, 0)
    while end < len(data) and end - group < WORD_BYTES_MAX and data[end] in ALPHABET:
        end += 1
    if group < 0 or end - group < len(mark.needle):
        return None
    word = data[group : group + (end - group) // 4 * 4].replace(b"-", b"+").replace(b"_", b"/")
    inside = b64decode(word + _rest(data[group + len(word) : end]))
    for pattern in mark.patterns:
        key = pattern.search(inside, 0)
        if key is not None and key.start() <= 2:
            return group + key.start() * 8 // 6, min(end, group + -(-key.end() * 8 // 6))
    return None


def _rest(rest: bytes) -> bytes:
    """Pad the last group; empty if it is a single character, which encodes nothing."""
    plain = rest.replace(b"-", b"+").replace(b"_", b"/")
    return plain + b"=" * (-len(plain) % 4) if len(plain) > 1 else b""
