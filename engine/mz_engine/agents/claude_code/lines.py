"""What Claude Code's streams and its session logs share: messages, their requests, tools and text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mz_engine.agents.reading.anthropic_usage import has_cache_lifetimes, request_usage
from mz_engine.agents.reading.json_lines import Json, mapping, nanousd, objects, string, time_us
from mz_engine.agents.reading.records import (
    REPORTS_FIELD,
    AssistantText,
    ModelRequest,
    Note,
    Reader,
    ReaderState,
    ToolUse,
)

REPORTS_REASONING = f"{REPORTS_FIELD}reasoning"
SYNTHETIC_MODEL = "<synthetic>"
"""Model name of messages by the program itself."""
UNIQUE_ID = re.compile(r"(?:msg_|chatcmpl-|resp_|gen-)?[A-Za-z0-9_-]{20,}")
"""Ids as the API generates them, unique everywhere. Gateways make shorter ones, which may repeat."""


class MessageReader(Reader):
    """Base class of the readers of streams and of session logs."""

    agent = "claude-code"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._last_request: tuple[str, str, Json] = ("", "", {})
        """The newest request: most lines repeat that of the line before."""
        self._last_text_id = ""
        """Id of the last message with text."""

    def _request_id(self, message_id: str, line: Json) -> str:
        """Return the id of a request, equal in the stream and in every session log that has the message, including
        copies in branched sessions."""
        if not message_id:
            return f"{self._session}:{string(line.get('uuid'))}"
        if UNIQUE_ID.fullmatch(message_id):
            return message_id
        return f"{string(line.get('requestId')) or string(line.get('request_id')) or self._session}:{message_id}"

    def _request_records(
        self, message: Json, token_counts: Json, line: Json, subagent: str
    ) -> Iterator[Note | ModelRequest]:
        """Yield the request of a message, unless the line before reported the same."""
        message_id = string(message.get("id"))
        request = (message_id, subagent, token_counts)
        if request == self._last_request and "costUSD" not in line:
            return
        self._last_request = request
        self._requests += 1
        if not has_cache_lifetimes(token_counts):
            yield Note(code="cache-lifetime")
        if "thinking_tokens" in mapping(token_counts.get("output_tokens_details")):
            yield Note(code=REPORTS_REASONING)
        yield ModelRequest(
            id=self._request_id(message_id, line),
            usage=request_usage(string(message.get("model")), token_counts, subagent),
            at_us=time_us(line.get("timestamp")),
            # Copies in a resumed session have cost 0.
            reported_nanousd=nanousd(line["costUSD"]) or None if "costUSD" in line else None,
        )

    def _text_records(self, message: Json) -> Iterator[AssistantText]:
        """Yield the text of a message. Messages by the program itself, such as API errors, continue none."""
        text_id = "" if message.get("model") == SYNTHETIC_MODEL else string(message.get("id"))
        yield from assistant_texts(message.get("content"), continues=bool(text_id) and text_id == self._last_text_id)
        self._last_text_id = text_id


def tool_uses(content: object) -> Iterator[ToolUse]:
    """Yield the tool calls of a message."""
    for block in objects(content):
        if block.get("type") in ("tool_use", "server_tool_use"):
            yield ToolUse.named(block.get("name"), block.get("id"))


def assistant_texts(content: object, *, continues: bool) -> Iterator[AssistantText]:
    """Yield the text of a message. A line holds one block of a message, so several lines may form one text."""
    texts = [string(block.get("text")) for block in objects(content) if block.get("type") == "text"]
    text = content if isinstance(content, str) else "\n".join(text for text in texts if text)
    if text:
        yield AssistantText(text=f"\n{text}" if continues else text, continues=continues)


def has_tool_result(content: object) -> bool:
    return any(block.get("type") == "tool_result" for block in objects(content))
