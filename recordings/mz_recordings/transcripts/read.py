"""Read a transcript: detect its format and yield its records, in constant memory.

    with open(path, "rb") as raw:
        found = find(raw)
        for record in found.records(): ...

An importer that resumes reading uses `bytestream.blocks` or `pieces`, and `feed`, directly.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import cast

import msgspec
from mz_projections.imported import OPEN

from mz_recordings.transcripts import detect
from mz_recordings.transcripts.bytestream import LINE_BYTES_MAX, Piece, pieces, plain
from mz_recordings.transcripts.facts import Bad, BlockReader, Carry, Format, Reader, Remark, Sighting
from mz_recordings.transcripts.formats import FORMATS
from mz_recordings.transcripts.mend import mend, objects

DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""Size limit of a document that spans several lines."""
OPENERS, CLOSERS = (b"{", b"["), (b"}", b"]")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript of a known format."""

    format: Format
    pieces: Iterator[Piece]
    remark: str = ""
    """Code of `notes.NOTES` about the file's encoding; empty if the encoding is plain."""

    def sightings(self, carry: Carry | None = None) -> Iterator[Sighting]:
        """Yield all records of the file. Raises OSError."""
        reader = self.format.reader(carry or Carry())
        if self.remark:
            yield Remark(code=self.remark)
        whole_file = self.format.unit == "file" and self.format.fits_text is not None
        for piece in _joined(self.pieces) if whole_file else self.pieces:
            yield from feed(self.format, reader, piece)
        if reader.carry().open:
            yield Remark(code=OPEN)


def find(
    raw: io.BufferedReader,
    agent: str | None = None,
    formats: Sequence[Format] = FORMATS,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> Found:
    """Detect the file's format by its content. Raises detect.Undetected, OSError."""
    source = plain(raw)
    stream = documents(pieces(source.file, line_bytes_max=line_bytes_max))
    held: list[Piece] = []
    form = _detect(stream, held, detect.limited(formats, agent), formats)
    if isinstance(form, Format):
        return Found(format=form, pieces=chain(held, stream), remark=source.remark)
    whole = _whole(chain(held, stream)) if _may_be_spread(held) else None
    fitting = detect.of_line(whole.data, detect.limited(formats, agent)) if whole else ()
    if whole is None or not fitting:
        raise form
    return Found(format=detect.one(fitting), pieces=iter([whole]), remark=source.remark)


def feed(form: Format, reader: Reader, piece: Piece) -> Iterable[Sighting]:
    """Return the records of a piece. A JSON array is split into its elements; a damaged line is repaired where
    possible."""
    data = piece.data
    if piece.lines > 1:
        return _block(form, reader, piece)
    if form.unit != "line" or form.fits_text is not None or data[:1] != b"{" or data[-1:] != b"}":
        return _fed(form, reader, piece)
    # The fast path, for nearly all lines.
    seen = list(reader.read(data))
    return _with_mended(form, reader, data, piece.whole, seen) if Bad in map(type, seen) else seen


def _block(form: Format, reader: Reader, block: Piece) -> Iterable[Sighting]:
    seen = cast("BlockReader", reader).read_lines(block.data, block.lines)
    if seen is not None:
        return seen
    lines = (Piece(data=line, end=block.end) for line in block.data.split(b"\n") if line)
    return chain.from_iterable(feed(form, reader, line) for line in lines)


def _fed(form: Format, reader: Reader, piece: Piece) -> Iterator[Sighting]:
    if piece.too_long:
        yield Remark(code="long-line")
        yield Bad(why="too long")
        return
    if form.fits_text is not None:
        yield from reader.read(piece.data)
        return
    data = _bare(piece)
    if not data:
        if not piece.whole and not piece.data:
            yield Remark(code="half-line")
        return
    for line in objects(data) if data.startswith(b"[") else (data,):
        yield from _with_mended(form, reader, line, piece.whole, reader.read(line))


def _with_mended(
    form: Format, reader: Reader, line: bytes, whole: bool, sightings: Iterable[Sighting]
) -> Iterator[Sighting]:
    for seen in sightings:
        if isinstance(seen, Bad):
            yield from _mended(form, reader, line, whole, seen)
        else:
            yield seen


def _mended(form: Format, reader: Reader, line: bytes, whole: bool, bad: Bad) -> Iterator[Sighting]:
    saved = mend(line, form)
    if saved.lines:
        yield Remark(code="mended")
        for each in saved.lines:
            yield from reader.read(each)
        if saved.lost:
            yield Bad(why="in part")
    elif whole:
        yield bad
    else:
        yield Remark(code="half-line")


def documents(stream: Iterator[Piece]) -> Iterator[Piece]:
    """Join lines of multi-line JSON into documents. If the first line is only an opening bracket, each resulting piece
    is a document, up to the closing bracket at the beginning of a line; otherwise the pieces are passed on unchanged.
    """
    spread: bool | None = None
    lines = bytearray()
    size = end = 0
    for piece in stream:
        bare = _bare(piece)
        if spread is None and (bare or piece.too_long):
            spread = bare in OPENERS
        if spread is False:
            yield piece
            yield from stream
            return
        if spread is None:
            yield piece
            continue
        size, end = size + len(piece.data), piece.end
        if size <= DOCUMENT_BYTES_MAX:
            lines += piece.data + b"\n"
        if piece.data.rstrip(b" \t\r\0,") in CLOSERS:
            yield _document(lines, end, size > DOCUMENT_BYTES_MAX, whole=True)
            lines, size = bytearray(), 0
    if lines.strip():
        yield _document(lines, end, size > DOCUMENT_BYTES_MAX, whole=False)


def _document(lines: bytearray, end: int, too_long: bool, *, whole: bool) -> Piece:
    data = b"" if too_long else bytes(lines[:-1])
    return Piece(data=data, end=end, whole=whole, too_long=too_long)


# detection ------------------------------------------------------------------------------------------------------------
def _detect(
    stream: Iterator[Piece], held: list[Piece], formats: Sequence[Format], known: Sequence[Format]
) -> Format | detect.Undetected:
    """Read until a line is conclusive, and keep the pieces in `held`. Return an error if none is. Input that does not
    begin as JSON may be text of a known format, whatever JSON it quotes later."""
    kept = _keeping(stream, held)
    first = next((piece for piece in kept if _bare(piece)), None)
    if first is None:
        return detect.nothing(detect.Seen(bytes=max((piece.end for piece in held), default=0)), known)
    if not _bare(first).startswith(OPENERS):
        for _ in takewhile(lambda _: sum(len(piece.data) + 1 for piece in held) < detect.HEAD_BYTES, kept):
            pass
        if found := detect.of_head(_head(held), formats):
            return detect.one(found)
    seen = detect.Seen()
    for piece in chain(tuple(held), kept):
        if bare := _bare(piece):
            if found := detect.of_line(bare, formats):
                return detect.one(found)
            _note(seen, bare)
    if other := [found for piece in held for found in detect.of_line(_bare(piece), known)]:
        return detect.OtherAgents(f"is {other[0].name}, which {other[0].agent} writes")
    return detect.nothing(seen, formats)


def _keeping(stream: Iterator[Piece], held: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces within the limits of detection, and keep them."""
    size = 0
    while len(held) <= detect.LINES_MAX and size <= detect.BYTES_MAX:
        piece = next(stream, None)
        if piece is None:
            return
        held.append(piece)
        size += len(piece.data)
        yield piece


def _bare(piece: Piece) -> bytes:
    return piece.data.strip(b"\0 \t\r\n")


def _head(held: Sequence[Piece]) -> bytes:
    return b"\n".join(piece.data for piece in held)[: detect.HEAD_BYTES]


def _note(seen: detect.Seen, data: bytes) -> None:
    found = detect.decoded(data)
    seen.lines += 1
    if found and not seen.objects:
        seen.first = f"the keys {', '.join(sorted(map(repr, found[0]))[:8])}" if found[0] else "no keys"
    elif not seen.first:
        seen.first = data[:60].decode("utf-8", "replace")
    seen.objects += bool(found)


def _joined(stream: Iterable[Piece]) -> Iterator[Piece]:
    whole = _whole(stream)
    if whole is not None:
        yield whole


def _whole(stream: Iterable[Piece]) -> Piece | None:
    """Return the remaining pieces as one; None if that is too long."""
    lines = bytearray()
    last: Piece | None = None
    for piece in stream:
        lines += piece.data + b"\n"
        last = piece
        if len(lines) > DOCUMENT_BYTES_MAX or piece.too_long:
            return None
    return _document(lines, last.end, too_long=False, whole=last.whole) if last is not None else None


def _may_be_spread(held: Sequence[Piece]) -> bool:
    """Return True if the lines may be parts of one document: the first one begins one and does not decode by itself.
    Millions of lines that are documents themselves need not be joined."""
    first = next((bare for piece in held if (bare := _bare(piece))), b"")
    return first.startswith(OPENERS) and not detect.decoded(first)
