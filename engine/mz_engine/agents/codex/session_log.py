"""Reader of session files of Codex: `~/.codex/sessions/**/rollout-*.jsonl`, of all versions since 0.40.

Tokens come from `token_usage_record`, one line per request (0.169), else from `token_count`: totals of the whole
thread, which some versions write twice, and which continued and forked sessions keep counting. Each increase is a
request; for the first total in a file, the request is what the line reports as the last one.

Forked sessions and subagents of older versions begin with a copy of earlier lines, with new times. A request's id
consists of what is copied unchanged: the turn and the total; in versions without turns, the session at the origin of
the copy, whose head is copied too. So the id is equal in every copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mz_engine.agents.codex.lines import UNREPORTED_FIELDS, ThreadReader, token_counts
from mz_engine.agents.reading.json_lines import Json, mapping, objects, string, time_us
from mz_engine.agents.reading.records import (
    UNNAMED_SUBAGENT,
    AssistantText,
    Format,
    Note,
    ReaderState,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    UnknownLine,
    UserPrompt,
)

LINE_TYPES = frozenset({"session_meta", "turn_context", "event_msg", "response_item", "token_usage_record"})
IGNORED_TYPES = frozenset(
    {"compacted", "world_state", "inter_agent_communication", "inter_agent_communication_metadata", "ghost_snapshot"}
)
"""Types of lines without tokens, tools or text."""
TOOL_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"})


class RolloutReader(ThreadReader):
    format = "codex-rollout"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        names = dict(state.names)
        self._thread, self._origin = names.get("thread", ""), names.get("origin", "")
        self._turn, self._tier = names.get("turn", ""), names.get("tier", "")
        self._prompted_turn = ""
        """Turn whose prompt was seen: some versions report it twice."""

    def state(self) -> ReaderState:
        names = {"thread": self._thread, "origin": self._origin, "turn": self._turn, "tier": self._tier}
        return replace(super().state(), names=tuple((name, value) for name, value in names.items() if value))

    def read_object(self, line: Json, /) -> Iterator[TranscriptRecord]:
        payload, at_us = mapping(line.get("payload")), time_us(line.get("timestamp"))
        match line.get("type"):
            case "session_meta":
                yield from self._session_records(payload, at_us)
            case "turn_context":
                yield from self._context_records(payload, at_us)
            case "token_usage_record":
                yield from self._usage_records(payload, at_us)
            case "event_msg":
                yield from self._event_records(payload, at_us)
            case "response_item":
                yield from _tool_records(payload)
            case kind if string(kind) not in IGNORED_TYPES:
                yield UnknownLine.of_type(kind)

    # session ----------------------------------------------------------------------------------------------------------
    def _session_records(self, meta: Json, at_us: int | None) -> Iterator[TranscriptRecord]:
        """Read a session head. The first one is the file's own, and repeats when the session continues; another one is
        part of a copy."""
        thread = string(meta.get("id")) or string(meta.get("session_id"))
        self._origin = thread or self._origin
        if self._thread and thread != self._thread:
            yield Note(code="copied")
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

    def _context_records(self, context: Json, at_us: int | None) -> Iterator[TranscriptRecord]:
        self._turn = string(context.get("turn_id")) or self._turn
        model, cwd = string(context.get("model")), string(context.get("cwd"))
        self._tier = string(context.get("service_tier")) or self._tier
        if (model or self._model, cwd or self._cwd) == (self._model, self._cwd):
            return
        self._model, self._cwd = model or self._model, cwd or self._cwd
        yield self.session_info(at_us)

    # usage ------------------------------------------------------------------------------------------------------------
    def _usage_records(self, record: Json, at_us: int | None) -> Iterator[TranscriptRecord]:
        """Read one request; a `token_count` with the same totals follows, which adds nothing."""
        usage, total = mapping(record.get("usage")), token_counts(mapping(record.get("thread_token_usage")))
        self._turn = string(record.get("turn_id")) or self._turn
        subagent = self._subagent if string(record.get("thread_id")) in ("", self._thread) else ""
        yield from self._request_records(usage, total, token_counts(usage), at_us, subagent)

    def _token_count_records(self, info: Json, at_us: int | None) -> Iterator[TranscriptRecord]:
        usage, last = mapping(info.get("total_token_usage")), token_counts(mapping(info.get("last_token_usage")))
        total = token_counts(usage)
        added = total.since(self._total) if self._total is not None else None
        if added is None:
            # The first total of a thread that may be older than its file, or a restarted count.
            added = last if last.input or last.output else total
        yield from self._request_records(usage, total, added, at_us, self._subagent)

    # events -----------------------------------------------------------------------------------------------------------
    def _event_records(self, event: Json, at_us: int | None) -> Iterator[TranscriptRecord]:
        match event.get("type"):
            case "token_count":
                yield from self._token_count_records(mapping(event.get("info")), at_us)
            case "task_started" | "turn_started":
                self._turn = string(event.get("turn_id")) or self._turn
            case "thread_settings_applied":
                self._tier = string(mapping(event.get("thread_settings")).get("service_tier")) or self._tier
            case "user_message":
                yield from self._prompt_records(at_us)
            case "agent_message":
                yield AssistantText(text=string(event.get("message")))
            case "item_completed":
                yield from self._item_records(mapping(event.get("item")), at_us)
            case "task_complete" | "turn_complete":
                yield _turn_end(event)
            case "turn_aborted":
                yield StreamEnd(status="error", detail=string(event.get("reason")), cumulative=False)
            case _:
                pass

    def _item_records(self, item: Json, at_us: int | None) -> Iterator[TranscriptRecord]:
        match item.get("type"):
            case "UserMessage":
                yield from self._prompt_records(at_us)
            case "AgentMessage":
                text = "\n".join(string(block.get("text")) for block in objects(item.get("content")))
                if text:
                    yield AssistantText(text=text)
            case _:
                pass

    def _prompt_records(self, at_us: int | None) -> Iterator[TranscriptRecord]:
        if not self._turn or self._prompted_turn != self._turn:
            yield UserPrompt(at_us=at_us)
        self._prompted_turn = self._turn


def _subagent_name(source: object, meta: Json) -> str:
    """Return the name of the file's subagent: its role, the end of its path, or its purpose."""
    if source is None:
        return ""
    spawned = mapping(mapping(source).get("thread_spawn"))
    path = string(spawned.get("agent_path")) or string(meta.get("agent_path"))
    names = (spawned.get("agent_role"), path.rpartition("/")[2], source, mapping(source).get("other"))
    return next((name for name in map(string, names) if name), UNNAMED_SUBAGENT)


def _turn_end(event: Json) -> StreamEnd:
    """Older versions do not report errors here, but a turn without a final message failed."""
    error, text = event.get("error"), event.get("last_agent_message", "")
    failed = error is not None or text is None
    return StreamEnd(
        status="error" if failed else "success",
        text=text if isinstance(text, str) and text else None,
        cumulative=False,
        detail=string(mapping(error).get("message")) or string(error),
    )


def _tool_records(item: Json) -> Iterator[TranscriptRecord]:
    kind = string(item.get("type"))
    if kind in TOOL_CALLS:
        name = string(item.get("name")) or kind.removesuffix("_call")
        yield ToolUse(tool=name[:128], id=string(item.get("call_id")) or string(item.get("id")))


def matches(line: dict[str, object]) -> bool:
    """Return True if the line can only be of such a file."""
    has_known_type = string(line.get("type")) in LINE_TYPES | IGNORED_TYPES
    return has_known_type and isinstance(line.get("payload"), dict) and isinstance(line.get("timestamp"), str)


ROLLOUT = Format(matches=matches, reader=RolloutReader, unreported_fields=UNREPORTED_FIELDS, is_session_log=True)
