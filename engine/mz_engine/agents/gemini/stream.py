"""Readers of Gemini CLI's files: its output (`--output-format stream-json`, since 0.11, and `json`, since 0.6), and its
session logs in `~/.gemini/tmp/<project>/chats/`. Accept any bytes.

The `status` of the last `result` decides how a call ended, never the exit code. Both outputs report tokens per call.
The stream names the models since 0.44 at the latest, and has no field for thoughts: they are the total minus its parts;
the document has both. Tokens are those of the call alone, even if it continued a session. Neither has the program's
version, nor money. The text is everything after the last use of a tool, in pieces.

Until early 2026 a session is one JSON document that is rewritten with every message; since then it is JSON Lines: a
head, messages, and changes (`{"$set": ...}`). A message is written again, with the same id, once its tools are done,
and a resumed session begins with all its messages; so one id is one request. Documents omit requests that only call
tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.agents import package
from mz_engine.agents.package import json_line
from mz_engine.agents.reading import records
from mz_engine.agents.reading.json_lines import (
    Json,
    count,
    has_types,
    mapping,
    objects,
    string,
    strings,
    time_us,
    token_count,
)
from mz_engine.agents.reading.records import UNNAMED_SUBAGENT, Reader, ReaderState, Records

UNREPORTED_FIELDS = ("cache_write_5m", "cache_write_1h")
"""Caching is implicit and its writes are not reported."""
PROGRAM_MESSAGES = frozenset({"info", "error", "warning"})
"""Messages by the program to the user."""
CONTEXT_PREFIX = "<session_context>"
SUBAGENT_TOOL = "invoke_agent"
"""The tool that calls subagents."""

_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\n\s*- ([^\n]{1,4096})")


# output ---------------------------------------------------------------------------------------------------------------
REPEAT_PREFIX_CHARS = 12
"""A shorter prefix may repeat by chance."""
REPEATS_MAX = 20
"""More than the CLI's own retries."""
PIECES_MAX = 200_000
"""Limit of the pieces of one reply; the text of a longer one is not reassembled."""
DOCUMENT_KEYS = frozenset({"session_id", "response", "stats", "error", "warnings"})


class StreamReader(Reader):
    name = "gemini-stream"
    agent = "gemini"
    unreported_fields = UNREPORTED_FIELDS

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._texts: list[str] = []
        self._is_text_open = False
        """True while text pieces continue one another; a tool call ends them."""
        self._error = ""

    def read_object(self, event: Json, /) -> Records:
        match event.get("type"):
            case "init":
                yield from self._session_records(event)
            case "message":
                yield from self._message_records(event)
            case "tool_use":
                self._is_text_open = False
                if event.get("tool_name") == SUBAGENT_TOOL:
                    yield records.Note(code="sub-agents")
                yield records.ToolUse.named(event.get("tool_name"), event.get("tool_id"))
            case "error":
                self._error = string(event.get("message")) or self._error
                yield records.ErrorReported(message=self._error)
            case "result":
                yield from self._end_records(event)
            case kind if kind != "tool_result":
                yield records.UnknownLine.of_type(kind)

    def _session_records(self, event: Json) -> Records:
        self._session = string(event.get("session_id")) or self._session
        self._model = string(event.get("model")) or self._model
        self._texts, self._is_text_open, self._error = [], False, ""
        yield self.session_info(time_us(event.get("timestamp")))

    def _message_records(self, event: Json) -> Records:
        text = string(event.get("content"))
        if event.get("role") == "user":
            yield records.UserPrompt(at_us=time_us(event.get("timestamp")))
        elif event.get("role") == "assistant" and text:
            continues = self._is_text_open and event.get("delta") is True
            self._texts = self._texts if continues else []
            self._is_text_open = True
            if len(self._texts) < PIECES_MAX:
                self._texts.append(text)
            yield records.AssistantText(text=text, continues=continues)

    def _end_records(self, event: Json) -> Records:
        succeeded, error = event.get("status") == "success", mapping(event.get("error"))
        is_text_complete = self._texts and len(self._texts) < PIECES_MAX
        yield records.StreamEnd(
            status="success" if succeeded else "error",
            text=join_pieces(self._texts) if is_text_complete else None,
            cumulative=False,
            usage=usage_of(mapping(event.get("stats")), self._model),
            detail="" if succeeded else string(error.get("message")) or self._error,
            stop_reasons=tuple(filter(None, (string(error.get("type")),))),
        )

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        return isinstance(event.get("timestamp"), str) and has_types(event, LINE_TYPES) and "num_turns" not in event


class OutputDocumentReader(Reader):
    name = "gemini-json"
    agent = "gemini"
    unreported_fields = UNREPORTED_FIELDS

    def read_object(self, document: Json, /) -> Records:
        yield records.SessionInfo(session=string(document.get("session_id")))
        tools = mapping(mapping(mapping(document.get("stats")).get("tools")).get("byName"))
        for name, numbers in tools.items():
            for _ in range(min(count(mapping(numbers).get("count")) or 0, PIECES_MAX)):
                yield records.ToolUse.named(name)
        usages = list[Usage]()
        for model, numbers in mapping(mapping(document.get("stats")).get("models")).items():
            tokens = mapping(mapping(numbers).get("tokens"))
            token_counts = {**tokens, "input": tokens.get("prompt"), "output": tokens.get("candidates")}
            request_count = count(mapping(mapping(numbers).get("api")).get("totalRequests"))
            usages.append(replace(request_usage(model, token_counts), requests=request_count))
        failure, text = document.get("error"), document.get("response")
        yield records.StreamEnd(
            status="error" if isinstance(failure, dict) else "success",
            text=text if isinstance(text, str) else None,
            cumulative=False,
            usage=tuple(usage for usage in usages if usage.input or usage.output),
            detail=string(mapping(failure).get("message")),
        )

    @staticmethod
    def matches(document: dict[str, object]) -> bool:
        if not document.keys() <= DOCUMENT_KEYS:
            return False
        if isinstance(document.get("stats"), dict):
            return isinstance(mapping(document["stats"]).get("models"), dict)
        failure = mapping(document.get("error"))
        return {"type", "message"} <= failure.keys() and "session_id" in document


def join_pieces(pieces: list[str]) -> str:
    """Join the pieces, without repeats. After a broken stream the CLI asks the model again without a mark in the
    output: where all text so far starts again at a piece, keep it once. A retry with different text cannot be
    detected."""
    text = "".join(pieces)
    start = offset = comparisons = 0
    for piece in pieces:
        head = text[start : min(start + REPEAT_PREFIX_CHARS, offset)]
        is_candidate = len(head) == REPEAT_PREFIX_CHARS and text.startswith(head, offset)
        if is_candidate and comparisons < REPEATS_MAX and any(letter.isalpha() for letter in head):
            comparisons += 1
            if text.startswith(text[start:offset], offset):
                start = offset
        offset += len(piece)
    return text[start:]


def usage_of(stats: Json, model: str) -> tuple[Usage, ...]:
    """Return usage per model; without a breakdown, all of it for the model that the call began with."""
    models = mapping(stats.get("models"))
    usages = tuple(_model_usage(name, mapping(numbers)) for name, numbers in sorted(models.items()) if name)
    if not usages and model:
        usages = (_model_usage(model, stats),)
    return tuple(usage for usage in usages if usage.input or usage.output)


def _model_usage(model: str, numbers: Json) -> Usage:
    """Convert one model's counts: `input_tokens` includes cache reads, `output_tokens` excludes reasoning."""
    input_tokens = token_count(numbers, "input_tokens")
    output_tokens = token_count(numbers, "output_tokens")
    reasoning_tokens = max(0, token_count(numbers, "total_tokens") - input_tokens - output_tokens)
    return Usage(
        model=model,
        input=input_tokens,
        output=output_tokens + reasoning_tokens,
        cache_read=min(input_tokens, token_count(numbers, "cached")),
        reasoning=reasoning_tokens,
    )


LINE_TYPES: Mapping[str, Mapping[str, type]] = {
    "init": {"session_id": str, "model": str},
    "message": {"role": str, "content": str},
    "tool_use": {"tool_name": str, "tool_id": str},
    "tool_result": {"tool_id": str, "status": str},
    "result": {"status": str},
}


# sessions -------------------------------------------------------------------------------------------------------------
class SessionReader(Reader):
    name = "gemini-session"
    agent = "gemini"
    is_session_log = True
    unreported_fields = UNREPORTED_FIELDS

    def read_object(self, record: Json, /) -> Records:
        if "$set" in record:
            change = mapping(record["$set"])
            if isinstance(change.get("sessionId"), str):
                kind = "subagent" if self._subagent else "main"
                yield from self._session_records({"sessionId": change["sessionId"], "kind": kind})
            # A resumed session repeats everything: text and tools were counted before; requests count once.
            for message in objects(change.get("messages")):
                yield from self._directory_records(message)
                yield from self._request_records(message)
        elif "$rewindTo" in record:
            return  # Discarded messages were paid for all the same.
        elif isinstance(record.get("sessionId"), str):
            yield from self._session_records(record)
        else:
            yield from self._message_records(record)

    def _session_records(self, head: Json) -> Records:
        self._session = string(head.get("sessionId")) or self._session
        self._subagent = UNNAMED_SUBAGENT if head.get("kind") == "subagent" else ""
        self._cwd = next(iter(strings(head.get("directories"))), "") or self._cwd
        yield self.session_info(time_us(head.get("startTime")))

    def _message_records(self, message: Json) -> Records:
        match message.get("type"):
            case "gemini":
                yield from self._request_records(message)
                yield from self._tool_records(message)
                if text := message_text(message.get("content")):
                    yield records.AssistantText(text=text)
            case "user":
                yield from self._directory_records(message)
                text = message_text(message.get("content"))
                if text.strip() and not text.startswith(CONTEXT_PREFIX):  # Results of tools have no text.
                    yield records.UserPrompt(at_us=time_us(message.get("timestamp")))
            case kind if string(kind) not in PROGRAM_MESSAGES:
                yield records.UnknownLine.of_type(kind)

    def _request_records(self, message: Json) -> Records:
        tokens, message_id = mapping(message.get("tokens")), string(message.get("id"))
        if tokens and message_id:
            usage = request_usage(string(message.get("model")), tokens, self._subagent)
            yield records.ModelRequest(id=message_id, usage=usage, at_us=time_us(message.get("timestamp")))

    def _tool_records(self, message: Json) -> Records:
        message_id = string(message.get("id"))
        # The tools of the newest reply, each with the reply's id: they are repeated with it.
        self._names = {tool: reply for tool, reply in self._names.items() if reply == message_id}
        for call in objects(message.get("toolCalls")):
            tool_id = string(call.get("id"))
            if tool_id not in self._names:
                self._names[tool_id] = message_id
                if call.get("name") == SUBAGENT_TOOL:
                    yield records.Note(code="sub-agents-apart")
                failed = call.get("status") in ("error", "cancelled")
                yield records.ToolUse.named(call.get("name"), id=tool_id, failed=failed)

    def _directory_records(self, message: Json) -> Records:
        """The session's first message names its directory."""
        match = None if self._cwd else _WORKSPACE.search(message_text(message.get("content")))
        if match:
            self._cwd = match[1].strip()
            yield self.session_info()

    @staticmethod
    def matches(record: dict[str, object]) -> bool:
        """Match a head, a change, or a reply."""
        if isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str):
            return "messages" not in record
        if record.keys() in ({"$set"}, {"$rewindTo"}):
            return True
        return record.get("type") == "gemini" and isinstance(record.get("id"), str) and "timestamp" in record


class SessionDocumentReader(SessionReader):
    """Reader of a session in one document."""

    name = "gemini-session-document"
    unit: Literal["line", "file"] = "file"

    def read_object(self, document: Json, /) -> Records:
        yield from self._session_records(document)
        yield records.Note(code="tool-requests")
        for message in objects(document.get("messages")):
            yield from self._message_records(message)

    @staticmethod
    def matches(document: dict[str, object]) -> bool:
        return isinstance(document.get("projectHash"), str) and isinstance(document.get("messages"), list)


def request_usage(model: str, tokens: Json, subagent: str = "") -> Usage:
    """Convert the `tokens` of one reply. `input` includes `cached`; `thoughts` and the input of the API's tools
    (`tool`) are separate, and billed as output and as input."""
    counts = {name: token_count(tokens, name) for name in ("input", "output", "cached", "thoughts", "tool")}
    return Usage(
        model=model,
        input=counts["input"] + counts["tool"],
        output=counts["output"] + counts["thoughts"],
        cache_read=min(counts["cached"], counts["input"]),
        reasoning=counts["thoughts"],
        requests=1,
        subagent=subagent,
    )


def message_text(content: object) -> str:
    """Return the text of a message: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(string(part.get("text")) for part in objects(content) if part.get("thought") is not True)


# the agent -----------------------------------------------------------------------------------------------------------
def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A result has status `success` or `error`; error details are optional. The exit code is the status modulo 256."""
    for status in package.STATUSES:
        error = {"type": "ApiError", "message": f"[API Error: status {status}: something went wrong]"}
        yield f"error-{status}", json_line({**last, "status": "error", "error": error}), status % 256
    busy = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    overloaded = {"type": "unknown", "message": f"[API Error: {json.dumps(busy)}]"}
    yield "overloaded", json_line({**last, "status": "error", "error": overloaded}), 503 % 256
    terminated = {"type": "unknown", "message": "[API Error: terminated]"}
    yield "disconnected", json_line({**last, "status": "error", "error": terminated}), 1
    turn_limit = {"type": "FatalTurnLimitedError", "message": "Reached max session turns for this session."}
    yield "turns", json_line({**last, "status": "error", "error": turn_limit}), 53
    yield "error-unsaid", json_line({**last, "status": "error"}), 0
    for odd_value in (None, *package.ODD_VALUES):
        yield f"status-{odd_value!r}", json_line({**last, "status": odd_value}), 0
    yield "no-status", json_line({key: value for key, value in last.items() if key != "status"}), 0
    yield "error-before", json_line({"type": "error", "severity": "error", "message": "it broke"}), 1
    yield "in-words", json_line({"type": "message", "role": "assistant", "content": str(last), "delta": True}), 0


def blocked_lines(last: dict[str, Any], text: str) -> tuple[Mapping[str, Any], ...]:
    return {"type": "message", "role": "assistant", "content": f"\n\n{text}", "delta": True}, last


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    return package.last_event(stdout, "result").get("status") == "success"


AGENT = package.AgentPackage(
    name="gemini",
    title="Gemini CLI",
    tested_version="0.61.0",
    adapter="adapter:Gemini",
    formats=(StreamReader, OutputDocumentReader, SessionReader, SessionDocumentReader),
    session_folders=package.SessionFolders(variables=("GEMINI_CLI_HOME",), default="", folders=(".gemini/tmp",)),
    stdout_endings=endings,
    success_check=succeeds,
    fault_endings={
        "rate-limit": "error-429",
        "overloaded": "overloaded",
        "auth-failure": "error-401",
        "lost-connection": "disconnected",
        "turn-limit": "turns",
    },
    blocked_lines=blocked_lines,
    dialect=package.StreamDialect(
        name_fields=("type",),
        final_events=("result",),
        opaque=("tool_use:parameters", "tool_result:output"),
        maps=("result:stats.models",),
        skipped_events=("tool_result",),
    ),
)
