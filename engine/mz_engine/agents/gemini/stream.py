"""Readers of the output of Gemini CLI: `--output-format stream-json`, since 0.11, and `json`, since 0.6; accept any
bytes.

The `status` of the last `result` decides how a call ended, never the exit code. Both report
tokens per call. The stream names the models since 0.44 at the latest, and has no field for thoughts: they are the total
minus its parts; the document has both. Tokens are those of the call alone, even if it continued a session. Neither has
the program's version, nor money. The text is everything after the last use of a tool, in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.agents.gemini.session_log import DOCUMENT, SESSION, SUBAGENT_TOOL, UNREPORTED_FIELDS, request_usage
from mz_engine.agents.package import (
    ODD_VALUES,
    STATUSES,
    AgentPackage,
    SessionFolders,
    StreamDialect,
    json_line,
    last_event,
)
from mz_engine.agents.reading.json_lines import Json, count, has_types, mapping, string, time_us, token_count
from mz_engine.agents.reading.records import (
    AssistantText,
    ErrorReported,
    Format,
    Note,
    Reader,
    ReaderState,
    SessionInfo,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    UnknownLine,
    UserPrompt,
)

REPEAT_PREFIX_CHARS = 12
"""A shorter prefix may repeat by chance."""
REPEATS_MAX = 20
"""More than the CLI's own retries."""
PIECES_MAX = 200_000
"""Limit of the pieces of one reply; the text of a longer one is not reassembled."""
DOCUMENT_KEYS = frozenset({"session_id", "response", "stats", "error", "warnings"})


class StreamReader(Reader):
    format = "gemini-stream"
    agent = "gemini"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._texts: list[str] = []
        self._is_text_open = False
        """True while text pieces continue one another; a tool call ends them."""
        self._error = ""

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
                yield ToolUse.named(event.get("tool_name"), event.get("tool_id"))
            case "error":
                self._error = string(event.get("message")) or self._error
                yield ErrorReported(message=self._error)
            case "result":
                yield from self._end_records(event)
            case kind if kind != "tool_result":
                yield UnknownLine.of_type(kind)

    def _session_records(self, event: Json) -> Iterator[TranscriptRecord]:
        self._session = string(event.get("session_id")) or self._session
        self._model = string(event.get("model")) or self._model
        self._texts, self._is_text_open, self._error = [], False, ""
        yield self.session_info(time_us(event.get("timestamp")))

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
        succeeded, error = event.get("status") == "success", mapping(event.get("error"))
        is_text_complete = self._texts and len(self._texts) < PIECES_MAX
        yield StreamEnd(
            status="success" if succeeded else "error",
            text=join_pieces(self._texts) if is_text_complete else None,
            cumulative=False,
            usage=usage_of(mapping(event.get("stats")), self._model),
            detail="" if succeeded else string(error.get("message")) or self._error,
            stop_reasons=tuple(filter(None, (string(error.get("type")),))),
        )


class DocumentReader(Reader):
    format = "gemini-json"
    agent = "gemini"

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
            usage=tuple(_document_usage(mapping(mapping(document.get("stats")).get("models")))),
            detail=string(mapping(failure).get("message")),
        )


def _document_usage(models: Json) -> Iterator[Usage]:
    for model, numbers in models.items():
        tokens = mapping(mapping(numbers).get("tokens"))
        token_counts = {**tokens, "input": tokens.get("prompt"), "output": tokens.get("candidates")}
        request_count = count(mapping(mapping(numbers).get("api")).get("totalRequests"))
        usage = replace(request_usage(model, token_counts), requests=request_count)
        if usage.input or usage.output:
            yield usage


# text -----------------------------------------------------------------------------------------------------------------
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


# tokens ---------------------------------------------------------------------------------------------------------------
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
    reasoning_tokens = max(0, (token_count(numbers, "total_tokens")) - input_tokens - output_tokens)
    return Usage(
        model=model,
        input=input_tokens,
        output=output_tokens + reasoning_tokens,
        cache_read=min(input_tokens, token_count(numbers, "cached")),
        reasoning=reasoning_tokens,
    )


# formats --------------------------------------------------------------------------------------------------------------
LINE_TYPES: Mapping[str, Mapping[str, type]] = {
    "init": {"session_id": str, "model": str},
    "message": {"role": str, "content": str},
    "tool_use": {"tool_name": str, "tool_id": str},
    "tool_result": {"tool_id": str, "status": str},
    "result": {"status": str},
}


def _matches(event: dict[str, object]) -> bool:
    return isinstance(event.get("timestamp"), str) and has_types(event, LINE_TYPES) and "num_turns" not in event


def _matches_document(document: dict[str, object]) -> bool:
    if not document.keys() <= DOCUMENT_KEYS:
        return False
    if isinstance(document.get("stats"), dict):
        return isinstance(mapping(document["stats"]).get("models"), dict)
    failure = mapping(document.get("error"))
    return {"type", "message"} <= failure.keys() and "session_id" in document


FORMATS: tuple[Format, ...] = (
    Format(matches=_matches, reader=StreamReader, unreported_fields=UNREPORTED_FIELDS),
    Format(matches=_matches_document, reader=DocumentReader, unreported_fields=UNREPORTED_FIELDS),
    SESSION,
    DOCUMENT,
)


# the agent -----------------------------------------------------------------------------------------------------------
def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A result has status `success` or `error`; error details are optional. The exit code is the status modulo 256."""
    for status in STATUSES:
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
    for odd_value in (None, *ODD_VALUES):
        yield f"status-{odd_value!r}", json_line({**last, "status": odd_value}), 0
    yield "no-status", json_line({key: value for key, value in last.items() if key != "status"}), 0
    yield "error-before", json_line({"type": "error", "severity": "error", "message": "it broke"}), 1
    yield "in-words", json_line({"type": "message", "role": "assistant", "content": str(last), "delta": True}), 0


def blocked_lines(last: dict[str, Any], text: str) -> tuple[Mapping[str, Any], ...]:
    return {"type": "message", "role": "assistant", "content": f"\n\n{text}", "delta": True}, last


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    return last_event(stdout, "result").get("status") == "success"


AGENT = AgentPackage(
    name="gemini",
    title="Gemini CLI",
    adapter="adapter:Gemini",
    formats=FORMATS,
    session_folders=SessionFolders(variables=("GEMINI_CLI_HOME",), default="", folders=(".gemini/tmp",)),
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
    dialect=StreamDialect(
        name_fields=("type",),
        final_events=("result",),
        opaque=("tool_use:parameters", "tool_result:output"),
        maps=("result:stats.models",),
        skipped_events=("tool_result",),
    ),
)
