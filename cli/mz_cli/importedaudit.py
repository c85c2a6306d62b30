"""`mz audit --imported`: files, requests, cost and gaps of imported sessions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from mz_events.names import Digest
from mz_events.store import BlobMissing
from mz_projections.imported import File, Session, Sum, count
from mz_recordings.transcripts.notes import NOTES

from mz_cli.importedcosts import NOT_TOLD, Totals, amounts, models
from mz_cli.render.table import Table, columns
from mz_cli.render.text import compact, counted, instant, money, nanousd_of
from mz_cli.shapes.imported import ImportedAudit, SessionAudit, SessionFile, ToolCount, TypeCount
from mz_cli.summary import FEWER, NOT_REPORTED, UNPRICED
from mz_cli.userlog import PREFIX, Imported
from mz_cli.verification import Verification

NONE = "Nothing was imported."
ABSENT = "-"
TOOLS_SHOWN = 8


class Paths:
    """Paths of imported files, loaded from blobs."""

    def __init__(self, log: Imported) -> None:
        self._log = log
        self._known: dict[str, str] = {}
        self._seen: set[Digest] = set()

    def of(self, file: File) -> str | None:
        """Return the path; None if it was erased."""
        if file.paths not in self._seen:
            self._seen.add(file.paths)
            self._known.update(self._listed(file.paths))
        return self._known.get(file.file)

    def _listed(self, digest: Digest) -> Iterator[tuple[str, str]]:
        try:
            data = self._log.blobs.get(digest)
        except BlobMissing:
            return
        for path in data.split(b"\0"):
            yield hashlib.sha256(path).hexdigest(), os.fsdecode(path)


def audited(log: Imported, record: Verification, stream: str | None) -> ImportedAudit:
    """Audit one session, or all."""
    from mz_cli.commands.verify import finding_shapes

    paths = Paths(log)
    versions = {str(name): version for name, version in log.store.streams(PREFIX)}
    times = log.views.times(stream)
    sessions = (
        session_audit(
            log, each, tuple(log.views.files_of(each.stream)), log.views.sums_of(each.stream), paths,
            f"{each.stream}@{versions.get(each.stream, 0)}", times.get(each.stream),
        )
        for each in log.views.sessions() if stream in (None, each.stream)
    )  # fmt: skip
    return ImportedAudit(
        log=str(log.home), whole=record.whole, findings=finding_shapes(record), sessions=tuple(sessions)
    )


def session_audit(
    log: Imported, session: Session, files: tuple[File, ...], rows: tuple[Sum, ...], paths: Paths, place: str,
    times: tuple[int, int] | None,
) -> SessionAudit:  # fmt: skip
    from mz_recordings.importing.settle import lacking  # Imports the readers of all formats.

    totals = Totals()
    parts: dict[str, None] = {}
    for row in rows:
        totals.add(row, session.by_mz)
        parts.setdefault(row.part)
    counts = count(files)
    first, last = times or (None, None)
    return SessionAudit(
        session=session.stream.removeprefix(PREFIX), agent=session.agent, version=session.version or None,
        project=log.project(session) or None, parent=session.parent or None, by_mz=session.by_mz,
        models=models(totals), parts=tuple(part for part in parts if part), first=instant(first),
        last=instant(last), prompts=counts.prompts, tool_calls=sum(counts.tools.values()),
        failed_tool_calls=counts.failed,
        tools=tuple(ToolCount(tool=tool, calls=calls) for tool, calls in sorted(counts.tools.items())),
        lines=counts.lines, bad_lines=counts.bad,
        unknown_lines=tuple(TypeCount(type=kind, lines=lines) for kind, lines in sorted(counts.unknown.items())),
        undated_requests=counts.undated, requests_ahead=counts.ahead, lacks=lacking(files, rows),
        files=tuple(
            SessionFile(path=paths.of(each), format=each.format, part=each.part or None, bytes=each.size,
                        bytes_read=each.upto, lines=each.lines, bad_lines=each.bad)
            for each in files
        ),
        place=place, **amounts(totals),
    )  # fmt: skip


def audit_lines(report: ImportedAudit) -> Iterator[str]:
    """Yield all sessions in full, for a terminal."""
    for each in report.sessions:
        yield f"{each.session}" + (f", version {each.version}" if each.version else "")
        yield f"  project      {each.project or NOT_TOLD}" + (" (driven by mz)" if each.by_mz else "")
        if each.parent:
            yield f"  branched of  {each.parent}"
        yield f"  time         {_span(each)}"
        yield (
            f"  requests     {each.requests:,} to {', '.join(each.models) or NOT_TOLD}; "
            f"{counted(each.prompts, 'prompt')}, {counted(each.tool_calls, 'tool call')}"
        )
        if each.parts:
            yield f"  sub-agents   {', '.join(each.parts)}"
        if each.tools:
            most = sorted(each.tools, key=lambda tool: -tool.calls)[:TOOLS_SHOWN]
            yield f"  tools        {', '.join(f'{tool.tool} {tool.calls}' for tool in most)}"
        yield (
            f"  tokens       {compact(each.uncached_input_tokens)} uncached, {compact(each.cache_write_5m_tokens)} "
            f"written for 5 minutes, {compact(each.cache_write_1h_tokens)} for an hour, "
            f"{compact(each.cache_read_tokens)} read, {compact(each.output_tokens)} out"
        )
        yield f"  cost         {_worth(each.computed_usd)} computed, {_worth(each.reported_usd)} reported"
        for gap in gaps(each):
            yield f"  missing      {gap}"
        for file in each.files:
            yield f"  file         {file.path or '(erased)'}: {file.format}, {counted(file.lines, 'line')}"
        yield f"  event ref    {each.place}"


def gaps(session: SessionAudit) -> Iterator[str]:
    """Yield a description of each gap in the numbers."""
    if session.unpriced_requests:
        yield f"a price for {counted(session.unpriced_requests, 'request')}"
    for code in session.lacks:
        yield f"tokens: {NOTES.get(code, code)}"
    if session.bad_lines:
        yield f"{counted(session.bad_lines, 'line')} that cannot be decoded"
    if session.unknown_lines:
        yield f"{counted(sum(each.lines for each in session.unknown_lines), 'line')} of unknown types"
    if session.undated_requests:
        yield f"the time of {counted(session.undated_requests, 'request')}"
    if session.requests_ahead:
        yield f"a correct clock: {counted(session.requests_ahead, 'request')} dated in the future"
    for file in session.files:
        if file.bytes_read < file.bytes:
            yield f"the last {file.bytes - file.bytes_read:,} bytes of {file.path or 'a file'}: incomplete line"


def remarks(report: ImportedAudit) -> Iterator[str]:
    """Yield notes below the table of all sessions."""
    short = [each for each in report.sessions if each.lacks]
    if short:
        told = f"{len(short):,} of {counted(len(report.sessions), 'session')} {FEWER}"
        yield f"{told}, such as {short[0].session}; see mz audit --imported SESSION"


def audit_table(report: ImportedAudit, names: dict[str, str] | None = None) -> Table:
    """Return one row per session. `names`: short names by stream, for a terminal; None: exact, for a pipe."""
    rows = tuple(_exact(each) if names is None else _brief(each, names) for each in report.sessions)
    first = ("*session",) if names is None else ("*session", "agent")
    heads = (*first, "~project", "first", ">requests", ">sub-agents", ">bad lines", ">unpriced", ">reported",
             ">computed", *(("event_ref",) if names is None else ()))  # fmt: skip
    return Table(columns=columns(*heads), rows=rows, empty=NONE)


def _exact(each: SessionAudit) -> tuple[str, ...]:
    return (
        each.session, each.project or NOT_TOLD, each.first or ABSENT, *_counts(each),
        each.reported_usd or NOT_REPORTED, each.computed_usd or _unpriced(each), each.place,
    )  # fmt: skip


def _brief(each: SessionAudit, names: dict[str, str]) -> tuple[str, ...]:
    return (
        names.get(f"{PREFIX}{each.session}", each.session), each.agent, each.project or NOT_TOLD,
        (each.first or ABSENT)[:16], *_counts(each), _money(each.reported_usd) or ABSENT,
        _money(each.computed_usd) or _unpriced(each),
    )  # fmt: skip


def _unpriced(each: SessionAudit) -> str:
    """Return `-` without requests, since then no price is missing."""
    return UNPRICED if each.requests else ABSENT


def _counts(each: SessionAudit) -> tuple[str, str, str, str]:
    return str(each.requests), str(len(each.parts)), str(each.bad_lines), str(each.unpriced_requests)


def _span(session: SessionAudit) -> str:
    """Return first and last time, to the second."""
    if session.first is None or session.last is None:
        return NOT_TOLD
    return " to ".join(f"{end[:10]} {end[11:19]}Z" for end in (session.first, session.last))


def _worth(amount: str | None) -> str:
    return _money(amount) or "nothing"


def _money(amount: str | None) -> str | None:
    return None if amount is None else money(nanousd_of(amount))
