"""Detection of secrets and personal data in bytes.

A result names the kind and position of a leak, never the value.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from mz_events.redact import Secrets

CANDIDATE = re.compile(rb"[A-Za-z0-9+/_-]{32,}={0,2}")
"""Candidates for base64 or for a key of unknown format."""
PERCENT = re.compile(rb"(?:[A-Za-z0-9._~+-]*%[0-9A-Fa-f]{2})+[A-Za-z0-9._~+-]*")
JSON_ESCAPED = re.compile(rb"(?:[A-Za-z0-9._~+/-]*\\u00[0-7][0-9A-Fa-f])+[A-Za-z0-9._~+/-]*")
_USER = rb"([A-Za-z0-9_][A-Za-z0-9_.]*)"
HOMES = tuple(
    (mark, re.compile(pattern + _USER))
    for mark, pattern in (
        (b"/home/", rb"/home/"),
        (b"/Users/", rb"/Users/"),
        (b"\\/home", rb"\\/home\\/"),
        (b"\\/Users", rb"\\/Users\\/"),
        (b"%2Fhome", rb"%2Fhome%2F"),
        (b"%2FUsers", rb"%2FUsers%2F"),
        (b":\\", rb":\\{1,4}Users\\{1,4}"),
        (b"/-home-", rb"/-home-"),
        (b"/-Users-", rb"/-Users-"),
    )
)
"""Home directories in text, JSON, URLs and directory names, with the user's name as group. The first element is a
substring for a quick test."""
GENERIC_USERS = frozenset(
    b"user username name you me someone public shared default runner runneradmin ubuntu debian node vscode circleci "
    b"app build builder jenkins ec2-user git docker codespace linuxbrew".split()
)
"""User names of images and examples."""
EMAIL = re.compile(
    rb"(?<![A-Za-z0-9._%+/:-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w@:])"
)
EXAMPLE_EMAIL = re.compile(
    rb"(?i)(?:^|\.)(?:example(?:\.\w+)?|test|invalid|localhost|local|noreply\.github\.com)$|^(?:git|no-?reply)@"
)
ENTROPY_MIN = 4.5
"""Bits per character: English words have about 4, random base64 of this length 5 or more."""
ENTROPY_CHARS_MAX = 128
"""Keys are shorter; a longer run is an encoded file or a signature."""
KNOWN_ID = re.compile(
    rb"(?:toolu|msg|req|call|chatcmpl|resp|run|sha256|sha512)[_-]|[0-9a-fA-F-]+\Z|[a-z_/-]+\Z|[A-Z_/-]+\Z"
)
"""Ids that agents assign, digests, and words."""
TEXT_BYTES = bytes(range(0x20, 0x7F)) + b"\t\r\n"
BINARY_SHARE_MAX = 0.1


class Leak(NamedTuple):
    """A leak, without its value."""

    is_secret: bool
    """It is a secret; otherwise only a suspicion."""
    description: str
    """Description."""
    line: int
    column: int
    """From 1, in characters."""


def find_leaks(data: bytes, secrets: Secrets, personal: bool = True) -> tuple[Leak, ...]:
    """Return all leaks by position, each kind at most once per line. Without `personal`, secrets only."""
    candidates = tuple(candidate for candidate in CANDIDATE.finditer(data) if not KNOWN_ID.match(candidate[0]))
    spans = [*_secrets(data, secrets, candidates), *(_personal_data(data, candidates) if personal else ())]
    leaks_by_line: dict[tuple[str, int], Leak] = {}
    positions = _Positions(data)
    for offset, is_secret, description in sorted(spans):
        line, column = positions.position(offset)
        leaks_by_line.setdefault((description, line), Leak(is_secret, description, line, column))
    return tuple(leaks_by_line.values())


Span = tuple[int, bool, str]
"""Offset, certain, description."""
Candidates = tuple[re.Match[bytes], ...]


def _secrets(data: bytes, secrets: Secrets, candidates: Candidates) -> Iterator[Span]:
    for secret in secrets.find(data):
        yield secret.start, secret.certain, _describe(secret.name)
    for start, decoded, encoding in _decode_runs(data, candidates):
        for secret in secrets.find(decoded):
            yield start, secret.certain, f"{_describe(secret.name)}, {encoding}"


def _describe(name: str) -> str:
    """Describe a secret: names of variables are upper case, names of key patterns are not."""
    return f"the value of {name}" if name.upper() == name else f"what looks like a secret ({name})"


def _decode_runs(data: bytes, candidates: Candidates) -> Iterator[tuple[int, bytes, str]]:
    """Yield offset, decoded bytes and encoding of encoded runs."""
    for encoded in candidates:
        if decoded := _decode_base64(encoded[0]):
            yield encoded.start(), decoded, "in base64"
    if b"%" in data:
        for encoded in PERCENT.finditer(data):
            yield encoded.start(), unquote_to_bytes(encoded[0]), "URL-encoded"
    if b"\\u00" in data:
        for encoded in JSON_ESCAPED.finditer(data):
            yield (
                encoded.start(),
                re.sub(rb"\\u00(..)", lambda match: bytes.fromhex(match[1].decode()), encoded[0]),
                "escaped",
            )


def _decode_base64(run: bytes) -> bytes:
    """Return the base64-decoded run; empty if it does not decode to text."""
    unpadded = run.rstrip(b"=")
    unpadded = unpadded[: len(unpadded) - (len(unpadded) % 4 == 1)]
    try:
        decoded = b64decode(unpadded + b"=" * (-len(unpadded) % 4), altchars=b"-_" if b"-" in unpadded or b"_" in unpadded else None)
    except (binascii.Error, ValueError):
        return b""
    begin = decoded[:256]
    return decoded if len(begin.translate(None, TEXT_BYTES)) <= BINARY_SHARE_MAX * len(begin) else b""


def _personal_data(data: bytes, candidates: Candidates) -> Iterator[Span]:
    for pattern in (pattern for mark, pattern in HOMES if mark in data):
        for match in pattern.finditer(data):
            if match[1].lower() not in GENERIC_USERS:
                yield match.start(), False, "a home directory"
    if b"@" in data:
        for match in EMAIL.finditer(data):
            if not EXAMPLE_EMAIL.search(match[1]) and not EXAMPLE_EMAIL.search(match[0]):
                yield match.start(), False, "an e-mail address"
    for match in candidates:
        if len(match[0]) <= ENTROPY_CHARS_MAX and b"/" not in match[0] and _entropy(match[0]) >= ENTROPY_MIN:
            yield match.start(), False, "a word that may be a key (high entropy)"


def _entropy(word: bytes) -> float:
    """Return the entropy in bits per character."""
    counts = Counter(word).values()
    return -sum(count / len(word) * math.log2(count / len(word)) for count in counts)


class _Positions:
    """Converts ascending offsets to lines and columns."""

    def __init__(self, data: bytes) -> None:
        self._data, self._line, self._begin = data, 1, 0

    def position(self, offset: int) -> tuple[int, int]:
        lines = self._data.count(b"\n", self._begin, offset)
        if lines:
            self._line += lines
            self._begin = self._data.rfind(b"\n", 0, offset) + 1
        return self._line, len(self._data[self._begin : offset].decode("utf-8", "replace")) + 1
