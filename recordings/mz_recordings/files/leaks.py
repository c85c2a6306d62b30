"""Pure: what stands in bytes and should not leave a machine: secrets for certain, and what only may be one or personal.

What is found is told by its name and place, never by itself.
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
"""What may be base64, or a key of no known shape."""
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
"""Home directories in text, in JSON, in URLs and as the name of a directory, and whose they are. The mark alone is
quickly looked for."""
NOBODY = frozenset(
    b"user username name you me someone public shared default runner runneradmin ubuntu debian node vscode circleci "
    b"app build builder jenkins ec2-user git docker codespace linuxbrew".split()
)
"""Users of images and of examples."""
EMAIL = re.compile(
    rb"(?<![A-Za-z0-9._%+/:-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w@:])"
)
NO_EMAIL = re.compile(
    rb"(?i)(?:^|\.)(?:example(?:\.\w+)?|test|invalid|localhost|local|noreply\.github\.com)$|^(?:git|no-?reply)@"
)
ENTROPY_MIN = 4.5
"""Bits a character: English words have about 4, random base64 of this length 5 or more."""
ENTROPY_CHARS_MAX = 128
"""Keys are shorter; what is longer is an encoded file or a signature."""
NO_KEY = re.compile(
    rb"(?:toolu|msg|req|call|chatcmpl|resp|run|sha256|sha512)[_-]|[0-9a-fA-F-]+\Z|[a-z_/-]+\Z|[A-Z_/-]+\Z"
)
"""Ids that agents give, digests, and words."""
PLAIN = bytes(range(0x20, 0x7F)) + b"\t\r\n"
UNPLAIN_SHARE_MAX = 0.1


class Leak(NamedTuple):
    """What was found, without itself."""

    certain: bool
    """A secret; otherwise only something to look at."""
    what: str
    """In words."""
    line: int
    column: int
    """From 1, in characters."""


def leaks(data: bytes, secrets: Secrets, personal: bool = True) -> tuple[Leak, ...]:
    """Everything in the data, in order of place, each kind once a line. Without `personal`, secrets only."""
    runs = tuple(found for found in RUN.finditer(data) if not NO_KEY.match(found[0]))
    spans = [*_secrets(data, secrets, runs), *(_personal(data, runs) if personal else ())]
    found: dict[tuple[str, int], Leak] = {}
    place = _Places(data)
    for at, certain, what in sorted(spans):
        line, column = place.of(at)
        found.setdefault((what, line), Leak(certain, what, line, column))
    return tuple(found.values())


Span = tuple[int, bool, str]
"""Offset, certain, what it is."""
Runs = tuple[re.Match[bytes], ...]


def _secrets(data: bytes, secrets: Secrets, runs: Runs) -> Iterator[Span]:
    for one in secrets.find(data):
        yield one.start, one.certain, _words(one.name)
    for start, inside, how in _decoded(data, runs):
        for one in secrets.find(inside):
            yield start, one.certain, f"{_words(one.name)}, {how}"


def _words(name: str) -> str:
    """Variables are written in capitals, shapes are not."""
    return f"the value of {name}" if name.upper() == name else f"what looks like a secret ({name})"


def _decoded(data: bytes, runs: Runs) -> Iterator[tuple[int, bytes, str]]:
    """Words that stand there encoded: where, and what they are."""
    for found in runs:
        if inside := _base64(found[0]):
            yield found.start(), inside, "in base64"
    if b"%" in data:
        for found in PERCENT.finditer(data):
            yield found.start(), unquote_to_bytes(found[0]), "as in a URL"
    if b"\\u00" in data:
        for found in ESCAPED.finditer(data):
            yield found.start(), re.sub(rb"\\u00(..)", lambda one: bytes.fromhex(one[1].decode()), found[0]), "escaped"


def _base64(run: bytes) -> bytes:
    """What the run is base64 of; empty where that is no text."""
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
                yield found.start(), False, "somebody's home directory"
    if b"@" in data:
        for found in EMAIL.finditer(data):
            if not NO_EMAIL.search(found[1]) and not NO_EMAIL.search(found[0]):
                yield found.start(), False, "an e-mail address"
    for found in runs:
        if len(found[0]) <= ENTROPY_CHARS_MAX and b"/" not in found[0] and _entropy(found[0]) >= ENTROPY_MIN:
            yield found.start(), False, "a word that may be a key (high entropy)"


def _entropy(word: bytes) -> float:
    """Bits a character."""
    counts = Counter(word).values()
    return -sum(count / len(word) * math.log2(count / len(word)) for count in counts)


class _Places:
    """From offsets, which must not fall, to lines and columns."""

    def __init__(self, data: bytes) -> None:
        self._data, self._line, self._begin = data, 1, 0

    def of(self, at: int) -> tuple[int, int]:
        lines = self._data.count(b"\n", self._begin, at)
        if lines:
            self._line += lines
            self._begin = self._data.rfind(b"\n", 0, at) + 1
        return self._line, len(self._data[self._begin : at].decode("utf-8", "replace")) + 1
