"""Records of a file segment, collected: each request once, everything else as counts.

Only names and numbers pass; names are sanitised for the log, so that no content of a file can do harm in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from mz_projections.usage import add_usage

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


class ParsedRequest(msgspec.Struct, gc=False):
    """One request, as the file reports it."""

    at_us: int
    is_dated: bool
    usage: Usage
    reported_nanousd: int | None


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
    requests: dict[str, ParsedRequest] = {}
    """By id, in order of first occurrence."""
    sessions: dict[str, None] = {}
    """Ids that the file names, in order."""
    version: str = ""
    cwd: str = ""
    parent: str = ""
    undated: int = 0
    prompts: int = 0
    tools: dict[str, int] = {}
    failed_tools: int = 0
    lines: int = 0
    undecodable_lines: int = 0
    unknown_lines: dict[str, int] = {}
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
        """Add a record."""
        ADDERS.get(type(record), _ignore)(self, record)

    def requests_by_key(self) -> dict[str, ParsedRequest]:
        """Return the requests by their keys in the log."""
        return {request_key(self.agent, id_): request for id_, request in self.requests.items()}


def token_total(usage: Usage) -> int:
    """Return the token count by which the fuller of two occurrences of a request is chosen."""
    return usage.input + usage.output


def _set_time(stats: SegmentStats, at_us: int | None) -> bool:
    if at_us is None or not SINCE_US <= at_us < UNTIL_US:
        return False
    stats.at_us = at_us
    return True


def _add_session_info(stats: SegmentStats, info: SessionInfo) -> None:
    _set_time(stats, info.at_us)
    if info.session:
        stats.session = name(info.session)
        if len(stats.sessions) < SESSIONS_MAX:
            stats.sessions.setdefault(stats.session)
    stats.version = name(info.version) or stats.version
    stats.cwd = info.cwd or stats.cwd
    stats.parent = name(info.parent) or stats.parent
    if stats.subagent is None:
        stats.subagent = label(info.subagent)


def _add_prompt(stats: SegmentStats, prompt: UserPrompt) -> None:
    _set_time(stats, prompt.at_us)
    stats.prompts += 1


def _add_request(stats: SegmentStats, request: ModelRequest) -> None:
    is_dated = _set_time(stats, request.at_us)
    earlier = stats.requests.get(request.id)
    if earlier is None:
        stats.undated += not is_dated
        stats.process_input_tokens += request.usage.input
        stats.input_tokens_since_end += request.usage.input
        stats.requests[request.id] = ParsedRequest(
            stats.at_us, is_dated, sanitize_usage(request.usage, stats.subagent or ""), request.reported_nanousd
        )
    elif token_total(request.usage) > token_total(earlier.usage):
        usage = replace(sanitize_usage(request.usage, stats.subagent or ""), subagent=earlier.usage.subagent)
        reported_nanousd = earlier.reported_nanousd if request.reported_nanousd is None else request.reported_nanousd
        stats.requests[request.id] = ParsedRequest(earlier.at_us, earlier.is_dated, usage, reported_nanousd)


def sanitize_usage(usage: Usage, subagent: str) -> Usage:
    """Return the usage with sanitised names and with numbers within the limits."""
    names = model(usage.model), label(usage.subagent) or subagent, label(usage.tier)
    if (
        0 <= usage.input < TOKENS_MAX and 0 <= usage.output < TOKENS_MAX and 0 <= usage.cache_read < TOKENS_MAX
        and 0 <= usage.cache_write_5m < TOKENS_MAX and 0 <= usage.cache_write_1h < TOKENS_MAX
        and 0 <= usage.reasoning < TOKENS_MAX and names == (usage.model, usage.subagent, usage.tier)
    ):  # fmt: skip
        return usage
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h, usage.reasoning)
    input_, output, read, short, long, reasoning = (min(max(number, 0), TOKENS_MAX) for number in numbers)
    return Usage(
        model=names[0], subagent=names[1], tier=names[2], requests=usage.requests, input=input_, output=output,
        cache_read=read, cache_write_5m=short, cache_write_1h=long, reasoning=reasoning,
    )  # fmt: skip


def _add_tool_use(stats: SegmentStats, tool_use: ToolUse) -> None:
    _count(stats.tools, label(tool_use.tool) or OTHERS)
    stats.failed_tools += tool_use.failed


def _add_end(stats: SegmentStats, raw_end: StreamEnd) -> None:
    """Add an end. Totals that include the previous ones replace them; others are added. An end with nothing but zeros
    is that of a killed call: unknown."""
    if not raw_end.usage and not raw_end.reported_nanousd:
        return
    end = replace(
        raw_end,
        usage=tuple(sanitize_usage(usage, stats.subagent or "") for usage in raw_end.usage),
        text=None,
        detail="",
    )
    if stats.last_end is None or not _replaces_end(stats, end, stats.last_end):
        stats.totals_before, stats.nanousd_before, stats.process_input_tokens = (
            stats.reported_totals,
            stats.reported_nanousd,
            stats.input_tokens_since_end,
        )
    stats.last_end, stats.input_tokens_since_end, stats.last_end_session = end, 0, stats.session
    stats.reported_totals = dict(stats.totals_before)
    for usage in end.usage:
        earlier = stats.reported_totals.get(usage.model)
        stats.reported_totals[usage.model] = usage if earlier is None else add_usage(earlier, usage)
    if end.reported_nanousd is not None:
        stats.reported_nanousd = min((stats.nanousd_before or 0) + end.reported_nanousd, NANOUSD_MAX)


def _replaces_end(stats: SegmentStats, end: StreamEnd, previous: StreamEnd) -> bool:
    """Return True if this end replaces the previous one."""
    return stats.session == stats.last_end_session and includes_previous_end(
        end,
        previous,
        has_requests=stats.process_input_tokens > 0,
        is_enough=lambda sums: sum(token_sum.input for token_sum in sums.values()) >= stats.process_input_tokens,
    )


def _add_unknown_line(stats: SegmentStats, line: UnknownLine) -> None:
    _count(stats.unknown_lines, label(line.type) or OTHERS)


def _add_undecodable_line(stats: SegmentStats, line: UndecodableLine) -> None:
    stats.undecodable_lines += 1


def _add_cost(stats: SegmentStats, cost: CostReported) -> None:
    """Replace the totals of the session so far."""
    stats.reported_totals.update(
        (usage.model, usage) for usage in (sanitize_usage(raw_usage, stats.subagent or "") for raw_usage in cost.usage)
    )
    if cost.reported_nanousd is not None:
        stats.reported_nanousd = cost.reported_nanousd


def _add_note(stats: SegmentStats, note: Note) -> None:
    if note.code in INCOMPLETE_NOTES:
        stats.incomplete_reasons.setdefault(note.code)


def _ignore(stats: SegmentStats, record: TranscriptRecord) -> None:
    """Ignore text."""


def _count(counts: dict[str, int], kind: str) -> None:
    if kind not in counts and len(counts) >= KINDS_MAX:
        kind = OTHERS
    counts[kind] = counts.get(kind, 0) + 1


ADDERS: dict[type[TranscriptRecord], Callable[[SegmentStats, Any], None]] = {
    SessionInfo: _add_session_info,
    UserPrompt: _add_prompt,
    ModelRequest: _add_request,
    ToolUse: _add_tool_use,
    StreamEnd: _add_end,
    UnknownLine: _add_unknown_line,
    UndecodableLine: _add_undecodable_line,
    CostReported: _add_cost,
    Note: _add_note,
}
