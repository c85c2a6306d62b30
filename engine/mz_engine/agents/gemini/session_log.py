"""Readers of session logs of Gemini CLI, in `~/.gemini/tmp/<project>/chats/`.

Until early 2026 a session is one JSON document that is rewritten with every message; since then it is JSON Lines: a
head, messages, and changes (`{"$set": ...}`). A message is written again, with the same id, once its tools are done,
and a resumed session begins with all its messages; so one id is one request. Documents omit requests that only call
tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.agents.reading.json_lines import Json, mapping, objects, string, strings, time_us, token_count
from mz_engine.agents.reading.records import (
    UNNAMED_SUBAGENT,
    AssistantText,
    Format,
    ModelRequest,
    Note,
    Reader,
    ReaderState,
    ToolUse,
    TranscriptRecord,
    UnknownLine,
    UserPrompt,
)

UNREPORTED_FIELDS = ("cache_write_5m", "cache_write_1h")
"""Caching is implicit and its writes are not reported."""
REPLY, PROMPT = "gemini", "user"
PROGRAM_MESSAGES = frozenset({"info", "error", "warning"})
"""Messages by the program to the user."""
CONTEXT_PREFIX = "<session_context>"
"""Logs do not name the subagent."""

SUBAGENT_TOOL = "invoke_agent"
"""The tool that calls subagents."""

_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\n\s*- ([^\n]{1,4096})")


class SessionReader(Reader):
    format = "gemini-session"
    agent = "gemini"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._reply_by_tool = dict(state.names)
        """Tools of the newest reply, each with the reply's id: they are repeated with it."""

    def state(self) -> ReaderState:
        return replace(super().state(), names=tuple(self._reply_by_tool.items()))

    def read_object(self, record: Json, /) -> Iterator[TranscriptRecord]:
        if "$set" in record:
            yield from self._change_records(mapping(record["$set"]))
        elif "$rewindTo" in record:
            return  # Discarded messages were paid for all the same.
        elif isinstance(record.get("sessionId"), str):
            yield from self._session_records(record)
        else:
            yield from self._message_records(record)

    def _session_records(self, head: Json) -> Iterator[TranscriptRecord]:
        self._session = string(head.get("sessionId")) or self._session
        self._subagent = UNNAMED_SUBAGENT if head.get("kind") == "subagent" else ""
        self._cwd = next(iter(strings(head.get("directories"))), "") or self._cwd
        yield self.session_info(time_us(head.get("startTime")))

    def _change_records(self, change: Json) -> Iterator[TranscriptRecord]:
        """Read a change. A resumed session repeats everything: text and tools were counted before; requests count
        once."""
        if isinstance(change.get("sessionId"), str):
            yield from self._session_records(
                {"sessionId": change["sessionId"], "kind": "subagent" if self._subagent else "main"}
            )
        for message in objects(change.get("messages")):
            yield from self._directory_records(message)
            yield from self._request_records(message)

    def _message_records(self, message: Json) -> Iterator[TranscriptRecord]:
        match message.get("type"):
            case "gemini":
                yield from self._request_records(message)
                yield from self._tool_records(message)
                if text := message_text(message.get("content")):
                    yield AssistantText(text=text)
            case "user":
                yield from self._directory_records(message)
                if is_prompt(message.get("content")):
                    yield UserPrompt(at_us=time_us(message.get("timestamp")))
            case kind if string(kind) not in PROGRAM_MESSAGES:
                yield UnknownLine.of_type(kind)

    def _request_records(self, message: Json) -> Iterator[TranscriptRecord]:
        tokens, message_id = mapping(message.get("tokens")), string(message.get("id"))
        if tokens and message_id:
            usage = request_usage(string(message.get("model")), tokens, self._subagent)
            yield ModelRequest(id=message_id, usage=usage, at_us=time_us(message.get("timestamp")))

    def _tool_records(self, message: Json) -> Iterator[TranscriptRecord]:
        message_id = string(message.get("id"))
        self._reply_by_tool = {
            tool_id: reply_id for tool_id, reply_id in self._reply_by_tool.items() if reply_id == message_id
        }
        for call in objects(message.get("toolCalls")):
            tool_id = string(call.get("id"))
            if tool_id not in self._reply_by_tool:
                self._reply_by_tool[tool_id] = message_id
                if call.get("name") == SUBAGENT_TOOL:
                    yield Note(code="sub-agents-apart")
                failed = call.get("status") in ("error", "cancelled")
                yield ToolUse.named(call.get("name"), id=tool_id, failed=failed)

    def _directory_records(self, message: Json) -> Iterator[TranscriptRecord]:
        """The session's first message names its directory."""
        match = None if self._cwd else _WORKSPACE.search(message_text(message.get("content")))
        if match:
            self._cwd = match[1].strip()
            yield self.session_info()


class DocumentReader(SessionReader):
    """Reader of a session in one document."""

    format = "gemini-session-document"
    unit: Literal["line", "file"] = "file"

    def read_object(self, document: Json, /) -> Iterator[TranscriptRecord]:
        yield from self._session_records(document)
        yield Note(code="tool-requests")
        for message in objects(document.get("messages")):
            yield from self._message_records(message)


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


def is_prompt(content: object) -> bool:
    """Return True if a user message is by the user: tool results have the same type."""
    text = message_text(content)
    return bool(text.strip()) and not text.startswith(CONTEXT_PREFIX)


def _matches(record: dict[str, object]) -> bool:
    """Match a head, a change, or a reply."""
    if isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str):
        return "messages" not in record
    if record.keys() in ({"$set"}, {"$rewindTo"}):
        return True
    return record.get("type") == REPLY and isinstance(record.get("id"), str) and "timestamp" in record


def _matches_document(document: dict[str, object]) -> bool:
    return isinstance(document.get("projectHash"), str) and isinstance(document.get("messages"), list)


SESSION = Format(matches=_matches, reader=SessionReader, unreported_fields=UNREPORTED_FIELDS, is_session_log=True)
DOCUMENT = Format(
    matches=_matches_document, reader=DocumentReader, unreported_fields=UNREPORTED_FIELDS, is_session_log=True
)
