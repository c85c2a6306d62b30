"""Adapter: reads one file from where it was left, stretch by stretch, in memory that does not grow with the file."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec.structs import replace
from mz_projections.imported import File

from mz_recordings.importing.gather import Gathered
from mz_recordings.importing.names import name
from mz_recordings.importing.reckon import Stretch
from mz_recordings.importing.scan import Found
from mz_recordings.transcripts.bytestream import Piece, pieces
from mz_recordings.transcripts.facts import Carry, Ended, Format
from mz_recordings.transcripts.read import feed, find

REQUESTS_MAX = 1000
"""Of a stretch, and so of an event."""
READ_BYTES = 1 << 18
STRETCH_BYTES = 64 << 20
"""At most, of a file in which there are few requests: what was read of it is kept from time to time."""
ENDS_BYTES = 4096
"""Of the beginning and of the end of what was read: what a file is known by."""
CARRY_BYTES_MAX = 16_384
CARRIED = re.compile(r"[A-Za-z0-9<_][A-Za-z0-9._:+@/\[\]<> -]{0,127}\Z")

_carries = msgspec.json.Decoder(Carry)


class Source(msgspec.Struct):
    """An open file, with what the log knows of it."""

    file: io.BufferedReader
    found: Found
    format: Format
    row: File | None
    """How far it was read, where reading goes on; None: from its beginning."""
    whole: bool = False
    """It is read anew whenever it changes: a document, or bytes that are not those of the text."""


def digest_of(found: Found) -> str:
    """What the log knows a file by: the sha256 of its path."""
    return hashlib.sha256(os.fsencode(found.path)).hexdigest()


def untouched(found: Found, row: File) -> bool:
    """Whether the system says that nothing happened to the file since it was read."""
    return (found.size, found.modified_ns, found.inode) == (row.size, row.modified_ns, row.inode)


def stretches(found: Found, row: File | None, formats: tuple[Format, ...]) -> Iterator[Stretch]:
    """What is new in the file, `row` being how far it was read. Raises detect.Undetected, OSError."""
    with cast("io.BufferedReader", open(found.path, "rb", buffering=READ_BYTES)) as file:
        about = os.fstat(file.fileno())
        found = replace(found, size=about.st_size, modified_ns=about.st_mtime_ns, inode=about.st_ino)
        format_ = next((each for each in formats if row is not None and each.name == row.format), None)
        if row is not None and format_ is not None and _goes_on(file, found, row, format_):
            file.seek(row.upto)
            yield from _read(Source(file, found, format_, row), pieces(file, row.upto))
            return
        file.seek(0)
        known = find(file, formats=formats)
        whole = known.format.unit == "file" or known.format.fits_text is not None or bool(known.remark)
        yield from _read(Source(file, found, known.format, None, whole), known.pieces)


def _goes_on(file: io.BufferedReader, found: Found, row: File, format_: Format) -> bool:
    """Whether the file begins with what was read, and the reader can go on behind that."""
    return bool(row.carry) and 0 < row.upto <= found.size and mark(file, row.upto) == row.mark


def mark(file: io.BufferedReader, upto: int) -> str:
    """sha256 over the first and the last bytes before `upto`. Raises OSError."""
    file.seek(0)
    head = file.read(min(ENDS_BYTES, upto))
    file.seek(max(upto - ENDS_BYTES, 0))
    return hashlib.sha256(head + b"\0" + file.read(min(ENDS_BYTES, upto))).hexdigest()


def _read(source: Source, given: Iterator[Piece]) -> Iterator[Stretch]:
    """A half-written end is left for the next time; of what is read whole it belongs to the rest."""
    row, format_ = source.row, source.format
    reader = format_.reader(_carries.decode(row.carry) if row else Carry())
    start = upto = row.upto if row else 0
    gathered = _begun(source)
    for piece in _joined(given) if source.whole and format_.unit == "file" else given:
        if not piece.whole and not source.whole:
            break
        if piece.data or piece.too_long:
            gathered.lines += 1
            for sighting in feed(format_, reader, piece):
                gathered.take(sighting)
        upto = piece.end
        if len(gathered.requests) >= REQUESTS_MAX or upto - start >= STRETCH_BYTES:
            yield _stretch(source, gathered, start, upto, kept(reader.carry()))
            start, gathered = upto, _after(gathered)
    if upto > start or row is None:
        yield _stretch(source, gathered, start, upto, kept(reader.carry()))


def _joined(given: Iterator[Piece]) -> Iterator[Piece]:
    """Text that is one document: all of it as one piece, as far as that can be held."""
    data, end = bytearray(), 0
    for piece in given:
        data += piece.data + b"\n"
        end = piece.end
        if len(data) > STRETCH_BYTES:
            yield Piece(data=b"", end=end, too_long=True)
            return
    yield Piece(data=bytes(data), end=end)


def _begun(source: Source) -> Gathered:
    """What was told at the ends that were read before is taken for one end: a next one may include it."""
    row = source.row
    gathered = Gathered(agent=name(source.format.agent), at_us=source.found.modified_ns // 1000)
    if row is not None:
        gathered.part = row.part
        gathered.session = gathered.last_session = row.session.rpartition("/")[2]
        gathered.sessions = {gathered.session: None}
        gathered.told = {usage.model: usage for usage in row.told}
        gathered.reported_nanousd = row.reported_nanousd
        if row.told or row.reported_nanousd is not None:
            gathered.last = Ended(status="success", usage=row.told, reported_nanousd=row.reported_nanousd)
            gathered.group = 1
    return gathered


def _after(done: Gathered) -> Gathered:
    """What the next stretch of the same file begins with."""
    return Gathered(
        agent=done.agent, part=done.part, at_us=done.at_us, sessions=done.sessions, told=done.told,
        reported_nanousd=done.reported_nanousd, before=done.before, before_nanousd=done.before_nanousd, last=done.last,
        session=done.session, last_session=done.last_session, group=done.group, since=done.since,
    )  # fmt: skip


def _stretch(source: Source, gathered: Gathered, start: int, upto: int, carry: str) -> Stretch:
    """What is read whole has no memory: the log keeps none, so that reading begins at its first byte again."""
    found, file = source.found, source.file
    at = file.tell()
    reached = found.size if source.whole else upto
    marked = mark(file, reached)
    head = source.row.head if source.row else _head(file)
    file.seek(at)
    return Stretch(
        file=digest_of(found), path=str(found.path), format=source.format.name, session=session_of(gathered, found),
        size=found.size, modified_ns=found.modified_ns, inode=found.inode, start=start, upto=reached, mark=marked,
        head=head, carry="" if source.whole else carry, gathered=gathered, requests=gathered.keyed(),
    )  # fmt: skip


def session_of(gathered: Gathered, found: Found) -> str:
    """The session that the file is about: the one in its name where it tells of several (a branch begins with lines of
    the session that it came from), else the first; without any, the digest of its path."""
    for each in gathered.sessions:
        if each in found.path.name:
            return each
    return next(iter(gathered.sessions), f"file-{digest_of(found)[:32]}")


def _head(file: io.BufferedReader) -> str:
    file.seek(0)
    return hashlib.sha256(file.read(READ_BYTES).partition(b"\n")[0]).hexdigest()


def kept(carry: Carry) -> str:
    """The reader's memory for the log, without the directory, which is a blob; empty where it holds what the log does
    not keep."""
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
