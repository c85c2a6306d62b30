"""Read a transcript: detect its format by its content, and yield its records, in constant memory.

    with open(path, "rb") as raw:
        for record in detect_transcript(raw).records(): ...

The first line that can only be of one format decides; text that is not JSON is matched against the text formats. If no
line of a file is conclusive, a person may name the agent. File names do not count. An importer that resumes reading
uses `pieces` and `read_piece` directly.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

import msgspec
from mz_projections.imported.model import OUTPUT_OPEN

from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.reading.byte_lines import LINE_BYTES_MAX, Piece, decoded_file, pieces
from mz_engine.agents.reading.json_lines import decode_object
from mz_engine.agents.reading.records import (
    Format,
    Note,
    Reader,
    ReaderState,
    SessionInfo,
    TranscriptRecord,
    UndecodableLine,
    UnknownLine,
)

FORMATS: tuple[Format, ...] = tuple(form for agent in AGENTS.values() for form in agent.formats)
"""The order does not matter: a line matches at most one of them."""
HEAD_BYTES = 64 * 1024
"""Limit of the text that is matched against text formats."""
LINES_MAX, BYTES_MAX = 1000, 16 * 1024 * 1024
"""Limits of the search for the first conclusive line."""
DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""Size limit of a document that spans several lines."""
REPAIRED_BYTES_MAX = 1024 * 1024
"""Longer lines are not searched for further objects."""
ATTEMPTS_MAX = 32
UNCERTAIN_RECORDS = (SessionInfo, Note, UnknownLine, UndecodableLine)
"""Records that any file may yield."""
LONE_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
OPENERS, CLOSERS = (b"{", b"["), (b"}", b"]")

_objects = msgspec.json.Decoder(dict[str, object])
_lists = msgspec.json.Decoder(list[object])
_arrays = msgspec.json.Decoder(list[msgspec.Raw])
_repairing_decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None)


class Undetected(Exception):
    """The file has no known format. The message completes a sentence that begins with the file's name."""


class OtherAgentsFormat(Undetected):
    """The file is a transcript of another agent than the requested one."""


class DetectedTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript of a known format."""

    format: Format
    pieces: Iterator[Piece]
    encoding_note: str = ""
    """Code of `records.NOTES` about the file's encoding; empty if the encoding is plain."""

    def records(self) -> Iterator[TranscriptRecord]:
        """Yield all records of the file. Raises OSError."""
        reader = self.format(ReaderState())
        if self.encoding_note:
            yield Note(code=self.encoding_note)
        for piece in self.pieces:
            yield from read_piece(self.format, reader, piece)
        if reader.state().open:
            yield Note(code=OUTPUT_OPEN)


def detect_transcript(
    raw: io.BufferedReader,
    agent: str | None = None,
    formats: Sequence[Format] = FORMATS,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> DetectedTranscript:
    """Detect the file's format by its content. Raises Undetected, OSError."""
    file, encoding_note = decoded_file(raw)
    stream = join_documents(pieces(file, line_bytes_max=line_bytes_max))
    candidates = [form for form in formats if agent in (None, form.agent)]
    head, first_line, form = list[Piece](), b"", None
    size_bytes = 0
    while form is None and len(head) <= LINES_MAX and size_bytes <= BYTES_MAX and (piece := next(stream, None)):
        head.append(piece)
        size_bytes += len(piece.data)
        line = _stripped(piece)
        first_line = first_line or line
        if first_line.startswith(OPENERS):
            form = _match_line(line, candidates)
    form = form or _detect_format(head, agent, formats)
    return DetectedTranscript(format=form, pieces=chain(head, stream), encoding_note=encoding_note)


def _detect_format(head: Sequence[Piece], agent: str | None, formats: Sequence[Format]) -> Format:
    lines = [line for piece in head if (line := _stripped(piece))]
    if not lines:
        raise Undetected("contains only blanks and zero bytes" if head else "is empty")
    if form := _first_match(head, lines, [form for form in formats if agent in (None, form.agent)]):
        return form
    other = _first_match(head, lines, formats)
    counts = {form: _count_records(form, head) for form in formats if form.agent == agent}
    best = max(counts, key=lambda form: counts[form], default=None)
    if best and any(counts[best][: 1 if other else 2]):
        return best
    if other:
        raise OtherAgentsFormat(f"is {other.name}, which {other.agent} writes")
    names = ", ".join(form.name for form in formats)
    if (first := next((value for line in lines for value in decode_objects(line)), None)) is None:
        beginning = repr(lines[0][:60].decode("utf-8", "replace"))
        raise Undetected(
            f"has neither a JSON object nor text of a known format; it begins with {beginning}; known formats: {names}"
        )
    keys = f"the keys {', '.join(sorted(map(repr, first))[:8])}" if first else "no keys"
    raise Undetected(f"is JSON of an unknown format; its first object has {keys}; known formats: {names}")


def _count_records(form: Format, head: Sequence[Piece]) -> tuple[int, int]:
    """Return the number of records with tokens that a format reads, and of all that it knows: whether a file without a
    conclusive line, or with one that other agents write too, can be of the agent that a person names."""
    reader = form(ReaderState())
    records = [record for piece in head for record in read_piece(form, reader, piece)]
    with_tokens = sum(bool(getattr(record, "usage", ())) for record in records)
    return with_tokens, sum(not isinstance(record, UNCERTAIN_RECORDS) for record in records)


def _first_match(head: Sequence[Piece], lines: Iterable[bytes], formats: Sequence[Format]) -> Format | None:
    """Return the format of the first conclusive line. Input that does not begin as JSON may be text of a known format,
    whatever JSON it quotes later."""
    if not next(iter(lines)).startswith(OPENERS):
        text = b"\n".join(piece.data for piece in head)[:HEAD_BYTES]
        for form in formats:
            if form.is_text and form.matches_text(text):
                return form
    return next(filter(None, (_match_line(line, formats) for line in lines)), None)


def _match_line(line: bytes, formats: Sequence[Format]) -> Format | None:
    return next((form for value in decode_objects(line) for form in formats if form.matches(value)), None)


def decode_objects(data: bytes) -> list[dict[str, object]]:
    """Return a JSON object, or the objects of a JSON array; for a damaged line, the object that it begins with. Empty
    for anything else."""
    try:
        if data.lstrip()[:1] == b"[":
            return [element for element in _lists.decode(data) if isinstance(element, dict)]
        return [_objects.decode(data)]
    except (msgspec.DecodeError, RecursionError, ValueError):
        text = _decoded(data).lstrip()
        if len(data) <= REPAIRED_BYTES_MAX and text.startswith("{"):
            with suppress(ValueError, RecursionError):
                return [_repairing_decoder.raw_decode(text)[0]]
        return []


# reading --------------------------------------------------------------------------------------------------------------
def read_piece(form: Format, reader: Reader, piece: Piece) -> Iterator[TranscriptRecord]:
    """Yield the records of a piece. A JSON array is split into its elements, a damaged line is repaired if possible."""
    if not (piece.too_long or form.is_text) and form.read is Reader.read and (data := _stripped(piece))[:1] == b"{":
        value = decode_object(data)  # Most pieces are whole objects.
        if value is not None:
            return reader.read_object(value)
    return _records_of(form, reader, piece)


def _records_of(form: Format, reader: Reader, piece: Piece) -> Iterator[TranscriptRecord]:
    if piece.too_long:
        yield Note(code="long-line")
        yield UndecodableLine(reason="too long")
        return
    if form.is_text:
        yield from reader.read(piece.data)
        return
    data = _stripped(piece)
    if not data and not piece.is_complete and not piece.data:
        yield Note(code="half-line")
    for line in _array_elements(data) if data.startswith(b"[") else (data,) if data else ():
        for record in reader.read(line):
            if isinstance(record, UndecodableLine):
                yield from _repaired_records(form, reader, line, piece.is_complete, record)
            else:
                yield record


def _array_elements(data: bytes) -> list[bytes]:
    """Return the elements of a JSON array as they are written; nothing if the data is not an array."""
    try:
        return [bytes(element) for element in _arrays.decode(data)]
    except (msgspec.DecodeError, RecursionError, ValueError):
        return []


def _repaired_records(
    form: Format, reader: Reader, line: bytes, is_complete: bool, undecodable: UndecodableLine
) -> Iterator[TranscriptRecord]:
    """Read the objects in a line that does not decode; in a damaged line, those that match the format. Programs crash
    while they write, cut text in the middle of a character, pad files with zero bytes, or write at the same time."""
    values, is_damaged = _find_objects(_decoded(line), len(line) <= REPAIRED_BYTES_MAX)
    matching = [value for value in values if not is_damaged or form.matches(value)]
    repaired_lines = [repaired for value in matching if (repaired := _encoded(value))]
    if repaired_lines:
        yield Note(code="mended")
        for repaired in repaired_lines:
            yield from reader.read(repaired)
        if is_damaged:
            yield UndecodableLine(reason="in part")
    elif is_complete:
        yield undecodable
    else:
        yield Note(code="half-line")


def _decoded(line: bytes) -> str:
    return line.replace(b"\0", b"").decode("utf-8", "replace")


def _find_objects(text: str, search: bool) -> tuple[list[dict[str, object]], bool]:
    """Return the objects in a text, and True if a part of it is none. Without `search` only the first brace counts."""
    values: list[dict[str, object]] = []
    at, attempts, is_damaged = text.find("{"), 0, False
    while at >= 0:
        try:
            value, end = _repairing_decoder.raw_decode(text, at)
            values.append(value)
        except (ValueError, RecursionError):
            is_damaged, attempts, end = True, attempts + 1, at + 1
            if attempts > ATTEMPTS_MAX or not search:
                break
        at = text.find("{", end)
        is_damaged = is_damaged or (bool(text[end:].strip()) and at < 0)
    return values, is_damaged or not values


def _encoded(value: dict[str, object]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(LONE_SURROGATES).encode()
    except (ValueError, RecursionError):
        return b""


def join_documents(stream: Iterator[Piece]) -> Iterator[Piece]:
    """Join lines of multi-line JSON into documents. If the first line is only an opening bracket, each resulting piece
    is a document, up to the closing bracket at the beginning of a line; otherwise the pieces are passed on unchanged.
    """
    for piece in stream:
        if _stripped(piece) in OPENERS:
            yield from _documents(chain((piece,), stream))
            return
        yield piece
        if piece.too_long or _stripped(piece):
            yield from stream


def _documents(stream: Iterable[Piece]) -> Iterator[Piece]:
    lines = bytearray()
    size_bytes = end = 0
    for piece in stream:
        size_bytes, end = size_bytes + len(piece.data), piece.offset_end
        if size_bytes <= DOCUMENT_BYTES_MAX:
            lines += piece.data + b"\n"
        if piece.data.rstrip(b" \t\r\0,") in CLOSERS:
            yield _document(lines, end, size_bytes, is_complete=True)
            lines, size_bytes = bytearray(), 0
    if lines.strip():
        yield _document(lines, end, size_bytes, is_complete=False)


def _document(lines: bytearray, end: int, size_bytes: int, *, is_complete: bool) -> Piece:
    too_long = size_bytes > DOCUMENT_BYTES_MAX
    data = b"" if too_long else bytes(lines[:-1])
    return Piece(data=data, offset_end=end, is_complete=is_complete, too_long=too_long)


def _stripped(piece: Piece) -> bytes:
    return piece.data.strip(b"\0 \t\r\n")
