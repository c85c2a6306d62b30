"""Lines of a transcript, in constant memory, in any of the supported encodings.

UTF-8 with or without a byte order mark, UTF-16 (as PowerShell redirects), gzip. A line over the limit is skipped
without being held in memory; the last line may be incomplete.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import msgspec

LINE_BYTES_MAX = 32 * 1024 * 1024
"""More than any line that an agent writes: images in tool results take some megabytes."""
CHUNK_BYTES = 64 * 1024
GZIP = b"\x1f\x8b"
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error)
LITTLE, BIG = "utf-16-le", "utf-16-be"
UTF_16 = (
    (codecs.BOM_UTF16_LE, LITTLE), (b"{\0", LITTLE), (b"[\0", LITTLE),
    (codecs.BOM_UTF16_BE, BIG), (b"\0{", BIG), (b"\0[", BIG),
)  # fmt: skip


class Piece(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line without its line end, or a document of several lines."""

    data: bytes
    offset_end: int
    """Offset after it, line end included, in the bytes of the decoded file."""
    is_complete: bool = True
    """False if the file ends here without a line end, or in the middle of a document."""
    too_long: bool = False
    """True if the content was skipped."""


def buffered(file: BinaryIO) -> io.BufferedReader:
    """Return the file as one that can be peeked into."""
    return file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", file))


def decoded_file(raw: io.BufferedReader) -> tuple[BinaryIO, str]:
    """Return a file at its beginning as UTF-8, and a code of `records.NOTES` if the bytes are not the file's own, else
    an empty text. The file need not be seekable."""
    head = raw.peek(4)
    if head.startswith(GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw)), "compressed"
    for prefix, encoding in UTF_16:
        if head.startswith(prefix):
            return io.BufferedReader(_Utf16AsUtf8(raw, encoding), CHUNK_BYTES), "utf-16"
    return raw, ""


def pieces(file: BinaryIO, offset_start: int = 0, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[Piece]:
    """Yield the lines from the current position, which is byte `start`, empty lines included. A byte order mark is not
    part of the first line. Raises OSError."""
    end, first = offset_start, offset_start == 0
    while True:
        try:
            line = file.readline(line_bytes_max + 1)
            is_complete, too_long = line.endswith(b"\n"), False
            end += len(line)
            if len(line) > line_bytes_max and not is_complete:
                line, too_long = b"", True
                while not is_complete and (part := file.readline(CHUNK_BYTES)):
                    end, is_complete = end + len(part), part.endswith(b"\n")
        except BROKEN:
            yield Piece(data=b"", offset_end=end, is_complete=False)
            return
        if not line and not too_long:
            return
        if first:
            line, first = line.removeprefix(codecs.BOM_UTF8), False
        yield Piece(data=line.rstrip(b"\r\n"), offset_end=end, is_complete=is_complete, too_long=too_long)


class _Utf16AsUtf8(io.RawIOBase):
    """UTF-16 as UTF-8; undecodable input becomes a replacement character."""

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
