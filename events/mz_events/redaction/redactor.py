"""Finds secrets in bytes, and redacts them from output as it streams.

Known values are found verbatim, escaped for JSON and URLs, and in base64 at each of its three alignments; keys of
well-known services by pattern, in base64 too; private keys as blocks over several lines. Redaction keeps JSON lines
valid. Patches and artifacts are only searched, never rewritten.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

import msgspec

from mz_events.redaction.json_splice import merge_spans, redact_spans
from mz_events.redaction.key_patterns import (
    BLOCK,
    BLOCK_BEGIN,
    BLOCK_BODY,
    BLOCK_BYTES_MAX,
    BLOCK_END,
    BLOCK_NAME,
    KEY_PATTERNS,
    encoded_keys,
)

CUT_MARKER = b"<cut>"
VALUE_CHARS_MIN = 8
"""Shorter values, surrounding blanks left out, occur everywhere by chance."""
LINE_BYTES_MAX = 1 << 20

COMPILED_PATTERNS = tuple((shape, re.compile(shape.regex)) for shape in KEY_PATTERNS)
BLOCK_REGEX = re.compile(BLOCK)
BLOCK_BODY_REGEX = re.compile(BLOCK_BODY)


class SecretMatch(msgspec.Struct, frozen=True, order=True):
    """One occurrence of a secret."""

    start: int
    end: int
    """`start` and `end` are offsets in bytes."""
    name: str
    """Name of the variable that holds the value, or of the key pattern."""
    certain: bool


def encodings(value: str) -> frozenset[bytes]:
    """Return every encoding of a secret value to search for."""
    raw = value.encode("utf-8", "surrogateescape")
    return frozenset((raw, *_json_encodings(value), *_url_encodings(raw), *base64_encodings(raw)))


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


class Secrets:
    """The secrets to search for: `values` by the names of the variables that hold them, and all key patterns."""

    def __init__(self, values: Mapping[str, str]) -> None:
        needles: dict[bytes, str] = {}
        for name, value in values.items():
            if len(value.strip()) >= VALUE_CHARS_MIN:
                for encoding in encodings(value) | encodings(value.strip()):
                    needles.setdefault(encoding, name)
        self._needles = tuple(sorted(needles.items()))
        self._multiline_needles = tuple(needle for needle, _ in self._needles if b"\n" in needle)
        self.bytes_max = max(BLOCK_BYTES_MAX, *map(len, needles), 0)
        """Upper bound on the size of a secret."""

    def find(self, data: bytes) -> tuple[SecretMatch, ...]:
        """Return every secret in the data, by offset; they may overlap."""
        return tuple(sorted((*self._find_values(data), *_find_key_patterns(data))))

    def names_in(self, data: bytes) -> tuple[str, ...]:
        """Return the distinct names of the secrets that the data contains for certain."""
        return tuple(dict.fromkeys(match.name for match in self.find(data) if match.certain))

    def clean(self, data: bytes) -> bytes:
        """Return the data without secrets; complete lines of JSON stay valid."""
        matches = self.find(data)
        return redact_spans(data, merge_spans((match.start, match.end) for match in matches)) if matches else data

    def redact(self, text: str) -> str:
        """Return the text without secrets."""
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def release_end(self, lines: bytes) -> int:
        """Return the offset up to which these complete lines may be released: the start of the line with a secret that
        may continue in later lines, or their end."""
        offset = len(lines)
        block_start = lines.rfind(BLOCK_BEGIN, max(0, len(lines) - BLOCK_BYTES_MAX))
        block = BLOCK_REGEX.match(lines, block_start) if block_start >= 0 else None
        if block and BLOCK_END not in block[0] and not lines[block.end() :].strip(b"\r\n"):
            offset = block_start
        for needle in self._multiline_needles:
            for line in re.finditer(b"\n", needle):
                if line.end() < len(needle) and lines.endswith(needle[: line.end()]):
                    offset = min(offset, len(lines) - line.end())
        return offset if offset == len(lines) else self._line_start(lines, offset)

    def _line_start(self, lines: bytes, offset: int) -> int:
        """Return the start of the line at `offset`, or of an earlier one if that would split a complete secret."""
        line_start = lines.rfind(b"\n", 0, offset) + 1
        for start, end in reversed(merge_spans((match.start, match.end) for match in self.find(lines))):
            if start < line_start < end:
                line_start = lines.rfind(b"\n", 0, start) + 1
        return line_start

    def _find_values(self, data: bytes) -> Iterator[SecretMatch]:
        for needle, name in self._needles:
            offset = data.find(needle)
            while offset >= 0:
                yield SecretMatch(offset, offset + len(needle), name, True)
                offset = data.find(needle, offset + len(needle))


def _find_key_patterns(data: bytes) -> Iterator[SecretMatch]:
    for key_pattern, pattern in COMPILED_PATTERNS:
        for match in pattern.finditer(data):
            yield SecretMatch(*match.span(), key_pattern.name, key_pattern.certain)
    for start, end, key_pattern in encoded_keys(data):
        yield SecretMatch(start, end, key_pattern.name, key_pattern.certain)
    if BLOCK_BEGIN in data:
        for match in BLOCK_REGEX.finditer(data):
            if BLOCK_BODY_REGEX.search(match[0]):
                yield SecretMatch(*match.span(), BLOCK_NAME, True)


class Redactor:
    """Redacts secrets from one stream of output, line by line, regardless of how it is chunked.

    Holds back the last line until it ends, and earlier ones only while a secret may continue in the next. A line longer
    than LINE_BYTES_MAX is cut there, and marked.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._pending = bytearray()
        self._skipping_line = False
        """True while the remainder of a cut line is skipped."""

    def feed(self, data: bytes) -> bytes:
        """Add the next chunk; return the output that is ready, possibly nothing."""
        if self._skipping_line:
            end = data.find(b"\n")
            if end < 0:
                return b""
            self._skipping_line, data = False, data[end:]
        end = data.rfind(b"\n") + 1
        if not end:
            self._pending += data
            return self._cut_long_line()
        lines = bytes(self._pending) + data[:end]
        release_end = self._secrets.release_end(lines)
        self._pending[:] = lines[release_end:] + data[end:]
        return self._secrets.clean(self._cut_lines(lines[:release_end])) + self._cut_long_line()

    def finish(self) -> bytes:
        """Return the held output; the stream has ended."""
        pending = bytes(self._pending)
        self._pending.clear()
        return self._secrets.clean(self._cut_lines(pending))

    def _cut_long_line(self) -> bytes:
        """Cut the pending line once it is too long to wait for its end."""
        line_start = self._pending.rfind(b"\n") + 1
        if len(self._pending) - line_start <= LINE_BYTES_MAX + self._secrets.bytes_max:
            return b""
        self._skipping_line = True
        return self.finish()

    def _cut_lines(self, lines: bytes) -> bytes:
        return lines if len(lines) <= LINE_BYTES_MAX else b"\n".join(map(self._cut_line, lines.split(b"\n")))

    def _cut_line(self, line: bytes) -> bytes:
        """Return at most LINE_BYTES_MAX bytes of the line and a marker, never a part of a secret or of a character."""
        if len(line) <= LINE_BYTES_MAX:
            return line
        offset = LINE_BYTES_MAX
        for start, end in merge_spans((match.start, match.end) for match in self._secrets.find(line)):
            if start < offset < end:
                offset = start
        while offset and line[offset] & 0xC0 == 0x80:
            offset -= 1
        return line[:offset] + CUT_MARKER
