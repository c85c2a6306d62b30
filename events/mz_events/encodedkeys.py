"""Finds keys of well-known services in base64, as printed by `kubectl get secret`.

The prefix of a key has a fixed encoding at each of the three base64 alignments. Where such an encoding occurs, the text
around it is decoded and matched.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import NamedTuple

from mz_events.keyshapes import KEY_PATTERNS, KeyPattern

KEY_PREFIXES = {
    "anthropic-key": (b"sk-ant-",),
    "openai-key": (b"sk-proj-", b"sk-svcacct-", b"sk-admin-"),
    "github-token": (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
    "gitlab-token": (b"glpat-",),
    "google-key": (b"AIza",),
    "slack-token": (b"xoxb-", b"xoxp-", b"xoxa-", b"xoxs-"),
}
"""Key prefixes by pattern name; shorter prefixes occur everywhere in base64."""
DECODED_BYTES_MAX = 4096
"""Number of base64 characters to decode; keys are shorter."""
ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


class Base64Key(NamedTuple):
    """Base64 encoding of a key prefix at one alignment."""

    needle: bytes
    """The characters determined by the key prefix alone."""
    group_offset: int
    """Number of base64 characters before `needle` in its group of four."""
    regexes: tuple[re.Pattern[bytes], ...]
    key_pattern: KeyPattern


def _base64_keys() -> Iterator[Base64Key]:
    for name, prefixes in KEY_PREFIXES.items():
        key_patterns = [key_pattern for key_pattern in KEY_PATTERNS if key_pattern.name == name]
        for prefix in prefixes:
            for alignment in range(3):
                first, last = -(-alignment * 8 // 6), (alignment + len(prefix)) * 8 // 6
                needle = b64encode(bytes(alignment) + prefix)[first:last]
                yield Base64Key(needle, first, tuple(re.compile(key_pattern.regex) for key_pattern in key_patterns), key_patterns[0])


BASE64_KEYS = tuple(_base64_keys())


def encoded_keys(data: bytes) -> Iterator[tuple[int, int, KeyPattern]]:
    """Yield start and end (byte offsets) and pattern of each base64-encoded key."""
    for encoded_key in BASE64_KEYS:
        offset = data.find(encoded_key.needle)
        while offset >= 0:
            span = _encoded_span(data, offset - encoded_key.group_offset, encoded_key)
            if span is not None:
                yield (*span, encoded_key.key_pattern)
            offset = data.find(encoded_key.needle, offset + 1)


def _encoded_span(data: bytes, group_start: int, encoded_key: Base64Key) -> tuple[int, int] | None:
    """Return the span of the key that begins in this group of four; None if there is none."""
    end = max(group_start, 0)
    while end < len(data) and end - group_start < DECODED_BYTES_MAX and data[end] in ALPHABET:
        end += 1
    if group_start < 0 or end - group_start < len(encoded_key.needle):
        return None
    complete_groups = data[group_start : group_start + (end - group_start) // 4 * 4].replace(b"-", b"+").replace(b"_", b"/")
    decoded = b64decode(complete_groups + _padded_group(data[group_start + len(complete_groups) : end]))
    for pattern in encoded_key.regexes:
        match = pattern.search(decoded, 0)
        if match is not None and match.start() <= 2:
            return group_start + match.start() * 8 // 6, min(end, group_start + -(-match.end() * 8 // 6))
    return None


def _padded_group(characters: bytes) -> bytes:
    """Pad the last group; empty if it is a single character, which encodes nothing."""
    standard_characters = characters.replace(b"-", b"+").replace(b"_", b"/")
    return standard_characters + b"=" * (-len(standard_characters) % 4) if len(standard_characters) > 1 else b""
