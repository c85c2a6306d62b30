"""Reader of streams of Claude Code: `claude -p --output-format stream-json`, and `json`, one object or an array.

Output tokens of messages are those at their start: the totals of the `result` count, unless partial messages report the
end of each. Money and `modelUsage` include the earlier results of the same process, and since 2.1.3 also the session's
cost before it was resumed; in that case `model_usage_since_last_result` holds the difference, and that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_engine.agents.claude_usage import has_lifetimes, model_usage, request_usage
from mz_engine.agents.jsonline import Json, count, decode, mapping, nanousd, string, strings
from mz_events.catalog.call import Usage

from mz_recordings.transcripts.claude_lines import TELLS_REASONING, remarks, request_id, said, time_us, used
from mz_recordings.transcripts.claude_session import SESSION
from mz_recordings.transcripts.facts import (
    Asked,
    Carry,
    Ended,
    Format,
    Opened,
    Remark,
    Requested,
    Sighting,
    Unknown,
)
from mz_recordings.transcripts.objects import ObjectReader

AGENT = "claude-code"
PASSED_OVER = frozenset(
    {"rate_limit_event", "control_request", "control_response", "control_cancel_request", "keep_alive",
     "tool_progress", "auth_status", "tool_use_summary", "prompt_suggestion"}
)  # fmt: skip
"""Types of lines without tokens, tools or text."""
SUB_AGENT_TOOLS = frozenset({"Task", "Agent"})
LIFETIME = "cacheCreationEphemeral1hInputTokens"
BEGUN = "begun:"
"""Prefix of messages among the names of the reader state."""
SUB_AGENT = "sub-agent"
"""Name of a subagent whose name is unknown."""


class StreamReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "claude-stream"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._version, self._model, self._cwd = carry.session, carry.version, carry.model, carry.cwd
        self._requests = carry.requests
        names = dict(carry.names)
        self._begun: dict[str, Json] = {
            name.removeprefix(BEGUN): decode(begun.encode()) or {}
            for name, begun in names.items()
            if name.startswith(BEGUN)
        }
        """By parent: the newest message that is being streamed."""
        self._parts = {name: part for name, part in names.items() if not name.startswith(BEGUN)}
        self._told: tuple[str, str, Json] = ("", "", {})
        """The newest request: most lines repeat that of the line before."""
        self._last = ""
        """Id of the last message with text."""

    def carry(self) -> Carry:
        begun = ((f"{BEGUN}{parent}", _short(message)) for parent, message in self._begun.items())
        return Carry(
            session=self._session, version=self._version, model=self._model, cwd=self._cwd,
            names=(*self._parts.items(), *begun), requests=self._requests,
        )  # fmt: skip

    def see(self, event: Json, /) -> Iterator[Sighting]:
        yield from self._opened(event)
        match event.get("type"):
            case "assistant":
                yield from self._message(event)
            case "result":
                yield from self._ended(event)
            case "stream_event":
                yield from self._streamed(event)
            case "user":
                yield from self._user(event)
            case "system":
                pass
            case kind if string(kind) not in PASSED_OVER:
                yield Unknown(type=string(kind)[:64] or "?")

    def _opened(self, event: Json) -> Iterator[Sighting]:
        init = event.get("type") == "system" and event.get("subtype") == "init"
        session = string(event.get("session_id")) or self._session
        if not init and session == self._session:
            return
        if init:
            self._version = string(event.get("claude_code_version")) or self._version
            self._model = string(event.get("model")) or self._model
            self._cwd = string(event.get("cwd")) or self._cwd
        self._session = session
        yield Opened(
            session=session,
            version=self._version,
            cwd=self._cwd,
            model=self._model,
            at_us=time_us(event.get("timestamp")),
        )

    # messages ---------------------------------------------------------------------------------------------------------
    def _message(self, event: Json) -> Iterator[Sighting]:
        message = mapping(event.get("message"))
        parent = string(event.get("parent_tool_use_id"))
        numbers = mapping(message.get("usage"))
        yield from self._requested(message, numbers, event, parent)
        for tool in used(message.get("content")):
            if tool.tool in SUB_AGENT_TOOLS:
                self._name_part(tool.id, message.get("content"))
            yield tool
        if not parent:
            name = string(message.get("id"))
            yield from said(message.get("content"), continues=bool(name) and name == self._last)
            self._last = name

    def _requested(self, message: Json, numbers: Json, event: Json, parent: str) -> Iterator[Sighting]:
        name, model = string(message.get("id")), string(message.get("model"))
        if not name or not model or model == "<synthetic>" or not numbers:
            return
        part = (string(event.get("subagent_type")) or self._parts.get(parent, SUB_AGENT)) if parent else ""
        told = (name, part, numbers)
        if told == self._told:
            return
        self._told = told
        for code in remarks(numbers):
            yield Remark(code=code)
        self._requests += 1
        yield Requested(
            id=request_id(message, event, self._session),
            usage=request_usage(model, numbers, part),
            at_us=time_us(event.get("timestamp")),
        )

    def _name_part(self, call: str, content: object) -> None:
        for block in content if isinstance(content, list) else ():
            order = mapping(mapping(block).get("input"))
            if call and mapping(block).get("id") == call:
                self._parts[call] = string(order.get("subagent_type")) or SUB_AGENT

    def _streamed(self, event: Json) -> Iterator[Sighting]:
        """Combine the usage of a message's start and end."""
        inner, parent = mapping(event.get("event")), string(event.get("parent_tool_use_id"))
        match inner.get("type"):
            case "message_start":
                self._begun[parent] = mapping(inner.get("message"))
            case "message_delta" if parent in self._begun:
                message = self._begun.pop(parent)
                told = {name: number for name, number in mapping(inner.get("usage")).items() if number is not None}
                yield from self._requested(message, {**mapping(message.get("usage")), **told}, event, parent)
            case _:
                pass

    def _user(self, event: Json) -> Iterator[Sighting]:
        content = mapping(event.get("message")).get("content")
        results = isinstance(content, list) and any(mapping(block).get("type") == "tool_result" for block in content)
        if not results and not event.get("parent_tool_use_id") and not event.get("isSynthetic"):
            yield Asked(at_us=time_us(event.get("timestamp")))

    # ends -------------------------------------------------------------------------------------------------------------
    def _ended(self, event: Json) -> Iterator[Sighting]:
        text, errors = event.get("result"), strings(event.get("errors"))
        status = status_of(event)
        new = event.get("model_usage_since_last_result")
        alone = isinstance(new, dict)
        sums = mapping(new if alone else event.get("modelUsage"))
        if not sums and not alone and _money(event):
            yield Remark(code="main-thread")
            if self._parts:
                yield Remark(code="sub-agents-short")
        if any("thinkingTokens" in mapping(numbers) for numbers in sums.values()):
            yield Remark(code=TELLS_REASONING)
        yield Ended(
            status=status,
            text=text if isinstance(text, str) else None,
            reported_nanousd=_reported(sums) if alone else _money(event),
            cumulative=not alone,
            usage=self._sums(event, sums) or (() if alone else self._main_thread(event)),
            lifetimes=_lifetimes_told(sums, mapping(event.get("usage"))),
            detail="" if status == "success" else "\n".join([*errors, string(text)]).strip() or _reason(event),
        )

    def _sums(self, event: Json, models: Json) -> tuple[Usage, ...]:
        """Return the totals by model. If there are no messages, the turns are the requests of the model with the most
        tokens."""
        sums = tuple(_used_by(models, mapping(event.get("usage"))))
        turns = count(event.get("num_turns"))
        if self._requests or not turns or not sums:
            return sums
        main = max(sums, key=lambda usage: usage.input + usage.output)
        return tuple(replace(usage, requests=turns) if usage is main else usage for usage in sums)

    def _main_thread(self, event: Json) -> tuple[Usage, ...]:
        """Return the turn's own usage, for results without totals by model. It lacks side models and subagents, so it
        counts only if there are no messages."""
        whole = request_usage(self._model, mapping(event.get("usage")))
        return (replace(whole, requests=None),) if not self._requests and (whole.input or whole.output) else ()


def status_of(result: Json) -> Literal["success", "error"]:
    """Return the status by `is_error` and by subtypes that name an error; the subtype `success` proves nothing."""
    failed, subtype = result.get("is_error"), string(result.get("subtype"))
    if failed is None:
        return "success" if subtype == "success" else "error"
    return "success" if failed is False and not subtype.startswith("error") else "error"


def _short(message: Json) -> str:
    kept = {name: message[name] for name in ("id", "model", "usage") if name in message}
    return msgspec.json.encode(kept).decode("utf-8", "replace")


def _reason(result: Json) -> str:
    return string(result.get("terminal_reason")) or string(result.get("subtype"))


def _money(result: Json) -> int | None:
    """Return the cost; the field has other names in early versions, and is a placeholder in some captures."""
    for name in ("total_cost_usd", "total_cost", "cost_usd"):
        found = nanousd(result.get(name))
        if found is not None:
            return found
    return None


def _reported(models: Json) -> int | None:
    amounts = [nanousd(mapping(numbers).get("costUSD")) for numbers in models.values()]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _used_by(models: Json, turn: Json) -> Iterator[Usage]:
    """Yield the usage by model. The lifetimes of cache writes come from the turn's own usage if its total equals this
    model's."""
    for model, numbers in models.items():
        usage, main = model_usage(model, mapping(numbers)), request_usage(model, turn)
        if usage.cache_write_5m == main.cache_write_5m + main.cache_write_1h:
            usage = replace(usage, cache_write_5m=main.cache_write_5m, cache_write_1h=main.cache_write_1h)
        if usage.input or usage.output:
            yield usage


def _lifetimes_told(models: Json, turn: Json) -> bool:
    main = request_usage("", turn)
    told = main.cache_write_5m + main.cache_write_1h if has_lifetimes(turn) else 0
    return all(
        LIFETIME in mapping(numbers) or model_usage(model, mapping(numbers)).cache_write_5m in (0, told)
        for model, numbers in models.items()
    )


def _fits(event: dict[str, object]) -> bool:
    """`qwen_code_version` marks Qwen Code, which writes the same lines."""
    if not isinstance(event.get("session_id"), str) or "qwen_code_version" in event:
        return False
    match event.get("type"):
        case "system":
            return isinstance(event.get("subtype"), str) and ("uuid" in event or "mcp_servers" in event)
        case "assistant" | "user":
            return "role" in mapping(event.get("message")) and "sessionId" not in event
        case "result":
            return "num_turns" in event or count(event.get("duration_ms")) is not None
        case "stream_event":
            return isinstance(event.get("event"), dict)
        case kind:
            return string(kind) in PASSED_OVER


STREAM = Format(
    name=StreamReader.format, agent=AGENT, unit="line", fits=_fits, reader=StreamReader, untold=("reasoning",)
)
FORMATS: tuple[Format, ...] = (STREAM, SESSION)
