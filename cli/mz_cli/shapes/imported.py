"""Facts: the shapes of the JSON about sessions that were imported."""

from __future__ import annotations

from mz_cli.shapes.audit import FindingShape
from mz_cli.shapes.base import Shape


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
    """That were looked at."""
    files_read: int
    """In which something was new."""
    files_unchanged: int
    """Not opened: nothing happened to them since they were read."""
    files_passed_over: int
    """In directories, of no format that mz reads."""
    passed_over: tuple[str, ...]
    """The first of them."""
    unknown: tuple[UnreadFile, ...]
    """Files that were named and are of no format that mz reads."""
    unreadable: tuple[UnreadFile, ...]
    sessions: int
    """Of which something was read."""
    sessions_short: int
    """Of these, those whose files may tell fewer tokens than were used."""
    bytes_read: int
    lines: int
    bad_lines: int
    requests_new: int
    requests_known: int
    """Counted before, in this import or an earlier one."""
    requests_corrected: int
    """Counted before with fewer tokens."""
    requests_settled: int
    """That no line shows, but sums at the ends of files tell; below zero where files now show what they were."""
    requests_undated: int
    """Without a time of their own."""
    requests_ahead: int
    """Their time lies in the future."""
    computed_usd: str
    """Of what is new."""
    unpriced: tuple[UnpricedModel, ...]


class ImportedAmounts(Shape, frozen=True, kw_only=True):
    """Sums over requests."""

    requests: int
    unpriced_requests: int
    """`computed_usd` lacks them."""
    input_tokens: int
    """Cache reads and writes included."""
    uncached_input_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    """Reasoning included."""
    reasoning_tokens: int
    total_tokens: int
    """Input and output."""
    computed_usd: str | None
    """Null: there is no request, or none has a price."""
    reported_usd: str | None
    """By the agents; null: they reported none. It may cover other requests than `computed_usd` does."""


class ImportedGroup(ImportedAmounts, frozen=True, kw_only=True):
    name: str
    models: tuple[str, ...]
    sessions: int
    short_sessions: int
    """Of these, those whose files may tell fewer tokens than were used."""
    by_mz_requests: int
    """Driven by mz: they are in a repository's own log too."""
    first: str | None
    last: str | None
    """All requests lie between: when the first quarter of an hour with requests began, and the last one ended."""


class ImportedCostReport(Shape, frozen=True, kw_only=True):
    """`mz cost --imported --json`. Every request is in one group, so that the groups add up to `total`."""

    log: str
    by: str
    timezone: str
    since: str | None
    until: str | None
    groups: tuple[ImportedGroup, ...]
    total: ImportedAmounts
    short_sessions: int
    """Whose files may tell fewer tokens than were used."""
    notes: tuple[str, ...]


class ToolCount(Shape, frozen=True, kw_only=True):
    tool: str
    calls: int


class TypeCount(Shape, frozen=True, kw_only=True):
    type: str
    lines: int


class SessionFile(Shape, frozen=True, kw_only=True):
    path: str | None
    """Null: it was erased from the log."""
    format: str
    part: str | None
    bytes: int
    bytes_read: int
    lines: int
    bad_lines: int


class SessionAudit(ImportedAmounts, frozen=True, kw_only=True):
    """What is known of one session."""

    session: str
    """`<agent>/<id>`."""
    agent: str
    version: str | None
    project: str | None
    parent: str | None
    by_mz: bool
    models: tuple[str, ...]
    parts: tuple[str, ...]
    """Sub-agents."""
    first: str | None
    last: str | None
    """When the first and the last request were made; null: none has a time of its own."""
    prompts: int
    tool_calls: int
    failed_tool_calls: int
    tools: tuple[ToolCount, ...]
    lines: int
    bad_lines: int
    unknown_lines: tuple[TypeCount, ...]
    undated_requests: int
    requests_ahead: int
    lacks: tuple[str, ...]
    """Codes of notes, as in `mz transcript`, that say that the files may tell fewer tokens than were used."""
    files: tuple[SessionFile, ...]
    place: str
    """`stream@version` of the last event."""


class ImportedAudit(Shape, frozen=True, kw_only=True):
    """`mz audit --imported --json`."""

    log: str
    whole: bool
    """The chain and all cited blobs are as they were recorded."""
    findings: tuple[FindingShape, ...]
    sessions: tuple[SessionAudit, ...]
