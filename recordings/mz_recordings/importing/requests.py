"""Records of a file segment, collected: each request once, everything else as counts.

Only names and numbers pass; names are sanitised for the log, so that no content of a file can do harm in it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from mz_engine.agents.reading.records import (
    INCOMPLETE_NOTES,
    CostReported,
    ModelRequest,
    Note,
    SessionInfo,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    UndecodableLine,
    UnknownLine,
    UserPrompt,
)
from mz_engine.transcripts.summary import includes_previous_end
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import ImportedFileRead, ImportedRequest
from mz_events.names import StreamId
from mz_projections.usage import TOKEN_FIELDS, sum_by_model

from mz_recordings.importing.names import label, model, name, request_key

SINCE_US = 946_684_800_000_000
"""2000-01-01: earlier times are invalid."""
UNTIL_US = 7_258_118_400_000_000
"""2200-01-01"""
KINDS_MAX = 200
"""Limit of distinct tools, and of distinct unknown line types, against hostile files."""
SESSIONS_MAX = 10_000
"""Limit of sessions that a file names; branches name a few."""
OTHERS = "others"
NANOUSD_MAX = 1 << 62
"""Limit of what a database row can hold."""
TOKENS_MAX = 10**10
"""Limit for one request, and for all of a call; higher counts are wrong."""


class SegmentStats(msgspec.Struct):
    """Statistics of one segment of a file; they grow with each record."""

    agent: str
    section: str = ""
    """Session that this section of a stream is about; empty: the first."""
    first_line_sha256: str = ""
    """sha256 of the section's first line."""
    is_new: bool = False
    """True if nothing of the section was read before."""
    subagent: str | None = None
    """Subagent whose file this is, empty for a main conversation; None: unknown yet. The first record counts, since in
    old versions lines of subagents are among the others."""
    at_us: int = 0
    """Last time in the file; before the first one, a guess."""
    requests: dict[str, ImportedRequest] = {}
    """By key, in order of first occurrence."""
    sessions: dict[str, None] = {}
    """Ids that the file names, in order."""
    version: str = ""
    cwd: str = ""
    parent: str = ""
    undated: int = 0
    prompts: int = 0
    tools: dict[str, int] = {}
    failed: int = 0
    lines: int = 0
    undecodable_lines: int = 0
    unknown: dict[str, int] = {}
    incomplete_reasons: dict[str, None] = {}
    """Codes of notes that say that tokens are missing."""
    reported_totals: dict[str, Usage] = {}
    """Totals at the file's end, by model."""
    reported_nanousd: int | None = None
    """Money at the file's end."""
    totals_before: dict[str, Usage] = {}
    nanousd_before: int | None = None
    """Totals that the processes before the last one reported at their ends."""
    last_end: StreamEnd | None = None
    session: str = ""
    """Id of the session that was named last."""
    last_end_session: str = ""
    """Id of the session at the last end."""
    process_input_tokens: int = 0
    input_tokens_since_end: int = 0
    """Input tokens since the process started, and since the last end."""

    def add(self, record: TranscriptRecord) -> None:
        """Add a record; text is ignored."""
        match record:
            case ModelRequest():
                self._add_request(record)
            case SessionInfo():
                self._add_session_info(record)
            case UserPrompt():
                self._set_time(record.at_us)
                self.prompts += 1
            case ToolUse():
                _count(self.tools, label(record.tool) or OTHERS)
                self.failed += record.failed
            case StreamEnd():
                self._add_end(record)
            case CostReported():
                self._add_cost(record)
            case UnknownLine():
                _count(self.unknown, label(record.type) or OTHERS)
            case UndecodableLine():
                self.undecodable_lines += 1
            case Note(code=code) if code in INCOMPLETE_NOTES:
                self.incomplete_reasons.setdefault(code)

    def _set_time(self, at_us: int | None) -> bool:
        """Set the last time; return False if there is none or it is invalid."""
        if at_us is None or not SINCE_US <= at_us < UNTIL_US:
            return False
        self.at_us = at_us
        return True

    def _add_session_info(self, info: SessionInfo) -> None:
        self._set_time(info.at_us)
        if info.session:
            self.session = name(info.session)
            if len(self.sessions) < SESSIONS_MAX:
                self.sessions.setdefault(self.session)
        self.version = name(info.version) or self.version
        self.cwd = info.cwd or self.cwd
        self.parent = name(info.parent) or self.parent
        if self.subagent is None:
            self.subagent = label(info.subagent)

    def _add_request(self, request: ModelRequest) -> None:
        is_dated, key = self._set_time(request.at_us), request_key(self.agent, request.id)
        earlier = self.requests.get(key)
        if earlier is None:
            self.undated += not is_dated
            self.process_input_tokens += request.usage.input
            self.input_tokens_since_end += request.usage.input
            self.requests[key] = ImportedRequest(
                key=key, at_us=self.at_us, dated=is_dated, usage=sanitize_usage(request.usage, self.subagent or ""),
                reported_nanousd=request.reported_nanousd,
            )  # fmt: skip
        elif token_total(request.usage) > token_total(earlier.usage):
            usage = replace(sanitize_usage(request.usage, self.subagent or ""), subagent=earlier.usage.subagent)
            nanousd = earlier.reported_nanousd if request.reported_nanousd is None else request.reported_nanousd
            self.requests[key] = replace(earlier, usage=usage, reported_nanousd=nanousd)

    def _add_end(self, raw_end: StreamEnd) -> None:
        """Add an end. Totals that include the previous ones replace them; others are added. An end with nothing but
        zeros is that of a killed call: unknown."""
        if not raw_end.usage and not raw_end.reported_nanousd:
            return
        usages = tuple(sanitize_usage(usage, self.subagent or "") for usage in raw_end.usage)
        end = replace(raw_end, usage=usages, text=None, detail="")
        is_same_session = self.session == self.last_end_session
        if not (
            self.last_end is not None
            and is_same_session
            and includes_previous_end(end, self.last_end, self.process_input_tokens)
        ):
            self.totals_before, self.nanousd_before = self.reported_totals, self.reported_nanousd
            self.process_input_tokens = self.input_tokens_since_end
        self.last_end, self.input_tokens_since_end, self.last_end_session = end, 0, self.session
        self.reported_totals = sum_by_model((*self.totals_before.values(), *end.usage))
        if end.reported_nanousd is not None:
            self.reported_nanousd = min((self.nanousd_before or 0) + end.reported_nanousd, NANOUSD_MAX)

    def _add_cost(self, cost: CostReported) -> None:
        """Replace the totals of the session so far."""
        usages = [sanitize_usage(usage, self.subagent or "") for usage in cost.usage]
        self.reported_totals.update((usage.model, usage) for usage in usages)
        if cost.reported_nanousd is not None:
            self.reported_nanousd = cost.reported_nanousd

    def next_segment(self) -> SegmentStats:
        """Return what the next segment of the same file begins with."""
        return replace(
            self, is_new=False, requests={}, version="", cwd="", parent="", undated=0, prompts=0, tools={}, failed=0,
            lines=0, undecodable_lines=0, unknown={}, incomplete_reasons={},
        )  # fmt: skip


class FileSegment(msgspec.Struct, kw_only=True):
    """A part of a file: its event without requests, and its statistics."""

    path: str
    session: str
    """Sanitised id of the file's session."""
    bytes_read: int
    read: ImportedFileRead
    """Without requests, their counts and the blob of paths."""
    stats: SegmentStats

    @property
    def stream(self) -> StreamId:
        return StreamId(f"session/{self.stats.agent}/{self.session}")


def token_total(usage: Usage) -> int:
    """Return the token count by which the fuller of two occurrences of a request is chosen."""
    return usage.input + usage.output


def sanitize_usage(usage: Usage, subagent: str) -> Usage:
    """Return the usage with sanitised names and with numbers within the limits."""
    names = model(usage.model), label(usage.subagent) or subagent, label(usage.tier)
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h, usage.reasoning)
    if min(numbers) >= 0 and max(numbers) < TOKENS_MAX and names == (usage.model, usage.subagent, usage.tier):
        return usage
    limited = {field: min(max(getattr(usage, field), 0), TOKENS_MAX) for field in TOKEN_FIELDS}
    return replace(usage, model=names[0], subagent=names[1], tier=names[2], **limited)


def _count(counts: dict[str, int], kind: str) -> None:
    if kind not in counts and len(counts) >= KINDS_MAX:
        kind = OTHERS
    counts[kind] = counts.get(kind, 0) + 1
