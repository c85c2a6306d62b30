"""Claude Code, the reference agent; the events are those of its versions 2.1.4 to 2.1.259."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mz_engine.agents.claude_code.stream import FORMATS
from mz_engine.agents.package import (
    ODD_VALUES,
    STATUSES,
    AgentPackage,
    SessionFolders,
    StreamDialect,
    json_line,
    last_event,
    names,
)


def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """API errors have the subtype `success` and `is_error`; errors of the run have `errors` instead of `result`, where
    some versions set `is_error` to false."""
    for subtype in ("error_max_turns", "error_during_execution", "error_max_budget_usd",
                    "error_max_structured_output_retries"):  # fmt: skip
        error = {key: value for key, value in last.items() if key != "result"} | {"subtype": subtype, "errors": ["no"]}
        yield subtype, json_line({**error, "is_error": True}), 1
        yield f"{subtype}-not-is_error", json_line({**error, "is_error": False}), 0
        yield f"{subtype}-without-is_error", json_line({k: v for k, v in error.items() if k != "is_error"}), 1
    for status in (None, *STATUSES):
        text = f"API Error: {status or 'something'} went wrong"
        api_error = {**last, "is_error": True, "api_error_status": status, "result": text}
        yield f"api-error-{status}", json_line(api_error), 1
    for odd_value in ODD_VALUES:
        yield f"is_error-{odd_value!r}", json_line({**last, "is_error": odd_value}), 0
    yield "no-subtype", json_line({k: v for k, v in last.items() if k not in ("subtype", "is_error")}), 0
    yield "all-null", json_line(dict.fromkeys(last) | {"type": "result"}), 0
    in_words = {"type": "assistant", "message": {"content": [{"type": "text", "text": str(last)}]}}
    yield "result-in-words", json_line(in_words), 0


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    last = last_event(stdout, "result")
    failed, subtype = last.get("is_error"), last.get("subtype")
    if failed is None:
        return subtype == "success"
    return failed is False and not str(subtype).startswith("error")


AGENT = AgentPackage(
    name="claude-code",
    title="Claude Code",
    folder="claude_code",
    adapter="adapter:ClaudeCode",
    formats=FORMATS,
    session_folders=SessionFolders(variables=("CLAUDE_CONFIG_DIR",), default=".claude", folders=("projects",)),
    stdout_endings=endings,
    success_check=succeeds,
    dialect=StreamDialect(
        final_events=("result",),
        opaque=names("""
            assistant:message.content[tool_use].input user:message.content[tool_result].content user:tool_use_result
            result/success:structured_output stream_event:event
        """),
        maps=("*:modelUsage",),
        skipped_events=names("""
            user stream_event rate_limit_event system/status system/hook_started system/hook_response
            system/task_started system/task_progress system/task_updated system/task_notification
            system/permission_denied system/compact_boundary
        """),
    ),
)
