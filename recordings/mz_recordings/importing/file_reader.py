"""Incremental reading of one file, segment by segment, in memory that does not grow with the file.

Only names and numbers pass; names are sanitised, so that no content of a file can do harm in the log.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import replace
from mz_engine.agents.reading.byte_lines import Piece, pieces
from mz_engine.agents.reading.json_lines import decode_value
from mz_engine.agents.reading.records import (
    INCOMPLETE_NOTES,
    AssistantText,
    Format,
    ReaderState,
    SessionInfo,
    StreamEnd,
    TranscriptRecord,
)
from mz_engine.transcripts.read import detect_transcript, read_piece
from mz_engine.transcripts.summary import OTHERS, UNTIL_US, TranscriptStats
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import ImportedCall, ImportedFileRead, ImportedRequest, ImportedSessionFound
from mz_events.names import Digest, StreamId
from mz_projections.imported.model import OUTPUT_OPEN, ImportedFile
from mz_projections.usage import TOKEN_FIELDS, sum_by_model, sum_known

from mz_recordings.importing.names import WORKTREE, request_key, sanitize_label, sanitize_model, sanitize_name
from mz_recordings.importing.scan import FileMetadata

REQUESTS_MAX = 1000
"""Limit of requests per segment, and so per event."""
READ_BYTES = 1 << 15
ENDS_MAX = SECTIONS_MAX = 1000
"""Limits of ends of calls and of sessions that are distinguished in one stream."""
SEGMENT_BYTES = 64 << 20
"""Limit of a segment in a file with few requests, so that progress is saved from time to time."""
FINGERPRINT_BYTES = 4096
"""Bytes at the beginning and at the end of the read part that identify a file."""
NO_PATHS = Digest("")
"""In place of the blob of paths, which is stored with a batch of segments."""
UNFINISHED_NS = 0
"""In place of a file's modification time: more is to be read."""
NANOUSD_MAX = 1 << 62
"""Limit of what a database row can hold."""
TOKENS_MAX = 10**10
"""Limit for one request, and for all of a call; higher counts are wrong."""
BLANK = b"\0 \t\r\n"
READER_STATE_BYTES_MAX = 16_384
STORABLE_STATE = re.compile(rb'(?:[^"]|"(?:[A-Za-z0-9<_][A-Za-z0-9._:+@/\[\]<> -]{0,127})?")*+')
"""A reader state in JSON whose texts are names."""

_state_decoder = msgspec.json.Decoder(ReaderState)


class SegmentStats(TranscriptStats, kw_only=True):
    """Statistics of one segment of a file."""

    section: str = ""
    """Session that this section of a stream is about; empty: the first."""
    first_line_sha256: str = ""
    """sha256 of the section's first line."""
    is_new: bool = False
    """True if nothing of the section was read before."""
    offset_start: int = 0
    lines: int = 0

    def add(self, record: TranscriptRecord) -> None:
        """Add a record without its text, of which an import keeps none."""
        if type(record) is StreamEnd:
            record = replace(record, text=None, detail="")
        if type(record) is not AssistantText:
            super().add(record)

    def next_segment(self, offset_start: int) -> SegmentStats:
        """Return what the next segment of the same file begins with."""
        return replace(
            self, offset_start=offset_start, is_new=False, requests={}, undated=set(), ids_since_end=set(), version="",
            cwd="", parent="", prompts=0, tools={}, failed=0, lines=0, undecodable_lines=0, unknown={},
            notes={},
        )  # fmt: skip


class FileSegment(msgspec.Struct, kw_only=True):
    path: str
    cwd: str
    bytes_read: int
    session_found: ImportedSessionFound
    """Without the blob of the directory."""
    read: ImportedFileRead
    """With all its requests, and without the blob of paths."""

    @property
    def stream(self) -> StreamId:
        return StreamId(f"session/{self.session_found.agent}/{self.session_found.session}")


def file_key(path: Path | str) -> str:
    """Return the key of a file in the log: the sha256 of its path."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()


def is_unchanged(file: FileMetadata, row: ImportedFile) -> bool:
    """Return True if size, modification time and inode are unchanged since the file was read."""
    status, read = file.status, row.read
    return (status.st_size, status.st_mtime_ns, status.st_ino) == (read.size, read.modified_ns, read.inode)


def new_segments(
    metadata: FileMetadata, row: ImportedFile | None, formats: tuple[Format, ...]
) -> Iterator[FileSegment]:
    """Yield the new segments of the file; `row` is its state in the log. Raises detect.Undetected, OSError."""
    with cast("io.BufferedReader", open(metadata.path, "rb", buffering=READ_BYTES)) as file:
        metadata = replace(metadata, status=os.fstat(file.fileno()))
        format_ = next((candidate for candidate in formats if row and candidate.name == row.read.format), None)
        if row and format_ and _can_resume(file, metadata, row, format_):
            file.seek(row.read.offset_end)
            yield from _FileReading(file, metadata, format_, row).segments(pieces(file, row.read.offset_end))
            return
        file.seek(0)
        detected = detect_transcript(file, formats=formats)
        form = detected.format
        reads_completely = form.unit == "file" or form.is_text or bool(detected.encoding_note)
        yield from _FileReading(file, metadata, form, None, reads_completely).segments(detected.pieces)


def _can_resume(file: io.BufferedReader, metadata: FileMetadata, row: ImportedFile, format_: Format) -> bool:
    """Return True if the file still begins with the part that was read, and its reader can resume. Ends of streams
    depend on all that came before them, which no row keeps."""
    if not format_.is_session_log and (row.read.reported_totals or row.read.reported_nanousd is not None):
        return False
    return (
        bool(row.read.reader_state)
        and 0 < row.read.offset_end <= metadata.status.st_size
        and fingerprint(file, row.read.offset_end) == row.read.fingerprint_sha256
    )


def fingerprint(file: io.BufferedReader, offset_end: int) -> str:
    """Return the sha256 of the first and the last bytes before `offset_end`; the file position does not matter. Raises
    OSError."""
    size, descriptor = min(FINGERPRINT_BYTES, offset_end), file.fileno()
    head, tail = os.pread(descriptor, size, 0), os.pread(descriptor, size, offset_end - size)
    return hashlib.sha256(head + b"\0" + tail).hexdigest()


class _FileReading:
    """Reading of one open file. `row`: its state in the log if reading resumes; None: from the beginning.
    `reads_completely`: it is read again whenever it changes, being a document or encoded."""

    def __init__(
        self,
        file: io.BufferedReader,
        metadata: FileMetadata,
        form: Format,
        row: ImportedFile | None,
        reads_completely: bool = False,
    ) -> None:
        self.file, self.metadata, self.form, self.row = file, metadata, form, row
        self.reads_completely = reads_completely
        self.reader = form(_state_decoder.decode(row.read.reader_state) if row else ReaderState())
        self.reader.keeps_texts = False
        self.first_line_sha256 = row.read.first_line_sha256 if row else ""
        self.stats = SegmentStats(at_us=modified_us(metadata.status.st_mtime_ns))
        if row is not None:
            stats = self.stats
            stats.offset_start, stats.subagent = row.read.offset_end, row.read.subagent
            stats.session = stats.ended_session = row.session.rpartition("/")[2]
            stats.sessions = {stats.session: None}
            stats.running_totals = {usage.model: usage for usage in row.read.reported_totals}
            stats.running_nanousd = row.read.reported_nanousd
        self.offset_end = self.stats.offset_start
        self.sections: dict[str, SegmentStats] = {}
        """For a stream of several sessions: what the next segment of each session begins with; empty key: the first
        session."""

    def segments(self, pieces: Iterator[Piece]) -> Iterator[FileSegment]:
        """Yield the segments. An incomplete last line is left for the next time, except in files that are read
        completely."""
        is_continued = False
        for piece in _as_one_piece(pieces) if self.reads_completely and self.form.unit == "file" else pieces:
            if not (piece.is_complete or self.reads_completely or _is_complete_json(self.form, piece)):
                break
            if piece.data or piece.too_long:
                self.stats.lines += 1
                self.first_line_sha256 = self.first_line_sha256 or _first_line_sha256(self.form, piece)
                for record in read_piece(self.form, self.reader, piece):
                    if type(record) is SessionInfo and self._changes_session(record):
                        ended, is_continued = self.stats, True
                        self._change_section(record, _first_line_sha256(self.form, piece))
                        yield self._segment(ended)
                    self.stats.add(record)
            self.offset_end = piece.offset_end
            if len(self.stats.requests) >= REQUESTS_MAX or self.offset_end - self.stats.offset_start >= SEGMENT_BYTES:
                yield self._segment(self.stats)
                self.stats, is_continued = self.stats.next_segment(self.offset_end), True
        if self.sections:
            yield self._segment(self.stats)
            self.sections[self.stats.section] = self.stats.next_segment(self.offset_end)
            yield self._segment(replace(self.sections[""], offset_start=self.offset_end), is_last=True)
        elif self.offset_end > self.stats.offset_start or self.row is None or is_continued:
            yield self._segment(self.stats, is_last=True)

    def _changes_session(self, info: SessionInfo) -> bool:
        """Return True if a stream continues with another session: people append the output of several calls to one
        file."""
        if self.form.is_session_log or not info.session or not self.stats.session:
            return False
        return sanitize_name(info.session) != sanitize_name(self.stats.session) and len(self.sections) < SECTIONS_MAX

    def _change_section(self, info: SessionInfo, first_line_sha256: str) -> None:
        """Continue with the statistics of the other session; the file itself stands for the first one."""
        self.sections[self.stats.section] = self.stats.next_segment(self.offset_end)
        session = sanitize_name(info.session)
        section = "" if session in map(sanitize_name, self.sections[""].sessions) else session
        stats = self.sections.get(section) or SegmentStats(
            section=section, first_line_sha256=first_line_sha256, is_new=True
        )
        self.stats = replace(stats, at_us=self.stats.at_us, offset_start=self.offset_end)

    def _segment(self, stats: SegmentStats, *, is_last: bool = False) -> FileSegment:
        """Return a segment. A file that is read completely, or of several sessions, has no reader state, so that
        reading starts at its first byte again. After a segment that is not the last, the modification time is
        invalid."""
        state = self.reader.state()
        if state.open and not self.sections:
            stats.notes[OUTPUT_OPEN] = None  # Later lines may finish these messages.
        metadata, status = self.metadata, self.metadata.status
        end = status.st_size if self.reads_completely else self.offset_end
        path = f"{metadata.path}#{stats.section}" if stats.section else str(metadata.path)
        totals = stats.ended_totals() if stats.processes else stats.running_totals
        costs = [ends[-1].reported_nanousd for ends in stats.processes]
        nanousd = sum_known(costs) if costs else stats.running_nanousd
        read = ImportedFileRead(
            file=file_key(path),
            paths=NO_PATHS,
            format=self.form.name,
            subagent=sanitize_label(stats.subagent or ""),
            size=end if stats.section else status.st_size,
            modified_ns=status.st_mtime_ns if is_last else UNFINISHED_NS,
            inode=status.st_ino,
            offset_start=0 if stats.is_new else stats.offset_start,
            offset_end=end,
            fingerprint_sha256=fingerprint(self.file, end),
            first_line_sha256=stats.first_line_sha256 or self.first_line_sha256,
            calls=tuple(imported_calls(stats)) if sum(map(len, stats.processes)) <= ENDS_MAX else (),
            requests=tuple(imported_requests(self.form.agent, stats)),
            reader_state="" if self.reads_completely or self.sections else encode_reader_state(state),
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
        session, parent = session_of(stats, metadata), sanitize_name(stats.parent)
        session_found = ImportedSessionFound(
            agent=self.form.agent,
            session=session,
            version=sanitize_name(stats.version),
            project=None,
            parent="" if stats.subagent or parent == session else parent,
            by_mz=WORKTREE in f"{stats.cwd}/",
        )
        bytes_read = self.offset_end - stats.offset_start
        return FileSegment(path=path, cwd=stats.cwd, bytes_read=bytes_read, session_found=session_found, read=read)


def _is_complete_json(format_: Format, piece: Piece) -> bool:
    """Return True if a piece without a line end is complete JSON. Some programs end lines with a carriage return alone;
    then the last of them decides."""
    data = piece.data.rstrip()
    if format_.is_text or not data.endswith((b"}", b"]")):
        return False
    return any(decode_value(json.strip(BLANK)) is not None for json in (data, data[data.rfind(b"\r") + 1 :]))


def _first_line_sha256(format_: Format, piece: Piece) -> str:
    """Return the digest of a file's first line, which is equal in copies. Shell output before it does not count; a
    multi-line document is one piece."""
    data = piece.data.strip(BLANK)
    if not data or (not format_.is_text and not data.startswith((b"{", b"["))):
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


def modified_us(modified_ns: int) -> int:
    """Return a file's modification time in microseconds, within the range of a calendar."""
    return min(max(modified_ns // 1000, 0), UNTIL_US - 1)


def session_of(stats: SegmentStats, file: FileMetadata) -> str:
    """Return the session of the file: the one in its name if it has several (a branch begins with lines of its origin),
    else the first; without any, the digest of its path."""
    for session in map(sanitize_name, stats.sessions):
        if session in file.path.name:
            return session
    return next(map(sanitize_name, stats.sessions), f"file-{file_key(file.path)[:32]}")


def encode_reader_state(state: ReaderState) -> str:
    """Return the encoded reader state for the log, without the directory, which is a blob; empty if it contains text
    that the log does not keep."""
    encoded = msgspec.json.encode(replace(state, cwd=""))
    is_storable = len(encoded) <= READER_STATE_BYTES_MAX and STORABLE_STATE.fullmatch(encoded)
    return encoded.decode() if is_storable else ""


# names and numbers of the log -----------------------------------------------------------------------------------------
def imported_calls(stats: TranscriptStats) -> Iterator[ImportedCall]:
    for ends in stats.processes:
        totals, nanousd = sum_by_model(ends[-1].usage).values(), ends[-1].reported_nanousd
        yield ImportedCall(
            ends=tuple(sanitize_name(end.id) for end in ends if end.id),
            totals=tuple(sanitize_usage(usage, stats.subagent or "") for usage in totals),
            nanousd=None if nanousd is None else min(nanousd, NANOUSD_MAX),
        )


def imported_requests(agent: str, stats: TranscriptStats) -> Iterator[ImportedRequest]:
    for id_, request in stats.requests.items():
        yield ImportedRequest(
            key=request_key(agent, id_),
            at_us=request.at_us or 0,
            dated=id_ not in stats.undated,
            usage=sanitize_usage(request.usage, stats.subagent or ""),
            reported_nanousd=request.reported_nanousd,
        )


def sanitize_usage(usage: Usage, subagent: str) -> Usage:
    """Return the usage with sanitised names and with numbers within the limits."""
    names = sanitize_model(usage.model), sanitize_label(usage.subagent or subagent), sanitize_label(usage.tier)
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h, usage.reasoning)
    if min(numbers) >= 0 and max(numbers) < TOKENS_MAX and names == (usage.model, usage.subagent, usage.tier):
        return usage
    limited = {field: min(max(getattr(usage, field), 0), TOKENS_MAX) for field in TOKEN_FIELDS}
    return replace(usage, model=names[0], subagent=names[1], tier=names[2], **limited)


def sanitize_counts(counts: dict[str, int]) -> dict[str, int]:
    sanitized: dict[str, int] = {}
    for kind, count in counts.items():
        kind_name = sanitize_label(kind) or OTHERS
        sanitized[kind_name] = sanitized.get(kind_name, 0) + count
    return sanitized
