"""Reader of streams of Codex: `codex exec --json`, of all versions since 0.40.

Three formats: events with items (since 0.44; in some earlier versions, items have an `item_type` and sessions are
created); and before them the program's inner messages, `{"id", "msg"}`. Only the last one names the model. Token counts
are cumulative over the whole thread; none of the formats has tokens of subagents.
"""

from __future__ import annotations

from collections.abc import Iterator

from mz_engine.agents.jsonline import Json, mapping, string

from mz_recordings.transcripts.codex_lines import AGENT, UNTOLD, Numbers, numbers, numbers_of, remarks
from mz_recordings.transcripts.codex_rollout import ROLLOUT
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

SPOKEN = frozenset({"agent_message", "assistant_message"})
TOOLS = frozenset({"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"})
EVENTS = frozenset(
    {
        "thread.started", "session.created", "turn.started", "turn.completed", "turn.failed", "item.started",
        "item.updated", "item.completed", "error",
    }
)  # fmt: skip


class StreamReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "codex-stream"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._model, self._cwd = carry.session, carry.model, carry.cwd
        self._total = numbers_of(carry.total)

    def carry(self) -> Carry:
        return Carry(session=self._session, model=self._model, cwd=self._cwd, total=(self._total.usage(""),))

    def see(self, event: Json, /) -> Iterator[Sighting]:
        if isinstance(event.get("msg"), dict):
            yield from self._message(mapping(event["msg"]))
            return
        match event.get("type"):
            case "thread.started" | "session.created":
                yield from self._opened(string(event.get("thread_id")) or string(event.get("session_id")))
            case "turn.completed":
                yield from self._completed(mapping(event.get("usage")))
            case "turn.failed":
                words = string(mapping(event.get("error")).get("message"))
                yield Ended(status="error", detail=words, cumulative=False)
            case "item.completed":
                yield from _item(mapping(event.get("item")))
            case kind if string(kind) not in EVENTS:
                if not _is_head(event):
                    yield Unknown(type=string(kind)[:64] or "?")
                elif "workdir" in event:
                    yield from self._opened("", string(event.get("model")), string(event.get("workdir")))

    def _opened(self, session: str, model: str = "", cwd: str = "") -> Iterator[Sighting]:
        if session and session != self._session:
            self._session, self._total = session, Numbers()
        self._model, self._cwd = model or self._model, cwd or self._cwd
        yield Opened(session=self._session, model=self._model, cwd=self._cwd)

    def _completed(self, told: Json) -> Iterator[Sighting]:
        now = numbers(told)
        added = now.since(self._total) or now
        self._total = now
        yield from remarks(told)
        yield Remark(code="whole-thread")
        used = (added.usage(self._model),) if added.input or added.output else ()
        yield Ended(status="success", usage=used, cumulative=False)

    # older messages without items ------------------------------------------------------------------------------------
    def _message(self, message: Json) -> Iterator[Sighting]:
        match message.get("type"):
            case "session_configured":
                yield from self._opened(string(message.get("session_id")), string(message.get("model")))
            case "user_message":
                yield Asked()
            case "agent_message":
                yield Said(text=string(message.get("message")))
            case "exec_command_begin" | "patch_apply_begin" | "mcp_tool_call_begin" as kind:
                yield Used(tool=kind.removesuffix("_begin"), id=string(message.get("call_id")))
            case "token_count":
                yield from self._counted(message)
            case "task_complete":
                text = message.get("last_agent_message")
                yield Ended(status="success", text=text if isinstance(text, str) else None, cumulative=False)
            case "error" | "turn_aborted":
                words = string(message.get("message")) or string(message.get("reason"))
                yield Ended(status="error", detail=words, cumulative=False)
            case _:
                pass

    def _counted(self, message: Json) -> Iterator[Sighting]:
        """Since 0.37 the numbers are in `info`, which may be null."""
        told = mapping(mapping(message.get("info")).get("total_token_usage")) if "info" in message else message
        now = numbers(told)
        if now == self._total or not (now.input or now.output):
            return
        added = now.since(self._total) or now
        self._total = now
        yield from remarks(told)
        name = ".".join(map(str, now))
        yield Requested(id=f"{self._session}:{name}", usage=added.usage(self._model, requests=1))


def _item(item: Json) -> Iterator[Sighting]:
    kind = string(item.get("type")) or string(item.get("item_type"))
    if kind in SPOKEN:
        yield Said(text=string(item.get("text")))
    elif kind in TOOLS:
        if kind == "collab_tool_call":
            yield Remark(code="sub-agents-apart")
        yield Used(tool=_tool(kind, item), id=string(item.get("id")), failed=item.get("status") == "failed")


def _tool(kind: str, item: Json) -> str:
    return ".".join(name for name in (kind, string(item.get("server")), string(item.get("tool"))) if name)[:128]


def _is_head(event: Json) -> bool:
    """Return True for the settings and the prompt, with which the oldest format begins."""
    return ("workdir" in event and "provider" in event) or set(event) == {"prompt"}


def fits(event: dict[str, object]) -> bool:
    """Return True if the line can only be of such a stream."""
    kind, message = event.get("type"), event.get("msg")
    if isinstance(message, dict):
        return isinstance(event.get("id"), str) and isinstance(message.get("type"), str)
    match kind:
        case "thread.started":
            return isinstance(event.get("thread_id"), str)
        case "session.created":
            return isinstance(event.get("session_id"), str)
        case "turn.completed":
            return isinstance(event.get("usage"), dict)
        case "turn.failed":
            return isinstance(event.get("error"), dict)
        case "item.started" | "item.updated" | "item.completed":
            item = event.get("item")
            return isinstance(item, dict) and bool({"type", "item_type"} & item.keys())
        case _:
            return "type" not in event and "workdir" in event and "provider" in event


STREAM = Format(name=StreamReader.format, agent=AGENT, unit="line", fits=fits, reader=StreamReader, untold=UNTOLD)
FORMATS: tuple[Format, ...] = (STREAM, ROLLOUT)
