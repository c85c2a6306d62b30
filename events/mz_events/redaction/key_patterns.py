"""Patterns of the keys of well-known services, also in base64, as printed by `kubectl get secret`.

Each starts with the literal prefix that the service uses to make its keys recognisable. The prefix has a
fixed encoding at each of the three base64 alignments; where such an encoding occurs, the text around it is decoded and
matched.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import NamedTuple

import msgspec


class KeyPattern(msgspec.Struct, frozen=True):
    """A pattern for one kind of key."""

    name: str
    regex: bytes
    """Regular expression over bytes, without a line break. It begins with a literal, which makes the search fast."""
    certain: bool = True
    """False: matches are often no secrets; they are redacted from output, but do not stop a call."""


def _at_word_start(prefix: bytes) -> bytes:
    """Match the prefix where no letter or digit precedes it, except as part of a JSON escape."""
    return prefix + rb"(?:(?<![A-Za-z0-9]%b)|(?<=\\[nrtbf]%b))" % (prefix, prefix)


KEY_PATTERNS: tuple[KeyPattern, ...] = (
    KeyPattern("anthropic-key", rb"sk-ant-[a-z]{2,8}\d{2}-[A-Za-z0-9_-]{20,}"),
    KeyPattern(
        "openai-key", _at_word_start(b"sk-") + rb"(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,}|[A-Za-z0-9]{32,})"
    ),
    KeyPattern("github-token", rb"gh[pousr]_[A-Za-z0-9]{36,}"),
    KeyPattern("github-token", rb"github_pat_[A-Za-z0-9_]{36,}"),
    KeyPattern("gitlab-token", rb"glpat-[A-Za-z0-9_-]{20,}"),
    KeyPattern("aws-key-id", _at_word_start(b"AKIA") + rb"(?!IOSFODNN7EXAMPLE)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    KeyPattern("aws-key-id", _at_word_start(b"ASIA") + rb"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    KeyPattern("google-key", rb"AIza[A-Za-z0-9_-]{35}"),
    KeyPattern("slack-token", rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    KeyPattern("jwt", rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", certain=False),
)

BLOCK_NAME = "private-key"
BLOCK_BEGIN = b"-----BEGIN "
BLOCK_END = b"-----END "
_BREAK = rb"(?:\r?\n|\\+r\\+n|\\+[nr])"
_MARGIN = rb"(?:[ \t]*\d{1,6}(?:\xe2\x86\x92|\\+u2192|\\+t|[:|\t-]))?[ \t+>|-]*?"
"""Line numbers and diff marks that tools print before each line."""
_ENDS = rb"(?=" + _BREAK + rb"|[\"'\\]|\Z)"
_HEADER = rb"[A-Za-z][A-Za-z-]*:[^\"\\\r\n]*"
_NOT_END = rb"(?!" + _MARGIN + BLOCK_END + rb")"
BLOCK = (
    BLOCK_BEGIN + rb"[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:"
    + _BREAK
    + _NOT_END
    + _MARGIN
    + rb"(?:(?:"
    + _HEADER
    + rb"|[A-Za-z0-9+/=]+[ \t]*)"
    + _ENDS
    + rb"|(?="
    + _BREAK
    + rb")))*"
    rb"(?:" + _BREAK + _MARGIN + BLOCK_END + rb"[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----)?"
)
"""A private key over several lines, with real or JSON-escaped line breaks; its end may be cut off."""
BLOCK_BODY = rb"[A-Za-z0-9+/]{32}"
"""Required content of a block; a block without it is only text about private keys."""
BLOCK_BYTES_MAX = 1 << 16
"""Maximum size of an unterminated block to wait for; the longest real keys have some 13,000 bytes."""


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
                yield Base64Key(
                    needle, first, tuple(re.compile(key_pattern.regex) for key_pattern in key_patterns), key_patterns[0]
                )


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
    characters = data[group_start:end].replace(b"-", b"+").replace(b"_", b"/")
    if len(characters) % 4 == 1:  # A single character encodes nothing.
        characters = characters[:-1]
    decoded = b64decode(characters + b"=" * (-len(characters) % 4))
    for pattern in encoded_key.regexes:
        match = pattern.search(decoded, 0)
        if match is not None and match.start() <= 2:
            return group_start + match.start() * 8 // 6, min(end, group_start + -(-match.end() * 8 // 6))
    return None
