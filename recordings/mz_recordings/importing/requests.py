"""Records of a file segment, in the form of the log.

Only names and numbers pass; names are sanitised, so that no content of a file can do harm in the log.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from mz_engine.transcripts.summary import OTHERS, TranscriptStats
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import ImportedFileRead, ImportedRequest
from mz_events.names import StreamId
from mz_projections.usage import TOKEN_FIELDS

from mz_recordings.importing.names import label, model, request_key

NANOUSD_MAX = 1 << 62
"""Limit of what a database row can hold."""
TOKENS_MAX = 10**10
"""Limit for one request, and for all of a call; higher counts are wrong."""


class SegmentStats(TranscriptStats, kw_only=True):
    """Statistics of one segment of a file."""

    section: str = ""
    """Session that this section of a stream is about; empty: the first."""
    first_line_sha256: str = ""
    """sha256 of the section's first line."""
    is_new: bool = False
    """True if nothing of the section was read before."""
    lines: int = 0

    def next_segment(self) -> SegmentStats:
        """Return what the next segment of the same file begins with."""
        return replace(
            self, is_new=False, requests={}, undated=set(), ids_since_end=set(), version="", cwd="", parent="",
            prompts=0, tools={}, failed=0, texts=[], lines=0, undecodable_lines=0, unknown={}, notes={},
        )  # fmt: skip


class FileSegment(msgspec.Struct, kw_only=True):
    """A part of a file: its event without requests, and the requests in it."""

    path: str
    agent: str
    session: str
    """Sanitised id of the file's session."""
    version: str
    cwd: str
    parent: str
    """Sanitised id of the session that this one was branched from."""
    bytes_read: int
    read: ImportedFileRead
    """Without requests, their counts and the blob of paths."""
    requests: dict[str, ImportedRequest]
    """By key, in order of first occurrence."""

    @property
    def stream(self) -> StreamId:
        return StreamId(f"session/{self.agent}/{self.session}")


def imported_requests(agent: str, stats: TranscriptStats) -> dict[str, ImportedRequest]:
    """Return the requests by key."""
    requests = {}
    for id_, request in stats.requests.items():
        key = request_key(agent, id_)
        requests[key] = ImportedRequest(
            key=key,
            at_us=request.at_us or 0,
            dated=id_ not in stats.undated,
            usage=sanitize_usage(request.usage, stats.subagent or ""),
            reported_nanousd=request.reported_nanousd,
        )
    return requests


def sanitize_usage(usage: Usage, subagent: str) -> Usage:
    """Return the usage with sanitised names and with numbers within the limits."""
    names = model(usage.model), label(usage.subagent or subagent), label(usage.tier)
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h, usage.reasoning)
    if min(numbers) >= 0 and max(numbers) < TOKENS_MAX and names == (usage.model, usage.subagent, usage.tier):
        return usage
    limited = {field: min(max(getattr(usage, field), 0), TOKENS_MAX) for field in TOKEN_FIELDS}
    return replace(usage, model=names[0], subagent=names[1], tier=names[2], **limited)


def sanitize_counts(counts: dict[str, int]) -> dict[str, int]:
    """Return the counts by sanitised name."""
    sanitized: dict[str, int] = {}
    for kind, count in counts.items():
        name = label(kind) or OTHERS
        sanitized[name] = sanitized.get(name, 0) + count
    return sanitized
