"""Client of the Messages API through the `anthropic` package: one streamed request at a time.

The package's own retries are off: they ignore our limits and would wait where the engine should.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import anthropic
import httpx2
from anthropic.types import Message

from mz_engine.agents.anthropic_api.model import OUTPUT_TOKENS_MAX, Block, Failure, ModelReply, api_credentials
from mz_engine.errors.diagnostics import replace_surrogates

CONNECT_SECONDS = 20
SILENCE_SECONDS = 600
"""Limit between two pieces of a reply; the engine's limits are usually shorter."""
RETRYABLE_STATUSES = frozenset({408, 409, 429})
"""Statuses to retry, besides those from 500 on, unless `x-should-retry` overrides."""
STATUS_BY_STREAM_ERROR = {"rate_limit_error": 429, "overloaded_error": 529, "api_error": 500, "timeout_error": 504}
"""Statuses of errors within a stream, whose HTTP status is 200."""

UNKNOWN_KIND = "unknown_error"
"""Kind of an error that names none, such as one of a proxy; only its status is meaningful."""


class ApiClient:
    """The API client. Keys come only from the environment. Raises Failure if there is none."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Passed explicitly, so that the package looks for no other login on this machine.
        credentials: dict[str, Any] = dict(api_credentials(environment))
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        base_url = environment.get("ANTHROPIC_BASE_URL") or None
        try:
            self._client = anthropic.Anthropic(**credentials, base_url=base_url, max_retries=0, timeout=timeout)
        except Exception as error:
            raise Failure("invalid_request_error", f"the API cannot be called: {error}") from error

    def close(self) -> None:
        self._client.close()

    def send(self, request: Block, on_text: Callable[[str], None], heartbeat: Callable[[], None]) -> ModelReply:
        """Make one request and read its complete reply; `on_text` receives each complete text block. Raises Failure,
        with the part received if it failed after the reply had begun."""
        message, request_id, complete = None, None, False
        try:
            with self._client.messages.stream(**request, max_tokens=OUTPUT_TOKENS_MAX) as stream:
                request_id = stream.request_id
                for event in stream:
                    heartbeat()
                    if message is not None or event.type == "message_start":
                        message = stream.current_message_snapshot
                    if event.type == "content_block_stop" and event.content_block.type == "text":
                        on_text(event.content_block.text)
                    complete = complete or event.type == "message_stop"
        except Exception as error:
            failure = failure_of(error)
            if message is not None:
                failure.partial_reply = _to_reply(message, request_id, interrupted=True)
            raise failure from error
        if message is None:
            raise Failure("malformed_response", "empty or malformed response", retryable=True, request_id=request_id)
        if not complete:
            connection_lost = Failure("connection_error", "connection error: the answer broke off", retryable=True)
            connection_lost.partial_reply = _to_reply(message, request_id, interrupted=True)
            raise connection_lost
        return _to_reply(message, request_id)

    def count(self, request: Block) -> int:
        """Count the tokens of a request by the API. Raises Failure."""
        try:
            return self._client.messages.count_tokens(**request).input_tokens
        except Exception as error:
            raise failure_of(error) from error


def _to_reply(message: Message, request_id: str | None, interrupted: bool = False) -> ModelReply:
    """Convert a message. Raises Failure if it is malformed, since the package does not check it."""
    try:
        text = json.dumps(message.to_dict(mode="json", warnings=False), ensure_ascii=False)
        fields = json.loads(replace_surrogates(text))
        # Without the fields that the package adds, so that a later request may contain the block.
        content = [
            {name: value for name, value in dict(block).items() if name != "parsed_output" and value is not None}
            for block in fields.get("content") or ()
        ]
        return ModelReply(
            id=str(fields.get("id", "")),
            model=str(fields.get("model", "")),
            request_id=request_id,
            stop_reason=None if interrupted or fields.get("stop_reason") is None else str(fields["stop_reason"]),
            usage=dict(fields.get("usage") or {}),
            content=content,
        )
    except Exception as error:
        raise Failure("malformed_response", f"empty or malformed response: {error}", retryable=True) from error


# failures -------------------------------------------------------------------------------------------------------------
def failure_of(error: Exception) -> Failure:
    """Convert any exception of the package or the transport."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, anthropic.APIStatusError):
        headers, kind = error.response.headers, error.type or UNKNOWN_KIND
        status = error.status_code if error.status_code != 200 else STATUS_BY_STREAM_ERROR.get(kind)
        should_retry = headers.get("x-should-retry")
        retryable = should_retry == "true" or (
            should_retry != "false" and status is not None and (status in RETRYABLE_STATUSES or status >= 500)
        )
        return Failure(
            kind,
            error.api_message or error.message,
            status=status,
            wait_seconds=retry_after_seconds(headers),
            request_id=error.request_id,
            retryable=retryable,
        )
    if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
        return Failure("connection_error", f"request timed out: {_error_text(error)}", retryable=True)
    if isinstance(error.__cause__ or error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return Failure(
            "invalid_request_error", f"the API cannot be called, see ANTHROPIC_BASE_URL: {_error_text(error)}"
        )
    if isinstance(error, anthropic.APIConnectionError | httpx2.TransportError | OSError):
        return Failure("connection_error", f"connection error: {_error_text(error)}", retryable=True)
    # Malformed streams cause arbitrary errors in the package's parser.
    text = f"empty or malformed response: {type(error).__name__}: {_error_text(error)}"
    return Failure("malformed_response", text, retryable=True)


def _error_text(error: BaseException) -> str:
    """Return the message of the cause if there is one; the package's own is only `Connection error.`"""
    for candidate in (error.__cause__, error.__context__, error):
        if candidate is not None and str(candidate).strip():
            return str(candidate).strip()
    return type(error).__name__


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds from `retry-after-ms` or `retry-after` (seconds or a date); None without one."""
    retry_after = headers.get("retry-after", "")
    for text, scale in ((headers.get("retry-after-ms", ""), 1000), (retry_after, 1)):
        try:
            seconds = float(text) / scale
        except ValueError:
            continue
        return seconds if 0 < seconds < 10**8 else None
    try:
        seconds = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return round(seconds, 1) if 0 < seconds < 10**8 else None
