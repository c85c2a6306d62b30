"""Readers of Qwen Code's files: its stream and its JSON array, which resemble those of Claude Code, and its session
log.

There is no money. The totals of a stream include requests that its messages do not show. The log has every request,
those of subagents too; cached tokens are part of the input, and thoughts of the output.
"""

from __future__ import annotations

from collections.abc import Iterator

from mz_engine.agents.jsonline import Json, count, mapping, string, strings
from mz_events.catalog.call import Usage

from mz_recordings.transcripts.claude_lines import said, time_us, used
from mz_recordings.transcripts.facts import (
    Asked,
    Carry,
    Ended,
    Format,
    Opened,
    Requested,
    Said,
    Sighting,
    Unknown,
    Used,
)
from mz_recordings.transcripts.objects import ObjectReader

AGENT = "qwen"
VERSION = "qwen_code_version"
RESPONSE = "qwen-code.api_response"
CALLED = "qwen-code.tool_call"
UNTOLD = ("cache_write_5m", "cache_write_1h")


class StreamReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "qwen-stream"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._version, self._model = carry.session, carry.version, carry.model

    def carry(self) -> Carry:
        return Carry(session=self._session, version=self._version, model=self._model)

    def see(self, event: Json, /) -> Iterator[Sighting]:
        message = mapping(event.get("message"))
        match event.get("type"):
            case "system":
                yield from self._opened(event)
            case "assistant":
                yield Requested(
                    id=f"qwen:{string(message.get('id'))}",
                    usage=_usage(string(message.get("model")) or self._model, mapping(message.get("usage")), 1),
                )
                yield from used(message.get("content"))
                if event.get("parent_tool_use_id") is None:
                    yield from said(message.get("content"), continues=False)
            case "result":
                yield from self._ended(event)
            case "user" | "stream_event":
                pass
            case kind:
                yield Unknown(type=string(kind)[:64] or "?")

    def _opened(self, event: Json) -> Iterator[Sighting]:
        if event.get("subtype") == "init":
            self._session = string(event.get("session_id"))
            self._version, self._model = string(event.get(VERSION)), string(event.get("model"))
            yield Opened(session=self._session, version=self._version, cwd=string(event.get("cwd")), model=self._model)

    def _ended(self, event: Json) -> Iterator[Sighting]:
        failed = event.get("is_error") is not False or string(event.get("subtype")).startswith("error")
        text, error = event.get("result"), mapping(event.get("error"))
        total = _usage(self._model, mapping(event.get("usage")), None)
        yield Ended(
            status="error" if failed else "success",
            text=text if isinstance(text, str) else None,
            cumulative=False,
            usage=(total,) if total.input or total.output else (),
            detail=string(error.get("message")) or "\n".join(strings(event.get("errors"))) if failed else "",
        )


class SessionReader(ObjectReader):
    """Implements `facts.Reader` for `~/.qwen/projects/*/chats/*.jsonl`."""

    format = "qwen-session"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._requests = carry.session, carry.requests

    def carry(self) -> Carry:
        return Carry(session=self._session, requests=self._requests)

    def see(self, event: Json, /) -> Iterator[Sighting]:
        at_us, session = time_us(event.get("timestamp")), string(event.get("sessionId"))
        if session and session != self._session:
            self._session = session
            yield Opened(
                session=session, version=string(event.get("version")), cwd=string(event.get("cwd")), at_us=at_us
            )
        match event.get("type"):
            case "user":
                yield Asked(at_us=at_us)
            case "assistant":
                yield from self._words(event)
            case "system":
                yield from self._measured(mapping(mapping(event.get("systemPayload")).get("uiEvent")), at_us)
            case "tool_result":
                pass
            case kind:
                yield Unknown(type=string(kind)[:64] or "?")

    def _words(self, event: Json) -> Iterator[Sighting]:
        parts = mapping(event.get("message")).get("parts")
        for part in parts if isinstance(parts, list) else ():
            told = mapping(part)
            if (text := string(told.get("text"))) and told.get("thought") is not True:
                yield Said(text=text)

    def _measured(self, told: Json, at_us: int | None) -> Iterator[Sighting]:
        if told.get("event.name") == CALLED:
            yield Used(tool=string(told.get("function_name"))[:128] or "?", failed=told.get("success") is False)
        if told.get("event.name") != RESPONSE:
            return
        self._requests += 1
        yield Requested(
            id=f"qwen:{self._session}:{string(told.get('response_id')) or self._requests}",
            usage=Usage(
                model=string(told.get("model")),
                input=count(told.get("input_token_count")) or 0,
                output=count(told.get("output_token_count")) or 0,
                cache_read=count(told.get("cached_content_token_count")) or 0,
                reasoning=count(told.get("thoughts_token_count")) or 0,
                requests=1,
                part=string(told.get("subagent_name")),
            ),
            at_us=at_us,
        )


def _usage(model: str, numbers: Json, requests: int | None) -> Usage:
    given, output = count(numbers.get("input_tokens")) or 0, count(numbers.get("output_tokens")) or 0
    read = count(numbers.get("cache_read_input_tokens")) or 0
    return Usage(model=model, input=max(given, read), output=output, cache_read=read, requests=requests)


def _fits_stream(event: dict[str, object]) -> bool:
    """Match the first line; the others could be of Claude Code too."""
    return event.get("type") == "system" and VERSION in event


def _fits_session(event: dict[str, object]) -> bool:
    return isinstance(event.get("sessionId"), str) and "parentUuid" in event and _is_own(event)


def _is_own(event: dict[str, object]) -> bool:
    message, payload = mapping(event.get("message")), event.get("systemPayload")
    return isinstance(message.get("parts"), list) or isinstance(payload, dict)


FORMATS: tuple[Format, ...] = (
    Format(
        name=StreamReader.format, agent=AGENT, unit="line", fits=_fits_stream, reader=StreamReader,
        untold=(*UNTOLD, "reasoning"),
    ),
    Format(
        name=SessionReader.format, agent=AGENT, unit="line", fits=_fits_session, reader=SessionReader, untold=UNTOLD,
        log=True,
    ),
)  # fmt: skip
