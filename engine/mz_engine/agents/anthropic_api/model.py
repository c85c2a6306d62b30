"""Options, failures and output format of one call of the loop.

The loop writes JSON Lines to standard output, one object a line, `type` first:

    start        {version, model, session, resumed, tools}
    text         {text}                                   a complete text of the model
    request      {id, model, request_id, stop_reason, usage}    one completed request; `usage` as the API reports it
    retry        {attempt, wait_seconds, error}           a request that failed and is retried
    tool         {id, name, input}                        a tool call of the model, long texts shortened
    tool_result  {id, failed, characters, text}           its result, the text shortened
    progress     {seconds}                                work continues, and nothing was written for a while
    note         {text}                                   a note for people
    end          {status, text, requests, stop_reason, error}   the last line, whatever happened

`status` is success or error; `error` is null after a success, else {kind, message} and, if the API sent them, {status,
retry_after_seconds, request_id}. An interrupted request has a `stop_reason` of null; its usage until then is counted.
With `--count` the only lines are `start`, `count` {input_tokens} and `end`.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec

from mz_engine.model.pipeline import Tool

Block: TypeAlias = dict[str, Any]
"""A content block, a message or a tool, as the API takes it."""

OUTPUT_TOKENS_MAX = 32_000
"""Output limit that every current model supports."""
TURNS_MAX = 200
"""Requests of one call."""
TERMINATING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRESS_SECONDS = 10
TEXT_CHARS_MAX = 1000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one call."""

    model: str
    tools: tuple[Tool, ...]
    turns_max: int
    session: str
    resumes: bool
    count_only: bool = False
    """Only count the tokens of the first request."""


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to one request."""

    id: str
    model: str
    request_id: str | None
    stop_reason: str | None
    usage: Block
    content: list[Block]


class Failure(Exception):
    """A failure of the call; `kind` is the API's name for it, or mz's."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        status: int | None = None,
        wait_seconds: float | None = None,
        request_id: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.status, self.request_id = kind, message, status, request_id
        self.wait_seconds = wait_seconds
        """Wait that the API asks for; None if it asks for none."""
        self.retryable = retryable
        """True if repeating the request may help."""
        self.partial_reply: ModelReply | None = None
        """The part received of a reply that had begun."""

    def output_fields(self) -> Block:
        """Return the fields of the output's `error`."""
        more = {"status": self.status, "retry_after_seconds": self.wait_seconds, "request_id": self.request_id}
        return {"kind": self.kind, "message": self.message} | {
            name: value for name, value in more.items() if value is not None
        }


class Terminated(BaseException):
    """A signal asked the process to end. A BaseException, so that no library handles it."""


def api_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the client's keyword argument for the key or token. Raises Failure if there is neither."""
    key, token = environment.get("ANTHROPIC_API_KEY"), environment.get("ANTHROPIC_AUTH_TOKEN")
    if key:
        return {"api_key": key}
    if token:
        return {"auth_token": token}
    raise Failure("authentication_error", "no API key: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)")


class OutputWriter:
    """Writes the output events of a call."""

    def __init__(self, write: Callable[[bytes], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._last_written = self._started = clock()

    def write_event(self, kind: str, **fields: object) -> None:
        """Write one event as a line. Raises what `write` raises."""
        # File names and models may contain unpaired surrogates, which UTF-8 cannot encode.
        line = json.dumps({"type": kind, **fields}, ensure_ascii=False).encode("utf-8", "replace")
        with block_signals():
            self._write(line + b"\n")
        self._last_written = self._clock()

    def heartbeat(self) -> None:
        """Note activity; write a progress line if none was written for a while."""
        now = self._clock()
        if now - self._last_written >= PROGRESS_SECONDS:
            self.write_event("progress", seconds=round(now - self._started))


@contextmanager
def block_signals() -> Iterator[None]:
    """Delay terminating signals until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def shorten(value: Any) -> Any:
    """Shorten long texts at any depth."""
    match value:
        case str() if len(value) > TEXT_CHARS_MAX:
            return f"{value[:TEXT_CHARS_MAX]}... ({len(value)} characters)"
        case dict():
            return {str(key): shorten(item) for key, item in value.items()}
        case list():
            return [shorten(item) for item in value]
        case _:
            return value
