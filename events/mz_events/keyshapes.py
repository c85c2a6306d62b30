"""Patterns of the keys of well-known services. Each starts with the literal prefix that the service uses to make its
keys recognisable."""

from __future__ import annotations

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
    KeyPattern("openai-key", _at_word_start(b"sk-") + rb"(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,}|[A-Za-z0-9]{32,})"),
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
