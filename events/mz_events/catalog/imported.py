"""Events read from files of other programs. Nothing written by a person or an agent is kept, and paths only as blobs,
so that they can be erased.

Agents' own session files: model requests made without `mz`, and their cost. They are in the log of a user, not of a
repository: `session/<agent>/<id>`. Histories of other systems are in that of a repository: `imported/<run>`.
"""

from __future__ import annotations

from mz_events.catalog.base import DerivedEvent, EventPart, ExternalEvent
from mz_events.catalog.call import Usage
from mz_events.names import Commit, Digest, StreamId


class ImportedRequest(EventPart, frozen=True, kw_only=True):
    """One request to a model, counted for the session whose stream holds it unless it names another. Without tokens it
    only holds reported money."""

    key: str
    """32 hexadecimal digits of the sha256 over agent and id: the same in every file that mentions the request."""
    at_us: int
    dated: bool = True
    """False: no file has its time, and `at_us` is that of the line before or of the file."""
    usage: Usage
    reported_nanousd: int | None = None
    """By the agent, for this request."""
    before: Usage | None = None
    """Usage counted for it until now, if this event replaces it: more tokens, or the time, became known."""
    before_nanousd: int | None = None
    """Money reported for it until now."""
    before_at_us: int | None = None
    """Its time until now, if different."""
    session: StreamId = StreamId("")
    """Session where it was first found and is counted, if that is another one."""


class PricedSum(EventPart, frozen=True, kw_only=True):
    """Money of requests of one quarter of an hour, one model and one subagent."""

    session: StreamId = StreamId("")
    """As in `ImportedRequest`."""
    start_s: int
    """Begin of the quarter, seconds since the epoch, UTC."""
    model: str
    subagent: str
    nanousd: int
    """Negative if a correction lowers an earlier sum."""
    unpriced: int
    """Additional requests without a price; negative if a correction has one."""


class ImportedSessionFound(ExternalEvent, frozen=True, kw_only=True, tag="imported.session-found"):
    """A session file was found for the first time, or contains more about its session than was known."""

    agent: str
    session: str
    """The agent's id of it; `sha256-...` if that is not a valid name."""
    version: str = ""
    """Version of the agent's program."""
    project: Digest | None = None
    """Blob: the directory that the session worked in."""
    parent: str = ""
    """Session that this one was branched from."""
    by_mz: bool = False
    """The directory is a worktree of a run: the same calls are in that repository's own log."""


class ImportedCall(EventPart, frozen=True, kw_only=True):
    """What the ends of one call state."""

    ends: tuple[str, ...] = ()
    """Their ids, the same in every file that has them; of formats with such ids."""
    totals: tuple[Usage, ...] = ()
    nanousd: int | None = None


class ImportedFileRead(ExternalEvent, frozen=True, kw_only=True, tag="imported.file-read"):
    """Content of one file between two byte offsets, without requests that were counted before."""

    SCHEMA = 3
    NON_DETERMINISTIC = frozenset({"modified_ns", "inode", "paths"})
    file: str
    """sha256 of its path."""
    paths: Digest
    """Blob: the paths of all files that were read together, this one's included, each ending with a zero byte."""
    format: str
    """Name of the reader, such as claude-session."""
    subagent: str = ""
    """Subagent that wrote the file."""
    size: int
    """Size of the file in bytes when it was read."""
    modified_ns: int
    """0: more of the file was still to be read when this was appended."""
    inode: int
    offset_start: int
    """Byte at which reading began; 0: the file is new or was replaced, and earlier counts of its lines are void."""
    offset_end: int
    """Byte after the last complete line."""
    fingerprint_sha256: str
    """sha256 over the first and the last bytes that were read; a file that was replaced no longer matches."""
    requests: tuple[ImportedRequest, ...] = ()
    already_counted: int = 0
    """Requests that were counted before, here or elsewhere."""
    undated: int = 0
    """Requests without a time, counted at that of the line before or of the file."""
    future_dated: int = 0
    """Requests with a time in the future."""
    prompts: int = 0
    tools: dict[str, int] = {}
    """Number of calls by tool."""
    failed: int = 0
    """Tool calls that failed."""
    lines: int = 0
    undecodable_lines: int = 0
    """Lines that cannot be decoded."""
    unknown: dict[str, int] = {}
    """Number of lines by type unknown to the reader."""
    reader_state: str = ""
    """JSON of the reader's state for the next line: names and numbers. Empty: it cannot be kept, and a file that has
    grown is read again from its beginning."""
    first_line_sha256: str = ""
    """sha256 of its first line, or of its first document: copies of a file have the same."""
    calls: tuple[ImportedCall, ...] = ()
    """Calls whose ends are in it up to here; empty: none, or very many."""
    reported_totals: tuple[Usage, ...] = ()
    """Sums by model that the file states at its end, up to here."""
    reported_nanousd: int | None = None
    """Money that the file states at its end, up to here."""
    incomplete_reasons: tuple[str, ...] = ()
    """Reasons why the file may show fewer tokens than were used: codes of notes. `output-open` concerns the file up to
    here, the others these lines. Empty: no known reason."""


class ImportedTotalsReconciled(DerivedEvent, frozen=True, kw_only=True, tag="imported.totals-reconciled"):
    """Totals at the ends of the session's files beyond the requests in them: tokens of requests without a line, and
    money for the session."""

    requests: tuple[ImportedRequest, ...]


class ImportedPriced(DerivedEvent, frozen=True, kw_only=True, tag="imported.priced"):
    """Cost of the requests of the preceding event in the stream, by the prices then in force."""

    sums: tuple[PricedSum, ...] = ()
    unpriced: tuple[str, ...] = ()
    """Models without a price."""
    prices: str = ""
    """Name, version and digest of the price table."""


class ImportedRecord(EventPart, frozen=True, kw_only=True, omit_defaults=True):
    """What another system recorded of a call. Numbers that it does not tell are None."""

    item: str = ""
    """Empty: it belongs to none."""
    phase: str
    attempt: int
    """From 1, per item and phase."""
    agent: str = ""
    model: str = ""
    status: str = ""
    started_us: int
    duration_ms: int | None = None
    input: int | None = None
    """Cache reads and writes included."""
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    tokens: int | None = None
    """All tokens, where it does not tell input from output."""
    reported_nanousd: int | None = None
    estimated_tokens: int | None = None
    estimated_nanousd: int | None = None
    code_before: int | None = None
    """Lines, as it counted them."""
    code_after: int | None = None
    tests_before: int | None = None
    tests_after: int | None = None
    files: int | None = None
    insertions: int | None = None
    deletions: int | None = None


class ImportedRunRead(ExternalEvent, frozen=True, kw_only=True, tag="imported.run-read", omit_defaults=True):
    """The files of a run of another system. A later one replaces it."""

    run: str
    """Name here: the system, and the name there."""
    system: str
    status: str = ""
    base_commit: Commit | None = None
    head: Commit | None = None
    started_us: int | None = None
    items: dict[str, str] = {}
    """Status by name, as the other system calls it; empty: unknown."""
    records: tuple[ImportedRecord, ...] = ()
    damaged: int = 0
    """Files, lines and records that could not be read."""
