"""Pure: finds secrets in bytes, and takes them out of output as it streams.

Known values are found as they are, escaped for JSON, for URLs, and in base64 at each of its three alignments; keys of
well-known services by their shape; private keys as blocks over several lines. What takes their place changes no JSON
line's shape. Patches and artifacts are never rewritten: they are only searched.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

import msgspec

from mz_events.keyshapes import PEM_BEGIN, PEM_BODY, PEM_BYTES_MAX, PEM_END, PEM_NAME, SHAPES

TOKEN = b"<redacted>"
CUT = b"<cut>"
VALUE_CHARS_MIN = 8
"""Shorter values stand everywhere by chance."""
LINE_BYTES_MAX = 1 << 20

ESCAPES = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
ESCAPE_BYTES_MAX = 6
JSON_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')
PEM = re.compile(
    PEM_BEGIN + rb"(?:" + PEM_BODY + rb"|\r?\n(?=[A-Za-z0-9+/=-]|\r?\n))*?(?:" + PEM_END + rb"|(?!" + PEM_BODY
    + rb"|\r?\n(?=[A-Za-z0-9+/=-]|\r?\n)))"
)
PEM_OPEN = re.compile(PEM_BEGIN + rb"(?:(?!-----END)(?:" + PEM_BODY + rb"|[\r\n]))*\Z")
"""A block that may go on beyond the end of what has come."""


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
    return frozenset((raw, *_json_forms(value), *_url_forms(raw), *_base64_forms(raw)))


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


def _base64_forms(raw: bytes) -> Iterator[bytes]:
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
            for text in {value, value.strip()}:
                if len(text) >= VALUE_CHARS_MIN:
                    needles.update((form, needles.get(form, name)) for form in forms(text))
        self._needles = tuple(sorted(needles.items()))
        self._shapes = tuple((shape, re.compile(shape.pattern)) for shape in SHAPES)
        self.lines_longest = max((len(needle) for needle, _ in self._needles if b"\n" in needle), default=0)
        self.overlap = max((PEM_BYTES_MAX, *(len(needle) for needle, _ in self._needles)))
        """No secret is longer than this."""

    def find(self, data: bytes) -> tuple[Finding, ...]:
        """Every secret in the data, in order of place; they may overlap."""
        return tuple(sorted((*self._find_values(data), *self._find_shapes(data))))

    def scan(self, data: bytes) -> tuple[str, ...]:
        """Names of the secrets that stand in the data for certain, each once; empty: none."""
        return tuple(dict.fromkeys(finding.name for finding in self.find(data) if finding.certain))

    def clean(self, data: bytes) -> bytes:
        """The data without secrets; whole lines of JSON keep their shape."""
        findings = self.find(data)
        return _replaced(data, _merged((finding.start, finding.end) for finding in findings)) if findings else data

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def unfinished(self, data: bytes) -> int:
        """Where in whole lines of output a secret may have begun that goes on in the lines to come; else their end."""
        place = len(data)
        begun = data.rfind(b"-----BEGIN ", max(0, len(data) - PEM_BYTES_MAX))
        if begun >= 0 and PEM_OPEN.match(data, begun):
            place = begun
        for needle, _ in self._needles if self.lines_longest else ():
            for line in re.finditer(b"\n", needle):
                if line.end() < len(needle) and data.endswith(needle[: line.end()]):
                    place = min(place, len(data) - line.end())
        return place if place == len(data) else data.rfind(b"\n", 0, place) + 1

    def _find_values(self, data: bytes) -> Iterator[Finding]:
        for needle, name in self._needles:
            at = data.find(needle)
            while at >= 0:
                yield Finding(at, at + len(needle), name, True)
                at = data.find(needle, at + len(needle))

    def _find_shapes(self, data: bytes) -> Iterator[Finding]:
        for shape, pattern in self._shapes:
            for match in pattern.finditer(data):
                yield Finding(*match.span(), shape.name, shape.certain)
        if b"PRIVATE KEY" in data:
            for match in PEM.finditer(data):
                yield Finding(*match.span(), PEM_NAME, True)


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
        ends = data.rfind(b"\n") + 1
        if ends:
            ready = bytes(self._held) + data[:ends]
            self._held[:] = data[ends:]
            return self._whole(ready) + self._endless()
        self._held += data
        return self._endless()

    def finish(self) -> bytes:
        """What was held back; the stream has ended."""
        rest = bytes(self._held)
        self._held.clear()
        return self._secrets.clean(self._cut(rest))

    def _whole(self, lines: bytes) -> bytes:
        """Cleans whole lines, and puts back those in which a secret may have begun."""
        place = self._secrets.unfinished(lines)
        self._held[:0] = lines[place:]
        return self._secrets.clean(self._cut(lines[:place]))

    def _endless(self) -> bytes:
        """Cuts the line that is held once it is too long to be waited for."""
        begin = self._held.rfind(b"\n") + 1
        if len(self._held) - begin <= LINE_BYTES_MAX + self._secrets.overlap:
            return b""
        self._dropping = True
        return self.finish()

    def _cut(self, lines: bytes) -> bytes:
        if len(lines) <= LINE_BYTES_MAX:
            return lines
        return b"".join(map(self._cut_line, lines.splitlines(keepends=True)))

    def _cut_line(self, line: bytes) -> bytes:
        """At most LINE_BYTES_MAX bytes of the line and a mark, never a part of a secret or of a character."""
        body = line.rstrip(b"\n")
        if len(body) <= LINE_BYTES_MAX:
            return line
        place = LINE_BYTES_MAX
        for start, end in _merged((finding.start, finding.end) for finding in self._secrets.find(body)):
            if start < place < end:
                place = start
        while place and body[place] & 0xC0 == 0x80:
            place -= 1
        return body[:place] + CUT + line[len(body):]


Span = tuple[int, int]


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, overlapping ones joined."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _replaced(data: bytes, spans: list[Span]) -> bytes:
    """The data with a token in place of each span; line by line, for JSON lines are treated with care."""
    pieces, done, rest = [], 0, list(reversed(spans))
    while rest:
        begin = data.rfind(b"\n", 0, rest[-1][0]) + 1
        group, end = [], begin
        while rest and rest[-1][0] < end or not group:
            group.append(rest.pop())
            newline = data.find(b"\n", group[-1][1])
            end = newline if newline >= 0 else len(data)
        line = data[begin:end]
        local = [(start - begin, stop - begin) for start, stop in group]
        pieces += [data[done:begin], _in_json(line, local) if _is_json(line) else _in_text(line, local)]
        done = end
    return b"".join((*pieces, data[done:]))


def _is_json(line: bytes) -> bool:
    if not line.lstrip()[:1] in (b"{", b"[", b'"'):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _in_text(text: bytes, spans: list[Span]) -> bytes:
    pieces, done = [], 0
    for start, end in _merged(_widened(text, span) for span in spans):
        pieces += [text[done:start], TOKEN]
        done = end
    return b"".join((*pieces, text[done:]))


def _widened(text: bytes, span: Span) -> Span:
    """The span, with the escape sequences that it would leave half."""
    start, end = span
    return _escape_at(text, start)[0], _escape_at(text, end)[1]


def _escape_at(text: bytes, place: int) -> Span:
    """The escape sequence that `place` lies within; `place` itself, twice, where there is none."""
    for slash in range(place - 1, max(-1, place - ESCAPE_BYTES_MAX), -1):
        if text[slash] == 0x5C:
            run = slash
            while run and text[run - 1] == 0x5C:
                run -= 1
            begin = run + (slash - run) // 2 * 2
            match = ESCAPES.match(text, begin)
            if match and match.start() < place < match.end():
                return match.span()
    return place, place


def _in_json(line: bytes, spans: list[Span]) -> bytes:
    """Within strings a token, and 0 for a number: the line parses as before, whatever the secret is made of."""
    todo = iter([*spans, (len(line), len(line))])
    span = next(todo)

    def renewed(match: re.Match[bytes]) -> bytes:
        nonlocal span
        start, end = match.span()
        while span[1] <= start:
            span = next(todo)
        hits = []
        while span[0] < end:
            hits.append((max(span[0], start), min(span[1], end)))
            if span[1] > end:
                break
            span = next(todo)
        if not hits:
            return match[0]
        if match[0][:1] != b'"':
            return b"0.0" if re.search(rb"[.eE]", match[0]) else b"0"
        inner = [(max(low, start + 1) - start - 1, min(high, end - 1) - start - 1) for low, high in hits]
        return b'"' + _in_text(match[0][1:-1], [hit for hit in inner if hit[0] < hit[1]]) + b'"'

    return JSON_TOKENS.sub(renewed, line)
