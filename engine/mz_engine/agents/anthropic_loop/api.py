"""Adapter: the Messages API through the `anthropic` package: one request at a time, streamed, with what it used.

The package's own retries are off: they know neither our limits nor when a wait is better left to the engine.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from typing import Any

import anthropic
import httpx2
import msgspec
from anthropic.types import Message

from mz_engine.agents.anthropic_loop.facts import OUTPUT_TOKENS_MAX, Block, Failure
from mz_engine.agents.anthropic_loop.login import login
from mz_engine.agents.anthropic_loop.wording import clean

CONNECT_SECONDS = 20
SILENCE_SECONDS = 600
"""Between two pieces of an answer; the engine's own limits are usually shorter."""
RETRIED = frozenset({408, 409, 429})
"""Besides those from 500 on, unless `x-should-retry` says otherwise."""
STREAMED = {"rate_limit_error": 429, "overloaded_error": 529, "api_error": 500, "timeout_error": 504}
"""Errors in the middle of a stream come after a status of 200."""

UNNAMED = "unknown_error"
"""What answers without a kind is no API of this form, a proxy for example: its status alone says what it means."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one request brought."""

    id: str
    model: str
    request_id: str | None
    stop_reason: str | None
    usage: Block
    content: list[Block]


class Broken(Exception):
    """A request that failed after its answer had begun; `answer` is what there was of it."""

    def __init__(self, failure: Failure, answer: Answer) -> None:
        super().__init__(failure.message)
        self.failure, self.answer = failure, answer


Told = Callable[[str], None]
"""Gets each text of the model's, once it is whole."""


class Api:
    """The client. Keys come from the environment alone. Raises Failure where there is none."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Given by name, so that the package looks for no other login on this machine.
        named: dict[str, Any] = dict(login(environment))
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        where = environment.get("ANTHROPIC_BASE_URL") or None
        try:
            self._client = anthropic.Anthropic(**named, base_url=where, max_retries=0, timeout=timeout)
        except Exception as error:
            raise Failure("invalid_request_error", f"the API cannot be called: {error}") from error

    def close(self) -> None:
        """Ends what connections are kept open."""
        self._client.close()

    def ask(self, request: Block, told: Told, alive: Callable[[], None]) -> Answer:
        """One request to its end. Raises Failure, or Broken."""
        message, request_id, ended = None, None, False
        try:
            with self._client.messages.stream(**request, max_tokens=OUTPUT_TOKENS_MAX) as stream:
                request_id = stream.request_id
                for event in stream:
                    alive()
                    if event.type == "message_start":
                        message = event.message
                    elif event.type == "content_block_stop" and event.content_block.type == "text":
                        told(event.content_block.text)
                    elif event.type == "message_stop":
                        message, ended = event.message, True
                    if message is not None and not ended:
                        message = stream.current_message_snapshot
        except Exception as error:
            failure = failure_of(error)
            if message is not None:
                raise Broken(failure, _answer(message, request_id, cut=True)) from error
            raise failure from error
        if message is None:
            raise Failure("malformed_response", "empty or malformed response", again=True, request_id=request_id)
        if not ended:
            lost = Failure("connection_error", "connection error: the answer broke off", again=True)
            raise Broken(lost, _answer(message, request_id, cut=True))
        return _answer(message, request_id)

    def count(self, request: Block) -> int:
        """Tokens that the request would take, by the API's own count. Raises Failure."""
        try:
            return self._client.messages.count_tokens(**request).input_tokens
        except Exception as error:
            raise failure_of(error) from error


def _answer(message: Message, request_id: str | None, cut: bool = False) -> Answer:
    """Raises Failure for an answer of another form than the API's: the package checks none."""
    try:
        held = clean(message.to_dict(mode="json", warnings=False))
        content = [_sent_back(block) for block in held.get("content") or ()]
        return Answer(
            id=str(held.get("id", "")),
            model=str(held.get("model", "")),
            request_id=request_id,
            stop_reason=None if cut or held.get("stop_reason") is None else str(held["stop_reason"]),
            usage=dict(held.get("usage") or {}),
            content=content,
        )
    except Exception as error:
        raise Failure("malformed_response", f"empty or malformed response: {error}", again=True) from error


def _sent_back(block: Block) -> Block:
    """A block as a later request may hold it: without what the package adds."""
    return {name: value for name, value in dict(block).items() if name != "parsed_output" and value is not None}


# failures -------------------------------------------------------------------------------------------------------------
def failure_of(error: Exception) -> Failure:
    """What went wrong, whatever the package or the transport raised."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, anthropic.APIStatusError):
        return _refused(error)
    if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
        return Failure("connection_error", f"request timed out: {_words(error)}", again=True)
    if isinstance(error.__cause__ or error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return Failure("invalid_request_error", f"the API cannot be called, see ANTHROPIC_BASE_URL: {_words(error)}")
    if isinstance(error, anthropic.APIConnectionError | httpx2.TransportError | OSError):
        return Failure("connection_error", f"connection error: {_words(error)}", again=True)
    # What is no stream of the API's shows as any error in the package's parsing of it.
    words = f"empty or malformed response: {type(error).__name__}: {_words(error)}"
    return Failure("malformed_response", words, again=True)


def _words(error: BaseException) -> str:
    """What its cause says, where it has one: the package's own words are `Connection error.`"""
    for one in (error.__cause__, error.__context__, error):
        if one is not None and str(one).strip():
            return str(one).strip()
    return type(error).__name__


def _refused(error: anthropic.APIStatusError) -> Failure:
    headers = error.response.headers
    kind = error.type or UNNAMED
    status = error.status_code if error.status_code != 200 else STREAMED.get(kind)
    should = headers.get("x-should-retry")
    again = should == "true" or (should != "false" and status is not None and (status in RETRIED or status >= 500))
    return Failure(
        kind,
        error.api_message or error.message,
        status=status,
        wait_seconds=wait_of(headers),
        request_id=error.request_id,
        again=again,
    )


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that the API asks to wait: `retry-after-ms`, or `retry-after` as seconds or a date; None: it does not."""
    given = headers.get("retry-after", "")
    for text, scale in ((headers.get("retry-after-ms", ""), 1000), (given, 1)):
        try:
            seconds = float(text) / scale
        except ValueError:
            continue
        return seconds if 0 < seconds < 10**8 else None
    try:
        seconds = email.utils.parsedate_to_datetime(given).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return round(seconds, 1) if 0 < seconds < 10**8 else None
