"""Readers of session logs of Gemini CLI, in `~/.gemini/tmp/<project>/chats/`.

Until early 2026 a session is one JSON document that is rewritten with every message; since then it is JSON Lines: a
head, messages, and changes (`{"$set": ...}`). A message is written again, with the same id, once its tools are done,
and a resumed session begins with all its messages; so one id is one request. Documents omit requests that only call
tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from mz_engine.agents.jsonline import Json, count, mapping, string
from mz_events.catalog.call import Usage

from mz_recordings.transcripts.claude_lines import time_us
from mz_recordings.transcripts.facts import (
    Asked,
    Carry,
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

AGENT = "gemini"
UNTOLD = ("cache_write_5m", "cache_write_1h")
"""Caching is implicit and its writes are not reported."""
ANSWER, PROMPT = "gemini", "user"
ASIDE = frozenset({"info", "error", "warning"})
"""Messages by the program to the user."""
CONTEXT = "<session_context>"
SUB_AGENT = "sub-agent"
"""Logs do not name the subagent."""

DELEGATES = "invoke_agent"
"""The tool that calls subagents."""

_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\n\s*- ([^\n]{1,4096})")


class SessionReader(ObjectReader):
    """Implements `facts.Reader`."""

    format = "gemini-session"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._session, self._cwd, self._part = carry.session, carry.cwd, carry.part
        self._tools = dict(carry.names)
        """Tools of the newest reply, each with the reply's id: they are repeated with it."""

    def carry(self) -> Carry:
        return Carry(session=self._session, cwd=self._cwd, part=self._part, names=tuple(self._tools.items()))

    def see(self, record: Json, /) -> Iterator[Sighting]:
        if "$set" in record:
            yield from self._changed(mapping(record["$set"]))
        elif "$rewindTo" in record:
            return  # Discarded messages were paid for all the same.
        elif isinstance(record.get("sessionId"), str):
            yield from self._opened(record)
        else:
            yield from self._message(record)

    def _opened(self, head: Json) -> Iterator[Sighting]:
        self._session = string(head.get("sessionId")) or self._session
        self._part = SUB_AGENT if head.get("kind") == "subagent" else ""
        places = head.get("directories")
        if isinstance(places, list) and places:
            self._cwd = string(places[0]) or self._cwd
        at_us = time_us(head.get("startTime"))
        yield Opened(session=self._session, cwd=self._cwd, part=self._part, at_us=at_us)

    def _changed(self, change: Json) -> Iterator[Sighting]:
        """Read a change. A resumed session repeats everything: text and tools were counted before; requests count
        once."""
        if isinstance(change.get("sessionId"), str):
            yield from self._opened({"sessionId": change["sessionId"], "kind": "subagent" if self._part else "main"})
        messages = change.get("messages")
        for message in messages if isinstance(messages, list) else ():
            yield from self._placed(mapping(message))
            yield from self._requested(mapping(message))

    def _message(self, message: Json) -> Iterator[Sighting]:
        match message.get("type"):
            case "gemini":
                yield from self._requested(message)
                yield from self._used(message)
                if text := text_of(message.get("content")):
                    yield Said(text=text)
            case "user":
                yield from self._placed(message)
                if is_prompt(message.get("content")):
                    yield Asked(at_us=time_us(message.get("timestamp")))
            case kind if string(kind) not in ASIDE:
                yield Unknown(type=string(kind)[:64] or "?")

    def _requested(self, message: Json) -> Iterator[Sighting]:
        tokens, name = mapping(message.get("tokens")), string(message.get("id"))
        if tokens and name:
            usage = request_usage(string(message.get("model")), tokens, self._part)
            yield Requested(id=name, usage=usage, at_us=time_us(message.get("timestamp")))

    def _used(self, message: Json) -> Iterator[Sighting]:
        name, calls = string(message.get("id")), message.get("toolCalls")
        self._tools = {tool: answer for tool, answer in self._tools.items() if answer == name}
        for call in map(mapping, calls if isinstance(calls, list) else ()):
            tool = string(call.get("id"))
            if tool not in self._tools:
                self._tools[tool] = name
                if call.get("name") == DELEGATES:
                    yield Remark(code="sub-agents-apart")
                failed = call.get("status") in ("error", "cancelled")
                yield Used(tool=string(call.get("name"))[:128] or "?", id=tool, failed=failed)

    def _placed(self, message: Json) -> Iterator[Sighting]:
        """The session's first message names its directory."""
        found = None if self._cwd else _WORKSPACE.search(text_of(message.get("content")))
        if found:
            self._cwd = found[1].strip()
            yield Opened(session=self._session, cwd=self._cwd, part=self._part)


class DocumentReader(SessionReader):
    """Implements `facts.Reader` for a session in one document."""

    format = "gemini-session-document"
    unit: Literal["line", "file"] = "file"

    def see(self, document: Json, /) -> Iterator[Sighting]:
        yield from self._opened(document)
        yield Remark(code="tool-requests")
        messages = document.get("messages")
        for message in messages if isinstance(messages, list) else ():
            yield from self._message(mapping(message))


def request_usage(model: str, tokens: Json, part: str = "") -> Usage:
    """Convert the `tokens` of one reply. `input` includes `cached`; `thoughts` and the input of the API's tools
    (`tool`) are separate, and billed as output and as input."""
    told = {name: count(tokens.get(name)) or 0 for name in ("input", "output", "cached", "thoughts", "tool")}
    return Usage(
        model=model,
        input=told["input"] + told["tool"],
        output=told["output"] + told["thoughts"],
        cache_read=min(told["cached"], told["input"]),
        reasoning=told["thoughts"],
        requests=1,
        part=part,
    )


def text_of(content: object) -> str:
    """Return the text of a message: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    parts = map(mapping, content if isinstance(content, list) else ())
    return "".join(string(part.get("text")) for part in parts if part.get("thought") is not True)


def is_prompt(content: object) -> bool:
    """Return True if a user message is by the user: tool results have the same type."""
    text = text_of(content)
    return bool(text.strip()) and not text.startswith(CONTEXT)


def _fits(record: dict[str, object]) -> bool:
    """Match a head, a change, or a reply."""
    if isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str):
        return "messages" not in record
    if record.keys() in ({"$set"}, {"$rewindTo"}):
        return True
    return record.get("type") == ANSWER and isinstance(record.get("id"), str) and "timestamp" in record


def _document_fits(document: dict[str, object]) -> bool:
    return isinstance(document.get("projectHash"), str) and isinstance(document.get("messages"), list)


SESSION = Format(
    name=SessionReader.format, agent=AGENT, unit="line", fits=_fits, reader=SessionReader, untold=UNTOLD, log=True
)
DOCUMENT = Format(
    name=DocumentReader.format, agent=AGENT, unit="file", fits=_document_fits, reader=DocumentReader, untold=UNTOLD,
    log=True,
)  # fmt: skip
