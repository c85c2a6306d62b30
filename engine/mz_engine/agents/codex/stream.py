"""Reader of streams of Codex: `codex exec --json`, of all versions since 0.40; accepts any bytes.

The last `turn.completed` or `turn.failed` decides how a call ended; an `error` line is no end, since the program
retries.

Three formats: events with items (since 0.44; in some earlier versions, items have an `item_type` and sessions are
created); and before them the program's inner messages, `{"id", "msg"}`. Only the last one names the model. Token counts
are cumulative over the whole thread; none of the formats has tokens of subagents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mz_engine.agents.codex.lines import UNREPORTED_FIELDS, ThreadReader, TokenCounts, token_counts, usage_notes
from mz_engine.agents.codex.session_log import ROLLOUT
from mz_engine.agents.package import (
    ODD_VALUES,
    STATUSES,
    AgentPackage,
    SessionFolders,
    StreamDialect,
    json_line,
    last_event,
)
from mz_engine.agents.reading.json_lines import Json, count, decode_object, has_types, mapping, string
from mz_engine.agents.reading.records import (
    AssistantText,
    ErrorReported,
    Format,
    Note,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    TurnStarted,
    UnknownLine,
    UserPrompt,
    WorkReported,
)

_STATUS = re.compile(r"\b(?:unexpected|last) status:? (\d{3})\b")
ITEM_EVENTS = frozenset({"item.started", "item.updated", "item.completed"})
TEXT_ITEMS = frozenset({"agent_message", "assistant_message"})
TOOL_ITEMS = frozenset({"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"})


def _unwrap_error(message: str) -> tuple[str, int | None]:
    """Return an error's text and the HTTP status of the model's API; some messages are the API's reply, as JSON."""
    body = mapping(decode_object(message.encode("utf-8", "replace")))
    error = mapping(body.get("error"))
    error_text = " ".join(part for part in (string(error.get("code")), string(error.get("message"))) if part)
    match = _STATUS.search(message)
    return error_text or message, count(body.get("status")) or (int(match[1]) if match else None)


class StreamReader(ThreadReader):
    format = "codex-stream"

    def read_object(self, event: Json, /) -> Iterator[TranscriptRecord]:
        if isinstance(event.get("msg"), dict):
            yield from self._message_records(mapping(event["msg"]))
            return
        match event.get("type"):
            case "thread.started" | "session.created":
                yield from self._session_records(string(event.get("thread_id")) or string(event.get("session_id")))
            case "turn.completed":
                yield from self._turn_records(mapping(event.get("usage")))
            case "turn.failed":
                message, status = _unwrap_error(string(mapping(event.get("error")).get("message")))
                yield StreamEnd(status="error", detail=message, http_status=status, cumulative=False)
            case "turn.started":
                yield TurnStarted()
            case "error":
                message, status = _unwrap_error(string(event.get("message")))
                yield ErrorReported(message=message, http_status=status)
            case str() as kind if kind in ITEM_EVENTS:
                yield from _item_records(mapping(event.get("item")), is_completed=kind == "item.completed")
            case kind:
                if not _is_head(event):
                    yield UnknownLine.of_type(kind)
                elif "workdir" in event:
                    yield from self._session_records("", string(event.get("model")), string(event.get("workdir")))

    def _session_records(self, session: str, model: str = "", cwd: str = "") -> Iterator[TranscriptRecord]:
        if session and session != self._session:
            self._session, self._total = session, None if self._session else self._total
        self._model, self._cwd = model or self._model, cwd or self._cwd
        yield self.session_info()

    def _added(self, total: TokenCounts) -> TokenCounts:
        return total.since(self._total or TokenCounts()) or total

    def _turn_records(self, usage: Json) -> Iterator[TranscriptRecord]:
        total = token_counts(usage)
        added, self._total = self._added(total), total
        yield from usage_notes(usage)
        yield Note(code="whole-thread")
        usages = (added.usage(self._model),) if added.input or added.output else ()
        yield StreamEnd(status="success", usage=usages, cumulative=False)

    # older messages without items ------------------------------------------------------------------------------------
    def _message_records(self, message: Json) -> Iterator[TranscriptRecord]:
        match message.get("type"):
            case "session_configured":
                yield from self._session_records(string(message.get("session_id")), string(message.get("model")))
            case "user_message":
                yield UserPrompt()
            case "agent_message":
                yield AssistantText(text=string(message.get("message")))
            case "exec_command_begin" | "patch_apply_begin" | "mcp_tool_call_begin" as kind:
                yield ToolUse(tool=kind.removesuffix("_begin"), id=string(message.get("call_id")))
            case "token_count":
                # Since 0.37 the numbers are in `info`, which may be null.
                info = mapping(message.get("info")).get("total_token_usage") if "info" in message else message
                total = token_counts(mapping(info))
                yield from self._request_records(mapping(info), total, self._added(total))
            case "task_complete":
                text = message.get("last_agent_message")
                yield StreamEnd(status="success", text=text if isinstance(text, str) else None, cumulative=False)
            case "error" | "turn_aborted":
                detail = string(message.get("message")) or string(message.get("reason"))
                yield StreamEnd(status="error", detail=detail, cumulative=False)
            case _:
                pass


def _item_records(item: Json, *, is_completed: bool) -> Iterator[TranscriptRecord]:
    kind = string(item.get("type")) or string(item.get("item_type"))
    if kind != "error":
        yield WorkReported()
    if not is_completed:
        return
    if kind in TEXT_ITEMS:
        yield AssistantText(text=string(item.get("text")))
    elif kind in TOOL_ITEMS:
        if kind == "collab_tool_call":
            yield Note(code="sub-agents-apart")
        yield ToolUse(tool=_tool_name(kind, item), id=string(item.get("id")), failed=item.get("status") == "failed")


def _tool_name(kind: str, item: Json) -> str:
    return ".".join(name for name in (kind, string(item.get("server")), string(item.get("tool"))) if name)[:128]


def _is_head(event: Json) -> bool:
    """Return True for the settings and the prompt, with which the oldest format begins."""
    return ("workdir" in event and "provider" in event) or set(event) == {"prompt"}


LINE_TYPES: Mapping[str, Mapping[str, type]] = {
    "thread.started": {"thread_id": str},
    "session.created": {"session_id": str},
    "turn.completed": {"usage": dict},
    "turn.failed": {"error": dict},
}


def matches(event: dict[str, object]) -> bool:
    """Return True if the line can only be of such a stream."""
    if isinstance(event.get("msg"), dict):
        return isinstance(event.get("id"), str) and isinstance(mapping(event["msg"]).get("type"), str)
    if string(event.get("type")) in ITEM_EVENTS:
        return bool({"type", "item_type"} & mapping(event.get("item")).keys())
    return has_types(event, LINE_TYPES) or ("type" not in event and "workdir" in event and "provider" in event)


STREAM = Format(matches=matches, reader=StreamReader, unreported_fields=UNREPORTED_FIELDS)
FORMATS: tuple[Format, ...] = (STREAM, ROLLOUT)


# the agent -----------------------------------------------------------------------------------------------------------
def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A turn completes or fails; the message may contain the API's reply as JSON. An `error` event ends nothing."""
    for status in STATUSES:
        text = f"unexpected status {status} something went wrong"
        yield f"failed-{status}", json_line({"type": "turn.failed", "error": {"message": text}}), 1
        api_error = json.dumps({"type": "error", "status": status, "error": {"message": "went wrong"}})
        yield f"failed-{status}-as-json", json_line({"type": "turn.failed", "error": {"message": api_error}}), 1
    for odd_value in (None, *ODD_VALUES):
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
