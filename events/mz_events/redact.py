"""Pure: finds secrets in bytes, and takes them out of output as it streams.

Known values are found as they are, escaped for JSON, for URLs, and in base64 at each of its three alignments; keys of
well-known services by their shape, in base64 too; private keys as blocks over several lines. What takes their place
changes no JSON line's shape. Patches and artifacts are never rewritten: they are only searched.
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
"""Shorter values, blanks around them left out, stand everywhere by chance."""
LINE_BYTES_MAX = 1 << 20

PATTERNS = tuple((shape, re.compile(shape.pattern)) for shape in SHAPES)
BLOCKS = re.compile(BLOCK)
BODY = re.compile(BLOCK_BODY)


class Finding(msgspec.Struct, frozen=True, order=True):
    """One place where a secret stands."""

    start: int
    end: int
    """Offsets in bytes."""
    name: str
    """Of the variable that holds the value, or of the shape."""
    certain: bool


def forms(value: str) -> frozenset[bytes]:
    """Every spelling of a secret value that is searched for."""
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
    """The characters that the value alone decides, wherever it stands among the encoded bytes."""
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + raw)[first:last]


class Secrets:
    """What is searched for: `values` by the names of the variables that hold them, and every known key shape."""

    def __init__(self, values: Mapping[str, str]) -> None:
        needles: dict[bytes, str] = {}
        for name, value in values.items():
            if len(value.strip()) >= VALUE_CHARS_MIN:
                for form in forms(value) | forms(value.strip()):
                    needles.setdefault(form, name)
        self._needles = tuple(sorted(needles.items()))
        self._several_lines = tuple(needle for needle, _ in self._needles if b"\n" in needle)
        self.bytes_max = max(BLOCK_BYTES_MAX, *map(len, needles), 0)
        """No secret is longer."""

    def find(self, data: bytes) -> tuple[Finding, ...]:
        """Every secret in the data, in order of place; they may overlap."""
        return tuple(sorted((*self._find_values(data), *_find_shapes(data))))

    def scan(self, data: bytes) -> tuple[str, ...]:
        """Names of the secrets that stand in the data for certain, each once; empty: none."""
        return tuple(dict.fromkeys(finding.name for finding in self.find(data) if finding.certain))

    def clean(self, data: bytes) -> bytes:
        """The data without secrets; whole lines of JSON keep their shape."""
        findings = self.find(data)
        return replaced(data, merged((finding.start, finding.end) for finding in findings)) if findings else data

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def unfinished(self, lines: bytes) -> int:
        """Begin of the line of these whole lines in which a secret may have begun that goes on in the lines to come;
        their end where there is none."""
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
        """Begin of the line at `place`, or of an earlier one where that would part a secret that is there whole."""
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
    """Takes secrets out of one stream of output, line by line, however it is cut into pieces.

    Holds back the last line until it ends, and earlier ones only while a secret may go on in the next. A line longer
    than LINE_BYTES_MAX is cut there, and marked.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = bytearray()
        self._dropping = False
        """Within the rest of a line that was cut."""

    def feed(self, data: bytes) -> bytes:
        """Takes the next piece; returns what is ready, which may be nothing."""
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
        """What was held back; the stream has ended."""
        rest = bytes(self._held)
        self._held.clear()
        return self._secrets.clean(self._cut(rest))

    def _endless(self) -> bytes:
        """Cuts the line that is held once it is too long to be waited for."""
        begin = self._held.rfind(b"\n") + 1
        if len(self._held) - begin <= LINE_BYTES_MAX + self._secrets.bytes_max:
            return b""
        self._dropping = True
        return self.finish()

    def _cut(self, lines: bytes) -> bytes:
        return lines if len(lines) <= LINE_BYTES_MAX else b"\n".join(map(self._cut_line, lines.split(b"\n")))

    def _cut_line(self, line: bytes) -> bytes:
        """At most LINE_BYTES_MAX bytes of the line and a mark, never a part of a secret or of a character."""
        if len(line) <= LINE_BYTES_MAX:
            return line
        place = LINE_BYTES_MAX
        for start, end in merged((finding.start, finding.end) for finding in self._secrets.find(line)):
            if start < place < end:
                place = start
        while place and line[place] & 0xC0 == 0x80:
            place -= 1
        return line[:place] + CUT
