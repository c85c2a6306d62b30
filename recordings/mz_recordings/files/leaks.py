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

RUN = re.compile(rb"[A-Za-z0-9+/_-]{32,}={0,2}")
"""Candidates for base64 or for a key of unknown format."""
PERCENT = re.compile(rb"(?:[A-Za-z0-9._~+-]*%[0-9A-Fa-f]{2})+[A-Za-z0-9._~+-]*")
ESCAPED = re.compile(rb"(?:[A-Za-z0-9._~+/-]*\\u00[0-7][0-9A-Fa-f])+[A-Za-z0-9._~+/-]*")
_WHOSE = rb"([A-Za-z0-9_][A-Za-z0-9_.]*)"
HOMES = tuple(
    (mark, re.compile(pattern + _WHOSE))
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
NOBODY = frozenset(
    b"user username name you me someone public shared default runner runneradmin ubuntu debian node vscode circleci "
    b"app build builder jenkins ec2-user git docker codespace linuxbrew".split()
)
"""User names of images and examples."""
EMAIL = re.compile(
    rb"(?<![A-Za-z0-9._%+/:-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w@:])"
)
NO_EMAIL = re.compile(
    rb"(?i)(?:^|\.)(?:example(?:\.\w+)?|test|invalid|localhost|local|noreply\.github\.com)$|^(?:git|no-?reply)@"
)
ENTROPY_MIN = 4.5
"""Bits per character: English words have about 4, random base64 of this length 5 or more."""
ENTROPY_CHARS_MAX = 128
"""Keys are shorter; a longer run is an encoded file or a signature."""
NO_KEY = re.compile(
    rb"(?:toolu|msg|req|call|chatcmpl|resp|run|sha256|sha512)[_-]|[0-9a-fA-F-]+\Z|[a-z_/-]+\Z|[A-Z_/-]+\Z"
)
"""Ids that agents assign, digests, and words."""
PLAIN = bytes(range(0x20, 0x7F)) + b"\t\r\n"
UNPLAIN_SHARE_MAX = 0.1


class Leak(NamedTuple):
    """A leak, without its value."""

    certain: bool
    """It is a secret; otherwise only a suspicion."""
    what: str
    """Description."""
    line: int
    column: int
    """From 1, in characters."""


def leaks(data: bytes, secrets: Secrets, personal: bool = True) -> tuple[Leak, ...]:
    """Return all leaks by position, each kind at most once per line. Without `personal`, secrets only."""
    runs = tuple(run for run in RUN.finditer(data) if not NO_KEY.match(run[0]))
    spans = [*_secrets(data, secrets, runs), *(_personal(data, runs) if personal else ())]
    found: dict[tuple[str, int], Leak] = {}
    place = _Places(data)
    for at, certain, what in sorted(spans):
        line, column = place.of(at)
        found.setdefault((what, line), Leak(certain, what, line, column))
    return tuple(found.values())


Span = tuple[int, bool, str]
"""Offset, certain, description."""
Runs = tuple[re.Match[bytes], ...]


def _secrets(data: bytes, secrets: Secrets, runs: Runs) -> Iterator[Span]:
    for secret in secrets.find(data):
        yield secret.start, secret.certain, _words(secret.name)
    for start, decoded, how in _decoded(data, runs):
        for secret in secrets.find(decoded):
            yield start, secret.certain, f"{_words(secret.name)}, {how}"


def _words(name: str) -> str:
    """Describe a secret: names of variables are upper case, names of key patterns are not."""
    return f"the value of {name}" if name.upper() == name else f"what looks like a secret ({name})"


def _decoded(data: bytes, runs: Runs) -> Iterator[tuple[int, bytes, str]]:
    """Yield offset, decoded bytes and encoding of encoded runs."""
    for found in runs:
        if inside := _base64(found[0]):
            yield found.start(), inside, "in base64"
    if b"%" in data:
        for found in PERCENT.finditer(data):
            yield found.start(), unquote_to_bytes(found[0]), "URL-encoded"
    if b"\\u00" in data:
        for found in ESCAPED.finditer(data):
            yield (
                found.start(),
                re.sub(rb"\\u00(..)", lambda match: bytes.fromhex(match[1].decode()), found[0]),
                "escaped",
            )


def _base64(run: bytes) -> bytes:
    """Return the base64-decoded run; empty if it does not decode to text."""
    bare = run.rstrip(b"=")
    bare = bare[: len(bare) - (len(bare) % 4 == 1)]
    try:
        inside = b64decode(bare + b"=" * (-len(bare) % 4), altchars=b"-_" if b"-" in bare or b"_" in bare else None)
    except (binascii.Error, ValueError):
        return b""
    begin = inside[:256]
    return inside if len(begin.translate(None, PLAIN)) <= UNPLAIN_SHARE_MAX * len(begin) else b""


def _personal(data: bytes, runs: Runs) -> Iterator[Span]:
    for pattern in (pattern for mark, pattern in HOMES if mark in data):
        for found in pattern.finditer(data):
            if found[1].lower() not in NOBODY:
                yield found.start(), False, "a home directory"
    if b"@" in data:
        for found in EMAIL.finditer(data):
            if not NO_EMAIL.search(found[1]) and not NO_EMAIL.search(found[0]):
                yield found.start(), False, "an e-mail address"
    for found in runs:
        if len(found[0]) <= ENTROPY_CHARS_MAX and b"/" not in found[0] and _entropy(found[0]) >= ENTROPY_MIN:
            yield found.start(), False, "a word that may be a key (high entropy)"


def _entropy(word: bytes) -> float:
    """Return the entropy in bits per character."""
    counts = Counter(word).values()
    return -sum(count / len(word) * math.log2(count / len(word)) for count in counts)


class _Places:
    """Converts ascending offsets to lines and columns."""

    def __init__(self, data: bytes) -> None:
        self._data, self._line, self._begin = data, 1, 0

    def of(self, at: int) -> tuple[int, int]:
        lines = self._data.count(b"\n", self._begin, at)
        if lines:
            self._line += lines
            self._begin = self._data.rfind(b"\n", 0, at) + 1
        return self._line, len(self._data[self._begin : at].decode("utf-8", "replace")) + 1
