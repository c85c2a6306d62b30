"""Incremental reading of one file, segment by segment, in memory that does not grow with the file."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec.structs import replace
from mz_projections.imported import OPEN, File

from mz_recordings.importing.gather import UNTIL_US, Gathered
from mz_recordings.importing.names import name
from mz_recordings.importing.reckon import Stretch
from mz_recordings.importing.scan import Found
from mz_recordings.transcripts.bytestream import Piece, blocks, pieces
from mz_recordings.transcripts.facts import BlockReader, Carry, Format, Opened, Reader
from mz_recordings.transcripts.read import feed, find

REQUESTS_MAX = 1000
"""Limit of requests per segment, and so per event."""
READ_BYTES = 1 << 15
SECTIONS_MAX = 1000
"""Limit of sessions that are distinguished in one stream."""
STRETCH_BYTES = 64 << 20
"""Limit of a segment in a file with few requests, so that progress is saved from time to time."""
ENDS_BYTES = 4096
"""Bytes at the beginning and at the end of the read part that identify a file."""
UNFINISHED = 0
"""In place of a file's modification time: more is to be read."""
BLANK = b"\0 \t\r\n"
CARRY_BYTES_MAX = 16_384
CARRIED = re.compile(r"[A-Za-z0-9<_][A-Za-z0-9._:+@/\[\]<> -]{0,127}\Z")

_carries = msgspec.json.Decoder(Carry)
_values = msgspec.json.Decoder(msgspec.Raw)


class Source(msgspec.Struct):
    """An open file and its state in the log."""

    file: io.BufferedReader
    found: Found
    format: Format
    row: File | None
    """State of reading, if it resumes; None: from the beginning."""
    whole: bool = False
    """True if it is read again whenever it changes: a document, or an encoded file."""
    head: str = ""
    """sha256 of its first line in its format."""
    sections: dict[str, Gathered] = {}
    """For a stream of several sessions: what the next segment of each session begins with; empty key: the first
    session."""


def digest_of(found: Found) -> str:
    """Return the key of a file in the log: the sha256 of its path."""
    return hashlib.sha256(os.fsencode(found.path)).hexdigest()


def untouched(found: Found, row: File) -> bool:
    """Return True if size, modification time and inode are unchanged since the file was read."""
    return (found.size, found.modified_ns, found.inode) == (row.size, row.modified_ns, row.inode)


def stretches(found: Found, row: File | None, formats: tuple[Format, ...]) -> Iterator[Stretch]:
    """Yield the new segments of the file; `row` is its state in the log. Raises detect.Undetected, OSError."""
    with cast("io.BufferedReader", open(found.path, "rb", buffering=READ_BYTES)) as file:
        about = os.fstat(file.fileno())
        found = replace(found, size=about.st_size, modified_ns=about.st_mtime_ns, inode=about.st_ino)
        format_ = next((each for each in formats if row is not None and each.name == row.format), None)
        if row is not None and format_ is not None and _goes_on(file, found, row, format_):
            file.seek(row.upto)
            yield from _read(Source(file, found, format_, row, head=row.head), pieces(file, row.upto))
            return
        file.seek(0)
        known = find(file, formats=formats)
        whole = known.format.unit == "file" or known.format.fits_text is not None or bool(known.remark)
        yield from _read(Source(file, found, known.format, None, whole), known.pieces)


def _goes_on(file: io.BufferedReader, found: Found, row: File, format_: Format) -> bool:
    """Return True if the file still begins with the part that was read, and its reader can resume. Ends of streams
    depend on all that came before them, which no row keeps."""
    if not format_.log and (row.told or row.reported_nanousd is not None):
        return False
    return bool(row.carry) and 0 < row.upto <= found.size and mark(file, row.upto) == row.mark


def mark(file: io.BufferedReader, upto: int) -> str:
    """Return the sha256 of the first and the last bytes before `offset_end`; the file position does not matter. Raises
    OSError."""
    size, descriptor = min(ENDS_BYTES, upto), file.fileno()
    head, tail = os.pread(descriptor, size, 0), os.pread(descriptor, size, upto - size)
    return hashlib.sha256(head + b"\0" + tail).hexdigest()


def _read(source: Source, given: Iterator[Piece]) -> Iterator[Stretch]:
    """Yield the segments. An incomplete last line is left for the next time, except in files that are read
    completely."""
    row, format_ = source.row, source.format
    reader = format_.reader(_carries.decode(row.carry) if row else Carry())
    start = upto = row.upto if row else 0
    gathered, partly = _begun(source), False
    if isinstance(reader, BlockReader) and not source.whole:
        given = _blocks(source, given)
    for piece in _joined(given) if source.whole and format_.unit == "file" else given:
        if not (piece.whole or source.whole or _complete(format_, piece)):
            break
        if piece.data or piece.too_long:
            gathered.lines += piece.lines
            source.head = source.head or _head(format_, piece)
            for sighting in feed(format_, reader, piece):
                if type(sighting) is Opened and not format_.log and _turns(source, gathered, sighting):
                    yield _stretch(source, gathered, start, upto, "", last=False)
                    start, partly, gathered = upto, True, _section(source, gathered, sighting, _head(format_, piece))
                gathered.take(sighting)
        upto = piece.end
        if len(gathered.requests) >= REQUESTS_MAX or upto - start >= STRETCH_BYTES:
            yield _stretch(source, gathered, start, upto, _memory(reader, gathered), last=False)
            start, gathered, partly = upto, _after(gathered), True
    if source.sections:
        yield _stretch(source, gathered, start, upto, "", last=False)
        source.sections[gathered.section] = _after(gathered)
        yield _stretch(source, source.sections[""], upto, upto, "", last=True)
    elif upto > start or row is None or partly:
        yield _stretch(source, gathered, start, upto, _memory(reader, gathered), last=True)


def _memory(reader: Reader, gathered: Gathered) -> str:
    """Return the encoded reader state, and note that messages are unfinished at this point; later lines may finish
    them."""
    carry = reader.carry()
    if carry.open:
        gathered.lacks.setdefault(OPEN)
    return kept(carry)


def _turns(source: Source, gathered: Gathered, told: Opened) -> bool:
    """Return True if a stream continues with another session: people append the output of several calls to one file."""
    other = bool(told.session and gathered.session) and name(told.session) != gathered.session
    return other and len(source.sections) < SECTIONS_MAX


def _section(source: Source, gathered: Gathered, told: Opened, head: str) -> Gathered:
    """Return the statistics of the other session; the file itself stands for the first one."""
    source.sections[gathered.section] = _after(gathered)
    wanted = name(told.session)
    section = "" if wanted in source.sections[""].sessions else wanted
    found = source.sections.get(section) or Gathered(agent=gathered.agent, section=section, head=head, fresh=True)
    found.at_us = gathered.at_us
    return found


def _blocks(source: Source, given: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the same lines, many at a time once the file's beginning is known; documents stay as they are."""
    for piece in given:
        yield piece
        if source.head and b"\n" not in piece.data:
            yield from blocks(source.file, piece.end)
            return


def _complete(format_: Format, piece: Piece) -> bool:
    """Return True if a piece without a line end is complete JSON. Some programs end lines with a carriage return alone;
    then the last of them decides."""
    data = piece.data.rstrip()
    if format_.fits_text is not None or not data.endswith((b"}", b"]")):
        return False
    return _decodes(data) or (b"\r" in data and _decodes(data[data.rindex(b"\r") :].strip(BLANK)))


def _decodes(data: bytes) -> bool:
    try:
        _values.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True


def _head(format_: Format, piece: Piece) -> str:
    """Return the digest of a file's first line, which is equal in copies. Shell output before it does not count; a
    multi-line document is one piece."""
    data = piece.data.strip(BLANK)
    if not data or (format_.fits_text is None and not data.startswith((b"{", b"["))):
        return ""
    return hashlib.sha256(data).hexdigest()


def _joined(given: Iterator[Piece]) -> Iterator[Piece]:
    """Yield a text document as one piece, up to the size limit."""
    data, end = bytearray(), 0
    for piece in given:
        data += piece.data + b"\n"
        end = piece.end
        if len(data) > STRETCH_BYTES:
            yield Piece(data=b"", end=end, too_long=True)
            return
    yield Piece(data=bytes(data), end=end)


def _begun(source: Source) -> Gathered:
    """Return the statistics at the start of reading, from the row if there is one."""
    row = source.row
    gathered = Gathered(agent=name(source.format.agent), at_us=told_by_file(source.found.modified_ns))
    if row is not None:
        gathered.part = row.part
        gathered.session = gathered.last_session = row.session.rpartition("/")[2]
        gathered.sessions = {gathered.session: None}
        gathered.told = {usage.model: usage for usage in row.told}
        gathered.reported_nanousd = row.reported_nanousd
    return gathered


def told_by_file(modified_ns: int) -> int:
    """Return a file's modification time in microseconds, within the range of a calendar."""
    return min(max(modified_ns // 1000, 0), UNTIL_US - 1)


def _after(done: Gathered) -> Gathered:
    """Return what the next segment of the same file begins with."""
    return Gathered(
        agent=done.agent, part=done.part, at_us=done.at_us, sessions=done.sessions, told=done.told,
        reported_nanousd=done.reported_nanousd, before=done.before, before_nanousd=done.before_nanousd, last=done.last,
        session=done.session, last_session=done.last_session, group=done.group, since=done.since, section=done.section,
        head=done.head,
    )  # fmt: skip


def _stretch(source: Source, gathered: Gathered, start: int, upto: int, carry: str, *, last: bool) -> Stretch:
    """Return a segment. A file that is read completely has no reader state, so that reading starts at its first byte
    again. After a segment that is not the last, the modification time is invalid."""
    found, reached = source.found, source.found.size if source.whole else upto
    path = f"{found.path}#{gathered.section}" if gathered.section else str(found.path)
    return Stretch(
        file=hashlib.sha256(os.fsencode(path)).hexdigest(), path=path, format=source.format.name,
        session=session_of(gathered, found), size=reached if gathered.section else found.size,
        modified_ns=found.modified_ns if last else UNFINISHED, inode=found.inode, start=0 if gathered.fresh else start,
        upto=reached, bytes=upto - start, mark=mark(source.file, reached), head=gathered.head or source.head,
        carry="" if source.whole else carry, gathered=gathered, requests=gathered.keyed(),
    )  # fmt: skip


def session_of(gathered: Gathered, found: Found) -> str:
    """Return the session of the file: the one in its name if it has several (a branch begins with lines of its origin),
    else the first; without any, the digest of its path."""
    for each in gathered.sessions:
        if each in found.path.name:
            return each
    return next(iter(gathered.sessions), f"file-{digest_of(found)[:32]}")


def kept(carry: Carry) -> str:
    """Return the encoded reader state for the log, without the directory, which is a blob; empty if it contains text
    that the log does not keep."""
    plain = replace(carry, cwd="")
    text = msgspec.json.encode(plain)
    if len(text) > CARRY_BYTES_MAX or not all(map(_fit, _texts(msgspec.to_builtins(plain)))):
        return ""
    return text.decode()


def _fit(text: str) -> bool:
    return not text or CARRIED.match(text) is not None


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
