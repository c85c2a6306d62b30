"""Gemini CLI, the agent of Google."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mz_engine.agents.gemini.stream import FORMATS
from mz_engine.agents.package import (
    ODD_VALUES,
    STATUSES,
    AgentPackage,
    SessionFolders,
    StreamDialect,
    json_line,
    last_event,
)


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
    for odd_value in ODD_VALUES:
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
