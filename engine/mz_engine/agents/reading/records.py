"""Records that readers extract from an agent's output file: the stream of one call, or the log of a session.

A *reader* knows one format. It takes lines one by one (or a whole file, where the format is one document) and yields
records. Between lines it keeps a `ReaderState`, which is plain data, so that reading of a growing file can resume where
it stopped.

Caveats about a transcript's numbers, by stable code. `mz transcript` prints `code: text`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec
from mz_events.catalog.call import Usage
from mz_projections.imported.model import OUTPUT_OPEN

from mz_engine.agents.reading.json_lines import Json, decode_object


class TranscriptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the records."""


class SessionInfo(TranscriptRecord, frozen=True, kw_only=True):
    """Newly learned properties of the session; an empty field adds nothing."""

    session: str = ""
    version: str = ""
    """Version of the agent's program."""
    cwd: str = ""
    parent: str = ""
    """Session that this one was branched from, or that started this subagent."""
    subagent: str = ""
    """Name of the subagent whose file this is."""
    model: str = ""
    at_us: int | None = None


class UserPrompt(TranscriptRecord, frozen=True, kw_only=True, gc=False):
    """A prompt to the agent, by a person or a program."""

    at_us: int | None = None


class ModelRequest(TranscriptRecord, frozen=True, kw_only=True, gc=False):
    """One request to a model. The same `id` may occur again, in this file or in others; the occurrence with the most
    tokens counts, once."""

    id: str
    """Unique among all requests of all sessions of the agent, and equal in every file that contains the request."""
    usage: Usage
    at_us: int | None = None
    reported_nanousd: int | None = None
    """Set if the file reports money per request."""


class RequestStarted(TranscriptRecord, frozen=True, kw_only=True):
    """A request that the file shows without tokens; a `ModelRequest` of the same id may follow."""

    id: str
    model: str


TYPE_CHARS_MAX = 64
TOOL_CHARS_MAX = 128


class ToolUse(TranscriptRecord, frozen=True, kw_only=True, gc=False):
    """A tool call."""

    tool: str
    id: str = ""
    failed: bool = False

    @classmethod
    def named(cls, name: object, id: object = "", *, failed: bool = False) -> ToolUse:  # noqa: A002
        """Return the record for the values of the fields with the tool's name and the call's id, whatever they are."""
        tool = name[:TOOL_CHARS_MAX] if isinstance(name, str) and name else "?"
        return cls(tool=tool, id=id if isinstance(id, str) else "", failed=failed)


class AssistantText(TranscriptRecord, frozen=True, kw_only=True, gc=False):
    """Text by the agent in the main conversation."""

    text: str
    continues: bool = False
    """True if the text continues the text before it."""


class StreamEnd(TranscriptRecord, frozen=True, kw_only=True):
    """A terminal event. Several may follow one another; the last one counts."""

    id: str = ""
    """The same wherever the event is repeated; empty: unknown."""
    status: Literal["success", "error"]
    text: str | None = None
    """The final text, if the event repeats it."""
    reported_nanousd: int | None = None
    cumulative: bool = True
    """True if money and usage include those of the ends before it in this file."""
    usage: tuple[Usage, ...] = ()
    """Totals that the event reports. They count where the requests before it do not add up to them."""
    has_cache_lifetimes: bool = True
    """True if the totals distinguish cache writes by lifetime; otherwise all are recorded as 5-minute writes."""
    turn_usage: Usage | None = None
    """The turn's own tokens, of the main conversation alone; for ends without totals."""
    detail: str = ""
    """The error message."""
    stop_reasons: tuple[str, ...] = ()
    """The agent's names for why it stopped."""
    http_status: int | None = None
    retry_after_seconds: int | None = None


class TurnStarted(TranscriptRecord, frozen=True, kw_only=True):
    """A turn that needs an end of its own: the ends before it do not end the call."""


class WorkReported(TranscriptRecord, frozen=True, kw_only=True):
    """The agent works: errors before it are overcome, and uses tokens that are reported later."""


class ErrorReported(TranscriptRecord, frozen=True, kw_only=True):
    """An error that ends nothing, since the agent may retry. A newer one replaces it; an empty one revokes it."""

    message: str = ""
    reason: str = ""
    """The agent's name for the error."""
    http_status: int | None = None
    retry_after_seconds: int | None = None


class UnknownLine(TranscriptRecord, frozen=True, kw_only=True):
    """A line of a type that the reader does not know. It is only counted."""

    type: str

    @classmethod
    def of_type(cls, value: object) -> UnknownLine:
        """Return the record for the value of the type's field, whatever that is."""
        return cls(type=value[:TYPE_CHARS_MAX] if isinstance(value, str) and value else "?")


class UndecodableLine(TranscriptRecord, frozen=True, kw_only=True):
    """A line that cannot be decoded."""

    reason: str


class Note(TranscriptRecord, frozen=True, kw_only=True):
    """A caveat about the file's numbers. Repeated notes count once."""

    code: str
    """A code of `NOTES`, or `tells:` and a field of Usage that the format may omit and this file has."""


REPORTS_FIELD = "tells:"


class CostReported(TranscriptRecord, frozen=True, kw_only=True):
    """Running totals of a whole session, in a session log. The last one counts."""

    reported_nanousd: int | None = None
    usage: tuple[Usage, ...] = ()
    """By model; may include requests that no line of the file shows."""


Records: TypeAlias = Iterator[TranscriptRecord]


class ReaderState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a reader between two lines."""

    session: str = ""
    version: str = ""
    model: str = ""
    cwd: str = ""
    subagent: str = ""
    total: tuple[Usage, ...] = ()
    """Last cumulative totals by model, for formats that count cumulatively."""
    requests: int = 0
    """Number of requests so far, for ids in formats that have none."""
    open: tuple[str, ...] = ()
    """Ids of messages whose end has not been seen yet: note `output-open`."""
    names: tuple[tuple[str, str], ...] = ()
    """Names by the id with which later lines refer to them, such as subagents by the call that started them."""


UNNAMED_SUBAGENT = "sub-agent"
"""Name of a subagent whose name is unknown."""


class Reader:
    """Base class of the readers, each of one format. Total over any bytes: unreadable input becomes `UndecodableLine`
    or `UnknownLine`, never an exception. Subclasses define `read_object` if every line, or the whole file, is a JSON
    object, else `read`. The fields of the state that every format may have are attributes."""

    name: str
    """Name of the format: claude-stream, codex-rollout, ..."""
    agent: str
    unit: Literal["line", "file"] = "line"
    """Unit that `read` accepts: a line without its line end, or a whole file."""
    unreported_fields: tuple[str, ...] = ()
    """Fields of Usage that the format does not contain: unknown, not zero."""
    is_session_log: bool = False
    """True for session logs, which can continue at any time and have no terminal event."""
    is_text: bool = False
    """True for formats that are not JSON."""
    keeps_texts: bool = True
    """False if the caller needs no AssistantText; a reader may yield it nevertheless."""

    def __init__(self, state: ReaderState) -> None:
        self._session, self._version, self._model = state.session, state.version, state.model
        self._cwd, self._subagent, self._requests = state.cwd, state.subagent, state.requests
        self._names, self._open = dict(state.names), dict.fromkeys(state.open)

    def state(self) -> ReaderState:
        return ReaderState(
            session=self._session,
            version=self._version,
            model=self._model,
            cwd=self._cwd,
            subagent=self._subagent,
            requests=self._requests,
            open=tuple(self._open),
            names=tuple(self._names.items()),
        )

    def session_info(self, at_us: int | None = None, parent: str = "") -> SessionInfo:
        """Return what is known of the session."""
        return SessionInfo(
            session=self._session,
            version=self._version,
            cwd=self._cwd,
            parent=parent,
            subagent=self._subagent,
            model=self._model,
            at_us=at_us,
        )

    def read(self, data: bytes) -> Records:
        value = decode_object(data)
        return iter((UndecodableLine(reason="no JSON object"),)) if value is None else self.read_object(value)

    def read_object(self, value: Json, /) -> Records:
        """Yield the records of one object."""
        raise NotImplementedError

    @staticmethod
    def matches(value: dict[str, object]) -> bool:
        """Return True if a decoded line (or document) can only be of this format."""
        return False

    @staticmethod
    def matches_text(head: bytes) -> bool:
        """Return True if the first bytes of a file that is not JSON can only be of this format."""
        return False


Format: TypeAlias = type[Reader]


NOTES: Mapping[str, str] = {
    "half-line": "the last line is incomplete: the file is still being written, or was cut off",
    "long-line": "a line exceeds the length limit; it is skipped and counted as undecodable",
    "mended": "damaged lines were repaired and read",
    "utf-16": "the file is UTF-16",
    "compressed": "the file is compressed with gzip",
    "unknown-lines": "lines of unknown types are counted, but not read",
    "session-log": "a session log has no terminal event: it can continue at any time",
    "no-terminal": "no terminal event: the call was killed, or is still running",
    "error": "the agent ended in an error",
    "several-ends": "several results: the last status counts; money and tokens count once",
    "several-sessions": "lines of several sessions; the id is that of the last one",
    "sub-agents": "tokens of subagents are included",
    "sub-agents-apart": "tokens of subagents are not in this file",
    "sub-agents-short": "the agent reports no totals by model: tokens of subagents may be missing",
    "whole-thread": "token counts are cumulative over the thread: if it began before this file, its earlier calls "
    "are included",
    "stub-output": "output tokens of single messages are incomplete; the agent's final totals are used",
    OUTPUT_OPEN: "output tokens of some messages are those at their start; the final counts are not reported",
    "hidden-requests": "the agent counts requests that its messages do not show (compaction, titles, subagents); "
    "its totals are used",
    "main-thread": "the agent reports no totals by model: tokens of side models and subagents are missing, their money "
    "is included",
    "result-short": "the result counts less than the messages before it; the messages are used",
    "tool-requests": "the log omits requests that only call tools: tokens are missing",
    "per-call": "tokens are reported per call, not per request: a price that depends on a request's size may be wrong",
    "cache-lifetime": "the file does not report the lifetime of cache writes; they are priced as 5-minute writes",
    "rounded": "tokens and money are rounded in this output; `--analytics-log` has exact numbers",
    "no-model": "the file names no model, so nothing can be priced",
    "no-usage": "the file reports no tokens",
    "no-times": "the file has no timestamps; prices of the file's modification date are used",
    "copied": "lines were copied from an earlier session, whose requests are counted here too",
    "reported-elsewhere": "money is reported for the whole session, and may include requests that are not in this file",
}

INCOMPLETE_NOTES = frozenset({OUTPUT_OPEN, "tool-requests", "sub-agents-short"})
"""Notes of files that report, or may report, fewer tokens than were used."""
