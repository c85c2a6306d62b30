"""Fields that the lines of Claude Code's streams and of its session logs share.

Typed decoding of lines of Claude Code's session logs, limited to the fields that readers need.

Most bytes of a log are tool results. A line of the usual shape is decoded into types, which skips unneeded fields; any
other line is decoded completely and converted field by field. Both give the same line, except that an out-of-range
number in an unneeded field makes only a complete decoding fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, DecimalException
from typing import Any

import msgspec
from msgspec import UNSET

from mz_engine.agents.reading.anthropic_usage import has_cache_lifetimes
from mz_engine.agents.reading.json_lines import Json, mapping, string
from mz_engine.agents.reading.records import REPORTS_FIELD, AssistantText, ToolUse

REPORTS_REASONING = f"{REPORTS_FIELD}reasoning"
UNIQUE_ID = re.compile(r"(?:msg_|chatcmpl-|resp_|gen-)?[A-Za-z0-9_-]{20,}")
"""Ids as the API generates them, unique everywhere. Gateways make shorter ones, which may repeat."""


def request_id(message: Json, line: Json, session: str) -> str:
    """Return the id of a request, equal in the stream and in every session log that has the message, including copies
    in branched sessions."""
    message_id = string(message.get("id"))
    if UNIQUE_ID.fullmatch(message_id):
        return message_id
    return f"{string(line.get('requestId')) or string(line.get('request_id')) or session}:{message_id}"


def usage_notes(token_counts: Json) -> tuple[str, ...]:
    """Return note codes about the API's usage: fields that are missing, or that only newer versions have."""
    notes = () if has_cache_lifetimes(token_counts) else ("cache-lifetime",)
    has_thinking = "thinking_tokens" in mapping(token_counts.get("output_tokens_details"))
    return (*notes, REPORTS_REASONING) if has_thinking else notes


def tool_uses(content: object) -> Iterator[ToolUse]:
    """Yield the tool calls of a message."""
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("tool_use", "server_tool_use"):
            yield ToolUse.named(block.get("name"), block.get("id"))


def assistant_texts(content: object, *, continues: bool) -> Iterator[AssistantText]:
    """Yield the text of a message. A line holds one block of a message, so several lines may form one text."""
    texts = [string(block.get("text")) for block in _blocks(content) if block.get("type") == "text"]
    text = "\n".join(text for text in texts if text)
    if text:
        yield AssistantText(text=f"\n{text}" if continues else text, continues=continues)


def _blocks(content: object) -> Iterator[Json]:
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield block


class Block(msgspec.Struct, gc=False):
    """Content block of a message."""

    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""


class Message(msgspec.Struct, gc=False):
    """A message and its usage."""

    id: str = ""
    model: str = ""
    usage: msgspec.Raw | msgspec.UnsetType = UNSET
    """Unset for a message that was decoded completely."""
    stop_reason: Any = None
    content: str | list[Block] = ""


class Line(msgspec.Struct, rename="camel", gc=False):
    """Fields have the names and the order of the file, in which decoding is fastest; a missing one is empty."""

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
    stream_request_id: str = msgspec.field(default="", name="request_id")
    """The request id under its name in streams."""
    forked_from: Any = None
    is_meta: Any = None
    is_compact_summary: Any = None
    is_api_error_message: Any = None
    error: Any = UNSET
    cost: Any = msgspec.field(default=UNSET, name="costUSD")
    tool_use_result: msgspec.Raw | msgspec.UnsetType = UNSET
    data: msgspec.Raw | msgspec.UnsetType = UNSET
    """Content of a progress line; unset for a line that was decoded completely."""
    model_usage: Any = None
    total_cost: Any = msgspec.field(default=None, name="totalCostUSD")
    has_unknown_model_cost: Any = None


NO_MESSAGE = Message()
HAS_RESULT = msgspec.Raw(b"0")
NO_COUNTS: Json = {}
LineWithUsage = tuple[Line, Json]
"""A line, and the usage of its message."""
_line_decoder = msgspec.json.Decoder(Line, float_hook=Decimal)
_usage_decoder = msgspec.json.Decoder(float_hook=Decimal)


def decode_line(data: bytes) -> LineWithUsage | None:
    """Decode a line; None if it has another shape, is not JSON, or is not UTF-8."""
    try:
        if not data.isascii():
            data.decode()
        return _with_usage([_line_decoder.decode(data)])[0]
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None


def decode_lines(data: bytes, line_count: int) -> list[LineWithUsage] | None:
    """Decode `number` lines, each of which begins with `{` and ends with `}` and a line end; None if one has another
    shape, or holds several objects."""
    try:
        if not data.isascii():
            data.decode()
        lines = _line_decoder.decode_lines(data)
        return _with_usage(lines) if len(lines) == line_count else None
    except (msgspec.DecodeError, RecursionError, DecimalException, ValueError):
        return None


def _with_usage(lines: Iterable[Line]) -> list[LineWithUsage]:
    """Add the usage of each line. The lines of one reply have equal usage, so it is decoded once."""
    pairs: list[LineWithUsage] = []
    last: msgspec.Raw | None = None
    token_counts = NO_COUNTS
    for line in lines:
        if line.message is UNSET or line.message.usage is UNSET:
            pairs.append((line, NO_COUNTS))
            continue
        usage = line.message.usage
        if usage != last:
            last, token_counts = usage, mapping(_usage_decoder.decode(usage))
        pairs.append((line, token_counts))
    return pairs


def convert_line(line: Json) -> LineWithUsage:
    """Convert a completely decoded line; strings of other types become empty."""
    message = mapping(line.get("message"))
    return _line(line, message), mapping(message.get("usage"))


def _line(line: Json, message: Json) -> Line:
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
        stream_request_id=string(line.get("request_id")),
        forked_from=line.get("forkedFrom"),
        is_meta=line.get("isMeta"),
        is_compact_summary=line.get("isCompactSummary"),
        is_api_error_message=line.get("isApiErrorMessage"),
        error=line.get("error", UNSET),
        cost=line.get("costUSD", UNSET),
        tool_use_result=HAS_RESULT if "toolUseResult" in line else UNSET,
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
        content=[_block(block) for block in content if isinstance(block, dict)]
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
