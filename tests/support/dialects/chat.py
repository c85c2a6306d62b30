"""The Chat Completions API, as aider speaks it (qwen and opencode too, where they are told to).

aider offers no tools: a model edits files by blocks in its words. So the uses of a reply are written as such blocks,
and what aider cannot do for a model (running commands) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.endpoint import Counts, Refusal, Reply, Request, ToolResult, Unexpected, Use, server_event, texts

OWN = ("I have *added these files", "I added these files", "I have not", "The user is", "Here are ", "I am not sharing")
"""How texts begin that aider itself puts into the user's messages."""
SNAPSHOT = "2026-01-15"
"""Date of the models that answer."""
NOWHERE = "/a-place-that-is-not-named"
REMINDER = "\n\n# *SEARCH/REPLACE block* Rules:"
"""What aider puts behind the newest words for some models."""
READ, WRITE, EDIT, RUN = "read", "write", "edit", "run"


@dataclass(frozen=True)
class ChatRequest(Request):
    """A request of aider."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", ()))

    @property
    def session(self) -> str:
        return ""

    @property
    def tools(self) -> frozenset[str]:
        return frozenset((READ, WRITE, EDIT, RUN))

    @property
    def cwd(self) -> str:
        """aider names none."""
        return NOWHERE

    def user_texts(self) -> list[str]:
        return [
            text for message in self.messages if message.get("role") == "user"
            for text in texts(message.get("content", ""))
        ]  # fmt: skip

    @property
    def prompt(self) -> str:
        strings = [text for text in self.user_texts() if not text.startswith(OWN)]
        if not strings:
            raise Unexpected("the request holds no prompt")
        return strings[-1].partition(REMINDER)[0]

    def results(self) -> list[ToolResult]:
        return []

    def counted(self) -> str:
        """Without the words of the program's own, which tell of the machine and the day."""
        return json.dumps([message for message in self.messages if message.get("role") != "system"])

    def read(self, path: str) -> Use:
        return Use(READ, {"path": path})

    def write(self, path: str, text: str) -> Use:
        return Use(WRITE, {"path": path, "old": "", "new": text})

    def edit(self, path: str, old: str, new: str) -> Use:
        """Whole lines only."""
        return Use(EDIT, {"path": path, "old": old, "new": new})

    def run(self, command: str) -> Use:
        return Use(RUN, {"command": command})


class Chat:
    """Implements `tests.support.endpoint.Dialect`."""

    def takes(self, path: str) -> bool:
        return path.partition("?")[0].endswith("/chat/completions")

    def request(self, path: str, headers: dict[str, str], body: dict[str, Any], size: int) -> Request:
        return ChatRequest(path, headers, body, size)

    def reply(self, request: Request, reply: Reply, counts: Counts, number: int) -> tuple[str, Iterable[bytes]]:
        value = "\n\n".join(part for part in (reply.text, *map(block, reply.uses)) if part)
        usage = {
            "prompt_tokens": counts.input,
            "completion_tokens": counts.output + reply.thoughts,
            "total_tokens": counts.input + counts.output + reply.thoughts,
            "prompt_tokens_details": {"cached_tokens": counts.read},
            "completion_tokens_details": {"reasoning_tokens": reply.thoughts},
        }
        head = {"id": f"chatcmpl-{number:04d}", "created": 1780000000, "model": request.snapshot(SNAPSHOT)}
        if request.body.get("stream"):
            return "text/event-stream", _events(head, value, usage)
        message = {"role": "assistant", "content": value}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        document = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", (json.dumps(document).encode(),)

    def refusal(self, refusal: Refusal) -> bytes:
        error = {"type": refusal.kind, "code": refusal.kind, "message": refusal.message, "param": None}
        return json.dumps({"error": error}).encode()

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        return None


def block(use: Use) -> str:
    """An edit as aider's `diff` format has it; empty for what it has no words for."""
    if use.tool not in (WRITE, EDIT):
        return ""
    path, old, new = (use.arguments[name] for name in ("path", "old", "new"))
    return f"{path}\n````\n<<<<<<< SEARCH\n{_lines(old)}=======\n{_lines(new)}>>>>>>> REPLACE\n````"


def _lines(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _events(head: dict[str, Any], output: str, usage: dict[str, Any]) -> Iterator[bytes]:
    chunk = {**head, "object": "chat.completion.chunk"}
    first = {"index": 0, "delta": {"role": "assistant", "content": output}, "finish_reason": None}
    yield server_event({**chunk, "choices": [first]})
    yield server_event({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield server_event({**chunk, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"
