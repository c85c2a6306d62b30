"""Finds known secret values: verbatim, escaped for JSON, HTML and URLs, in base64 and base32 at each alignment, in
hexadecimal, and with colours or line ends inside."""

from __future__ import annotations

import json
import re
from base64 import b32encode, b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from functools import cached_property
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

from mz_events.redaction.decoders import Decoded, join_lines, unescape
from mz_events.redaction.key_rules import compile_regex

VALUE_CHARS_MIN = 8
"""Shorter values, surrounding blanks left out, occur everywhere by chance."""
HEAD_BYTES = 12
"""Of each encoding, searched for all at once."""
ESCAPE, ENCODED_BYTES_MAX = re.compile(rb"[\\\x1b\n]"), 8
SPLIT_BYTES_MIN = 4
"""Bytes of a value before its first line end."""


def encodings(value: str) -> frozenset[bytes]:
    """Return every encoding of a secret value to search for."""
    pages = (value, escape(value), escape(value, quote=False), escape(value).replace("&#x27;", "&#39;"))
    raw, *in_html = (page.encode("utf-8", "surrogateescape") for page in pages)
    return frozenset(
        (raw, *in_html, *_json_encodings(value), *_url_encodings(raw), *base64_encodings(raw), *_base32_encodings(raw),
         raw.hex().encode(), raw.hex().upper().encode())
    )  # fmt: skip


def _json_encodings(value: str) -> Iterator[bytes]:
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        html = escaped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        for text in (escaped, escaped.replace("/", "\\/"), html, json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]):
            yield text.encode("utf-8", "surrogateescape")


def _url_encodings(raw: bytes) -> Iterator[bytes]:
    for text in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield text.encode()
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), text).encode()


def base64_encodings(raw: bytes) -> Iterator[bytes]:
    """Yield the characters determined by the value alone, for each alignment."""
    for alignment in range(3):
        first, last = -(-alignment * 8 // 6), (alignment + len(raw)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(alignment) + raw)[first:last]


def _base32_encodings(raw: bytes) -> Iterator[bytes]:
    for alignment in range(5):
        first, last = -(-alignment * 8 // 5), (alignment + len(raw)) * 8 // 5
        yield b32encode(bytes(alignment) + raw)[first:last]


class KnownValues:
    """Values to search for, by the names of the variables that hold them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        needles: dict[bytes, str] = {}
        joined: dict[bytes, str] = {}
        for name, value in values.items():
            if len(value.strip()) >= VALUE_CHARS_MIN:
                for encoding in encodings(value) | encodings(value.strip()):
                    needles.setdefault(encoding, name)
                    plain = join_lines(unescape(encoding).data).data
                    if len(plain) >= VALUE_CHARS_MIN:
                        joined.setdefault(plain, name)
        self.needles, self._joined = tuple(sorted(needles.items())), tuple(sorted(joined.items()))
        self.bytes_max = max(map(len, needles), default=0)

    @cached_property
    def _heads(self) -> Any:
        """An expression for the heads of all encodings."""
        heads = sorted({needle[:HEAD_BYTES] for needle, _ in (*self.needles, *self._joined)})
        return compile_regex("|".join("".join(f"\\x{byte:02x}" for byte in head) for head in heads))

    @cached_property
    def _inner(self) -> frozenset[bytes]:
        """All sequences of SPLIT_BYTES_MIN bytes in a value."""
        return frozenset(
            needle[at : at + SPLIT_BYTES_MIN]
            for needle, _ in self._joined
            for at in range(len(needle) - SPLIT_BYTES_MIN)
        )

    def find(self, data: bytes) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and name of each value."""
        if self.needles and self._heads.search(data) is not None:
            for needle, name in self.needles:
                for offset in _offsets(data, needle):
                    yield offset, offset + len(needle), name

    def find_split(self, text: bytes) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and name of each value in text without escapes and colours, whatever line ends are in it."""
        if not self._joined:
            return
        joined: Decoded = join_lines(text)
        if self._heads.search(joined.data) is not None:
            for needle, name in self._joined:
                for offset in _offsets(joined.data, needle):
                    start, end = joined.source(offset, offset + len(needle))
                    if b"\n" not in text[start : start + SPLIT_BYTES_MIN]:
                        yield start, end, name

    def unfinished(self, lines: bytes) -> int | None:
        """Return the offset of a value that may continue in later lines; None if there is none."""
        end = lines[-2 * ENCODED_BYTES_MAX :].rstrip(b"\r\n")
        if not self._joined or (end[-SPLIT_BYTES_MIN:] not in self._inner and end.isascii() and not ESCAPE.search(end)):
            return None
        window = max(0, len(lines) - 2 * self.bytes_max - 2)
        plain = unescape(lines[window:])
        joined = join_lines(plain.data)
        if joined.data[-SPLIT_BYTES_MIN:] not in self._inner:
            return None
        heads = (needle[:size] for needle, _ in self._joined for size in range(SPLIT_BYTES_MIN, len(needle)))
        size = max((len(head) for head in heads if joined.data.endswith(head)), default=0)
        start = len(joined.data) - size
        return window + plain.source(*joined.source(start, start + 1))[0] if size else None


def _offsets(data: bytes, needle: bytes) -> Iterator[int]:
    offset = data.find(needle)
    while offset >= 0:
        yield offset
        offset = data.find(needle, offset + len(needle))
