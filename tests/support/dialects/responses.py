"""The Responses API, as Codex speaks it.

Which tools Codex offers depends on the model: older ones are given a shell and `apply_patch`, newer ones a tool `exec`
that runs a script, from which those two are called. A model here asks for what it was offered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.endpoint import Counts, Refusal, Reply, Request, ToolResult, Unexpected, Use, server_event, texts

REMINDER = re.compile(r"\s*(?:<[a-z_]+>|# AGENTS\.md instructions)")
"""How texts begin that Codex itself puts into the user's messages."""
SNAPSHOT = "2026-01-15"
"""Date of the models that answer."""
CWD = re.compile(r"<cwd>([^<]+)</cwd>")
FAILED = re.compile(
    r"\A(?:Script failed|apply_patch verification failed)|\bexited with code (?!0\b)-?\d+|\Aexec_command failed"
)
MEASURED = re.compile(r"Wall time:? [\d.]+|Chunk ID: \w+")
SCRIPT = "exec"
FREE_FORM = (SCRIPT, "apply_patch")
"""Tools whose input is a text of its own, not JSON."""


@dataclass(frozen=True)
class ResponsesRequest(Request):
    """A request of Codex."""

    @property
    def items(self) -> list[dict[str, Any]]:
        return list(self.body.get("input", ()))

    @property
    def session(self) -> str:
        return self.headers.get("thread-id", "") or str(self.body.get("prompt_cache_key", ""))

    @property
    def tools(self) -> frozenset[str]:
        return frozenset(_names(self._offered()))

    def namespace(self, tool: str) -> dict[str, str]:
        """What a call of the tool must say besides its name."""
        for space in self._offered():
            if space.get("type") == "namespace" and tool in _names(space["tools"]):
                return {"namespace": str(space["name"])}
        return {}

    def _offered(self) -> list[dict[str, Any]]:
        offered = [*self.body.get("tools", ())]
        for item in self.items:
            offered += item.get("tools", ()) if item.get("type") == "additional_tools" else ()
        return offered

    @property
    def cwd(self) -> str:
        result = CWD.findall("\n".join(self.user_texts()))
        if not result:
            raise Unexpected("the request names no working directory")
        return str(result[-1])

    def user_texts(self) -> list[str]:
        return [text for item in self.items if _is_user(item) for text in texts(item.get("content", ""))]

    @property
    def prompt(self) -> str:
        strings = [text for text in self.user_texts() if not REMINDER.match(text)]
        if not strings:
            raise Unexpected("the request holds no prompt")
        return strings[-1]

    def results(self) -> list[ToolResult]:
        tool_results: list[ToolResult] = []
        for item in self.items:
            if str(item.get("type")).endswith("_call_output"):
                text = "\n".join(texts(item.get("output", "")))
                tool_results.append(ToolResult(text, FAILED.search(text) is not None))
            elif _is_user(item) and any(not REMINDER.match(text) for text in texts(item.get("content", ""))):
                tool_results = []
        return tool_results

    def counted(self) -> str:
        """Without the words of the program's own, which tell of the machine, ids, and times that were measured."""
        summary = [self.body.get("tools")]
        for item in self.items:
            if item.get("type") == "additional_tools":
                summary.append(item["tools"])
            if item.get("role") == "developer" or any(CWD.search(text) for text in texts(item.get("content", ""))):
                continue
            output = item.get("content") or item.get("output") or item.get("arguments") or item.get("input")
            summary.append([str(item.get("type")), MEASURED.sub("", json.dumps(output))])
        return json.dumps(summary)

    def read(self, path: str) -> Use:
        return self.run(f"cat '{path}'")

    def write(self, path: str, text: str) -> Use:
        """The tool adds whole lines: what does not end with one cannot be written."""
        return self._patch(f"*** Add File: {path}\n{_lines('+', text)}")

    def edit(self, path: str, old: str, new: str) -> Use:
        """Whole lines only."""
        return self._patch(f"*** Update File: {path}\n@@\n{_lines('-', old)}{_lines('+', new)}")

    def run(self, command: str) -> Use:
        if "exec_command" in self.tools:
            return Use("exec_command", {"cmd": command, "yield_time_ms": 30000})
        if SCRIPT not in self.tools:
            # Versions of 2025.
            return Use("shell", {"command": ["bash", "-lc", command]})
        called = json.dumps({"cmd": command, "yield_time_ms": 30000})
        script = f"const r = await tools.exec_command({called});\n"
        return Use(SCRIPT, {"input": script + 'text(r.output + "\\nProcess exited with code " + r.exit_code);\n'})

    def _patch(self, text: str) -> Use:
        patch = f"*** Begin Patch\n{text}*** End Patch\n"
        if "apply_patch" in self.tools:
            return Use("apply_patch", {"input": patch})
        if SCRIPT not in self.tools:
            return self.run(f"apply_patch <<'END'\n{patch}END")
        return Use(SCRIPT, {"input": f"text(await tools.apply_patch({json.dumps(patch)}));\n"})


class Responses:
    """Implements `tests.support.endpoint.Dialect`."""

    def takes(self, path: str) -> bool:
        return path.partition("?")[0].endswith("/responses")

    def request(self, path: str, headers: dict[str, str], body: dict[str, Any], size: int) -> Request:
        return ResponsesRequest(path, headers, body, size)

    def reply(self, request: Request, reply: Reply, counts: Counts, number: int) -> tuple[str, Iterable[bytes]]:
        return "text/event-stream", _events(request, reply, counts, number)

    def refusal(self, refusal: Refusal) -> bytes:
        error = {"type": refusal.kind, "code": refusal.kind, "message": refusal.message, "param": None}
        return json.dumps({"error": error}).encode()

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        return None


def _names(offered: Iterable[dict[str, Any]]) -> Iterator[str]:
    for tool in offered:
        if tool.get("type") == "namespace":
            yield from _names(tool.get("tools", ()))
        else:
            yield str(tool.get("name", tool.get("type")))


def _is_user(item: dict[str, Any]) -> bool:
    return item.get("type") == "message" and item.get("role") == "user"


def _lines(mark: str, text: str) -> str:
    if text and not text.endswith("\n"):
        raise Unexpected(f"apply_patch takes whole lines, not {text[-80:]!r}")
    return "".join(f"{mark}{line}" for line in text.splitlines(keepends=True))


def _events(request: Request, reply: Reply, counts: Counts, number: int) -> Iterator[bytes]:
    """The server-sent events of one reply."""
    model = request.snapshot(SNAPSHOT)
    response: dict[str, Any] = {"id": f"resp_{number:04d}", "object": "response", "model": model, "output": []}
    yield _event("response.created", response={**response, "status": "in_progress"})
    items = [*_items(request, reply, number)]
    for index, item in enumerate(items):
        yield _event("response.output_item.added", output_index=index, item={**item, **_unfilled(item)})
        yield from _deltas(index, item)
        yield _event("response.output_item.done", output_index=index, item=item)
    usage = {
        "input_tokens": counts.input,
        "input_tokens_details": {"cached_tokens": counts.read, "cache_write_tokens": counts.written},
        "output_tokens": counts.output + reply.thoughts,
        "output_tokens_details": {"reasoning_tokens": reply.thoughts},
        "total_tokens": counts.input + counts.output + reply.thoughts,
    }
    done = {**response, "status": "completed", "output": items, "usage": usage, "service_tier": "default"}
    yield _event("response.completed", response=done)


def _items(request: Request, reply: Reply, number: int) -> Iterator[dict[str, Any]]:
    if reply.thoughts:
        yield {"type": "reasoning", "id": f"rs_{number:04d}", "summary": [], "encrypted_content": "none"}
    if reply.text:
        sequences = {"type": "output_text", "text": reply.text, "annotations": []}
        phase = {"phase": "commentary" if reply.uses else "final_answer"}
        yield {
            "type": "message", "id": f"msg_{number:04d}", "role": "assistant", "status": "completed",
            "content": [sequences], **phase,
        }  # fmt: skip
    for index, use in enumerate(reply.uses):
        ids = {"id": f"ctc_{number:04d}_{index}", "call_id": f"call_{number:04d}_{index}", "status": "completed"}
        if use.tool in FREE_FORM:
            yield {"type": "custom_tool_call", **ids, "name": use.tool, "input": use.arguments["input"]}
        else:
            space = request.namespace(use.tool) if isinstance(request, ResponsesRequest) else {}
            yield {"type": "function_call", **ids, **space, "name": use.tool, "arguments": json.dumps(use.arguments)}


def _unfilled(item: dict[str, Any]) -> dict[str, Any]:
    """What an item lacks when it begins."""
    empty: dict[str, Any] = {"content": [], "arguments": "", "input": ""}
    return {"status": "in_progress"} | {name: value for name, value in empty.items() if name in item}


def _deltas(index: int, item: dict[str, Any]) -> Iterator[bytes]:
    where = {"output_index": index, "item_id": item["id"]}
    match item["type"]:
        case "message":
            yield _event("response.output_text.delta", **where, content_index=0, delta=item["content"][0]["text"])
        case "function_call":
            yield _event("response.function_call_arguments.delta", **where, delta=item["arguments"])
        case "custom_tool_call":
            yield _event("response.custom_tool_call_input.delta", **where, delta=item["input"])


def _event(kind: str, **fields: Any) -> bytes:
    return server_event({"type": kind, **fields}, kind)
