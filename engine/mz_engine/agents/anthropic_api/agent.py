"""The Anthropic API, called by mz's own program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mz_engine.agents.anthropic_api.stream import FORMATS, IGNORED_TYPES
from mz_engine.agents.package import ODD_VALUES, STATUSES, AgentPackage, StreamDialect, json_line, last_event


def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """An end has status `success` or `error`, with the API's error."""
    for status in STATUSES:
        error = {"kind": "api", "status": status, "message": "something went wrong"}
        yield f"error-{status}", json_line({**last, "status": "error", "error": error}), 1
        yield f"success-with-{status}", json_line({**last, "error": error}), 0
    for name, kind, text in (
        ("disconnected", "connection_error", "connection error: peer closed connection"),
        ("turns", "max_turns", "the model had not finished after 50 requests"),
    ):
        yield name, json_line({**last, "status": "error", "error": {"kind": kind, "message": text}}), 1
    for odd_value in ODD_VALUES:
        yield f"status-{odd_value!r}", json_line({**last, "status": odd_value}), 0
    yield "no-status", json_line({key: value for key, value in last.items() if key != "status"}), 0
    yield "in-words", json_line({"type": "text", "text": str(last)}), 0


def blocked_lines(last: dict[str, Any], text: str) -> tuple[Mapping[str, Any], ...]:
    return ({**last, "text": text},)


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    last = last_event(stdout, "end")
    return last.get("status") == "success" and last.get("error") is None


AGENT = AgentPackage(
    name="anthropic",
    folder="anthropic_api",
    adapter="adapter:AnthropicApi",
    formats=FORMATS,
    stdout_endings=endings,
    success_check=succeeds,
    fault_endings={
        "rate-limit": "error-429",
        "overloaded": "error-529",
        "auth-failure": "error-401",
        "lost-connection": "disconnected",
        "turn-limit": "turns",
    },
    blocked_lines=blocked_lines,
    dialect=StreamDialect(
        name_fields=("type",),
        final_events=("end",),
        opaque=("tool:input",),
        skipped_events=(*sorted(IGNORED_TYPES), "tool"),
    ),
)
