"""Readers of the output of Gemini CLI: `--output-format stream-json`, since 0.11, and `json`, since 0.6.

Both report tokens per call. The stream names the models since 0.44 at the latest, and has no field for thoughts: they
are the total minus its parts; the document has both. Tokens are those of the call alone, even if it continued a
session. Neither has the program's version, nor money.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace
from mz_engine.agents.gemini_stream import said, terminal_of, usage_of
from mz_engine.agents.jsonline import Json, count, mapping, string
from mz_events.catalog.call import Usage

from mz_recordings.transcripts.claude_lines import time_us
from mz_recordings.transcripts.facts import (
    Asked,
    Carry,
    Ended,
    Format,
    Opened,
    Remark,
    Said,
    Sighting,
    Unknown,
    Used,
)
from mz_recordings.transcripts.gemini_session import AGENT, DELEGATES, DOCUMENT, SESSION, UNTOLD, request_usage
from mz_recordings.transcripts.objects import ObjectReader

PIECES_MAX = 200_000
"""Limit of the pieces of one reply; the text of a longer one is not reassembled."""
DOCUMENT_KEYS = frozenset({"session_id", "response", "stats", "error", "warnings"})


class StreamReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "gemini-stream"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._model = carry.session, carry.model
        self._pieces: list[str] = []
        self._open = False
        """True while text pieces continue one another; a tool call ends them."""
        self._error = ""

    def carry(self) -> Carry:
        return Carry(session=self._session, model=self._model)

    def see(self, event: Json, /) -> Iterator[Sighting]:
        match event.get("type"):
            case "init":
                yield from self._opened(event)
            case "message":
                yield from self._message(event)
            case "tool_use":
                self._open = False
                if event.get("tool_name") == DELEGATES:
                    yield Remark(code="sub-agents")
                yield Used(tool=string(event.get("tool_name"))[:128] or "?", id=string(event.get("tool_id")))
            case "error":
                self._error = string(event.get("message")) or self._error
            case "result":
                yield from self._ended(event)
            case kind if kind != "tool_result":
                yield Unknown(type=string(kind)[:64] or "?")

    def _opened(self, event: Json) -> Iterator[Sighting]:
        self._session = string(event.get("session_id")) or self._session
        self._model = string(event.get("model")) or self._model
        self._pieces, self._open, self._error = [], False, ""
        yield Opened(session=self._session, model=self._model, at_us=time_us(event.get("timestamp")))

    def _message(self, event: Json) -> Iterator[Sighting]:
        text = string(event.get("content"))
        if event.get("role") == "user":
            yield Asked(at_us=time_us(event.get("timestamp")))
        elif event.get("role") == "assistant" and text:
            continues = self._open and event.get("delta") is True
            self._pieces = self._pieces if continues else []
            self._open = True
            if len(self._pieces) < PIECES_MAX:
                self._pieces.append(text)
            yield Said(text=text, continues=continues)

    def _ended(self, event: Json) -> Iterator[Sighting]:
        status: Literal["success", "error"] = "success" if terminal_of(event) == "success" else "error"
        words = string(mapping(event.get("error")).get("message")) or self._error
        whole = self._pieces and len(self._pieces) < PIECES_MAX
        yield Ended(
            status=status,
            text=said(self._pieces) if whole else None,
            cumulative=False,
            usage=usage_of(mapping(event.get("stats")), self._model),
            detail="" if status == "success" else words,
        )


class DocumentReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "gemini-json"
    agent = AGENT

    def see(self, document: Json, /) -> Iterator[Sighting]:
        yield Opened(session=string(document.get("session_id")))
        tools = mapping(mapping(mapping(document.get("stats")).get("tools")).get("byName"))
        for name, told in tools.items():
            yield from (Used(tool=name[:128]) for _ in range(min(count(mapping(told).get("count")) or 0, PIECES_MAX)))
        failure, text = document.get("error"), document.get("response")
        yield Ended(
            status="error" if isinstance(failure, dict) else "success",
            text=text if isinstance(text, str) else None,
            cumulative=False,
            usage=tuple(_used_by(mapping(mapping(document.get("stats")).get("models")))),
            detail=string(mapping(failure).get("message")),
        )


def _used_by(models: Json) -> Iterator[Usage]:
    for model, numbers in models.items():
        tokens = mapping(mapping(numbers).get("tokens"))
        told = {**tokens, "input": tokens.get("prompt"), "output": tokens.get("candidates")}
        asked = count(mapping(mapping(numbers).get("api")).get("totalRequests"))
        usage = replace(request_usage(model, told), requests=asked)
        if usage.input or usage.output:
            yield usage


def _fits(event: dict[str, object]) -> bool:
    """Every line has a timestamp."""
    if not isinstance(event.get("timestamp"), str):
        return False
    match event.get("type"):
        case "init":
            return isinstance(event.get("session_id"), str) and isinstance(event.get("model"), str)
        case "message":
            return event.get("role") in ("user", "assistant") and isinstance(event.get("content"), str)
        case "tool_use":
            return isinstance(event.get("tool_name"), str) and isinstance(event.get("tool_id"), str)
        case "tool_result":
            return isinstance(event.get("tool_id"), str) and event.get("status") in ("success", "error")
        case "result":
            return event.get("status") in ("success", "error") and "num_turns" not in event
        case _:
            return False


def _document_fits(document: dict[str, object]) -> bool:
    if not document.keys() <= DOCUMENT_KEYS:
        return False
    if isinstance(document.get("stats"), dict):
        return isinstance(mapping(document["stats"]).get("models"), dict)
    failure = mapping(document.get("error"))
    return {"type", "message"} <= failure.keys() and "session_id" in document


STREAM = Format(name=StreamReader.format, agent=AGENT, unit="line", fits=_fits, reader=StreamReader, untold=UNTOLD)
JSON = Format(
    name=DocumentReader.format, agent=AGENT, unit="line", fits=_document_fits, reader=DocumentReader, untold=UNTOLD
)
FORMATS: tuple[Format, ...] = (STREAM, JSON, SESSION, DOCUMENT)
