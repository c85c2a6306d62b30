"""Facts: what one call of the loop is asked for, and how a request can fail.

The loop writes JSON Lines to standard output, one object a line, `type` first:

    start        {version, model, session, resumed, tools}
    text         {text}                                   a text of the model's, whole
    request      {id, model, request_id, stop_reason, usage}    one answered request; `usage` as the API gave it
    retry        {attempt, wait_seconds, error}           a request that failed and is made again
    tool         {id, name, input}                        what the model asks for, long texts cut
    tool_result  {id, failed, characters, text}           what it was answered, the text cut
    progress     {seconds}                                something goes on, and nothing was written for a while
    note         {text}                                   what a person may want to know
    end          {status, text, requests, stop_reason, error}   the last line, whatever happened

`status` is success or error; `error` is {kind, message} and, where the API said so, {status, retry_after_seconds,
request_id}; null after a success. A request that broke off in the middle has a `stop_reason` of null: what it used
until then is counted, as the API counts it. With `--count` the only lines are `count` {input_tokens} and `end`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from mz_engine.pipelines.definition import Tool

Block: TypeAlias = dict[str, Any]
"""A content block, a message or a tool, as the API takes it."""

OUTPUT_TOKENS_MAX = 32_000
"""What every model of today may answer with."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    model: str
    tools: tuple[Tool, ...]
    turns_max: int
    session: str
    resumes: bool
    counts: bool = False
    """Only say how many tokens the first request would take."""


class Failure(Exception):
    """Why the call cannot go on: `kind` is the API's own name for it, or ours."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        status: int | None = None,
        wait_seconds: float | None = None,
        request_id: str | None = None,
        again: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.status, self.request_id = kind, message, status, request_id
        self.wait_seconds = wait_seconds
        """As the API asked; None: it did not."""
        self.again = again
        """Making the same request again may help."""

    def told(self) -> Block:
        """For the stream."""
        more = {"status": self.status, "retry_after_seconds": self.wait_seconds, "request_id": self.request_id}
        return {"kind": self.kind, "message": self.message} | {
            name: value for name, value in more.items() if value is not None
        }


class Stopped(BaseException):
    """A signal asked the process to end. No library may take it for an error of its own."""
