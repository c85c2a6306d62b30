"""Reader of the output of `mz-anthropic` (`mz_engine.agents.anthropic_loop.facts` defines the lines).

Every request is reported with its model and tokens, as the API counted them, including aborted ones; there are no times
and no money. A stream is one call: a call that continues a session reports only its own requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

from mz_engine.agents.anthropic_stream import terminal_of
from mz_engine.agents.claude_usage import has_lifetimes, request_usage
from mz_engine.agents.jsonline import Json, mapping, session_id, string

from mz_recordings.transcripts.facts import (
    TELLS,
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

AGENT = "anthropic"
SILENT = frozenset({"tool_result", "retry", "progress", "note", "count"})
"""Types of lines that are ignored."""
ID_CHARACTERS = 16


class StreamReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "anthropic-stream"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._model, self._requests = carry.session, carry.model, carry.requests
        self._line = b""

    def read(self, data: bytes) -> Iterator[Sighting]:
        self._line = data
        return super().read(data)

    def carry(self) -> Carry:
        return Carry(session=self._session, model=self._model, requests=self._requests)

    def see(self, event: Json, /) -> Iterator[Sighting]:
        match string(event.get("type")):
            case "start":
                yield self._opened(event)
            case "text":
                yield Said(text=string(event.get("text")))
            case "tool":
                yield Used(tool=string(event.get("name"))[:128] or "?", id=string(event.get("id")))
            case "request":
                yield from self._requested(event)
            case "end":
                yield _ended(event)
            case kind if kind not in SILENT:
                yield Unknown(type=kind[:64] or "?")

    def _opened(self, event: Json) -> Opened:
        self._session = session_id(event.get("session")) or self._session
        self._model = string(event.get("model")) or self._model
        return Opened(session=self._session, version=string(event.get("version")), model=self._model)

    def _requested(self, event: Json) -> Iterator[Sighting]:
        numbers = mapping(event.get("usage"))
        usage = request_usage(string(event.get("model")) or self._model, numbers)
        if not (usage.input or usage.output):
            return
        self._requests += 1
        if not has_lifetimes(numbers):
            yield Remark(code="cache-lifetime")
        if "output_tokens_details" in numbers:
            yield Remark(code=f"{TELLS}reasoning")
        # Some gateways give replies no id.
        name = string(event.get("id")) or f"{self._requests}:{hashlib.sha256(self._line).hexdigest()[:ID_CHARACTERS]}"
        yield Requested(id=f"{self._session}:{name}", usage=usage)


def _ended(event: Json) -> Ended:
    failure = mapping(event.get("error"))
    detail = string(failure.get("message")) or string(failure.get("kind"))
    status: Literal["success", "error"] = "success" if terminal_of(event) == "success" else "error"
    return Ended(status=status, text=string(event.get("text")) or None, cumulative=False, detail=detail)


def _fits(event: dict[str, object]) -> bool:
    """Lines with only a text could be any agent's."""
    match event.get("type"):
        case "start":
            return all(isinstance(event.get(name), str) for name in ("session", "model", "version"))
        case "request":
            named = isinstance(event.get("model"), str) and "stop_reason" in event
            return named and isinstance(event.get("usage"), dict)
        case "tool":
            named = isinstance(event.get("id"), str) and isinstance(event.get("name"), str)
            return named and isinstance(event.get("input"), dict)
        case "tool_result":
            return isinstance(event.get("failed"), bool) and isinstance(event.get("characters"), int)
        case "retry":
            return isinstance(event.get("attempt"), int) and "wait_seconds" in event
        case "end":
            return event.get("status") in ("success", "error") and {"text", "requests", "error"} <= event.keys()
        case _:
            return False


FORMATS: tuple[Format, ...] = (
    Format(name=StreamReader.format, agent=AGENT, unit="line", fits=_fits, reader=StreamReader, untold=("reasoning",)),
)
