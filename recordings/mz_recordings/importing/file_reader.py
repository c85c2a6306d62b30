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
from mz_engine.agents.reading.byte_lines import Piece, pieces
from mz_engine.agents.reading.records import INCOMPLETE_NOTES, Format, Reader, ReaderState, SessionInfo
from mz_engine.transcripts.read import detect_transcript, read_piece
from mz_engine.transcripts.summary import UNTIL_US
from mz_events.catalog.imported import ImportedFileRead
from mz_events.names import Digest
from mz_projections.imported.model import OUTPUT_OPEN, ImportedFile
from mz_projections.usage import sum_known

from mz_recordings.importing.names import label, name
from mz_recordings.importing.requests import (
    NANOUSD_MAX,
    FileSegment,
    SegmentStats,
    imported_requests,
    sanitize_counts,
    sanitize_usage,
)
from mz_recordings.importing.scan import FileMetadata

REQUESTS_MAX = 1000
"""Limit of requests per segment, and so per event."""
READ_BYTES = 1 << 15
SECTIONS_MAX = 1000
"""Limit of sessions that are distinguished in one stream."""
SEGMENT_BYTES = 64 << 20
"""Limit of a segment in a file with few requests, so that progress is saved from time to time."""
FINGERPRINT_BYTES = 4096
"""Bytes at the beginning and at the end of the read part that identify a file."""
NO_PATHS = Digest("")
"""In place of the blob of paths, which is stored with a batch of segments."""
UNFINISHED_NS = 0
"""In place of a file's modification time: more is to be read."""
BLANK = b"\0 \t\r\n"
READER_STATE_CHARS_MAX = 16_384
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
"""A text in JSON, escaped."""
READER_STATE_TEXT = re.compile(r"([A-Za-z0-9<_][A-Za-z0-9._:+@/\[\]<> -]{0,127})?")

_state_decoder = msgspec.json.Decoder(ReaderState)
_value_decoder = msgspec.json.Decoder(msgspec.Raw)


class OpenFile(msgspec.Struct):
    """An open file and its state in the log."""

    file: io.BufferedReader
    metadata: FileMetadata
    format: Format
    row: ImportedFile | None
    """State of reading, if it resumes; None: from the beginning."""
    reads_completely: bool = False
    """True if it is read again whenever it changes: a document, or an encoded file."""
    first_line_sha256: str = ""
    """sha256 of its first line in its format."""
    sections: dict[str, SegmentStats] = {}
    """For a stream of several sessions: what the next segment of each session begins with; empty key: the first
    session."""


def file_key(file: FileMetadata) -> str:
    """Return the key of a file in the log: the sha256 of its path."""
    return hashlib.sha256(os.fsencode(file.path)).hexdigest()


def is_unchanged(file: FileMetadata, row: ImportedFile) -> bool:
    """Return True if size, modification time and inode are unchanged since the file was read."""
    return (file.size_bytes, file.modified_ns, file.inode) == (row.read.size, row.read.modified_ns, row.read.inode)


def new_segments(
    metadata: FileMetadata, row: ImportedFile | None, formats: tuple[Format, ...]
) -> Iterator[FileSegment]:
    """Yield the new segments of the file; `row` is its state in the log. Raises detect.Undetected, OSError."""
    with cast("io.BufferedReader", open(metadata.path, "rb", buffering=READ_BYTES)) as file:
        stat = os.fstat(file.fileno())
        metadata = replace(metadata, size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns, inode=stat.st_ino)
        format_ = next((candidate for candidate in formats if row and candidate.name == row.read.format), None)
        if row and format_ and _can_resume(file, metadata, row, format_):
            file.seek(row.read.offset_end)
            yield from _read_segments(
                OpenFile(file, metadata, format_, row, first_line_sha256=row.read.first_line_sha256),
                pieces(file, row.read.offset_end),
            )
            return
        file.seek(0)
        detected = detect_transcript(file, formats=formats)
        reads_completely = (
            detected.format.unit == "file" or detected.format.matches_text is not None or bool(detected.encoding_note)
        )
        yield from _read_segments(OpenFile(file, metadata, detected.format, None, reads_completely), detected.pieces)


def _can_resume(file: io.BufferedReader, metadata: FileMetadata, row: ImportedFile, format_: Format) -> bool:
    """Return True if the file still begins with the part that was read, and its reader can resume. Ends of streams
    depend on all that came before them, which no row keeps."""
    if not format_.is_session_log and (row.read.reported_totals or row.read.reported_nanousd is not None):
        return False
    return (
        bool(row.read.reader_state)
        and 0 < row.read.offset_end <= metadata.size_bytes
        and fingerprint(file, row.read.offset_end) == row.read.fingerprint_sha256
    )


def fingerprint(file: io.BufferedReader, offset_end: int) -> str:
    """Return the sha256 of the first and the last bytes before `offset_end`; the file position does not matter. Raises
    OSError."""
    size, descriptor = min(FINGERPRINT_BYTES, offset_end), file.fileno()
    head, tail = os.pread(descriptor, size, 0), os.pread(descriptor, size, offset_end - size)
    return hashlib.sha256(head + b"\0" + tail).hexdigest()


def _read_segments(source: OpenFile, pieces: Iterator[Piece]) -> Iterator[FileSegment]:
    """Yield the segments. An incomplete last line is left for the next time, except in files that are read
    completely."""
    row, format_ = source.row, source.format
    reader = format_.reader(_state_decoder.decode(row.read.reader_state) if row else ReaderState())
    offset_start = offset_end = row.read.offset_end if row else 0
    stats, is_continued = _initial_stats(source), False
    for piece in _as_one_piece(pieces) if source.reads_completely and format_.unit == "file" else pieces:
        if not (piece.is_complete or source.reads_completely or _is_complete_json(format_, piece)):
            break
        if piece.data or piece.too_long:
            stats.lines += 1
            source.first_line_sha256 = source.first_line_sha256 or _first_line_sha256(format_, piece)
            for record in read_piece(format_, reader, piece):
                if (
                    type(record) is SessionInfo
                    and not format_.is_session_log
                    and _changes_session(source, stats, record)
                ):
                    yield _segment(source, stats, offset_start, offset_end, "", is_last=False)
                    offset_start, is_continued, stats = (
                        offset_end,
                        True,
                        _section_stats(source, stats, record, _first_line_sha256(format_, piece)),
                    )
                stats.add(record)
        offset_end = piece.offset_end
        if len(stats.requests) >= REQUESTS_MAX or offset_end - offset_start >= SEGMENT_BYTES:
            yield _segment(source, stats, offset_start, offset_end, _reader_state(reader, stats), is_last=False)
            offset_start, stats, is_continued = offset_end, stats.next_segment(), True
    if source.sections:
        yield _segment(source, stats, offset_start, offset_end, "", is_last=False)
        source.sections[stats.section] = stats.next_segment()
        yield _segment(source, source.sections[""], offset_end, offset_end, "", is_last=True)
    elif offset_end > offset_start or row is None or is_continued:
        yield _segment(source, stats, offset_start, offset_end, _reader_state(reader, stats), is_last=True)


def _reader_state(reader: Reader, stats: SegmentStats) -> str:
    """Return the encoded reader state, and note that messages are unfinished at this point; later lines may finish
    them."""
    state = reader.state()
    if state.open:
        stats.notes[OUTPUT_OPEN] = None
    return encode_reader_state(state)


def _changes_session(source: OpenFile, stats: SegmentStats, info: SessionInfo) -> bool:
    """Return True if a stream continues with another session: people append the output of several calls to one file."""
    is_other_session = bool(info.session and stats.session) and name(info.session) != name(stats.session)
    return is_other_session and len(source.sections) < SECTIONS_MAX


def _section_stats(source: OpenFile, stats: SegmentStats, info: SessionInfo, first_line_sha256: str) -> SegmentStats:
    """Return the statistics of the other session; the file itself stands for the first one."""
    source.sections[stats.section] = stats.next_segment()
    session = name(info.session)
    section = "" if session in map(name, source.sections[""].sessions) else session
    section_stats = source.sections.get(section) or SegmentStats(
        section=section, first_line_sha256=first_line_sha256, is_new=True
    )
    section_stats.at_us = stats.at_us
    return section_stats


def _is_complete_json(format_: Format, piece: Piece) -> bool:
    """Return True if a piece without a line end is complete JSON. Some programs end lines with a carriage return alone;
    then the last of them decides."""
    data = piece.data.rstrip()
    if format_.matches_text is not None or not data.endswith((b"}", b"]")):
        return False
    return _decodes(data) or (b"\r" in data and _decodes(data[data.rindex(b"\r") :].strip(BLANK)))


def _decodes(data: bytes) -> bool:
    try:
        _value_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True


def _first_line_sha256(format_: Format, piece: Piece) -> str:
    """Return the digest of a file's first line, which is equal in copies. Shell output before it does not count; a
    multi-line document is one piece."""
    data = piece.data.strip(BLANK)
    if not data or (format_.matches_text is None and not data.startswith((b"{", b"["))):
        return ""
    return hashlib.sha256(data).hexdigest()


def _as_one_piece(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield a text document as one piece, up to the size limit."""
    data, end = bytearray(), 0
    for piece in pieces:
        data += piece.data + b"\n"
        end = piece.offset_end
        if len(data) > SEGMENT_BYTES:
            yield Piece(data=b"", offset_end=end, too_long=True)
            return
    yield Piece(data=bytes(data), offset_end=end)


def _initial_stats(source: OpenFile) -> SegmentStats:
    """Return the statistics at the start of reading, from the row if there is one."""
    row = source.row
    stats = SegmentStats(at_us=modified_us(source.metadata.modified_ns))
    if row is not None:
        stats.subagent = row.read.subagent
        stats.session = stats.ended_session = row.session.rpartition("/")[2]
        stats.sessions = {stats.session: None}
        stats.running_totals = {usage.model: usage for usage in row.read.reported_totals}
        stats.running_nanousd = row.read.reported_nanousd
    return stats


def modified_us(modified_ns: int) -> int:
    """Return a file's modification time in microseconds, within the range of a calendar."""
    return min(max(modified_ns // 1000, 0), UNTIL_US - 1)


def _segment(
    source: OpenFile, stats: SegmentStats, offset_start: int, offset_end: int, reader_state: str, *, is_last: bool
) -> FileSegment:
    """Return a segment. A file that is read completely has no reader state, so that reading starts at its first byte
    again. After a segment that is not the last, the modification time is invalid."""
    metadata, end = source.metadata, source.metadata.size_bytes if source.reads_completely else offset_end
    path = f"{metadata.path}#{stats.section}" if stats.section else str(metadata.path)
    ended = stats.process_end is not None
    totals = stats.ended_totals() if ended else stats.running_totals
    nanousd = sum_known(stats.process_nanousd) if ended else stats.running_nanousd
    read = ImportedFileRead(
        file=hashlib.sha256(os.fsencode(path)).hexdigest(),
        paths=NO_PATHS,
        format=source.format.name,
        subagent=label(stats.subagent or ""),
        size=end if stats.section else metadata.size_bytes,
        modified_ns=metadata.modified_ns if is_last else UNFINISHED_NS,
        inode=metadata.inode,
        offset_start=0 if stats.is_new else offset_start,
        offset_end=end,
        fingerprint_sha256=fingerprint(source.file, end),
        first_line_sha256=stats.first_line_sha256 or source.first_line_sha256,
        reader_state="" if source.reads_completely else reader_state,
        undated=len(stats.undated),
        prompts=stats.prompts,
        tools=sanitize_counts(stats.tools),
        failed=stats.failed,
        lines=stats.lines,
        undecodable_lines=stats.undecodable_lines,
        unknown=sanitize_counts(stats.unknown),
        reported_totals=tuple(sanitize_usage(usage, stats.subagent or "") for usage in totals.values()),
        reported_nanousd=None if nanousd is None else min(nanousd, NANOUSD_MAX),
        incomplete_reasons=tuple(code for code in stats.notes if code in INCOMPLETE_NOTES),
    )
    agent = source.format.agent
    return FileSegment(
        path=path,
        agent=agent,
        session=session_of(stats, metadata),
        version=name(stats.version),
        cwd=stats.cwd,
        parent=name(stats.parent),
        bytes_read=offset_end - offset_start,
        read=read,
        requests=imported_requests(agent, stats),
    )


def session_of(stats: SegmentStats, file: FileMetadata) -> str:
    """Return the session of the file: the one in its name if it has several (a branch begins with lines of its origin),
    else the first; without any, the digest of its path."""
    for session in map(name, stats.sessions):
        if session in file.path.name:
            return session
    return next(map(name, stats.sessions), f"file-{file_key(file)[:32]}")


def encode_reader_state(state: ReaderState) -> str:
    """Return the encoded reader state for the log, without the directory, which is a blob; empty if it contains text
    that the log does not keep."""
    encoded = msgspec.json.encode(replace(state, cwd="")).decode()
    is_storable = len(encoded) <= READER_STATE_CHARS_MAX and all(
        map(READER_STATE_TEXT.fullmatch, TEXT.findall(encoded))
    )
    return encoded if is_storable else ""
