"""Fields that the lines of Claude Code's streams and of its session logs share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from mz_engine.agents.claude_usage import has_lifetimes
from mz_engine.agents.jsonline import Json, mapping, string

from mz_recordings.transcripts.facts import TELLS, Said, Used

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS, US_PER_S = 86_400, 1_000_000
TELLS_REASONING = f"{TELLS}reasoning"
UNIQUE = re.compile(r"(?:msg_|chatcmpl-|resp_|gen-)?[A-Za-z0-9_-]{20,}")
"""Ids as the API generates them, unique everywhere. Gateways make shorter ones, which may repeat."""


def request_id(message: Json, line: Json, session: str) -> str:
    """Return the id of a request, equal in the stream and in every session log that has the message, including copies
    in branched sessions."""
    name = string(message.get("id"))
    if UNIQUE.fullmatch(name):
        return name
    return f"{string(line.get('requestId')) or string(line.get('request_id')) or session}:{name}"


def time_us(value: object) -> int | None:
    """Return an ISO 8601 time in microseconds since the epoch, UTC by default; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
        return (since.days * DAY_SECONDS + since.seconds) * US_PER_S + since.microseconds
    except (ValueError, OverflowError):
        return None


def remarks(numbers: Json) -> tuple[str, ...]:
    """Return note codes about the API's usage: fields that are missing, or that only newer versions have."""
    lifetime = () if has_lifetimes(numbers) else ("cache-lifetime",)
    thinking = "thinking_tokens" in mapping(numbers.get("output_tokens_details"))
    return (*lifetime, TELLS_REASONING) if thinking else lifetime


def used(content: object) -> Iterator[Used]:
    """Yield the tool calls of a message."""
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("tool_use", "server_tool_use"):
            yield Used(tool=string(block.get("name"))[:128] or "?", id=string(block.get("id")))


def said(content: object, *, continues: bool) -> Iterator[Said]:
    """Yield the text of a message. A line holds one block of a message, so several lines may form one text."""
    texts = [string(block.get("text")) for block in _blocks(content) if block.get("type") == "text"]
    text = "\n".join(text for text in texts if text)
    if text:
        yield Said(text=f"\n{text}" if continues else text, continues=continues)


def _blocks(content: object) -> Iterator[Json]:
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield block
