"""Readers of Codex's files: streams of `codex exec --json`, and session files
(`~/.codex/sessions/**/rollout-*.jsonl`), of all versions since 0.40. Accept any bytes.

Streams: the last `turn.completed` or `turn.failed` decides how a call ended; an `error` line is no end, since the
program retries. There are three formats: events with items (since 0.44; in some earlier versions, items have an
`item_type` and sessions are created); and before them the program's inner messages, `{"id", "msg"}`. Only the last one
names the model. Token counts are cumulative over the whole thread; none of the formats has tokens of subagents.

Session files: tokens come from `token_usage_record`, one line per request (0.169), else from `token_count`: totals of
the whole thread, which some versions write twice, and which continued and forked sessions keep counting. Each increase
is a request; for the first total in a file, the request is what the line reports as the last one.

Forked sessions and subagents of older versions begin with a copy of earlier lines, with new times. A request's id
consists of what is copied unchanged: the turn and the total; in versions without turns, the session at the origin of
the copy, whose head is copied too. So the id is equal in every copy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import add_usage, limit_parts, usage_since

from mz_engine.agents import package
from mz_engine.agents.package import json_line
from mz_engine.agents.reading import records
from mz_engine.agents.reading.json_lines import (
    Json,
    count,
    decode_object,
    has_types,
    mapping,
    objects,
    string,
    time_us,
    token_count,
)
from mz_engine.agents.reading.records import REPORTS_FIELD, UNNAMED_SUBAGENT, Reader, ReaderState, Records

STANDARD_TIERS = frozenset({"", "auto", "default", "standard"})


NO_TOKENS = Usage(model="", input=0, output=0)


def token_counts(usage: Json) -> Usage:
    """Read the numbers of a usage object; absent fields are zero. Parts may exceed their total."""
    return Usage(
        model="",
        input=token_count(usage, "input_tokens"),
        output=token_count(usage, "output_tokens"),
        cache_read=token_count(usage, "cached_input_tokens"),
        cache_write_5m=token_count(usage, "cache_write_input_tokens"),
        reasoning=token_count(usage, "reasoning_output_tokens"),
    )


def usage_notes(usage: Json) -> Records:
    """Yield a note for each optional field, of newer versions, that is present."""
    for name, field in (("reasoning_output_tokens", "reasoning"), ("cache_write_input_tokens", "cache_write_5m")):
        if name in usage:
            yield records.Note(code=f"{REPORTS_FIELD}{field}")


class ThreadReader(Reader):
    """Base class of the readers of streams and of rollouts."""

    agent = "codex"
    unreported_fields = ("reasoning", "cache_write_5m", "cache_write_1h")
    """The first two are reported by newer versions; lifetimes of cache writes by none."""

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        total = reduce(add_usage, state.total, NO_TOKENS)
        written = total.cache_write_5m + total.cache_write_1h  # Codex does not tell them apart.
        self._total = replace(total, cache_write_5m=written, cache_write_1h=0) if state.total else None
        self._thread, self._origin = self._names.get("thread", ""), self._names.get("origin", "")
        self._turn, self._tier = self._names.get("turn", ""), self._names.get("tier", "")

    def state(self) -> ReaderState:
        names = {"thread": self._thread, "origin": self._origin, "turn": self._turn, "tier": self._tier}
        self._names = {name: value for name, value in names.items() if value}
        return replace(super().state(), total=(limit_parts(self._total),) if self._total is not None else ())

    def _request_records(
        self, usage: Json, total: Usage, added: Usage, at_us: int | None = None, subagent: str = ""
    ) -> Records:
        """Yield the request that brought the thread to this total; a line that repeats a total adds nothing."""
        if total == self._total or not (added.input or added.output):
            return
        self._total = total
        yield from usage_notes(usage)
        numbers = (total.input, total.cache_read, total.cache_write_5m, total.output, total.reasoning)
        tier = "" if self._tier in STANDARD_TIERS else self._tier
        yield records.ModelRequest(
            id=f"{self._turn or self._origin or self._session}:{'.'.join(map(str, numbers))}",
            usage=replace(limit_parts(added), model=self._model, subagent=subagent, tier=tier, requests=1),
            at_us=at_us,
        )


# streams --------------------------------------------------------------------------------------------------------------
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
    name = "codex-stream"

    def read_object(self, event: Json, /) -> Records:
        if isinstance(event.get("msg"), dict):
            yield from self._message_records(mapping(event["msg"]))
            return
        match event.get("type"):
            case "thread.started" | "session.created":
                yield from self._session_records(string(event.get("thread_id")) or string(event.get("session_id")))
            case "turn.completed":
                usage = mapping(event.get("usage"))
                total = token_counts(usage)
                added, self._total = self._added(total), total
                yield from usage_notes(usage)
                yield records.Note(code="whole-thread")
                usages = (replace(limit_parts(added), model=self._model),) if added.input or added.output else ()
                yield records.StreamEnd(status="success", usage=usages, cumulative=False)
            case "turn.failed":
                message, status = _unwrap_error(string(mapping(event.get("error")).get("message")))
                yield records.StreamEnd(status="error", detail=message, http_status=status, cumulative=False)
            case "turn.started":
                yield records.TurnStarted()
            case "error":
                message, status = _unwrap_error(string(event.get("message")))
                yield records.ErrorReported(message=message, http_status=status)
            case str() as kind if kind in ITEM_EVENTS:
                yield from _item_records(mapping(event.get("item")), is_completed=kind == "item.completed")
            case _ if "workdir" in event and "provider" in event:
                yield from self._session_records("", string(event.get("model")), string(event.get("workdir")))
            case kind if set(event) != {"prompt"}:  # The oldest format begins with the settings and the prompt.
                yield records.UnknownLine.of_type(kind)

    def _session_records(self, session: str, model: str = "", cwd: str = "") -> Records:
        if session and session != self._session:
            self._session, self._total = session, None if self._session else self._total
        self._model, self._cwd = model or self._model, cwd or self._cwd
        yield self.session_info()

    def _added(self, total: Usage) -> Usage:
        return usage_since(total, self._total or NO_TOKENS) or total

    # older messages without items ------------------------------------------------------------------------------------
    def _message_records(self, message: Json) -> Records:
        match message.get("type"):
            case "session_configured":
                yield from self._session_records(string(message.get("session_id")), string(message.get("model")))
            case "user_message":
                yield records.UserPrompt()
            case "agent_message":
                yield records.AssistantText(text=string(message.get("message")))
            case "exec_command_begin" | "patch_apply_begin" | "mcp_tool_call_begin" as kind:
                yield records.ToolUse(tool=kind.removesuffix("_begin"), id=string(message.get("call_id")))
            case "token_count":
                # Since 0.37 the numbers are in `info`, which may be null.
                info = mapping(message.get("info")).get("total_token_usage") if "info" in message else message
                total = token_counts(mapping(info))
                yield from self._request_records(mapping(info), total, self._added(total))
            case "task_complete":
                text = message.get("last_agent_message")
                yield records.StreamEnd(
                    status="success", text=text if isinstance(text, str) else None, cumulative=False
                )
            case "error" | "turn_aborted":
                detail = string(message.get("message")) or string(message.get("reason"))
                yield records.StreamEnd(status="error", detail=detail, cumulative=False)

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        if isinstance(event.get("msg"), dict):
            return isinstance(event.get("id"), str) and isinstance(mapping(event["msg"]).get("type"), str)
        if string(event.get("type")) in ITEM_EVENTS:
            return bool({"type", "item_type"} & mapping(event.get("item")).keys())
        return has_types(event, EVENT_TYPES) or ("type" not in event and "workdir" in event and "provider" in event)


def _item_records(item: Json, *, is_completed: bool) -> Records:
    kind = string(item.get("type")) or string(item.get("item_type"))
    if kind != "error":
        yield records.WorkReported()
    if not is_completed:
        return
    if kind in TEXT_ITEMS:
        yield records.AssistantText(text=string(item.get("text")))
    elif kind in TOOL_ITEMS:
        if kind == "collab_tool_call":
            yield records.Note(code="sub-agents-apart")
        name = ".".join(filter(None, (kind, string(item.get("server")), string(item.get("tool")))))
        yield records.ToolUse.named(name, item.get("id"), failed=item.get("status") == "failed")


EVENT_TYPES: Mapping[str, Mapping[str, type]] = {
    "thread.started": {"thread_id": str},
    "session.created": {"session_id": str},
    "turn.completed": {"usage": dict},
    "turn.failed": {"error": dict},
}


# session files --------------------------------------------------------------------------------------------------------
LINE_TYPES = frozenset({"session_meta", "turn_context", "event_msg", "response_item", "token_usage_record"})
IGNORED_TYPES = frozenset(
    {"compacted", "world_state", "inter_agent_communication", "inter_agent_communication_metadata", "ghost_snapshot"}
)
"""Types of lines without tokens, tools or text."""
TOOL_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"})


class RolloutReader(ThreadReader):
    name = "codex-rollout"
    is_session_log = True

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._prompted_turn = ""
        """Turn whose prompt was seen: some versions report it twice."""

    def read_object(self, line: Json, /) -> Records:
        payload, at_us = mapping(line.get("payload")), time_us(line.get("timestamp"))
        match line.get("type"):
            case "session_meta":
                yield from self._session_records(payload, at_us)
            case "turn_context":
                self._turn = string(payload.get("turn_id")) or self._turn
                model, cwd = string(payload.get("model")), string(payload.get("cwd"))
                self._tier = string(payload.get("service_tier")) or self._tier
                if (model or self._model, cwd or self._cwd) == (self._model, self._cwd):
                    return
                self._model, self._cwd = model or self._model, cwd or self._cwd
                yield self.session_info(at_us)
            case "token_usage_record":
                # A `token_count` with the same totals follows, which adds nothing.
                usage, total = mapping(payload.get("usage")), token_counts(mapping(payload.get("thread_token_usage")))
                self._turn = string(payload.get("turn_id")) or self._turn
                subagent = self._subagent if string(payload.get("thread_id")) in ("", self._thread) else ""
                yield from self._request_records(usage, total, token_counts(usage), at_us, subagent)
            case "event_msg":
                yield from self._event_records(payload, at_us)
            case "response_item" if (kind := string(payload.get("type"))) in TOOL_CALLS:
                name = string(payload.get("name")) or kind.removesuffix("_call")
                yield records.ToolUse.named(name, string(payload.get("call_id")) or payload.get("id"))
            case "response_item":
                pass
            case kind if string(kind) not in IGNORED_TYPES:
                yield records.UnknownLine.of_type(kind)

    # session ----------------------------------------------------------------------------------------------------------
    def _session_records(self, meta: Json, at_us: int | None) -> Records:
        """Read a session head. The first one is the file's own, and repeats when the session continues; another one is
        part of a copy."""
        thread = string(meta.get("id")) or string(meta.get("session_id"))
        self._origin = thread or self._origin
        if self._thread and thread != self._thread:
            yield records.Note(code="copied")
            return
        self._thread = thread
        self._session = string(meta.get("session_id")) or thread or self._session
        self._version = string(meta.get("cli_version")) or self._version
        self._cwd = string(meta.get("cwd")) or self._cwd
        source = mapping(meta.get("source")).get("subagent")
        self._subagent = _subagent_name(source, meta)
        spawned = mapping(mapping(source).get("thread_spawn"))
        parents = (meta.get("parent_thread_id"), spawned.get("parent_thread_id"), meta.get("forked_from_id"))
        parent = next((name for name in map(string, parents) if name), "")
        yield self.session_info(at_us, parent)

    # events -----------------------------------------------------------------------------------------------------------
    def _event_records(self, event: Json, at_us: int | None) -> Records:
        match event.get("type"):
            case "token_count":
                info = mapping(event.get("info"))
                usage, last = mapping(info.get("total_token_usage")), mapping(info.get("last_token_usage"))
                total, newest = token_counts(usage), token_counts(last)
                added = usage_since(total, self._total) if self._total is not None else None
                if added is None:
                    # The first total of a thread that may be older than its file, or a restarted count.
                    added = newest if newest.input or newest.output else total
                yield from self._request_records(usage, total, added, at_us, self._subagent)
            case "task_started" | "turn_started":
                self._turn = string(event.get("turn_id")) or self._turn
            case "thread_settings_applied":
                self._tier = string(mapping(event.get("thread_settings")).get("service_tier")) or self._tier
            case "user_message":
                yield from self._prompt_records(at_us)
            case "agent_message":
                yield records.AssistantText(text=string(event.get("message")))
            case "item_completed":
                item = mapping(event.get("item"))
                text = "\n".join(string(block.get("text")) for block in objects(item.get("content")))
                if item.get("type") == "UserMessage":
                    yield from self._prompt_records(at_us)
                elif item.get("type") == "AgentMessage" and text:
                    yield records.AssistantText(text=text)
            case "task_complete" | "turn_complete":
                # Older versions do not report errors here, but a turn without a final message failed.
                error, final = event.get("error"), event.get("last_agent_message", "")
                yield records.StreamEnd(
                    status="success" if error is None and final is not None else "error",
                    text=string(final) or None,
                    cumulative=False,
                    detail=string(mapping(error).get("message")) or string(error),
                )
            case "turn_aborted":
                yield records.StreamEnd(status="error", detail=string(event.get("reason")), cumulative=False)

    def _prompt_records(self, at_us: int | None) -> Records:
        if not self._turn or self._prompted_turn != self._turn:
            yield records.UserPrompt(at_us=at_us)
        self._prompted_turn = self._turn

    @staticmethod
    def matches(line: dict[str, object]) -> bool:
        has_known_type = string(line.get("type")) in LINE_TYPES | IGNORED_TYPES
        return has_known_type and isinstance(line.get("payload"), dict) and isinstance(line.get("timestamp"), str)


def _subagent_name(source: object, meta: Json) -> str:
    """Return the name of the file's subagent: its role, the end of its path, or its purpose."""
    if source is None:
        return ""
    spawned = mapping(mapping(source).get("thread_spawn"))
    path = string(spawned.get("agent_path")) or string(meta.get("agent_path"))
    names = (spawned.get("agent_role"), path.rpartition("/")[2], source, mapping(source).get("other"))
    return next((name for name in map(string, names) if name), UNNAMED_SUBAGENT)


# the agent -----------------------------------------------------------------------------------------------------------
def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """A turn completes or fails; the message may contain the API's reply as JSON. An `error` event ends nothing."""
    for status in package.STATUSES:
        text = f"unexpected status {status} something went wrong"
        yield f"failed-{status}", json_line({"type": "turn.failed", "error": {"message": text}}), 1
        api_error = json.dumps({"type": "error", "status": status, "error": {"message": "went wrong"}})
        yield f"failed-{status}-as-json", json_line({"type": "turn.failed", "error": {"message": api_error}}), 1
    for odd_value in (None, *package.ODD_VALUES):
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
    return package.last_event(stdout, "turn.started", "turn.completed", "turn.failed").get("type") == "turn.completed"


AGENT = package.AgentPackage(
    name="codex",
    title="Codex",
    tested_version="0.169.0",
    adapter="adapter:Codex",
    formats=(StreamReader, RolloutReader),
    session_folders=package.SessionFolders(
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
    dialect=package.StreamDialect(
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
