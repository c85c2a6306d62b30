"""Pure: how a call may end besides the way in which it did, in the words that each agent's program uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Ending = Callable[[dict[str, Any]], Iterator[tuple[str, bytes, int]]]
"""The recorded last line -> other last lines: a name, the bytes, the exit code that comes with it."""
STATUSES = (400, 401, 402, 403, 404, 413, 429, 500, 529)
ODD: tuple[object, ...] = (None, 1, 0, "true", "false", [], {})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _claude(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """Errors of the API come as subtype `success` with `is_error`; an error of the run has `errors` in place of a
    `result`, and some versions leave `is_error` false there."""
    for subtype in ("error_max_turns", "error_during_execution", "error_max_budget_usd",
                    "error_max_structured_output_retries"):  # fmt: skip
        error = {key: value for key, value in last.items() if key != "result"} | {"subtype": subtype, "errors": ["no"]}
        yield subtype, _line({**error, "is_error": True}), 1
        yield f"{subtype}-not-is_error", _line({**error, "is_error": False}), 0
        yield f"{subtype}-without-is_error", _line({k: v for k, v in error.items() if k != "is_error"}), 1
    for status in (None, 400, 401, 402, 403, 404, 413, 429, 500, 529):
        words = f"API Error: {status or 'something'} went wrong"
        yield f"api-error-{status}", _line({**last, "is_error": True, "api_error_status": status, "result": words}), 1
    odd: tuple[object, ...] = (1, 0, "true", "false", [], {})
    for said in odd:
        yield f"is_error-{said!r}", _line({**last, "is_error": said}), 0
    yield "no-subtype", _line({k: v for k, v in last.items() if k not in ("subtype", "is_error")}), 0
    yield "all-null", _line(dict.fromkeys(last) | {"type": "result"}), 0
    yield (
        "result-in-words",
        _line({"type": "assistant", "message": {"content": [{"type": "text", "text": str(last)}]}}),
        0,
    )


def _codex(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A turn completes or fails; the API's own answer may stand in the message, as JSON. An `error` ends nothing."""
    for status in STATUSES:
        words = f"unexpected status {status} something went wrong"
        yield f"failed-{status}", _line({"type": "turn.failed", "error": {"message": words}}), 1
        answer = json.dumps({"type": "error", "status": status, "error": {"message": "went wrong"}})
        yield f"failed-{status}-as-json", _line({"type": "turn.failed", "error": {"message": answer}}), 1
    for said in ODD:
        yield f"failed-{said!r}", _line({"type": "turn.failed", "error": said}), 0
    yield "error-alone", _line({"type": "error", "message": "Reconnecting 5/5"}), 1
    yield "begun-again", _line(last) + _line({"type": "turn.started"}), 0
    yield "in-words", _line({"type": "item.completed", "item": {"type": "agent_message", "text": str(last)}}), 0


def _gemini(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A result says `success` or `error`; an error need not say which. The exit code is the status modulo 256."""
    for status in STATUSES:
        error = {"type": "ApiError", "message": f"[API Error: status {status}: something went wrong]"}
        yield f"error-{status}", _line({**last, "status": "error", "error": error}), status % 256
    yield "error-unsaid", _line({**last, "status": "error"}), 0
    for said in ODD:
        yield f"status-{said!r}", _line({**last, "status": said}), 0
    yield "no-status", _line({key: value for key, value in last.items() if key != "status"}), 0
    yield "error-before", _line({"type": "error", "severity": "error", "message": "it broke"}), 1
    yield "in-words", _line({"type": "message", "role": "assistant", "content": str(last), "delta": True}), 0


def _anthropic(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """An end says `success` or `error`, and what the API answered."""
    for status in STATUSES:
        error = {"kind": "api", "status": status, "message": "something went wrong"}
        yield f"error-{status}", _line({**last, "status": "error", "error": error}), 1
        yield f"success-with-{status}", _line({**last, "error": error}), 0
    for said in ODD:
        yield f"status-{said!r}", _line({**last, "status": said}), 0
    yield "no-status", _line({key: value for key, value in last.items() if key != "status"}), 0
    yield "in-words", _line({"type": "text", "text": str(last)}), 0


ENDINGS: Mapping[str, Ending] = {
    "anthropic": _anthropic, "claude-code": _claude, "codex": _codex, "gemini": _gemini,
}  # fmt: skip
"""By agent."""
