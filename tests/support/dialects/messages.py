"""The Messages API, as Claude Code and the `anthropic` package speak it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.endpoint import (
    BYTES_PER_TOKEN,
    Counts,
    Refusal,
    Reply,
    Request,
    ToolResult,
    Unexpected,
    Use,
    server_event,
    texts,
)

SNAPSHOT = "20250929"
"""Date of the models that answer."""
REMINDER = "<system-reminder>"


@dataclass(frozen=True)
class MessagesRequest(Request):
    """A request of Claude Code."""

    @property
    def system(self) -> str:
        return "\n".join(texts(self.body.get("system", "")))

    @property
    def session(self) -> str:
        return str(self.body.get("metadata", {}).get("user_id", ""))

    @property
    def tools(self) -> frozenset[str]:
        return frozenset(str(tool.get("name")) for tool in self.body.get("tools", ()))

    @property
    def cwd(self) -> str:
        match = re.search(r"[Ww]orking directory: (\S+)", self.system + "\n" + "\n".join(self.user_texts()))
        if match is None:
            raise Unexpected("the request names no working directory")
        return match.group(1)

    def user_texts(self) -> list[str]:
        """All text blocks of all user messages, the CLI's own reminders included, in order."""
        messages = [m for m in self.body.get("messages", ()) if m.get("role") == "user"]
        return [text for message in messages for text in texts(message.get("content", ""))]

    @property
    def prompt(self) -> str:
        """The newest text that is not one of the CLI's reminders."""
        strings = [text for text in self.user_texts() if not text.lstrip().startswith(REMINDER)]
        if not strings:
            raise Unexpected("the request holds no prompt")
        return strings[-1]

    def results(self) -> list[ToolResult]:
        tool_results: list[ToolResult] = []
        for message in self.body.get("messages", ()):
            content = message.get("content", "")
            if message.get("role") != "user":
                continue
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            for block in blocks:
                if block.get("type") == "tool_result":
                    text = "\n".join(texts(block.get("content", "")))
                    tool_results.append(ToolResult(text, bool(block.get("is_error"))))
                elif not str(block.get("text", "")).lstrip().startswith(REMINDER):
                    tool_results = []
        return tool_results

    def counted(self) -> str:
        """Without the system prompt, which tells of the machine."""
        return json.dumps([self.body.get("tools"), self.body.get("messages")])

    def read(self, path: str) -> Use:
        return Use("Read", {"file_path": f"{self.cwd}/{path}"})

    def write(self, path: str, text: str) -> Use:
        return Use("Write", {"file_path": f"{self.cwd}/{path}", "content": text})

    def edit(self, path: str, old: str, new: str) -> Use:
        return Use("Edit", {"file_path": f"{self.cwd}/{path}", "old_string": old, "new_string": new})

    def run(self, command: str) -> Use:
        return Use("Bash", {"command": command, "description": "Run the tests"})


@dataclass(frozen=True)
class LoopRequest(MessagesRequest):
    """A request of `mz-anthropic`: other tools, whose paths are relative, and no session of its own in it."""

    @property
    def session(self) -> str:
        return f"{self.cwd} {self.user_texts()[0]}"

    def read(self, path: str) -> Use:
        return Use("read_file", {"path": path})

    def write(self, path: str, text: str) -> Use:
        return Use("write_file", {"path": path, "content": text})

    def edit(self, path: str, old: str, new: str) -> Use:
        return Use("edit_file", {"path": path, "old": old, "new": new})

    def run(self, command: str) -> Use:
        return Use("run_command", {"command": command})


class Messages:
    """Implements `tests.support.endpoint.Dialect`."""

    def takes(self, path: str) -> bool:
        return path.partition("?")[0].endswith("/v1/messages")

    def request(self, path: str, headers: dict[str, str], body: dict[str, Any], size: int) -> Request:
        agent = {name.lower(): value for name, value in headers.items()}.get("user-agent", "")
        kind = LoopRequest if agent.startswith("Anthropic/Python") else MessagesRequest
        return kind(path, headers, body, size)

    def reply(self, request: Request, reply: Reply, counts: Counts, number: int) -> tuple[str, Iterable[bytes]]:
        return "text/event-stream", _events(request, reply, counts, number)

    def refusal(self, refusal: Refusal) -> bytes:
        error = {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}
        return json.dumps(error).encode()

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        if not path.partition("?")[0].endswith("/v1/messages/count_tokens"):
            return None
        return {"input_tokens": len(json.dumps([body.get("tools"), body.get("messages")])) // BYTES_PER_TOKEN}


def _events(request: Request, reply: Reply, counts: Counts, number: int) -> Iterator[bytes]:
    """The server-sent events of one reply."""
    usage = {
        "input_tokens": counts.fresh,
        "cache_creation_input_tokens": counts.written,
        "cache_read_input_tokens": counts.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 0 if reply.hour else counts.written,
            "ephemeral_1h_input_tokens": counts.written if reply.hour else 0,
        },
        "output_tokens": 1,
        "service_tier": "standard",
    }
    start: dict[str, Any] = {
        "id": f"msg_{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": request.snapshot(SNAPSHOT),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield event("message_start", message=start)
    index = 0
    if reply.text:
        yield from block_events(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": reply.text})
        index = 1
    for use in reply.uses:
        block = {"type": "tool_use", "id": f"toolu_{number:04d}_{index}", "name": use.tool, "input": {}}
        yield from block_events(index, block, {"type": "input_json_delta", "partial_json": json.dumps(use.arguments)})
        index += 1
    stop = "tool_use" if reply.uses else "end_turn"
    final: dict[str, Any] = {**usage, "output_tokens": counts.output + reply.thoughts}
    if reply.thoughts:
        final["output_tokens_details"] = {"thinking_tokens": reply.thoughts}
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=final)
    yield event("message_stop")


def block_events(index: int, block: dict[str, Any], delta: dict[str, Any]) -> Iterator[bytes]:
    yield event("content_block_start", index=index, content_block=block)
    yield event("content_block_delta", index=index, delta=delta)
    yield event("content_block_stop", index=index)


def event(kind: str, **fields: Any) -> bytes:
    return server_event({"type": kind, **fields}, kind)
