"""Private keys, which are blocks over several lines, with real or escaped line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator

BLOCK_NAME = "private-key"
BLOCK_BEGIN = b"-----BEGIN "
BLOCK_END = b"-----END "
_BREAK = rb"(?:\r?\n|\\+r\\+n|\\+[nr])"
_MARGIN = rb"(?:[ \t]*\d{1,6}(?:\xe2\x86\x92|\\+u2192|\\+t|[:|\t-]))?[ \t+>|-]*?"
"""Line numbers and diff marks that tools print before each line."""
_ENDS = rb"(?=" + _BREAK + rb"|[\"'\\]|\Z)"
_HEADER = rb"[A-Za-z][A-Za-z-]*:[^\"\\\r\n]*"
_NOT_END = rb"(?!" + _MARGIN + BLOCK_END + rb")"
_KIND = rb"[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_LINE = rb"(?:%b|[A-Za-z0-9+/=]+[ \t]*)%b" % (_HEADER, _ENDS)
_LINES = rb"(?:%b%b%b(?:%b|(?=%b)))*" % (_BREAK, _NOT_END, _MARGIN, _LINE, _BREAK)
BLOCK = BLOCK_BEGIN + _KIND + _LINES + rb"(?:%b%b%b%b)?" % (_BREAK, _MARGIN, BLOCK_END, _KIND)
"""A private key over several lines, with real or JSON-escaped line breaks; its end may be cut off."""
BLOCK_REGEX = re.compile(BLOCK)
BLOCK_BODY = re.compile(rb"[A-Za-z0-9+/]{32}")
"""Required content of a block; a block without it is only text about private keys."""
BLOCK_BYTES_MAX = 1 << 16
"""Maximum size of an unterminated block to wait for; the longest real keys have some 13,000 bytes."""


def find_private_keys(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each private key."""
    if BLOCK_BEGIN in data:
        for match in BLOCK_REGEX.finditer(data):
            if BLOCK_BODY.search(match[0]):
                yield match.span()


def unfinished_private_key(lines: bytes) -> int | None:
    """Return where a private key begins that may continue in later lines; None if there is none."""
    start = lines.rfind(BLOCK_BEGIN, max(0, len(lines) - BLOCK_BYTES_MAX))
    match = BLOCK_REGEX.match(lines, start) if start >= 0 else None
    return start if match and BLOCK_END not in match[0] and not lines[match.end() :].strip(b"\r\n") else None
