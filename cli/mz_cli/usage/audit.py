"""`mz audit --imported`: files, requests, cost and gaps of imported sessions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache

from msgspec import field
from mz_engine.agents.reading.records import NOTES
from mz_events.names import Digest
from mz_events.store import BlobMissing
from mz_projections.imported.model import ImportedSession, count_session

from mz_cli.app.user_log import PREFIX, ImportedLog
from mz_cli.common.run_text import INCOMPLETE_TOKENS, UNPRICED
from mz_cli.common.verification import IntegrityFinding, VerifyResult
from mz_cli.cost.report import reported_cell
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import Cell, Table, columns, usd_cell
from mz_cli.terminal.text import compact_number, count_noun, iso_time, rounded_usd
from mz_cli.usage.costs import NOT_REPORTED_LABEL, ImportedAmounts, amounts, models

NOTHING_IMPORTED = "Nothing was imported."
ABSENT = "-"
TOOLS_SHOWN = 8
FindPaths = Callable[[Digest], dict[str, str]]
"""Digest of a list of files -> their paths by digest."""


class ToolCount(Shape, frozen=True, kw_only=True):
    tool: str
    calls: int


class TypeCount(Shape, frozen=True, kw_only=True):
    type: str
    lines: int


class SessionFile(Shape, frozen=True, kw_only=True):
    path: str | None
    """Null: erased from the log."""
    format: str
    subagent: str | None
    size: int = field(name="size_bytes")
    offset_end: int = field(name="bytes_read")
    lines: int
    undecodable_lines: int


class SessionAudit(ImportedAmounts, frozen=True, kw_only=True):
    """Contents and cost of one imported session."""

    session: str
    """`<agent>/<id>`."""
    agent: str
    version: str | None
    project: str | None
    parent: str | None
    by_mz: bool
    models: tuple[str, ...]
    subagents: tuple[str, ...]
    """Names of the subagents."""
    first: str | None
    last: str | None
    """`first` and `last`: times of the first and last request; null: no request has a timestamp."""
    prompts: int
    tool_calls: int
    failed: int = field(name="failed_tool_calls")
    tools: tuple[ToolCount, ...]
    lines: int
    undecodable_lines: int
    unknown_lines: tuple[TypeCount, ...]
    undated: int = field(name="undated_requests")
    future_dated: int = field(name="future_dated_requests")
    incomplete_reasons: tuple[str, ...]
    """Codes, as in `mz transcript`, of the reasons why the files may report fewer tokens than were used."""
    files: tuple[SessionFile, ...]
    event_ref: str
    """`stream@version` of the session's last event."""


class ImportedAudit(Shape, frozen=True, kw_only=True):
    """`mz audit --imported --json`."""

    log: str
    intact: bool
    """The hash chain and all cited blobs are undamaged."""
    findings: tuple[IntegrityFinding, ...]
    sessions: tuple[SessionAudit, ...]


def imported_audit(log: ImportedLog, verification: VerifyResult, stream: str | None) -> ImportedAudit:
    """Audit one session, or all."""
    times = log.views.times(stream)
    versions = {str(name): version for name, version in log.store.streams(PREFIX)}

    @cache
    def paths(digest: Digest) -> dict[str, str]:
        """Return the listed paths by their own digests; empty if the list was erased."""
        try:
            listed = log.blobs.get(digest).split(b"\0")
        except BlobMissing:
            return {}
        return {hashlib.sha256(path).hexdigest(): os.fsdecode(path) for path in listed}

    sessions = (
        session_audit(log, session, paths, versions.get(session.stream, 0), times.get(session.stream, (None, None)))
        for session in log.views.sessions()
        if stream in (None, session.stream)
    )
    return ImportedAudit(
        log=str(log.root), intact=verification.intact, findings=verification.findings, sessions=tuple(sessions)
    )


def session_audit(
    log: ImportedLog, session: ImportedSession, paths: FindPaths, version: int, times: tuple[int | None, int | None]
) -> SessionAudit:
    from mz_recordings.importing.reconcile import incomplete_reasons  # Imports the readers of all formats.

    files, rows = log.views.files_of(session.stream), log.views.sums_of(session.stream)
    counts = count_session(files)
    return shape_of(
        SessionAudit,
        session,
        counts,
        session=session.stream.removeprefix(PREFIX),
        project=log.project(session) or None,
        models=models(rows),
        subagents=tuple(dict.fromkeys(row.subagent for row in rows if row.subagent)),
        first=iso_time(times[0]),
        last=iso_time(times[1]),
        tool_calls=sum(counts.tools.values()),
        tools=tuple(ToolCount(tool=tool, calls=calls) for tool, calls in sorted(counts.tools.items())),
        unknown_lines=tuple(TypeCount(type=kind, lines=lines) for kind, lines in sorted(counts.unknown.items())),
        incomplete_reasons=incomplete_reasons(files, rows),
        files=tuple(shape_of(SessionFile, file, path=paths(file.paths).get(file.file)) for file in files),
        event_ref=f"{session.stream}@{version}",
        **amounts(rows),
    )


def audit_lines(report: ImportedAudit) -> Iterator[str]:
    """Yield all sessions in full, for a terminal."""
    for session in report.sessions:
        yield f"{session.session}" + (f", version {session.version}" if session.version else "")
        yield f"  project      {session.project or NOT_REPORTED_LABEL}" + (" (driven by mz)" if session.by_mz else "")
        if session.parent:
            yield f"  branched of  {session.parent}"
        yield f"  time         {_time_span(session)}"
        yield (
            f"  requests     {session.requests:,} to {', '.join(session.models) or NOT_REPORTED_LABEL}; "
            f"{count_noun(session.prompts, 'prompt')}, {count_noun(session.tool_calls, 'tool call')}"
        )
        if session.subagents:
            yield f"  sub-agents   {', '.join(session.subagents)}"
        if session.tools:
            most_used = sorted(session.tools, key=lambda tool: -tool.calls)[:TOOLS_SHOWN]
            yield f"  tools        {', '.join(f'{tool.tool} {tool.calls}' for tool in most_used)}"
        yield (
            f"  tokens       {compact_number(session.uncached_input_tokens)} uncached, "
            f"{compact_number(session.cache_write_5m_tokens)} "
            f"written for 5 minutes, {compact_number(session.cache_write_1h_tokens)} for an hour, "
            f"{compact_number(session.cache_read_tokens)} read, {compact_number(session.output_tokens)} out"
        )
        computed, reported = rounded_usd(session.computed_nanousd), rounded_usd(session.reported_nanousd)
        yield f"  cost         {computed or 'nothing'} computed, {reported or 'nothing'} reported"
        for gap_text in gap_texts(session):
            yield f"  missing      {gap_text}"
        for file in session.files:
            yield f"  file         {file.path or '(erased)'}: {file.format}, {count_noun(file.lines, 'line')}"
        yield f"  event ref    {session.event_ref}"


def gap_texts(session: SessionAudit) -> Iterator[str]:
    """Yield a description of each gap in the numbers."""
    if session.unpriced_requests:
        yield f"a price for {count_noun(session.unpriced_requests, 'request')}"
    for code in session.incomplete_reasons:
        yield f"tokens: {NOTES.get(code, code)}"
    if session.undecodable_lines:
        yield f"{count_noun(session.undecodable_lines, 'line')} that cannot be decoded"
    if session.unknown_lines:
        yield f"{count_noun(sum(line_type.lines for line_type in session.unknown_lines), 'line')} of unknown types"
    if session.undated:
        yield f"the time of {count_noun(session.undated, 'request')}"
    if session.future_dated:
        yield f"a correct clock: {count_noun(session.future_dated, 'request')} dated in the future"
    for file in session.files:
        if file.offset_end < file.size:
            yield f"the last {file.size - file.offset_end:,} bytes of {file.path or 'a file'}: incomplete line"


def remarks(report: ImportedAudit) -> Iterator[str]:
    """Yield notes below the table of all sessions."""
    incomplete = [session for session in report.sessions if session.incomplete_reasons]
    if incomplete:
        count_text = f"{len(incomplete):,} of {count_noun(len(report.sessions), 'session')} {INCOMPLETE_TOKENS}"
        yield f"{count_text}, such as {incomplete[0].session}; see mz audit --imported SESSION"


def audit_table(report: ImportedAudit, names: dict[str, str]) -> Table:
    """Return one row per session. `names`: short names by stream, for a terminal."""
    rows = [
        (
            Cell(names.get(f"{PREFIX}{session.session}", session.session), session.session),
            session.agent,
            session.project or NOT_REPORTED_LABEL,
            Cell((session.first or ABSENT)[:16], session.first or ABSENT),
            str(session.requests),
            str(len(session.subagents)),
            str(session.undecodable_lines),
            str(session.unpriced_requests),
            reported_cell(session.reported_nanousd),
            usd_cell(session.computed_nanousd, UNPRICED if session.requests else ABSENT),
            session.event_ref,
        )
        for session in report.sessions
    ]
    heads = columns("*session", "agent|", "project", "first", ">requests", ">sub-agents", ">undecodable", ">unpriced",
                    ">reported", ">computed", "|event_ref")  # fmt: skip
    return Table(columns=heads, rows=rows, empty=NOTHING_IMPORTED)


def _time_span(session: SessionAudit) -> str:
    """Return first and last time, to the second."""
    if session.first is None or session.last is None:
        return NOT_REPORTED_LABEL
    return " to ".join(f"{end[:10]} {end[11:19]}Z" for end in (session.first, session.last))
