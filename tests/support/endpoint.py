"""Adapter: a model endpoint on loopback, which speaks enough of the Messages API for the real `claude` CLI.

A *script* (any callable from `Request` to `Answer`) plays the model. It sees what the CLI really sent and raises
`Unexpected` for a request that it cannot place: the endpoint then answers 400 and remembers why, so that a test can
assert `endpoint.complaints == []`.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

BYTES_PER_TOKEN = 4
"""Token counts are derived from the bytes that really went over the wire, at the usual rule of thumb."""


class Unexpected(Exception):
    """The script has no answer to this request; says what it missed."""


@dataclass(frozen=True)
class ToolResult:
    text: str
    failed: bool


@dataclass(frozen=True)
class Request:
    """One call of the Messages API, as the CLI made it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    size: int
    """Bytes of the body."""

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def system(self) -> str:
        return "\n".join(_texts(self.body.get("system", "")))

    @property
    def session(self) -> str:
        """What tells one call of the CLI from the next."""
        return str(self.body.get("metadata", {}).get("user_id", ""))

    @property
    def tools(self) -> frozenset[str]:
        return frozenset(str(tool.get("name")) for tool in self.body.get("tools", ()))

    @property
    def cwd(self) -> str:
        """The working directory that the CLI names in its system prompt."""
        found = re.search(r"[Ww]orking directory: (\S+)", self.system + "\n" + "\n".join(self.user_texts()))
        if found is None:
            raise Unexpected("the request names no working directory")
        return found.group(1)

    def user_texts(self) -> list[str]:
        """All text blocks of all user messages, the CLI's own reminders included, in order."""
        messages = [m for m in self.body.get("messages", ()) if m.get("role") == "user"]
        return [text for message in messages for text in _texts(message.get("content", ""))]

    @property
    def prompt(self) -> str:
        """The newest text that is not one of the CLI's reminders: what was on its stdin."""
        said = [text for text in self.user_texts() if not text.lstrip().startswith("<system-reminder>")]
        if not said:
            raise Unexpected("the request holds no prompt")
        return said[-1]

    def results(self) -> list[ToolResult]:
        """What the tools answered since the newest prompt, in order."""
        found: list[ToolResult] = []
        for message in self.body.get("messages", ()):
            content = message.get("content", "")
            if message.get("role") != "user":
                continue
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            for block in blocks:
                if block.get("type") == "tool_result":
                    text = "\n".join(_texts(block.get("content", "")))
                    found.append(ToolResult(text, bool(block.get("is_error"))))
                elif not str(block.get("text", "")).lstrip().startswith("<system-reminder>"):
                    found = []
        return found


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(block["text"]) for block in content if block.get("type") == "text"]


@dataclass(frozen=True)
class Use:
    """A tool call that the model asks for."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the model says, and the tools that it asks for; without tools its turn ends."""

    text: str = ""
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """An API error."""

    status: int
    kind: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """A stream that begins like `reply` and breaks off in the middle."""

    reply: Reply


@dataclass(frozen=True)
class Hang:
    """No answer until the endpoint closes."""


@dataclass(frozen=True)
class Garbage:
    """Bytes that are no answer at all, with status 200."""

    data: bytes


Answer = Reply | Refusal | Cut | Hang | Garbage
Script = Callable[[Request], Answer]


class Endpoint:
    """Serves a script on 127.0.0.1 while it is open; `requests` and `complaints` fill as it goes. `apart`: each working
    directory has a prompt cache for itself, and what the CLI tells of the machine is not counted, so that features at
    the same time, in any place, get the same counts every time."""

    def __init__(self, script: Script, apart: bool = False) -> None:
        self._script, self._apart = script, apart
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._cached: dict[str, str] = {}
        self._count = 0
        self.requests: list[Request] = []
        self.complaints: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
        try:
            return self._script(request)
        except Unexpected as complaint:
            with self._lock:
                self.complaints.append(str(complaint))
            return Refusal(400, "invalid_request_error", f"scripted endpoint: {complaint}")

    def next_number(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def usage(self, request: Request) -> dict[str, Any]:
        """What a prompt cache with breakpoints at the end of each message would count: the longest prefix shared
        with an earlier request of the same model is read, the rest but the newest words is written."""
        whole = json.dumps([request.body.get("tools"), request.body.get("system"), request.body.get("messages")])
        cache = request.model
        if self._apart:
            whole = self.counted(request, json.dumps([request.body.get("tools"), request.body.get("messages")]))
            cache = f"{request.model} {request.cwd}"
        with self._lock:
            earlier = self._cached.get(cache, "")
            self._cached[cache] = whole
        shared = _common_prefix(earlier, whole) // BYTES_PER_TOKEN
        read = shared if shared >= 1024 else 0
        total = len(whole) // BYTES_PER_TOKEN
        fresh = min(total - read, 12)
        written = total - read - fresh
        return {
            "input_tokens": fresh,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 1,
            "service_tier": "standard",
        }

    def counted(self, request: Request, text: str) -> str:
        """The part of the text that counts."""
        return text.replace(request.cwd, "") if self._apart else text

    def wait_for_close(self) -> None:
        self._closing.wait()


def _common_prefix(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _events(endpoint: Endpoint, request: Request, reply: Reply) -> Iterator[bytes]:
    """The server-sent events of one reply."""
    number = endpoint.next_number()
    usage = endpoint.usage(request)
    start: dict[str, Any] = {
        "id": f"msg_{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield _event("message_start", message=start)
    spoken = len(reply.text)
    index = 0
    if reply.text:
        yield from _block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": reply.text})
        index = 1
    for use in reply.uses:
        arguments = json.dumps(use.arguments)
        spoken += len(endpoint.counted(request, arguments))
        block = {"type": "tool_use", "id": f"toolu_{number:04d}_{index}", "name": use.tool, "input": {}}
        yield from _block(index, block, {"type": "input_json_delta", "partial_json": arguments})
        index += 1
    stop = "tool_use" if reply.uses else "end_turn"
    final = {**usage, "output_tokens": max(1, spoken // BYTES_PER_TOKEN)}
    yield _event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=final)
    yield _event("message_stop")


def _block(index: int, block: dict[str, Any], delta: dict[str, Any]) -> Iterator[bytes]:
    yield _event("content_block_start", index=index, content_block=block)
    yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet: the requests are kept, not logged."""

        def do_HEAD(self) -> None:
            self._send(404, b"", {})

        do_GET = do_HEAD  # noqa: N815

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = Request(self.path, dict(self.headers), json.loads(raw or b"{}"), len(raw))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._carry_out(request, endpoint.answer(request))

        def _carry_out(self, request: Request, answer: Answer) -> None:
            match answer:
                case Reply():
                    self._send(200, b"".join(_events(endpoint, request, answer)), {"content-type": "text/event-stream"})
                case Refusal(status, kind, message, headers):
                    error = {"type": "error", "error": {"type": kind, "message": message}}
                    self._send(status, json.dumps(error).encode(), {"content-type": "application/json", **headers})
                case Garbage(data):
                    self._send(200, data, {"content-type": "text/event-stream"})
                case Cut(reply):
                    whole = b"".join(_events(endpoint, request, reply))
                    self._head(200, {"content-type": "text/event-stream", "content-length": str(len(whole))})
                    self.wfile.write(whole[: len(whole) // 2])
                    self.wfile.flush()
                    time.sleep(0.1)
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                case Hang():
                    endpoint.wait_for_close()
                    self.close_connection = True

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self._head(status, {**headers, "content-length": str(len(data))})
            self.wfile.write(data)

    return Handler
