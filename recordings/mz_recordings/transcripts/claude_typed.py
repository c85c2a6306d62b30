"""Pure: a line of Claude Code's session logs, as far as its numbers and words are of use.

Most bytes of a log are what tools answered. A line of the usual shape is decoded into types, which passes over what
nobody asks for; one of any other shape is decoded whole, and taken field by field. Both ways give the same line, but
that a number beyond all reason, in a field that nobody asks for, spoils only a line that is decoded whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, DecimalException
from typing import Any

import msgspec
from msgspec import UNSET
from mz_engine.agents.jsonline import Json, mapping, string


class Block(msgspec.Struct, gc=False):
    """Of a message's content."""

    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""


class Message(msgspec.Struct, gc=False):
    """What was said, and what it took."""

    id: str = ""
    model: str = ""
    usage: msgspec.Raw | msgspec.UnsetType = UNSET
    """Of one that was decoded whole it is not here."""
    stop_reason: Any = None
    content: str | list[Block] = ""


class Line(msgspec.Struct, rename="camel", gc=False):
    """Fields are named as in the file, and stand in its order, in which they are found soonest; an empty one is not
    there."""

    is_sidechain: Any = UNSET
    cwd: str = ""
    session_id: str = ""
    version: str = ""
    agent_id: str = ""
    type: str = ""
    message: Message | msgspec.UnsetType = UNSET
    request_id: str = ""
    uuid: str = ""
    timestamp: str = ""
    caller: str = msgspec.field(default="", name="request_id")
    """The same by the name that it has in streams."""
    forked_from: Any = None
    is_meta: Any = None
    is_compact_summary: Any = None
    is_api_error_message: Any = None
    error: Any = UNSET
    cost: Any = msgspec.field(default=UNSET, name="costUSD")
    tool_use_result: msgspec.Raw | msgspec.UnsetType = UNSET
    data: msgspec.Raw | msgspec.UnsetType = UNSET
    """Of a line of progress; of one that was decoded whole it is not here."""
    model_usage: Any = None
    total_cost: Any = msgspec.field(default=None, name="totalCostUSD")
    has_unknown_model_cost: Any = None


NO_MESSAGE = Message()
ANSWERED = msgspec.Raw(b"0")
NO_NUMBERS: Json = {}
Told = tuple[Line, Json]
"""A line, and the usage of its message."""
_lines = msgspec.json.Decoder(Line, float_hook=Decimal)
_numbers = msgspec.json.Decoder(float_hook=Decimal)


def typed(data: bytes) -> Told | None:
    """The line; None where it has another shape, is no JSON, or holds bytes that are no text."""
    try:
        if not data.isascii():
            data.decode()
        return _told([_lines.decode(data)])[0]
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None


def typed_lines(data: bytes, number: int) -> list[Told] | None:
    """So many lines, each of which begins with `{` and ends with `}` and a line end; None where one has another
    shape, or holds several objects."""
    try:
        if not data.isascii():
            data.decode()
        lines = _lines.decode_lines(data)
        return _told(lines) if len(lines) == number else None
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None


def _told(lines: Iterable[Line]) -> list[Told]:
    """With the usage of each; an answer is told in several lines, and all have the same, so it is decoded once."""
    told: list[Told] = []
    last: msgspec.Raw | None = None
    numbers = NO_NUMBERS
    for line in lines:
        if line.message is UNSET or line.message.usage is UNSET:
            told.append((line, NO_NUMBERS))
            continue
        usage = line.message.usage
        if usage != last:
            last, numbers = usage, mapping(_numbers.decode(usage))
        told.append((line, numbers))
    return told


def taken(line: Json) -> Told:
    """The same of a line that was decoded whole: what is no text counts as none."""
    message = mapping(line.get("message"))
    return _taken(line, message), mapping(message.get("usage"))


def _taken(line: Json, message: Json) -> Line:
    return Line(
        type=string(line.get("type")),
        session_id=string(line.get("sessionId")),
        version=string(line.get("version")),
        cwd=string(line.get("cwd")),
        is_sidechain=line.get("isSidechain", UNSET),
        agent_id=string(line.get("agentId")),
        timestamp=string(line.get("timestamp")),
        uuid=string(line.get("uuid")),
        request_id=string(line.get("requestId")),
        caller=string(line.get("request_id")),
        forked_from=line.get("forkedFrom"),
        is_meta=line.get("isMeta"),
        is_compact_summary=line.get("isCompactSummary"),
        is_api_error_message=line.get("isApiErrorMessage"),
        error=line.get("error", UNSET),
        cost=line.get("costUSD", UNSET),
        tool_use_result=ANSWERED if "toolUseResult" in line else UNSET,
        message=_message(message),
        model_usage=line.get("modelUsage"),
        total_cost=line.get("totalCostUSD"),
        has_unknown_model_cost=line.get("hasUnknownModelCost"),
    )


def _message(message: Json) -> Message:
    content = message.get("content")
    return Message(
        id=string(message.get("id")),
        model=string(message.get("model")),
        stop_reason=message.get("stop_reason"),
        content=[_block(each) for each in content if isinstance(each, dict)]
        if isinstance(content, list)
        else string(content),
    )


def _block(block: Json) -> Block:
    return Block(
        type=string(block.get("type")),
        id=string(block.get("id")),
        name=string(block.get("name")),
        text=string(block.get("text")),
    )
