"""Codex, the agent of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mz_engine.agents.codex.stream import FORMATS
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
    """A turn completes or fails; the message may contain the API's reply as JSON. An `error` event ends nothing."""
    for status in STATUSES:
        text = f"unexpected status {status} something went wrong"
        yield f"failed-{status}", json_line({"type": "turn.failed", "error": {"message": text}}), 1
        api_error = json.dumps({"type": "error", "status": status, "error": {"message": "went wrong"}})
        yield f"failed-{status}-as-json", json_line({"type": "turn.failed", "error": {"message": api_error}}), 1
    for odd_value in ODD_VALUES:
        yield f"failed-{odd_value!r}", json_line({"type": "turn.failed", "error": odd_value}), 0
    disconnected = "stream disconnected before completion: the connection was closed"
    yield "disconnected", json_line({"type": "turn.failed", "error": {"message": disconnected}}), 1
    yield "error-alone", json_line({"type": "error", "message": "Reconnecting 5/5"}), 1
    yield "begun-again", json_line(last) + json_line({"type": "turn.started"}), 0
    yield "in-words", json_line({"type": "item.completed", "item": {"type": "agent_message", "text": str(last)}}), 0


def blocked_lines(last: dict[str, Any], text: str) -> tuple[Mapping[str, Any], ...]:
    return {"type": "item.completed", "item": {"id": "item_99", "type": "agent_message", "text": text}}, last


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    """A turn started after the last end is unfinished."""
    return last_event(stdout, "turn.started", "turn.completed", "turn.failed").get("type") == "turn.completed"


AGENT = AgentPackage(
    name="codex",
    title="Codex",
    adapter="adapter:Codex",
    formats=FORMATS,
    session_folders=SessionFolders(
        variables=("CODEX_HOME",), default=".codex", folders=("sessions", "archived_sessions")
    ),
    stdout_endings=endings,
    success_check=succeeds,
    fault_endings={
        "rate-limit": "failed-429",
        "overloaded": "failed-529",
        "auth-failure": "failed-401",
        "lost-connection": "disconnected",
    },
    blocked_lines=blocked_lines,
    dialect=StreamDialect(
        name_fields=("type", "item.type"),
        final_events=("turn.completed", "turn.failed"),
        opaque=tuple(
            f"item.{event}/mcp_tool_call:item.{field}"
            for event in ("started", "completed")
            for field in ("arguments", "result")
        ),
        skipped_events=("turn.started",),
    ),
)
