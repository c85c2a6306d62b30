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

from mz_events.encodedkeys import encoded_keys
from mz_events.keyshapes import BLOCK, BLOCK_BODY, BLOCK_BYTES_MAX, BLOCK_END_MARK, BLOCK_MARK, BLOCK_NAME, SHAPES
from mz_events.splice import merged, replaced

CUT = b"<cut>"
VALUE_CHARS_MIN = 8
"""Shorter values, surrounding blanks left out, occur everywhere by chance."""
LINE_BYTES_MAX = 1 << 20

PATTERNS = tuple((shape, re.compile(shape.pattern)) for shape in SHAPES)
BLOCKS = re.compile(BLOCK)
BODY = re.compile(BLOCK_BODY)


class Finding(msgspec.Struct, frozen=True, order=True):
    """One occurrence of a secret."""

    start: int
    end: int
    """`start` and `end` are offsets in bytes."""
    name: str
    """Name of the variable that holds the value, or of the key pattern."""
    certain: bool


def forms(value: str) -> frozenset[bytes]:
    """Return every encoding of a secret value to search for."""
    raw = value.encode("utf-8", "surrogateescape")
    return frozenset((raw, *_json_forms(value), *_url_forms(raw), *base64_forms(raw)))


def _json_forms(value: str) -> Iterator[bytes]:
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        html = once.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        for text in (once, once.replace("/", "\\/"), html, json.dumps(once, ensure_ascii=ascii_only)[1:-1]):
            yield text.encode("utf-8", "surrogateescape")


def _url_forms(raw: bytes) -> Iterator[bytes]:
    for text in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield text.encode()
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), text).encode()


def base64_forms(raw: bytes) -> Iterator[bytes]:
    """Yield the characters determined by the value alone, for each alignment."""
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + raw)[first:last]


class Secrets:
    """The secrets to search for: `values` by the names of the variables that hold them, and all key patterns."""

    def __init__(self, values: Mapping[str, str]) -> None:
        needles: dict[bytes, str] = {}
        for name, value in values.items():
            if len(value.strip()) >= VALUE_CHARS_MIN:
                for form in forms(value) | forms(value.strip()):
                    needles.setdefault(form, name)
        self._needles = tuple(sorted(needles.items()))
        self._several_lines = tuple(needle for needle, _ in self._needles if b"\n" in needle)
        self.bytes_max = max(BLOCK_BYTES_MAX, *map(len, needles), 0)
        """Upper bound on the size of a secret."""

    def find(self, data: bytes) -> tuple[Finding, ...]:
        """Return every secret in the data, by offset; they may overlap."""
        return tuple(sorted((*self._find_values(data), *_find_shapes(data))))

    def scan(self, data: bytes) -> tuple[str, ...]:
        """Return the distinct names of the secrets that the data contains for certain."""
        return tuple(dict.fromkeys(finding.name for finding in self.find(data) if finding.certain))

    def clean(self, data: bytes) -> bytes:
        """Return the data without secrets; complete lines of JSON stay valid."""
        findings = self.find(data)
        return replaced(data, merged((finding.start, finding.end) for finding in findings)) if findings else data

    def redact(self, text: str) -> str:
        """Return the text without secrets."""
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def unfinished(self, lines: bytes) -> int:
        """Return the offset up to which these complete lines may be released: the start of the line with a secret that
        may continue in later lines, or their end."""
        place = len(lines)
        begun = lines.rfind(BLOCK_MARK, max(0, len(lines) - BLOCK_BYTES_MAX))
        block = BLOCKS.match(lines, begun) if begun >= 0 else None
        if block and BLOCK_END_MARK not in block[0] and not lines[block.end() :].strip(b"\r\n"):
            place = begun
        for needle in self._several_lines:
            for line in re.finditer(b"\n", needle):
                if line.end() < len(needle) and lines.endswith(needle[: line.end()]):
                    place = min(place, len(lines) - line.end())
        return place if place == len(lines) else self._line_before(lines, place)

    def _line_before(self, lines: bytes, place: int) -> int:
        """Return the start of the line at `offset`, or of an earlier one if that would split a complete secret."""
        begin = lines.rfind(b"\n", 0, place) + 1
        for start, end in reversed(merged((finding.start, finding.end) for finding in self.find(lines))):
            if start < begin < end:
                begin = lines.rfind(b"\n", 0, start) + 1
        return begin

    def _find_values(self, data: bytes) -> Iterator[Finding]:
        for needle, name in self._needles:
            at = data.find(needle)
            while at >= 0:
                yield Finding(at, at + len(needle), name, True)
                at = data.find(needle, at + len(needle))


def _find_shapes(data: bytes) -> Iterator[Finding]:
    for shape, pattern in PATTERNS:
        for match in pattern.finditer(data):
            yield Finding(*match.span(), shape.name, shape.certain)
    for start, end, shape in encoded_keys(data):
        yield Finding(start, end, shape.name, shape.certain)
    if BLOCK_MARK in data:
        for match in BLOCKS.finditer(data):
            if BODY.search(match[0]):
                yield Finding(*match.span(), BLOCK_NAME, True)


class Redactor:
    """Redacts secrets from one stream of output, line by line, regardless of how it is chunked.

    Holds back the last line until it ends, and earlier ones only while a secret may continue in the next. A line longer
    than LINE_BYTES_MAX is cut there, and marked.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = bytearray()
        self._dropping = False
        """True while the remainder of a cut line is skipped."""

    def feed(self, data: bytes) -> bytes:
        """Add the next chunk; return the output that is ready, possibly nothing."""
        if self._dropping:
            end = data.find(b"\n")
            if end < 0:
                return b""
            self._dropping, data = False, data[end:]
        end = data.rfind(b"\n") + 1
        if not end:
            self._held += data
            return self._endless()
        lines = bytes(self._held) + data[:end]
        whole = self._secrets.unfinished(lines)
        self._held[:] = lines[whole:] + data[end:]
        return self._secrets.clean(self._cut(lines[:whole])) + self._endless()

    def finish(self) -> bytes:
        """Return the held output; the stream has ended."""
        rest = bytes(self._held)
        self._held.clear()
        return self._secrets.clean(self._cut(rest))

    def _endless(self) -> bytes:
        """Cut the pending line once it is too long to wait for its end."""
        begin = self._held.rfind(b"\n") + 1
        if len(self._held) - begin <= LINE_BYTES_MAX + self._secrets.bytes_max:
            return b""
        self._dropping = True
        return self.finish()

    def _cut(self, lines: bytes) -> bytes:
        return lines if len(lines) <= LINE_BYTES_MAX else b"\n".join(map(self._cut_line, lines.split(b"\n")))

    def _cut_line(self, line: bytes) -> bytes:
        """Return at most LINE_BYTES_MAX bytes of the line and a marker, never a part of a secret or of a character."""
        if len(line) <= LINE_BYTES_MAX:
            return line
        place = LINE_BYTES_MAX
        for start, end in merged((finding.start, finding.end) for finding in self._secrets.find(line)):
            if start < place < end:
                place = start
        while place and line[place] & 0xC0 == 0x80:
            place -= 1
        return line[:place] + CUT
