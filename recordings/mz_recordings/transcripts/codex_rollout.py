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

from mz_engine.agents.jsonline import Json, mapping, string

from mz_recordings.transcripts.claude_lines import time_us
from mz_recordings.transcripts.codex_lines import AGENT, UNTOLD, Numbers, numbers, numbers_of, remarks
from mz_recordings.transcripts.facts import (
    Asked,
    Carry,
    Ended,
    Format,
    Opened,
    Remark,
    Requested,
    Said,
    Sighting,
    Unknown,
    Used,
)
from mz_recordings.transcripts.objects import ObjectReader

LINES = frozenset({"session_meta", "turn_context", "event_msg", "response_item", "token_usage_record"})
PASSED_OVER = frozenset(
    {"compacted", "world_state", "inter_agent_communication", "inter_agent_communication_metadata", "ghost_snapshot"}
)
"""Types of lines without tokens, tools or text."""
CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"})
SUB_AGENT = "sub-agent"
"""Name of a subagent whose name is unknown."""


class RolloutReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "codex-rollout"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._version, self._model = carry.session, carry.version, carry.model
        self._cwd, self._part = carry.cwd, carry.part
        names = dict(carry.names)
        self._thread, self._origin = names.get("thread", ""), names.get("origin", "")
        self._turn, self._tier = names.get("turn", ""), names.get("tier", "")
        self._total = numbers_of(carry.total) if carry.total else None
        self._asked = ""
        """Turn whose prompt was seen: some versions report it twice."""

    def carry(self) -> Carry:
        names = {"thread": self._thread, "origin": self._origin, "turn": self._turn, "tier": self._tier}
        return Carry(
            session=self._session, version=self._version, model=self._model, cwd=self._cwd, part=self._part,
            total=(self._total.usage(""),) if self._total is not None else (),
            names=tuple((name, value) for name, value in names.items() if value),
        )  # fmt: skip

    def see(self, line: Json, /) -> Iterator[Sighting]:
        payload, at_us = mapping(line.get("payload")), time_us(line.get("timestamp"))
        match line.get("type"):
            case "session_meta":
                yield from self._began(payload, at_us)
            case "turn_context":
                yield from self._turned(payload, at_us)
            case "token_usage_record":
                yield from self._recorded(payload, at_us)
            case "event_msg":
                yield from self._happened(payload, at_us)
            case "response_item":
                yield from _called(payload)
            case kind if string(kind) not in PASSED_OVER:
                yield Unknown(type=string(kind)[:64] or "?")

    # session ----------------------------------------------------------------------------------------------------------
    def _began(self, meta: Json, at_us: int | None) -> Iterator[Sighting]:
        """Read a session head. The first one is the file's own, and repeats when the session continues; another one is
        part of a copy."""
        thread = string(meta.get("id")) or string(meta.get("session_id"))
        self._origin = thread or self._origin
        if self._thread and thread != self._thread:
            yield Remark(code="copied")
            return
        self._thread = thread
        self._session = string(meta.get("session_id")) or thread or self._session
        self._version = string(meta.get("cli_version")) or self._version
        self._cwd = string(meta.get("cwd")) or self._cwd
        source = mapping(meta.get("source")).get("subagent")
        self._part = _part(source, meta)
        spawned = mapping(mapping(source).get("thread_spawn"))
        parents = (meta.get("parent_thread_id"), spawned.get("parent_thread_id"), meta.get("forked_from_id"))
        parent = next((name for name in map(string, parents) if name), "")
        yield Opened(
            session=self._session, version=self._version, cwd=self._cwd, parent=parent, part=self._part, at_us=at_us
        )

    def _turned(self, context: Json, at_us: int | None) -> Iterator[Sighting]:
        self._turn = string(context.get("turn_id")) or self._turn
        model, cwd = string(context.get("model")), string(context.get("cwd"))
        self._tier = string(context.get("service_tier")) or self._tier
        if (model or self._model, cwd or self._cwd) == (self._model, self._cwd):
            return
        self._model, self._cwd = model or self._model, cwd or self._cwd
        yield Opened(session=self._session, model=self._model, cwd=self._cwd, at_us=at_us)

    # usage ------------------------------------------------------------------------------------------------------------
    def _recorded(self, record: Json, at_us: int | None) -> Iterator[Sighting]:
        """Read one request; a `token_count` with the same totals follows, which adds nothing."""
        told = mapping(record.get("usage"))
        sums, mine = numbers(mapping(record.get("thread_token_usage"))), numbers(told)
        if self._total == sums or not (mine.input or mine.output):
            return
        self._total = sums
        thread, turn = string(record.get("thread_id")), string(record.get("turn_id")) or self._turn
        part = self._part if thread in ("", self._thread) else ""
        yield from remarks(told)
        yield Requested(
            id=self._id(turn, sums), usage=mine.usage(self._model, part=part, tier=self._tier, requests=1), at_us=at_us
        )

    def _counted(self, info: Json, at_us: int | None) -> Iterator[Sighting]:
        told, last = mapping(info.get("total_token_usage")), numbers(mapping(info.get("last_token_usage")))
        sums, before = numbers(told), self._total
        if sums == before or not (sums.input or sums.output):
            return
        self._total = sums
        added = sums.since(before) if before is not None else None
        if added is None:
            # The first total of a thread that may be older than its file, or a restarted count.
            added = last if last.input or last.output else sums
        yield from remarks(told)
        yield Requested(
            id=self._id(self._turn, sums), usage=added.usage(self._model, part=self._part, tier=self._tier, requests=1),
            at_us=at_us,
        )  # fmt: skip

    def _id(self, turn: str, sums: Numbers) -> str:
        return f"{turn or self._origin or self._session}:{'.'.join(map(str, sums))}"

    # events -----------------------------------------------------------------------------------------------------------
    def _happened(self, event: Json, at_us: int | None) -> Iterator[Sighting]:
        match event.get("type"):
            case "token_count":
                yield from self._counted(mapping(event.get("info")), at_us)
            case "task_started" | "turn_started":
                self._turn = string(event.get("turn_id")) or self._turn
            case "thread_settings_applied":
                self._tier = string(mapping(event.get("thread_settings")).get("service_tier")) or self._tier
            case "user_message":
                yield from self._prompted(at_us)
            case "agent_message":
                yield Said(text=string(event.get("message")))
            case "item_completed":
                yield from self._item(mapping(event.get("item")), at_us)
            case "task_complete" | "turn_complete":
                yield _completed(event)
            case "turn_aborted":
                yield Ended(status="error", detail=string(event.get("reason")), cumulative=False)
            case _:
                pass

    def _item(self, item: Json, at_us: int | None) -> Iterator[Sighting]:
        match item.get("type"):
            case "UserMessage":
                yield from self._prompted(at_us)
            case "AgentMessage":
                content = item.get("content")
                blocks = content if isinstance(content, list) else []
                text = "\n".join(string(mapping(block).get("text")) for block in blocks)
                if text:
                    yield Said(text=text)
            case _:
                pass

    def _prompted(self, at_us: int | None) -> Iterator[Sighting]:
        if not self._turn or self._asked != self._turn:
            yield Asked(at_us=at_us)
        self._asked = self._turn


def _part(source: object, meta: Json) -> str:
    """Return the name of the file's subagent: its role, the end of its path, or its purpose."""
    if source is None:
        return ""
    spawned = mapping(mapping(source).get("thread_spawn"))
    path = string(spawned.get("agent_path")) or string(meta.get("agent_path"))
    names = (spawned.get("agent_role"), path.rpartition("/")[2], source, mapping(source).get("other"))
    return next((name for name in map(string, names) if name), SUB_AGENT)


def _completed(event: Json) -> Ended:
    """Older versions do not report errors here, but a turn without a final message failed."""
    error, text = event.get("error"), event.get("last_agent_message", "")
    failed = error is not None or text is None
    return Ended(
        status="error" if failed else "success",
        text=text if isinstance(text, str) and text else None,
        cumulative=False,
        detail=string(mapping(error).get("message")) or string(error),
    )


def _called(item: Json) -> Iterator[Sighting]:
    kind = string(item.get("type"))
    if kind in CALLS:
        name = string(item.get("name")) or kind.removesuffix("_call")
        yield Used(tool=name[:128], id=string(item.get("call_id")) or string(item.get("id")))


def fits(line: dict[str, object]) -> bool:
    """Return True if the line can only be of such a file."""
    known = string(line.get("type")) in LINES | PASSED_OVER
    return known and isinstance(line.get("payload"), dict) and isinstance(line.get("timestamp"), str)


ROLLOUT = Format(
    name=RolloutReader.format, agent=AGENT, unit="line", fits=fits, reader=RolloutReader, untold=UNTOLD, log=True
)
