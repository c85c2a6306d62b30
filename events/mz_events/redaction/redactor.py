"""Finds secrets in bytes, and redacts them from output as it streams.

Known values, keys of services and private keys are found plain and in every encoding of `decoders.py`, two of which may
be nested. Redaction keeps JSON lines valid. Patches and artifacts are only searched, never rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import msgspec

from mz_events.redaction.decoders import COLOUR, MARKS, SEVERAL_LINES, decode, unescape, unfinished_key
from mz_events.redaction.json_splice import merge_spans, redact_spans
from mz_events.redaction.key_rules import KeyRules, find_keys, load_rules
from mz_events.redaction.values import KnownValues

# private keys, which are blocks over several lines, with real or escaped line breaks ----------------------------------
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


CUT_MARKER = b"<cut>"
LINE_BYTES_MAX = 1 << 20
DECODINGS_MAX = 2
"""Encodings that may be nested."""


class SecretMatch(msgspec.Struct, frozen=True, order=True):
    start: int
    end: int
    """`start` and `end` are offsets in bytes."""
    name: str
    """Name of the variable that holds the value, or of the rule for a key."""
    certain: bool
    encoding: str = ""
    """How it is encoded; empty if it is plain or escaped."""


class Secrets:
    """The secrets to search for: `values` by the names of the variables that hold them, and all keys of services."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = KnownValues(values)
        self.bytes_max = max(BLOCK_BYTES_MAX, self._values.bytes_max)
        """Upper bound on the size of a secret."""

    def find(self, data: bytes) -> tuple[SecretMatch, ...]:
        """Return every secret in the data, by offset; they may overlap."""
        return tuple(_distinct(self._find(data, DECODINGS_MAX)))

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
        offsets = (unfinished_private_key(lines), self._values.unfinished(lines), unfinished_key(lines))
        offset = min((offset for offset in offsets if offset is not None), default=len(lines))
        return offset if offset == len(lines) else self._line_start(lines, offset)

    def _line_start(self, lines: bytes, offset: int) -> int:
        """Return the start of the line at `offset`, or of an earlier one if that would split a complete secret."""
        line_start = lines.rfind(b"\n", 0, offset) + 1
        matches = self.find(lines) if line_start else ()
        for start, end in reversed(merge_spans((match.start, match.end) for match in matches)):
            if start < line_start < end:
                line_start = lines.rfind(b"\n", 0, start) + 1
        return line_start

    def _find(self, data: bytes, decodings: int) -> Iterator[SecretMatch]:
        for start, end, name in self._values.find(data):
            yield SecretMatch(start, end, name, True)
        for start, end in find_private_keys(data):
            yield SecretMatch(start, end, BLOCK_NAME, True)
        text = unescape(data, colours=False)
        marks, rules = _key_rules().scan(text.data)
        if COLOUR in marks:
            text = unescape(data)
            marks, rules = _key_rules().scan(text.data)
        for start, end, name in self._values.find_split(text.data):
            yield SecretMatch(*text.source(start, end), name, True)
        for start, end, rule in find_keys(text.data, rules):
            yield SecretMatch(*text.source(start, end), rule.name, rule.certain)
        for decoded in decode(text.data, marks) if decodings else ():
            for match in self._find(decoded.data, decodings - 1):
                encoding, certain = match.encoding or decoded.encoding, match.certain
                spans = decoded.sources(match.start, match.end)
                if decoded.encoding != SEVERAL_LINES:
                    spans = [(spans[0][0], spans[-1][1])]
                elif encoding == SEVERAL_LINES:  # Whether the lines belong together is not known.
                    certain = False
                for start, end in spans:
                    yield SecretMatch(*text.source(start, end), match.name, certain, encoding)


@cache
def _key_rules() -> KeyRules:
    return KeyRules(load_rules(), MARKS)


def _distinct(matches: Iterable[SecretMatch]) -> Iterator[SecretMatch]:
    """Yield the matches by offset, without those within another one that says as much."""
    widest: SecretMatch | None = None
    for match in sorted(matches, key=lambda match: (match.start, -match.end, not match.certain)):
        if widest is None or match.end > widest.end or match.certain > widest.certain:
            yield match
            widest = match if widest is None or match.end >= widest.end else widest


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
