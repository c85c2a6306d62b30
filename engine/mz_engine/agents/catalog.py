"""Facts about agents' streams that their parsers do not tell: names of events, content of models and tools, whose shape
is ignored, and events that the parsers skip.

Other ways in which a call may end, in the output format of each agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec


class StreamDialect(msgspec.Struct, frozen=True, kw_only=True):
    """Stream of JSON lines of one agent. Paths are `EVENT:FIELD.FIELD[ITEM].FIELD`; `*` stands for any event."""

    name_fields: tuple[str, ...] = ("type", "subtype")
    """Fields (nested as `FIELD.FIELD`) that together name an event, such as `system/init`."""
    final_events: frozenset[str] = frozenset()
    """First parts of the names of events that end the stream."""
    opaque: frozenset[str] = frozenset()
    """Values that a model or a tool defines."""
    maps: frozenset[str] = frozenset()
    """Objects whose keys are values, such as names of models."""
    skipped_events: frozenset[str] = frozenset()
    """Known events that the parser does not need."""


DIALECTS: Mapping[str, StreamDialect] = {
    "claude-code": StreamDialect(
        final_events=frozenset({"result"}),
        opaque=frozenset(
            {
                "assistant:message.content[tool_use].input",
                "user:message.content[tool_result].content",
                "user:tool_use_result",
                "result/success:structured_output",
                "stream_event:event",
            }
        ),
        maps=frozenset({"*:modelUsage"}),
        skipped_events=frozenset(
            {
                "user", "stream_event", "rate_limit_event", "system/status", "system/hook_started",
                "system/hook_response", "system/task_started", "system/task_progress", "system/task_updated",
                "system/task_notification", "system/permission_denied", "system/compact_boundary",
            }
        ),
    ),
    "anthropic": StreamDialect(
        name_fields=("type",),
        final_events=frozenset({"end"}),
        opaque=frozenset({"tool:input"}),
        skipped_events=frozenset({"tool", "tool_result", "retry", "progress", "note", "count"}),
    ),
    "codex": StreamDialect(
        name_fields=("type", "item.type"),
        final_events=frozenset({"turn.completed", "turn.failed"}),
        opaque=frozenset(
            f"item.{event}/mcp_tool_call:item.{field}"
            for event in ("started", "completed")
            for field in ("arguments", "result")
        ),
        skipped_events=frozenset({"turn.started"}),
    ),
    "gemini": StreamDialect(
        name_fields=("type",),
        final_events=frozenset({"result"}),
        opaque=frozenset({"tool_use:parameters", "tool_result:output"}),
        maps=frozenset({"result:stats.models"}),
        skipped_events=frozenset({"tool_result"}),
    ),
}  # fmt: skip
"""By agent. The events of claude-code are those of its versions 2.1.4 to 2.1.259."""
DEFAULT_DIALECT = StreamDialect()
"""For an agent without an entry."""


def dialect_of(agent: str) -> StreamDialect:
    return DIALECTS.get(agent, DEFAULT_DIALECT)


StdoutEndings = Callable[[dict[str, Any]], Iterator[tuple[str, bytes, int]]]
"""Takes the recorded last line; yields name, bytes and exit code of other last lines."""
STATUSES = (400, 401, 402, 403, 404, 413, 429, 500, 529)
ODD_VALUES: tuple[object, ...] = (None, 1, 0, "true", "false", [], {})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _claude(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """API errors have the subtype `success` and `is_error`; errors of the run have `errors` instead of `result`, where
    some versions set `is_error` to false."""
    for subtype in ("error_max_turns", "error_during_execution", "error_max_budget_usd",
                    "error_max_structured_output_retries"):  # fmt: skip
        error = {key: value for key, value in last.items() if key != "result"} | {"subtype": subtype, "errors": ["no"]}
        yield subtype, _line({**error, "is_error": True}), 1
        yield f"{subtype}-not-is_error", _line({**error, "is_error": False}), 0
        yield f"{subtype}-without-is_error", _line({k: v for k, v in error.items() if k != "is_error"}), 1
    for status in (None, 400, 401, 402, 403, 404, 413, 429, 500, 529):
        text = f"API Error: {status or 'something'} went wrong"
        yield f"api-error-{status}", _line({**last, "is_error": True, "api_error_status": status, "result": text}), 1
    odd_values: tuple[object, ...] = (1, 0, "true", "false", [], {})
    for odd_value in odd_values:
        yield f"is_error-{odd_value!r}", _line({**last, "is_error": odd_value}), 0
    yield "no-subtype", _line({k: v for k, v in last.items() if k not in ("subtype", "is_error")}), 0
    yield "all-null", _line(dict.fromkeys(last) | {"type": "result"}), 0
    yield (
        "result-in-words",
        _line({"type": "assistant", "message": {"content": [{"type": "text", "text": str(last)}]}}),
        0,
    )


def _codex(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A turn completes or fails; the message may contain the API's reply as JSON. An `error` event ends nothing."""
    for status in STATUSES:
        text = f"unexpected status {status} something went wrong"
        yield f"failed-{status}", _line({"type": "turn.failed", "error": {"message": text}}), 1
        api_error = json.dumps({"type": "error", "status": status, "error": {"message": "went wrong"}})
        yield f"failed-{status}-as-json", _line({"type": "turn.failed", "error": {"message": api_error}}), 1
    for odd_value in ODD_VALUES:
        yield f"failed-{odd_value!r}", _line({"type": "turn.failed", "error": odd_value}), 0
    disconnected = "stream disconnected before completion: the connection was closed"
    yield "disconnected", _line({"type": "turn.failed", "error": {"message": disconnected}}), 1
    yield "error-alone", _line({"type": "error", "message": "Reconnecting 5/5"}), 1
    yield "begun-again", _line(last) + _line({"type": "turn.started"}), 0
    yield "in-words", _line({"type": "item.completed", "item": {"type": "agent_message", "text": str(last)}}), 0


def _gemini(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A result has status `success` or `error`; error details are optional. The exit code is the status modulo 256."""
    for status in STATUSES:
        error = {"type": "ApiError", "message": f"[API Error: status {status}: something went wrong]"}
        yield f"error-{status}", _line({**last, "status": "error", "error": error}), status % 256
    busy = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    overloaded = {"type": "unknown", "message": f"[API Error: {json.dumps(busy)}]"}
    yield "overloaded", _line({**last, "status": "error", "error": overloaded}), 503 % 256
    terminated = {"type": "unknown", "message": "[API Error: terminated]"}
    yield "disconnected", _line({**last, "status": "error", "error": terminated}), 1
    turn_limit = {"type": "FatalTurnLimitedError", "message": "Reached max session turns for this session."}
    yield "turns", _line({**last, "status": "error", "error": turn_limit}), 53
    yield "error-unsaid", _line({**last, "status": "error"}), 0
    for odd_value in ODD_VALUES:
        yield f"status-{odd_value!r}", _line({**last, "status": odd_value}), 0
    yield "no-status", _line({key: value for key, value in last.items() if key != "status"}), 0
    yield "error-before", _line({"type": "error", "severity": "error", "message": "it broke"}), 1
    yield "in-words", _line({"type": "message", "role": "assistant", "content": str(last), "delta": True}), 0


def _anthropic(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """An end has status `success` or `error`, with the API's error."""
    for status in STATUSES:
        error = {"kind": "api", "status": status, "message": "something went wrong"}
        yield f"error-{status}", _line({**last, "status": "error", "error": error}), 1
        yield f"success-with-{status}", _line({**last, "error": error}), 0
    for name, kind, text in (
        ("disconnected", "connection_error", "connection error: peer closed connection"),
        ("turns", "max_turns", "the model had not finished after 50 requests"),
    ):
        yield name, _line({**last, "status": "error", "error": {"kind": kind, "message": text}}), 1
    for odd_value in ODD_VALUES:
        yield f"status-{odd_value!r}", _line({**last, "status": odd_value}), 0
    yield "no-status", _line({key: value for key, value in last.items() if key != "status"}), 0
    yield "in-words", _line({"type": "text", "text": str(last)}), 0


STDOUT_ENDINGS: Mapping[str, StdoutEndings] = {
    "anthropic": _anthropic, "claude-code": _claude, "codex": _codex, "gemini": _gemini,
}  # fmt: skip
"""By agent whose last line on stdout tells how the call ended."""


# on standard error ----------------------------------------------------------------------------------------------------
StderrEndings = Callable[[bytes, bytes], Iterator[tuple[str, bytes, bytes, int]]]
"""Takes recorded stdout and stderr; yields name, stdout, stderr and exit code of other ends."""
AIDER_ERRORS = {
    "rate-limit": "litellm.RateLimitError: RateLimitError: OpenAIException - Please try again in 20s.",
    "billing": "litellm.RateLimitError: RateLimitError: OpenAIException - insufficient_quota",
    "auth-failure": "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided.",
    "overloaded": "litellm.InternalServerError: InternalServerError: OpenAIException - The server had an error.",
    "connection": "litellm.APIConnectionError: APIConnectionError: OpenAIException - Connection error.",
    "model-missing": "litellm.NotFoundError: NotFoundError: OpenAIException - The model does not exist.",
}
KIRO_ERRORS = {
    "rate-limit": "error: Too many requests, please wait before trying again.",
    "billing": "error: You have reached your monthly usage limit.",
    "auth-failure": "Authentication failed. Your API key may be invalid or expired. Check your KIRO_API_KEY value.",
    "overloaded": "Kiro is having trouble responding right now: request failed",
}


def _aider(stdout: bytes, stderr: bytes) -> Iterator[tuple[str, bytes, bytes, int]]:
    """The log tells that a message was sent and whether it completed; errors are plain text on stdout. Exits with 0."""
    lines = stderr.splitlines(keepends=True)
    sent_index = max((at for at, line in enumerate(lines) if b'"message_send"' in line), default=None)
    if sent_index is None:
        return
    head, last = b"".join(lines[:-1]), lines[-1]
    unsent = b"".join((*lines[:sent_index], *lines[sent_index + 1 :]))
    begun = _line({"event": "message_send_starting", "properties": {}})
    failed = _line({"event": "message_send_exception", "properties": {"exception": "it broke"}})
    for name, text in AIDER_ERRORS.items():
        error_line = text.encode() + b"\n"
        yield f"ends-{name}", stdout + error_line, unsent, 0
        yield f"{name}-then-success", error_line + stdout, stderr, 0
        yield f"success-then-{name}", stdout + error_line, head + begun + last, 0
    yield "ends-exception", stdout, b"".join(lines[:sent_index]) + failed + b"".join(lines[sent_index + 1 :]), 0
    yield "ends-token-limit", stdout + b"Model openai/gpt-5.1 has hit a token limit!\n", stderr, 0
    yield "ends-in-words", stdout + lines[sent_index], unsent, 0
    yield from _cut_stderr(stdout, stderr)


def _kiro(stdout: bytes, stderr: bytes) -> Iterator[tuple[str, bytes, bytes, int]]:
    """stderr has the cost of a finished turn, and errors."""
    unpaid = b"".join(line for line in stderr.splitlines(keepends=True) if b"Credits:" not in line)
    for name, text in KIRO_ERRORS.items():
        error_line = text.encode() + b"\n"
        yield f"ends-{name}", stdout, unpaid + error_line, 1
        yield f"ends-{name}-exit-0", stdout, unpaid + error_line, 0
        yield f"{name}-then-success", stdout, error_line + stderr, 0
    yield "ends-without-credits", stdout, unpaid, 0
    yield from _cut_stderr(stdout, stderr)


def _cut_stderr(stdout: bytes, stderr: bytes) -> Iterator[tuple[str, bytes, bytes, int]]:
    offset = 0
    for number, line in enumerate(stderr.splitlines(keepends=True)):
        yield f"stderr-cut-after-line-{number}", stdout, stderr[:offset], 0
        yield f"stderr-cut-in-line-{number + 1}", stdout, stderr[: offset + len(line) // 2], 0
        offset += len(line)


STDERR_ENDINGS: Mapping[str, StderrEndings] = {"aider": _aider, "kiro": _kiro}
"""By agent whose stderr tells how the call ended."""
