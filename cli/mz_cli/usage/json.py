"""JSON documents of `mz transcript`, and of the import, cost and audit of sessions."""

from __future__ import annotations

from typing import Literal

from mz_cli.common.verification import IntegrityFinding
from mz_cli.terminal.json import Shape


class UnreadFile(Shape, frozen=True, kw_only=True):
    path: str
    why: str


class UnpricedModel(Shape, frozen=True, kw_only=True):
    model: str
    requests: int


class ImportResult(Shape, frozen=True, kw_only=True):
    """`mz import --json`."""

    log: str
    """The directory of the log."""
    files: int
    """Files examined."""
    files_read: int
    """Files with new content."""
    files_unchanged: int
    """Files not opened, because they have not changed since the last import."""
    files_passed_over: int
    """Files in directories whose format mz does not read."""
    passed_over: tuple[str, ...]
    """Paths of the first of them."""
    unknown: tuple[UnreadFile, ...]
    """Named files whose format mz does not read."""
    unreadable: tuple[UnreadFile, ...]
    sessions: int
    """Sessions with new content."""
    sessions_short: int
    """Sessions whose files may report fewer tokens than were used."""
    bytes_read: int
    lines: int
    bad_lines: int
    requests_new: int
    requests_already_counted: int
    """Requests counted earlier, in this import or a previous one."""
    requests_corrected: int
    """Requests counted earlier with fewer tokens."""
    requests_settled: int
    """Requests known only from totals at the ends of files; negative if files now show them one by one."""
    requests_undated: int
    """Requests without a timestamp."""
    requests_ahead: int
    """Requests dated in the future."""
    computed_usd: str
    """Cost of the new requests."""
    unpriced: tuple[UnpricedModel, ...]


class ImportedAmounts(Shape, frozen=True, kw_only=True):
    """Sums over requests."""

    requests: int
    unpriced_requests: int
    """Requests that `computed_usd` does not include."""
    input_tokens: int
    """Including cache reads and writes."""
    uncached_input_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    """Including reasoning."""
    reasoning_tokens: int
    total_tokens: int
    """Input plus output."""
    computed_usd: str | None
    """Null: no request has a price."""
    reported_usd: str | None
    """Reported by the agents; null: none. It may cover other requests than `computed_usd`."""


class ImportedGroup(ImportedAmounts, frozen=True, kw_only=True):
    name: str
    models: tuple[str, ...]
    sessions: int
    short_sessions: int
    """Sessions whose files may report fewer tokens than were used."""
    by_mz_requests: int
    """Requests driven by mz, which are in a repository's log too."""
    first: str | None
    last: str | None
    """`first` and `last` enclose all requests, rounded out to quarters of an hour."""


class ImportedCostReport(Shape, frozen=True, kw_only=True):
    """`mz cost --imported --json`. Every request is in exactly one group: the groups add up to `total`."""

    log: str
    by: str
    timezone: str
    since: str | None
    until: str | None
    groups: tuple[ImportedGroup, ...]
    total: ImportedAmounts
    short_sessions: int
    """Sessions whose files may report fewer tokens than were used."""
    notes: tuple[str, ...]


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
    bytes: int
    bytes_read: int
    lines: int
    bad_lines: int


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
    failed_tool_calls: int
    tools: tuple[ToolCount, ...]
    lines: int
    bad_lines: int
    unknown_lines: tuple[TypeCount, ...]
    undated_requests: int
    requests_ahead: int
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


class TranscriptUsage(Shape, frozen=True, kw_only=True):
    """Tokens of all requests, each counted once; null: unknown."""

    input: int | None
    """Including cache reads and writes."""
    output: int | None
    """Including reasoning."""
    cache_read: int | None
    cache_write_5m: int | None
    """Cache writes with a lifetime of five minutes or an unknown one."""
    cache_write_1h: int | None
    reasoning: int | None


class TranscriptReport(Shape, frozen=True, kw_only=True):
    """`mz transcript FILE --json`."""

    agent: str
    version: str | None
    """Version of the agent's program."""
    session_id: str | None
    status: Literal["success", "error", "no-terminal"]
    """Status of the last ending event; session logs have none: no-terminal."""
    models: tuple[str, ...]
    """Models in order of appearance."""
    usage: TranscriptUsage
    reported_usd: str | None
    """Reported by the agent; repeated reports count once."""
    computed_usd: str | None
    """Tokens of each request at the price of its day; null if a model has no price."""
    unpriced: tuple[str, ...]
    """Models without a price."""
    final_text: str | None
    bad_lines: int
    """Number of undecodable lines."""
    notes: tuple[str, ...]
    """Remarks about the numbers: `code: text`, with stable codes."""
