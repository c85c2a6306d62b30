"""Parser of `mz-anthropic` output (see `anthropic_loop.facts`); accepts any bytes.

The last `end` decides, never the exit code. Tokens are those of each `request`, as the API counted them.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Literal

import msgspec
from mz_events.catalog.call import Usage

from mz_engine.agents.classify import CallEnd, ProblemPatterns, classify
from mz_engine.agents.contract import ObjectObserver
from mz_engine.agents.reading.anthropic_usage import request_usage
from mz_engine.agents.reading.json_lines import (
    Json,
    count,
    decode_lines,
    mapping,
    scan_objects,
    session_id,
    stderr_tail,
    string,
)
from mz_engine.ports import COUNT_MAX, CallResult, ParsedReply

WAIT_SECONDS_MAX = 10**8
"""Three years; larger numbers are ignored."""


class StreamSummary(msgspec.Struct, kw_only=True):
    """Facts from the lines of one stream, collected in one pass."""

    bad_lines: int = 0
    session: str | None = None
    version: str = ""
    end: Json | None = None
    text: str = ""
    """Newest text of the model."""
    requests: dict[str, Usage] = {}
    """By message id, so that a repeated line counts once."""


def read_count(stdout: bytes) -> int | None:
    """Return the count printed by `mz-anthropic --count`; None if missing or out of range."""
    counts = [count(line.get("input_tokens")) for line in decode_lines(stdout) if line and line.get("type") == "count"]
    tokens = counts[-1] if counts else None
    return tokens if tokens and tokens <= COUNT_MAX else None


def read_stream(
    result: CallResult, parser: str, patterns: ProblemPatterns, watch: ObjectObserver | None = None
) -> ParsedReply:
    """Parse the output of one call. Never raises: unreadable lines are counted, a missing end is a problem."""
    summary = summarize_stream(result.stdout, watch)
    end: Json = summary.end or {}
    error = mapping(end.get("error"))
    text, error_text, stderr = string(end.get("text")), string(error.get("message")), stderr_tail(result.stderr)
    ending = ending_of(summary.end)
    call_end = CallEnd(
        own_problem=result.problem,
        ending=ending,
        exit=result.exit,
        stop_reasons=tuple(filter(None, (string(error.get("kind")),))),
        status=count(error.get("status")),
        error_text="\n".join(part for part in (stderr, error_text) if part),
        text=text,
        retry_after_seconds=_to_wait_seconds(error.get("retry_after_seconds")),
    )
    problem = classify(call_end, patterns)
    return ParsedReply(
        parser=parser,
        ending=ending,
        text=text or error_text or summary.text,
        session=summary.session,
        usage=tuple(summary.requests.values()),
        problem=problem,
        problem_detail=(error_text or stderr or summary.text) if problem else "",
        undecodable_lines=summary.bad_lines,
        version=summary.version or result.version,
    )


def summarize_stream(stdout: bytes, watch: ObjectObserver | None = None) -> StreamSummary:
    """Summarise the lines in one pass; unknown types and fields are ignored."""
    summary = StreamSummary()
    summary.bad_lines = scan_objects(stdout, lambda event: _apply_event(summary, event), watch)
    return summary


def _apply_event(summary: StreamSummary, event: Json) -> None:
    match event.get("type"):
        case "start":
            summary.session = session_id(event.get("session")) or summary.session
            summary.version = string(event.get("version")) or summary.version
        case "text":
            summary.text = string(event.get("text")) or summary.text
        case "request":
            model, name = string(event.get("model")), string(event.get("id"))
            usage = request_usage(model, mapping(event.get("usage")))
            if model and (usage.input or usage.output):
                summary.requests[name or f"#{len(summary.requests)}"] = usage
        case "end":
            summary.end = event
        case _:
            pass


def ending_of(end: Json | None) -> Literal["success", "error", "no-terminal"]:
    """Return how a call ended by its `end` event, None if it has none."""
    if end is None:
        return "no-terminal"
    return "success" if end.get("status") == "success" and end.get("error") is None else "error"


def _to_wait_seconds(value: object) -> int | None:
    """Convert a wait to whole seconds, rounded up."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 < value <= WAIT_SECONDS_MAX:
        return None
    return math.ceil(value)
