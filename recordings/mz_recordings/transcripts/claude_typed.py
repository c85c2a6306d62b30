"""Pure: a line of Claude Code's session logs, as far as its numbers and words are of use.

Most bytes of a log are what tools answered. A line of the usual shape is decoded into types, which passes over what
nobody asks for; one of any other shape is decoded whole, and taken field by field. Both ways give the same line, but
that a number beyond all reason, in a field that nobody asks for, spoils only a line that is decoded whole.
"""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import Any

import msgspec
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
    usage: Any = None
    stop_reason: Any = None
    content: str | list[Block] = ""


class Line(msgspec.Struct, rename="camel", gc=False):
    """Fields are named as in the file; an empty one is not there."""

    type: str = ""
    session_id: str = ""
    version: str = ""
    cwd: str = ""
    is_sidechain: Any = msgspec.UNSET
    agent_id: str = ""
    timestamp: str = ""
    uuid: str = ""
    request_id: str = ""
    caller: str = msgspec.field(default="", name="request_id")
    """The same by the name that it has in streams."""
    forked_from: Any = None
    is_meta: Any = None
    is_compact_summary: Any = None
    is_api_error_message: Any = None
    error: Any = msgspec.UNSET
    cost: Any = msgspec.field(default=msgspec.UNSET, name="costUSD")
    tool_use_result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    message: Message | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Of a line of progress; of one that was decoded whole it is not here."""
    model_usage: Any = None
    total_cost: Any = msgspec.field(default=None, name="totalCostUSD")
    has_unknown_model_cost: Any = None


NO_MESSAGE = Message()
ANSWERED = msgspec.Raw(b"0")
_lines = msgspec.json.Decoder(Line, float_hook=Decimal)


def typed(data: bytes) -> Line | None:
    """The line; None where it has another shape, is no JSON, or holds bytes that are no text."""
    try:
        if not data.isascii():
            data.decode()
        return _lines.decode(data)
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None


def typed_lines(data: bytes, number: int) -> list[Line] | None:
    """So many lines, each of which begins with `{` and ends with `}` and a line end; None where one has another
    shape, or holds several objects."""
    try:
        if not data.isascii():
            data.decode()
        lines = _lines.decode_lines(data)
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None
    return lines if len(lines) == number else None


def taken(line: Json) -> Line:
    """The same of a line that was decoded whole: what is no text counts as none."""
    return Line(
        type=string(line.get("type")),
        session_id=string(line.get("sessionId")),
        version=string(line.get("version")),
        cwd=string(line.get("cwd")),
        is_sidechain=line.get("isSidechain", msgspec.UNSET),
        agent_id=string(line.get("agentId")),
        timestamp=string(line.get("timestamp")),
        uuid=string(line.get("uuid")),
        request_id=string(line.get("requestId")),
        caller=string(line.get("request_id")),
        forked_from=line.get("forkedFrom"),
        is_meta=line.get("isMeta"),
        is_compact_summary=line.get("isCompactSummary"),
        is_api_error_message=line.get("isApiErrorMessage"),
        error=line.get("error", msgspec.UNSET),
        cost=line.get("costUSD", msgspec.UNSET),
        tool_use_result=ANSWERED if "toolUseResult" in line else msgspec.UNSET,
        message=_message(mapping(line.get("message"))),
        model_usage=line.get("modelUsage"),
        total_cost=line.get("totalCostUSD"),
        has_unknown_model_cost=line.get("hasUnknownModelCost"),
    )


def _message(message: Json) -> Message:
    content = message.get("content")
    return Message(
        id=string(message.get("id")),
        model=string(message.get("model")),
        usage=message.get("usage"),
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
