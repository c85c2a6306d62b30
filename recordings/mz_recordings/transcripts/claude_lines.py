"""Fields that the lines of Claude Code's streams and of its session logs share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from mz_engine.agents.claude_usage import has_cache_lifetimes
from mz_engine.agents.jsonline import Json, mapping, string

from mz_recordings.transcripts.facts import REPORTS_FIELD, AssistantText, ToolUse

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS, US_PER_S = 86_400, 1_000_000
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


def time_us(value: object) -> int | None:
    """Return an ISO 8601 time in microseconds since the epoch, UTC by default; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
        elapsed = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) - EPOCH
        return (elapsed.days * DAY_SECONDS + elapsed.seconds) * US_PER_S + elapsed.microseconds
    except (ValueError, OverflowError):
        return None


def usage_notes(token_counts: Json) -> tuple[str, ...]:
    """Return note codes about the API's usage: fields that are missing, or that only newer versions have."""
    notes = () if has_cache_lifetimes(token_counts) else ("cache-lifetime",)
    has_thinking = "thinking_tokens" in mapping(token_counts.get("output_tokens_details"))
    return (*notes, REPORTS_REASONING) if has_thinking else notes


def tool_uses(content: object) -> Iterator[ToolUse]:
    """Yield the tool calls of a message."""
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("tool_use", "server_tool_use"):
            yield ToolUse(tool=string(block.get("name"))[:128] or "?", id=string(block.get("id")))


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
