"""A model endpoint on loopback, for the real agents: each dialect of a model API is a module of `dialects/`.

A *script* (any callable from `Request` to `Answer`) plays the model. It sees what the agent really sent and raises
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol

BYTES_PER_TOKEN = 4
"""Token counts are derived from the bytes that really went over the wire, at the usual rule of thumb."""
CACHED_TOKENS_MIN = 1024
DATED = re.compile(r"\d{8}|\d{4}-\d\d-\d\d")


class Unexpected(Exception):
    """The script has no answer to this request; says what it missed."""


@dataclass(frozen=True)
class ToolResult:
    text: str
    failed: bool


@dataclass(frozen=True)
class Use:
    """A tool call that the model asks for."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One request of a model's API, as the agent made it. What its parts mean is the dialect's business."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    size: int
    """Bytes of the body."""
    dated: bool = True
    """The answer names the model with a date, as those of providers do."""

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    def snapshot(self, date: str) -> str:
        """The name that the model answers with, with a date where the name that was asked for has none."""
        is_exact = not self.dated or DATED.search(self.model)
        return self.model if is_exact else f"{self.model.removesuffix('-latest')}-{date}"

    @property
    def session(self) -> str:
        """What tells one call of the agent from the next."""
        raise NotImplementedError

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools that the agent offers."""
        raise NotImplementedError

    @property
    def cwd(self) -> str:
        """The working directory that the agent names. Raises Unexpected where it names none."""
        raise NotImplementedError

    def user_texts(self) -> list[str]:
        """All texts of all the user's messages, the agent's own reminders included, in order."""
        raise NotImplementedError

    @property
    def prompt(self) -> str:
        """The newest words of the user's: what was on the agent's stdin. Raises Unexpected."""
        raise NotImplementedError

    def results(self) -> list[ToolResult]:
        """What the tools answered since the newest prompt, in order."""
        raise NotImplementedError

    def counted(self) -> str:
        """What the model reads, as one text, for counting tokens; without what belongs to the machine alone."""
        raise NotImplementedError

    # what a model would ask this agent for
    def read(self, path: str) -> Use:
        """Use of the agent's tool that reads a file; paths are relative to the working directory."""
        raise NotImplementedError

    def write(self, path: str, text: str) -> Use:
        raise NotImplementedError

    def edit(self, path: str, old: str, new: str) -> Use:
        raise NotImplementedError

    def run(self, command: str) -> Use:
        raise NotImplementedError


@dataclass(frozen=True)
class Counts:
    """Tokens of a request: what a prompt cache had, what went into it, and the rest; and of the reply."""

    fresh: int
    written: int
    read: int
    output: int

    @property
    def input(self) -> int:
        return self.fresh + self.written + self.read


@dataclass(frozen=True)
class Reply:
    """What the model says, and the tools that it asks for; without tools its turn ends."""

    text: str = ""
    uses: tuple[Use, ...] = ()
    thoughts: int = 0
    """Tokens that it thought before, in dialects that count them apart."""
    hour: bool = False
    """What its request put into the prompt cache stays there for an hour, not for five minutes."""


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


class Dialect(Protocol):
    """A model API: how its requests are read, and how answers are written in it."""

    def takes(self, path: str) -> bool:
        """Whether a POST to this path is a request of this API for an answer of the model."""

    def request(self, path: str, headers: dict[str, str], body: dict[str, Any], size: int) -> Request: ...

    def reply(self, request: Request, reply: Reply, counts: Counts, number: int) -> tuple[str, Iterable[bytes]]:
        """Content type and body; `number` counts the replies of an endpoint, for ids."""

    def refusal(self, refusal: Refusal) -> bytes:
        """The body of an error, as JSON."""

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        """The answer, as JSON, to a request that no model needs to answer (a list of models, a count of tokens);
        None: there is nothing at this path."""


def dialects() -> tuple[Dialect, ...]:
    from tests.support.dialects.chat import Chat
    from tests.support.dialects.gemini import Gemini
    from tests.support.dialects.messages import Messages
    from tests.support.dialects.responses import Responses

    return (Messages(), Responses(), Gemini(), Chat())


class Endpoint:
    """Serves a script on 127.0.0.1 while it is open; `requests` and `complaints` fill as it goes. `apart`: each working
    directory has a prompt cache for itself, and what the agent tells of the machine is not counted, so that features at
    the same time, in any place, get the same counts every time. `speaks`: other dialects than the usual ones. `dated`:
    see `Request`."""

    def __init__(
        self, script: Script, apart: bool = False, speaks: tuple[Dialect, ...] = (), dated: bool = True
    ) -> None:
        self._script, self._apart, self.dated = script, apart, dated
        self._dialects = speaks or dialects()
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

    def dialect(self, path: str) -> Dialect | None:
        """The one that takes a request to this path."""
        return next((dialect for dialect in self._dialects if dialect.takes(path)), None)

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        """What any dialect answers by itself at this path."""
        answers = (dialect.other(path, body) for dialect in self._dialects)
        return next((answer for answer in answers if answer is not None), None)

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

    def counts(self, request: Request, reply: Reply) -> Counts:
        """What a prompt cache with breakpoints at the end of each message would count: the longest prefix shared
        with an earlier request of the same model is read, the rest but the newest words is written."""
        value, cache = request.counted(), request.model
        if self._apart:
            value, cache = value.replace(request.cwd, ""), f"{request.model} {request.cwd}"
        with self._lock:
            earlier = self._cached.get(cache, "")
            self._cached[cache] = value
        shared = _common_prefix(earlier, value) // BYTES_PER_TOKEN
        read = shared if shared >= CACHED_TOKENS_MIN else 0
        total = len(value) // BYTES_PER_TOKEN
        fresh = min(total - read, 12)
        spoken = len(reply.text) + sum(len(self._spoken(request, use)) for use in reply.uses)
        return Counts(fresh, total - read - fresh, read, max(1, spoken // BYTES_PER_TOKEN))

    def _spoken(self, request: Request, use: Use) -> str:
        arguments = json.dumps(use.arguments)
        return arguments.replace(request.cwd, "") if self._apart else arguments

    def wait_for_close(self) -> None:
        self._closing.wait()


def _common_prefix(text: str, other: str) -> int:
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] == other[:middle] else (low, middle - 1)
    return low


def server_event(data: dict[str, Any], event: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def texts(content: Any) -> Iterator[str]:
    """The texts of a message's content, which is a text or a list of blocks."""
    if isinstance(content, str):
        yield content
        return
    for block in content or ():
        if isinstance(block.get("text"), str):
            yield block["text"]


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet: the requests are kept, not logged."""

        def do_HEAD(self) -> None:
            self._send(404, b"", {})

        def do_GET(self) -> None:
            self._other({})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            body = json.loads(raw or b"{}")
            dialect = endpoint.dialect(self.path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                if dialect is None:
                    self._other(body)
                    return
                request = replace(dialect.request(self.path, dict(self.headers), body, len(raw)), dated=endpoint.dated)
                self._carry_out(dialect, request, endpoint.answer(request))

        def _other(self, body: dict[str, Any]) -> None:
            answer = endpoint.other(self.path, body)
            if answer is None:
                self._send(404, b"", {})
            else:
                self._send(200, json.dumps(answer).encode(), {"content-type": "application/json"})

        def _carry_out(self, dialect: Dialect, request: Request, answer: Answer) -> None:
            match answer:
                case Reply():
                    kind, body = self._written(dialect, request, answer)
                    self._send(200, body, {"content-type": kind})
                case Refusal(status, _, _, headers):
                    self._send(status, dialect.refusal(answer), {"content-type": "application/json", **headers})
                case Garbage(data):
                    self._send(200, data, {"content-type": "text/event-stream"})
                case Cut(reply):
                    kind, body = self._written(dialect, request, reply)
                    self._head(200, {"content-type": kind, "content-length": str(len(body))})
                    self.wfile.write(body[: len(body) // 2])
                    self.wfile.flush()
                    time.sleep(0.1)
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                case Hang():
                    endpoint.wait_for_close()
                    self.close_connection = True

        def _written(self, dialect: Dialect, request: Request, reply: Reply) -> tuple[str, bytes]:
            kind, parts = dialect.reply(request, reply, endpoint.counts(request, reply), endpoint.next_number())
            return kind, b"".join(parts)

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self._head(status, {**headers, "content-length": str(len(data))})
            self.wfile.write(data)

    return Handler
