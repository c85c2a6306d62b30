"""Adapter: the bytes of a transcript, line by line, in constant memory, however they are written down.

UTF-8 with or without a byte order mark, UTF-16 (as PowerShell redirects), gzip. A line that is longer than the limit is
passed over without being held; the last one may be half-written.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import msgspec

LINE_BYTES_MAX = 32 * 1024 * 1024
"""Longer than any line that an agent writes: pictures in tool results come to some megabytes."""
CHUNK_BYTES = 64 * 1024
BLOCK_BYTES = 128 * 1024
OPENING, CLOSING = b"{}"
GZIP = b"\x1f\x8b"
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error)
LITTLE, BIG = "utf-16-le", "utf-16-be"
UTF_16 = (
    (codecs.BOM_UTF16_LE, LITTLE), (b"{\0", LITTLE), (b"[\0", LITTLE),
    (codecs.BOM_UTF16_BE, BIG), (b"\0{", BIG), (b"\0[", BIG),
)  # fmt: skip


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A line without its end, or a document of several."""

    data: bytes
    end: int
    """Byte behind it, its line end included, in what `Plain.file` gives."""
    whole: bool = True
    """False: the file ends here without a line end, or in the middle of a document."""
    too_long: bool = False
    """Its content was passed over."""
    lines: int = 1
    """More than one: lines with their ends, each of which begins with `{` and ends with `}`."""


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """A file as UTF-8."""

    file: BinaryIO
    remark: str = ""
    """utf-16 or compressed, where bytes of `file` are not those of the file itself; one of `notes.NOTES`."""


def buffered(file: BinaryIO) -> io.BufferedReader:
    """The same bytes, in a form that can be looked into without reading them."""
    return file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", file))


def plain(raw: io.BufferedReader) -> Plain:
    """The content of a file that stands at its beginning; it need not be seekable."""
    head = raw.peek(4)
    if head.startswith(GZIP):
        return Plain(file=gzip.GzipFile(fileobj=raw), remark="compressed")  # type: ignore[arg-type]
    for mark, encoding in UTF_16:
        if head.startswith(mark):
            return Plain(file=io.BufferedReader(_Recoded(raw, encoding), CHUNK_BYTES), remark="utf-16")
    return Plain(file=raw)


def pieces(file: BinaryIO, start: int = 0, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[Piece]:
    """The lines from where the file stands, which is byte `start` of it; empty ones too. A byte order mark is no part
    of the first. Raises OSError."""
    end, first = start, start == 0
    while True:
        try:
            line = file.readline(line_bytes_max + 1)
            whole, too_long = line.endswith(b"\n"), False
            end += len(line)
            if len(line) > line_bytes_max and not whole:
                skipped, whole = _skip(file)
                end, line, too_long = end + skipped, b"", True
        except BROKEN:
            yield Piece(data=b"", end=end, whole=False)
            return
        if not line and not too_long:
            return
        if first:
            line, first = line.removeprefix(codecs.BOM_UTF8), False
        yield Piece(data=line.rstrip(b"\r\n"), end=end, whole=whole, too_long=too_long)


def blocks(file: io.BufferedReader, start: int, block_bytes: int = BLOCK_BYTES) -> Iterator[Piece]:
    """Like `pieces` from byte `start` on, but usual lines come many at a time; where the file stands does not matter.
    Between two such lines no JSON can go on, so that none of them holds more or less than one object. Raises OSError.
    """
    end = start
    while True:
        block = os.pread(file.fileno(), block_bytes, end)
        block = block[: block.rfind(b"\n") + 1]
        lines, upto = usual_lines(block), end + len(block)
        if lines > 1:
            end = upto
            yield Piece(data=block, end=end, lines=lines)
            continue
        file.seek(end)
        for piece in pieces(file, end):
            end = piece.end
            yield piece
            if end >= upto:
                break
        else:
            return


def usual_lines(block: bytes) -> int:
    """How many lines there are, each of which begins with `{` and ends with `}`; 0 where another one is among them."""
    lines = begin = 0
    while (end := block.find(b"\n", begin)) > begin:
        if block[begin] != OPENING or block[end - 1] != CLOSING:
            return 0
        lines, begin = lines + 1, end + 1
    return lines if begin == len(block) else 0


def _skip(file: BinaryIO) -> tuple[int, bool]:
    """Bytes up to the next line, and whether there was a line end."""
    skipped = 0
    while part := file.readline(CHUNK_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            return skipped, True
    return skipped, False


class _Recoded(io.RawIOBase):
    """UTF-16 as UTF-8; what is neither becomes a replacement character."""

    def __init__(self, raw: BinaryIO, encoding: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = self._raw.read(CHUNK_BYTES)
            self._ready = self._decoder.decode(chunk, not chunk).encode("utf-8", "replace")
            if not chunk:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
