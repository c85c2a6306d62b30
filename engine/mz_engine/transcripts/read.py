"""Read a transcript: detect its format and yield its records, in constant memory.

    with open(path, "rb") as raw:
        found = find(raw)
        for record in found.records(): ...

An importer that resumes reading uses `pieces` and `read_piece` directly.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile

import msgspec
from mz_projections.imported.model import OUTPUT_OPEN

from mz_engine.agents.reading.byte_lines import LINE_BYTES_MAX, Piece, decoded_file, pieces
from mz_engine.agents.reading.records import (
    Format,
    Note,
    Reader,
    ReaderState,
    TranscriptRecord,
    UndecodableLine,
)
from mz_engine.agents.reading.repair import array_elements, repair_line
from mz_engine.transcripts import formats as detect
from mz_engine.transcripts.formats import FORMATS

DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""Size limit of a document that spans several lines."""
OPENERS, CLOSERS = (b"{", b"["), (b"}", b"]")


class DetectedTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript of a known format."""

    format: Format
    pieces: Iterator[Piece]
    encoding_note: str = ""
    """Code of `notes.NOTES` about the file's encoding; empty if the encoding is plain."""

    def records(self, state: ReaderState | None = None) -> Iterator[TranscriptRecord]:
        """Yield all records of the file. Raises OSError."""
        reader = self.format.reader(state or ReaderState())
        if self.encoding_note:
            yield Note(code=self.encoding_note)
        is_text_document = self.format.unit == "file" and self.format.matches_text is not None
        for piece in _as_one_piece(self.pieces) if is_text_document else self.pieces:
            yield from read_piece(self.format, reader, piece)
        if reader.state().open:
            yield Note(code=OUTPUT_OPEN)


def detect_transcript(
    raw: io.BufferedReader,
    agent: str | None = None,
    formats: Sequence[Format] = FORMATS,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> DetectedTranscript:
    """Detect the file's format by its content. Raises detect.Undetected, OSError."""
    source = decoded_file(raw)
    stream = join_documents(pieces(source.file, line_bytes_max=line_bytes_max))
    pieces_read: list[Piece] = []
    detected = _detect_format(stream, pieces_read, detect.formats_of_agent(formats, agent), formats)
    if isinstance(detected, Format):
        return DetectedTranscript(
            format=detected, pieces=chain(pieces_read, stream), encoding_note=source.encoding_note
        )
    document = _join_pieces(chain(pieces_read, stream)) if _may_be_one_document(pieces_read) else None
    matching = detect.formats_of_line(document.data, detect.formats_of_agent(formats, agent)) if document else ()
    if document is None or not matching:
        raise detected
    return DetectedTranscript(
        format=detect.only_format(matching), pieces=iter([document]), encoding_note=source.encoding_note
    )


def read_piece(form: Format, reader: Reader, piece: Piece) -> Iterable[TranscriptRecord]:
    """Return the records of a piece. A JSON array is split into its elements; a damaged line is repaired where
    possible."""
    data = piece.data
    if form.unit != "line" or form.matches_text is not None or data[:1] != b"{" or data[-1:] != b"}":
        return _read_any_piece(form, reader, piece)
    # The fast path, for nearly all lines.
    records = list(reader.read(data))
    return (
        _with_repairs(form, reader, data, piece.is_complete, records)
        if UndecodableLine in map(type, records)
        else records
    )


def _read_any_piece(form: Format, reader: Reader, piece: Piece) -> Iterator[TranscriptRecord]:
    if piece.too_long:
        yield Note(code="long-line")
        yield UndecodableLine(reason="too long")
        return
    if form.matches_text is not None:
        yield from reader.read(piece.data)
        return
    data = _stripped(piece)
    if not data:
        if not piece.is_complete and not piece.data:
            yield Note(code="half-line")
        return
    for line in array_elements(data) if data.startswith(b"[") else (data,):
        yield from _with_repairs(form, reader, line, piece.is_complete, reader.read(line))


def _with_repairs(
    form: Format, reader: Reader, line: bytes, is_complete: bool, records: Iterable[TranscriptRecord]
) -> Iterator[TranscriptRecord]:
    for record in records:
        if isinstance(record, UndecodableLine):
            yield from _repaired_records(form, reader, line, is_complete, record)
        else:
            yield record


def _repaired_records(
    form: Format, reader: Reader, line: bytes, is_complete: bool, undecodable: UndecodableLine
) -> Iterator[TranscriptRecord]:
    repaired = repair_line(line, form)
    if repaired.lines:
        yield Note(code="mended")
        for repaired_line in repaired.lines:
            yield from reader.read(repaired_line)
        if repaired.is_incomplete:
            yield UndecodableLine(reason="in part")
    elif is_complete:
        yield undecodable
    else:
        yield Note(code="half-line")


def join_documents(stream: Iterator[Piece]) -> Iterator[Piece]:
    """Join lines of multi-line JSON into documents. If the first line is only an opening bracket, each resulting piece
    is a document, up to the closing bracket at the beginning of a line; otherwise the pieces are passed on unchanged.
    """
    is_multi_line: bool | None = None
    lines = bytearray()
    size_bytes = end = 0
    for piece in stream:
        stripped = _stripped(piece)
        if is_multi_line is None and (stripped or piece.too_long):
            is_multi_line = stripped in OPENERS
        if is_multi_line is False:
            yield piece
            yield from stream
            return
        if is_multi_line is None:
            yield piece
            continue
        size_bytes, end = size_bytes + len(piece.data), piece.offset_end
        if size_bytes <= DOCUMENT_BYTES_MAX:
            lines += piece.data + b"\n"
        if piece.data.rstrip(b" \t\r\0,") in CLOSERS:
            yield _document(lines, end, size_bytes > DOCUMENT_BYTES_MAX, is_complete=True)
            lines, size_bytes = bytearray(), 0
    if lines.strip():
        yield _document(lines, end, size_bytes > DOCUMENT_BYTES_MAX, is_complete=False)


def _document(lines: bytearray, end: int, too_long: bool, *, is_complete: bool) -> Piece:
    data = b"" if too_long else bytes(lines[:-1])
    return Piece(data=data, offset_end=end, is_complete=is_complete, too_long=too_long)


# detection ------------------------------------------------------------------------------------------------------------
def _detect_format(
    stream: Iterator[Piece], pieces_read: list[Piece], formats: Sequence[Format], all_formats: Sequence[Format]
) -> Format | detect.Undetected:
    """Read until a line is conclusive, and keep the pieces in `held`. Return an error if none is. Input that does not
    begin as JSON may be text of a known format, whatever JSON it quotes later."""
    inspected_pieces = _pieces_to_inspect(stream, pieces_read)
    first = next((piece for piece in inspected_pieces if _stripped(piece)), None)
    if first is None:
        return detect.undetected_error(
            detect.InspectedInput(size_bytes=max((piece.offset_end for piece in pieces_read), default=0)), all_formats
        )
    if not _stripped(first).startswith(OPENERS):
        for _ in takewhile(
            lambda _: sum(len(piece.data) + 1 for piece in pieces_read) < detect.HEAD_BYTES, inspected_pieces
        ):
            pass
        head = b"\n".join(piece.data for piece in pieces_read)
        if matching := detect.formats_of_text(head[: detect.HEAD_BYTES], formats):
            return detect.only_format(matching)
    inspected = detect.InspectedInput()
    for piece in chain(tuple(pieces_read), inspected_pieces):
        if stripped := _stripped(piece):
            if matching := detect.formats_of_line(stripped, formats):
                return detect.only_format(matching)
            _count_line(inspected, stripped)
    if other_agents_formats := [
        matching for piece in pieces_read for matching in detect.formats_of_line(_stripped(piece), all_formats)
    ]:
        return detect.OtherAgentsFormat(
            f"is {other_agents_formats[0].name}, which {other_agents_formats[0].agent} writes"
        )
    return detect.undetected_error(inspected, formats)


def _pieces_to_inspect(stream: Iterator[Piece], pieces_read: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces within the limits of detection, and keep them."""
    size_bytes = 0
    while len(pieces_read) <= detect.LINES_MAX and size_bytes <= detect.BYTES_MAX:
        piece = next(stream, None)
        if piece is None:
            return
        pieces_read.append(piece)
        size_bytes += len(piece.data)
        yield piece


def _stripped(piece: Piece) -> bytes:
    return piece.data.strip(b"\0 \t\r\n")


def _count_line(inspected: detect.InspectedInput, data: bytes) -> None:
    objects_in_line = detect.decode_objects(data)
    inspected.lines += 1
    if objects_in_line and not inspected.objects:
        inspected.beginning = (
            f"the keys {', '.join(sorted(map(repr, objects_in_line[0]))[:8])}" if objects_in_line[0] else "no keys"
        )
    elif not inspected.beginning:
        inspected.beginning = data[:60].decode("utf-8", "replace")
    inspected.objects += bool(objects_in_line)


def _as_one_piece(stream: Iterable[Piece]) -> Iterator[Piece]:
    document = _join_pieces(stream)
    if document is not None:
        yield document


def _join_pieces(stream: Iterable[Piece]) -> Piece | None:
    """Return the remaining pieces as one; None if that is too long."""
    lines = bytearray()
    last: Piece | None = None
    for piece in stream:
        lines += piece.data + b"\n"
        last = piece
        if len(lines) > DOCUMENT_BYTES_MAX or piece.too_long:
            return None
    return _document(lines, last.offset_end, too_long=False, is_complete=last.is_complete) if last is not None else None


def _may_be_one_document(pieces_read: Sequence[Piece]) -> bool:
    """Return True if the lines may be parts of one document: the first one begins one and does not decode by itself.
    Millions of lines that are documents themselves need not be joined."""
    first = next((stripped for piece in pieces_read if (stripped := _stripped(piece))), b"")
    return first.startswith(OPENERS) and not detect.decode_objects(first)
