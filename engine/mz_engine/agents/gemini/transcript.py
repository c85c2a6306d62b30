"""Readers of the output of Gemini CLI: `--output-format stream-json`, since 0.11, and `json`, since 0.6.

Both report tokens per call. The stream names the models since 0.44 at the latest, and has no field for thoughts: they
are the total minus its parts; the document has both. Tokens are those of the call alone, even if it continued a
session. Neither has the program's version, nor money.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.agents.claude_code.lines import time_us
from mz_engine.agents.gemini.session_log import (
    AGENT,
    DOCUMENT,
    SESSION,
    SUBAGENT_TOOL,
    UNREPORTED_FIELDS,
    request_usage,
)
from mz_engine.agents.gemini.stream import ending_of, join_pieces, usage_of
from mz_engine.agents.reading.json_lines import Json, count, mapping, string
from mz_engine.agents.reading.objects import ObjectReader
from mz_engine.agents.reading.records import (
    AssistantText,
    Format,
    Note,
    ReaderState,
    SessionInfo,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    UnknownLine,
    UserPrompt,
)

PIECES_MAX = 200_000
"""Limit of the pieces of one reply; the text of a longer one is not reassembled."""
DOCUMENT_KEYS = frozenset({"session_id", "response", "stats", "error", "warnings"})


class StreamReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "gemini-stream"
    agent = AGENT

    def __init__(self, state: ReaderState) -> None:
        self._session, self._model = state.session, state.model
        self._texts: list[str] = []
        self._is_text_open = False
        """True while text pieces continue one another; a tool call ends them."""
        self._error = ""

    def state(self) -> ReaderState:
        return ReaderState(session=self._session, model=self._model)

    def read_object(self, event: Json, /) -> Iterator[TranscriptRecord]:
        match event.get("type"):
            case "init":
                yield from self._session_records(event)
            case "message":
                yield from self._message_records(event)
            case "tool_use":
                self._is_text_open = False
                if event.get("tool_name") == SUBAGENT_TOOL:
                    yield Note(code="sub-agents")
                yield ToolUse(tool=string(event.get("tool_name"))[:128] or "?", id=string(event.get("tool_id")))
            case "error":
                self._error = string(event.get("message")) or self._error
            case "result":
                yield from self._end_records(event)
            case kind if kind != "tool_result":
                yield UnknownLine(type=string(kind)[:64] or "?")

    def _session_records(self, event: Json) -> Iterator[TranscriptRecord]:
        self._session = string(event.get("session_id")) or self._session
        self._model = string(event.get("model")) or self._model
        self._texts, self._is_text_open, self._error = [], False, ""
        yield SessionInfo(session=self._session, model=self._model, at_us=time_us(event.get("timestamp")))

    def _message_records(self, event: Json) -> Iterator[TranscriptRecord]:
        text = string(event.get("content"))
        if event.get("role") == "user":
            yield UserPrompt(at_us=time_us(event.get("timestamp")))
        elif event.get("role") == "assistant" and text:
            continues = self._is_text_open and event.get("delta") is True
            self._texts = self._texts if continues else []
            self._is_text_open = True
            if len(self._texts) < PIECES_MAX:
                self._texts.append(text)
            yield AssistantText(text=text, continues=continues)

    def _end_records(self, event: Json) -> Iterator[TranscriptRecord]:
        status: Literal["success", "error"] = "success" if ending_of(event) == "success" else "error"
        error = string(mapping(event.get("error")).get("message")) or self._error
        is_text_complete = self._texts and len(self._texts) < PIECES_MAX
        yield StreamEnd(
            status=status,
            text=join_pieces(self._texts) if is_text_complete else None,
            cumulative=False,
            usage=usage_of(mapping(event.get("stats")), self._model),
            detail="" if status == "success" else error,
        )


class DocumentReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "gemini-json"
    agent = AGENT

    def read_object(self, document: Json, /) -> Iterator[TranscriptRecord]:
        yield SessionInfo(session=string(document.get("session_id")))
        tools = mapping(mapping(mapping(document.get("stats")).get("tools")).get("byName"))
        for name, numbers in tools.items():
            yield from (
                ToolUse(tool=name[:128]) for _ in range(min(count(mapping(numbers).get("count")) or 0, PIECES_MAX))
            )
        failure, text = document.get("error"), document.get("response")
        yield StreamEnd(
            status="error" if isinstance(failure, dict) else "success",
            text=text if isinstance(text, str) else None,
            cumulative=False,
            usage=tuple(_usage_by_model(mapping(mapping(document.get("stats")).get("models")))),
            detail=string(mapping(failure).get("message")),
        )


def _usage_by_model(models: Json) -> Iterator[Usage]:
    for model, numbers in models.items():
        tokens = mapping(mapping(numbers).get("tokens"))
        token_counts = {**tokens, "input": tokens.get("prompt"), "output": tokens.get("candidates")}
        request_count = count(mapping(mapping(numbers).get("api")).get("totalRequests"))
        usage = replace(request_usage(model, token_counts), requests=request_count)
        if usage.input or usage.output:
            yield usage


def _matches(event: dict[str, object]) -> bool:
    """Every line has a timestamp."""
    if not isinstance(event.get("timestamp"), str):
        return False
    match event.get("type"):
        case "init":
            return isinstance(event.get("session_id"), str) and isinstance(event.get("model"), str)
        case "message":
            return event.get("role") in ("user", "assistant") and isinstance(event.get("content"), str)
        case "tool_use":
            return isinstance(event.get("tool_name"), str) and isinstance(event.get("tool_id"), str)
        case "tool_result":
            return isinstance(event.get("tool_id"), str) and event.get("status") in ("success", "error")
        case "result":
            return event.get("status") in ("success", "error") and "num_turns" not in event
        case _:
            return False


def _matches_document(document: dict[str, object]) -> bool:
    if not document.keys() <= DOCUMENT_KEYS:
        return False
    if isinstance(document.get("stats"), dict):
        return isinstance(mapping(document["stats"]).get("models"), dict)
    failure = mapping(document.get("error"))
    return {"type", "message"} <= failure.keys() and "session_id" in document


STREAM = Format(
    name=StreamReader.format,
    agent=AGENT,
    unit="line",
    matches=_matches,
    reader=StreamReader,
    unreported_fields=UNREPORTED_FIELDS,
)
JSON_DOCUMENT = Format(
    name=DocumentReader.format,
    agent=AGENT,
    unit="line",
    matches=_matches_document,
    reader=DocumentReader,
    unreported_fields=UNREPORTED_FIELDS,
)
FORMATS: tuple[Format, ...] = (STREAM, JSON_DOCUMENT, SESSION, DOCUMENT)
