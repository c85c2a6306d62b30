"""The Gemini API (`generateContent`), as Gemini CLI speaks it."""

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
)

ASKS = re.compile(r"/models/([^/:?]+):(streamGenerateContent|generateContent)\b")
COUNTS = re.compile(r"/models/[^/:?]+:countTokens\b")
CONTEXT = "<session_context>"
"""How the CLI begins what it tells of the machine, in front of the first prompt."""
WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\n  - (\S+)")
PROCESS = re.compile(r"\nProcess Group PGID: \d+")
PIECE_CHARACTERS = 40
"""Of text in one event of a stream."""
STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
STATUSES |= {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"}


@dataclass(frozen=True)
class GeminiRequest(Request):
    """A request of Gemini CLI. The model stands in its path."""

    @property
    def model(self) -> str:
        match = ASKS.search(self.path)
        return match[1] if match else ""

    @property
    def session(self) -> str:
        """Nothing names it, so the beginning of the conversation stands for it."""
        return json.dumps(self.body.get("contents", [])[:1])

    @property
    def tools(self) -> frozenset[str]:
        declared = (item for tool in self.body.get("tools", ()) for item in tool.get("functionDeclarations", ()))
        return frozenset(str(entry.get("name")) for entry in declared)

    @property
    def cwd(self) -> str:
        match = WORKSPACE.search("\n".join(self.user_texts()))
        if match is None:
            raise Unexpected("the request names no workspace directory")
        return match[1]

    def user_texts(self) -> list[str]:
        return [str(part["text"]) for part in self._parts("user") if "text" in part]

    @property
    def prompt(self) -> str:
        """The newest text that is not the CLI's own; an at sign stands in it as it did before it was escaped."""
        texts = [text for text in self.user_texts() if not text.startswith(CONTEXT)]
        if not texts:
            raise Unexpected("the request holds no prompt")
        return texts[-1].replace("\\@", "@")

    def results(self) -> list[ToolResult]:
        tool_results: list[ToolResult] = []
        for part in self._parts("user"):
            if "functionResponse" in part:
                answer = part["functionResponse"].get("response", {})
                text = str(answer.get("output", answer.get("error", "")))
                tool_results.append(ToolResult(text, "error" in answer))
            elif not str(part.get("text", "")).startswith(CONTEXT):
                tool_results = []
        return tool_results

    def counted(self) -> str:
        """Without the system instruction, the session's context and what differs from process to process."""
        documents = [
            {name: _counted(value) for name, value in part.items()}
            for content in self.body.get("contents", ())
            for part in content.get("parts", ())
            if not str(part.get("text", "")).startswith(CONTEXT)
        ]
        return json.dumps([self.body.get("tools"), documents])

    def read(self, path: str) -> Use:
        return Use("read_file", {"file_path": f"{self.cwd}/{path}"})

    def write(self, path: str, text: str) -> Use:
        return Use("write_file", {"file_path": f"{self.cwd}/{path}", "content": text})

    def edit(self, path: str, old: str, new: str) -> Use:
        change = {"instruction": "Make the change.", "old_string": old, "new_string": new}
        return Use("replace", {"file_path": f"{self.cwd}/{path}", **change})

    def run(self, command: str) -> Use:
        return Use("run_shell_command", {"command": command, "description": "Run the tests"})

    def _parts(self, role: str) -> Iterator[dict[str, Any]]:
        for content in self.body.get("contents", ()):
            if content.get("role") == role:
                yield from content.get("parts", ())


def _counted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _counted(inner) for name, inner in value.items() if name != "id"}
    return PROCESS.sub("", value) if isinstance(value, str) else value


class Gemini:
    """Implements `tests.support.endpoint.Dialect`."""

    def takes(self, path: str) -> bool:
        return ASKS.search(path) is not None

    def request(self, path: str, headers: dict[str, str], body: dict[str, Any], size: int) -> Request:
        return GeminiRequest(path, headers, body, size)

    def reply(self, request: Request, reply: Reply, counts: Counts, number: int) -> tuple[str, Iterable[bytes]]:
        chunks = list(_chunks(request, reply, counts, number))
        if ":streamGenerateContent" in request.path:
            return "text/event-stream", (server_event(chunk) for chunk in chunks)
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        chunks[-1]["candidates"][0]["content"]["parts"] = parts
        return "application/json", (json.dumps(chunks[-1]).encode(),)

    def refusal(self, refusal: Refusal) -> bytes:
        status = STATUSES.get(refusal.status, refusal.kind.upper())
        return json.dumps({"error": {"code": refusal.status, "message": refusal.message, "status": status}}).encode()

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        if not COUNTS.search(path):
            return None
        return {"totalTokens": len(json.dumps(body.get("contents"))) // BYTES_PER_TOKEN}


def _chunks(request: Request, reply: Reply, counts: Counts, number: int) -> Iterator[dict[str, Any]]:
    """The text piece by piece; the tool calls, the end and the counts in the last chunk."""
    pieces = [reply.text[at : at + PIECE_CHARACTERS] for at in range(0, len(reply.text), PIECE_CHARACTERS)]
    for piece in pieces[:-1]:
        yield _chunk(request, number, [{"text": piece}])
    last: list[dict[str, Any]] = [{"text": piece} for piece in pieces[-1:]]
    last += [{"functionCall": {"name": use.tool, "args": use.arguments}} for use in reply.uses]
    chunk = _chunk(request, number, last)
    chunk["candidates"][0]["finishReason"] = "STOP"
    yield {**chunk, "usageMetadata": _usage(reply, counts)}


def _usage(reply: Reply, counts: Counts) -> dict[str, int]:
    summary = {
        "promptTokenCount": counts.input,
        "cachedContentTokenCount": counts.read,
        "candidatesTokenCount": counts.output,
        "thoughtsTokenCount": reply.thoughts,
        "totalTokenCount": counts.input + counts.output + reply.thoughts,
    }
    return {name: number for name, number in summary.items() if number}


def _chunk(request: Request, number: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}}
    return {"candidates": [candidate], "modelVersion": request.model, "responseId": f"resp-{number:04d}"}
