"""Decodes what may hide a secret: escapes, terminal colours, base64, base32, hexadecimal, URL encoding, line ends.

Shared by all that search for secrets. Each decoder takes text and returns the decoded parts as one text, which knows
where each of its bytes came from. Keys are matched within lines, so parts are separated by a line end.
"""

from __future__ import annotations

import re
from base64 import b32decode
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from mz_events.redaction.json_splice import Span
from mz_events.redaction.key_rules import compile_regex

PAD = b"\x0b"
"""Takes the place of backslashes, so that offsets stay, and is then left out."""
ESCAPES = ((b"\\n", PAD + b"\n"), (b"\\r", PAD + b"\r"), (b"\\t", PAD + b"\t"))
BACKSLASH_TO_PAD = bytes.maketrans(b"\\", PAD)
PADS = re.compile(rb"\x0b+")
COLOUR = r"(?:\x1b|u001[bB]|x1[bB]|033)\[[0-9;:?]*[A-Za-z]|e\[[0-9;]+m"
COLOUR_OR_PADS = re.compile(rb"(?:\x1b|\x0b+(?:u001[bB]|x1[bB]|033|e))\[[0-9;:?]*[A-Za-z]|\x0b+")
LINE_ENDS = re.compile(rb"\r?\n")
BASE64 = "(?:[CDI-Za-f][AC-HQS-Xgi-nwyz0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){5,}"
"""ASCII text in base64, in which only few characters can be the first, second or third of a group of four."""
BASE64_EDGE = re.compile(rb"[A-Za-z0-9+/_-]{1,4}")
BASE32 = "[A-Z2-7]{32,}"
BASE32_ENDS = {1: 1, 3: 1, 6: 1}
"""Number of characters beyond those that encode whole bytes, by length modulo 8."""
HEX = "(?:[2-7][0-9a-fA-F]|0[9aAdD]){16,}|(?:x[2-7][0-9a-fA-F]|x0[9aAdD]){16,}"
"""ASCII text in hexadecimal."""
PERCENT = r"(?:[A-Za-z0-9._~+-]*%[0-9A-Fa-f]{2})+[A-Za-z0-9._~+-]*"
UNICODE = r"(?:[A-Za-z0-9._~+/-]*u00[2-7][0-9A-Fa-f])+[A-Za-z0-9._~+/-]*"
PERCENT_CODE, UNICODE_CODE = "%[2-7][0-9A-Fa-f]", "u00[2-7][0-9A-Fa-f]"
KEY_CHARACTERS = r"[A-Za-z0-9_+/=~.-]"
SPLIT_START_MIN, SPLIT_NEXT_MIN = 8, 6
"""Characters of a key before its first line end, and at the start of each further line."""
SPLIT = rf"{KEY_CHARACTERS}{{{SPLIT_START_MIN},}}(?:\r?\n{KEY_CHARACTERS}{{{SPLIT_NEXT_MIN},}})+"
SPLIT_START = re.compile(rf"{KEY_CHARACTERS}{{{SPLIT_START_MIN}}}\Z".encode())
SPLIT_NEXT = re.compile(rf"{KEY_CHARACTERS}{{{SPLIT_NEXT_MIN},}}\Z".encode())
SPLIT_BYTES_MAX = 1 << 12
"""Maximum size of an incomplete key over several lines to wait for."""
NO_WORD = re.compile(rb"[0-9]|[a-z][A-Z]|[A-Z]{3}|.{16}")
"""What a part of a key contains, but hardly a word."""
NAME_BYTES_MAX = 100
"""What is searched before a split key: some are only found by the name before them."""


class Piece(NamedTuple):
    """A part of a decoded text: `size` bytes from `at`, which were encoded from `source` on; `encoded` bytes of the
    source hold `decoded` of them."""

    at: int
    source: int
    size: int
    encoded: int = 1
    decoded: int = 1


class Decoded:
    """Decoded text, and where it came from. `pieces` are in order."""

    def __init__(self, data: bytes, encoding: str, pieces: Iterable[Piece]) -> None:
        self.data, self.encoding = data, encoding
        self._lazy_pieces = pieces
        self._pieces: tuple[Piece, ...] = ()
        self._starts: list[int] = []

    def source(self, start: int, end: int) -> Span:
        """Return the start and end of the bytes that encode this part."""
        spans = self.sources(start, end)
        return spans[0][0], spans[-1][1]

    def sources(self, start: int, end: int) -> list[Span]:
        """Return the same piece by piece; `start` is less than `end`."""
        if not self._starts:
            self._pieces = tuple(self._lazy_pieces)
            self._starts = [piece.at for piece in self._pieces]
        first, last = bisect_right(self._starts, start) - 1, bisect_right(self._starts, end - 1)
        spans = []
        for piece in self._pieces[max(0, first) : last]:
            low, high = max(start - piece.at, 0), min(end - piece.at, piece.size)
            spans.append((
                piece.source + low * piece.encoded // piece.decoded,
                piece.source - (-high * piece.encoded // piece.decoded),
            ))  # fmt: skip
        return spans


def unescape(data: bytes, colours: bool = True) -> Decoded:
    """Return the text without escapes, whatever their depth; it has more line ends than before. With `colours`, also
    without these."""
    padded = data
    if b"\\" in data:
        for escape, replacement in ESCAPES:
            padded = padded.replace(escape, replacement)
        padded = padded.translate(BACKSLASH_TO_PAD)
    if colours:
        return Decoded(COLOUR_OR_PADS.sub(b"", padded), "", _kept(padded, COLOUR_OR_PADS))
    return Decoded(padded.translate(None, PAD), "", _kept(padded, PADS))


def join_lines(text: bytes) -> Decoded:
    """Return the text without line ends."""
    return Decoded(text.replace(b"\r\n", b"").replace(b"\n", b""), "", _kept(text, LINE_ENDS))


def _kept(text: bytes, left_out: re.Pattern[bytes], source: int = 0, at: int = 0) -> Iterator[Piece]:
    """Yield the pieces between what is left out."""
    spans = ((0, 0), *(match.span() for match in left_out.finditer(text)), (len(text), len(text)))
    for (_, start), (end, _) in pairwise(spans):
        if start < end or not at:
            yield Piece(at, source + start, end - start)
            at += end - start


Parts = Iterator[tuple[bytes, Iterable[Piece]]]
"""Decoded bytes, and their pieces, the first of which is at 0."""


def _base64_parts(text: bytes) -> Parts:
    for match in compile_regex(BASE64).finditer(text):
        start, end = match.span()
        # The groups before and behind may encode the ends of a key together with another character.
        start -= 4 if BASE64_EDGE.fullmatch(text, max(0, start - 4), start) and start >= 4 else 0
        edge = BASE64_EDGE.match(text, end)
        encoded = text[start : edge.end() if edge else end].replace(b"-", b"+").replace(b"_", b"/")
        decoded = a2b_base64(encoded[: len(encoded) - (len(encoded) % 4 == 1)] + b"=" * (-len(encoded) % 4))
        yield decoded, (Piece(0, start, len(decoded), 4, 3),)


def _base32_parts(text: bytes) -> Parts:
    for match in compile_regex(BASE32).finditer(text):
        for skipped in range(8):
            encoded = match[0][skipped:]
            encoded = encoded[: len(encoded) - BASE32_ENDS.get(len(encoded) % 8, 0)]
            decoded = b32decode(encoded + b"=" * (-len(encoded) % 8))
            yield decoded, (Piece(0, match.start() + skipped, len(decoded), 8, 5),)


def _hex_parts(text: bytes) -> Parts:
    for match in compile_regex(HEX).finditer(text):
        decoded = bytes.fromhex(match[0].replace(b"x", b"").decode())
        yield decoded, (Piece(0, match.start(), len(decoded), len(match[0]) // len(decoded), 1),)


def _substituted_parts(text: bytes, regex: str, mark: bytes, size: int) -> Parts:
    """Decode words in which codes of `size` bytes, a mark and two digits, are each a byte."""
    code = re.compile(mark + rb"([0-9A-Fa-f]{2})")
    for match in compile_regex(regex).finditer(text):
        decoded, pieces, end = bytearray(), [], 0
        for code_match in (*code.finditer(match[0]), None):
            start = code_match.start() if code_match else len(match[0])
            pieces.append(Piece(len(decoded), match.start() + end, start - end))
            decoded += match[0][end:start]
            if code_match:
                pieces.append(Piece(len(decoded), match.start() + start, 1, size, 1))
                decoded.append(int(code_match[1], 16))
                end = code_match.end()
        yield bytes(decoded), pieces


def _split_parts(text: bytes) -> Parts:
    for match in compile_regex(SPLIT).finditer(text):
        start = max(text.rfind(b"\n", 0, match.start()) + 1, match.start() - NAME_BYTES_MAX)
        end = match.start()
        for line in match[0].splitlines(keepends=True):
            if end > match.start() and not NO_WORD.search(line):
                break
            end += len(line)
        lines = text[start:end]
        yield LINE_ENDS.sub(b"", lines), _kept(lines, LINE_ENDS, start)


SEVERAL_LINES = "over several lines"
DECODERS: tuple[tuple[str, str, Callable[[bytes], Parts]], ...] = (
    ("in base64", BASE64, _base64_parts),
    ("in base32", BASE32, _base32_parts),
    ("in hexadecimal", HEX, _hex_parts),
    ("URL-encoded", PERCENT_CODE, partial(_substituted_parts, regex=PERCENT, mark=b"%", size=3)),
    ("escaped", UNICODE_CODE, partial(_substituted_parts, regex=UNICODE, mark=b"u00", size=5)),
    (SEVERAL_LINES, "", _split_parts),
)
"""Name of the encoding, what occurs in it, and its decoder; all that search for secrets share them."""
MARKS = (COLOUR, *(mark for _, mark, _ in DECODERS if mark))


def decode(text: bytes, marks: Collection[str]) -> Iterator[Decoded]:
    """Yield what the encoded parts of a text say, for each encoding in it. `marks`: those of MARKS that occur."""
    for encoding, mark, decoder in DECODERS:
        parts: list[bytes] = []
        pieces: list[Piece] = []
        at = 0
        for part, its_pieces in decoder(text) if not mark or mark in marks else ():
            parts.append(part)
            pieces += (piece._replace(at=at + piece.at) for piece in its_pieces)
            at += len(part) + 1
        if parts:
            yield Decoded(b"\n".join(parts), encoding, pieces)


def unfinished_key(lines: bytes) -> int | None:
    """Return the start of the line with a key that may continue in later lines; None if there is none."""
    start, end = None, len(lines)
    while end and len(lines) - end < SPLIT_BYTES_MAX:
        line_start = lines.rfind(b"\n", 0, end - 1) + 1
        line = lines[line_start:end].rstrip(b"\r\n")
        if SPLIT_START.search(line[-SPLIT_START_MIN:]):
            start = line_start
        if not SPLIT_NEXT.match(line):
            return start
        end = line_start
    return None if end else start
