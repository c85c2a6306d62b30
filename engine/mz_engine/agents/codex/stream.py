"""Parser of `codex exec --json` output; accepts any bytes.

The last `turn.completed` or `turn.failed` decides; an `error` line is no end, since the program retries. The stream
names no model, money or single request, so the requested model is assumed. Token counts are totals of the thread, so
its usage before the call is subtracted."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from mz_events.catalog.call import Usage

from mz_engine.agents.classify import CallEnd, ProblemPatterns, classify
from mz_engine.agents.contract import ObjectObserver
from mz_engine.agents.reading.json_lines import (
    Json,
    count,
    decode_object,
    mapping,
    scan_objects,
    session_id,
    stderr_tail,
    string,
)
from mz_engine.ports import CallResult, ParsedReply

_STATUS = re.compile(r"\b(?:unexpected|last) status:? (\d{3})\b")
TEXT_ITEM_TYPES = ("agent_message", "assistant_message")
"""Item types with the agent's text; the second is that of the first versions."""


class StreamSummary(msgspec.Struct, kw_only=True):
    """Facts from the lines of one stream, collected in one pass."""

    bad_lines: int = 0
    session: str | None = None
    ending: Literal["success", "error", "no-terminal"] = "no-terminal"
    usage: Json | None = None
    """Totals of the thread."""
    text: str = ""
    """The agent's newest text."""
    turn_error: str = ""
    """Error message of the failed turn."""
    last_error: str = ""
    """The newest `error` line."""
    usage_incomplete: bool = False
    """The model has answered since the last report of tokens."""


def read_stream(
    result: CallResult, parser: str, patterns: ProblemPatterns, watch: ObjectObserver | None = None
) -> ParsedReply:
    """Parse the output of one call. Never raises: unreadable lines are counted, a missing end is a problem."""
    summary = summarize_stream(result.stdout, watch)
    stderr = stderr_tail(result.stderr)
    error_text, status = _unwrap_error(
        summary.turn_error or ("" if summary.ending == "success" else summary.last_error)
    )
    call_end = CallEnd(
        own_problem=result.problem,
        ending=summary.ending,
        exit=result.exit,
        status=status,
        error_text="\n".join(part for part in (stderr, error_text) if part),
        text=summary.text,
    )
    problem = classify(call_end, patterns)
    return ParsedReply(
        parser=parser,
        ending=summary.ending,
        text=summary.text or error_text,
        session=summary.session,
        usage=_call_usage(summary, result),
        problem=problem,
        problem_detail=(error_text or stderr or summary.text) if problem else "",
        undecodable_lines=summary.bad_lines,
        version=result.version,
        usage_incomplete=summary.usage_incomplete,
    )


def summarize_stream(stdout: bytes, watch: ObjectObserver | None = None) -> StreamSummary:
    """Summarise the lines in one pass; unknown types and fields are ignored."""
    summary = StreamSummary()
    summary.bad_lines = scan_objects(stdout, lambda event: _apply_event(summary, event), watch)
    return summary


def _apply_event(summary: StreamSummary, event: Json) -> None:
    match event.get("type"):
        case "thread.started":
            summary.session = session_id(event.get("thread_id")) or summary.session
        case "turn.started":
            summary.ending, summary.turn_error = "no-terminal", ""
        case "turn.completed":
            summary.ending, summary.usage, summary.usage_incomplete = "success", mapping(event.get("usage")), False
        case "turn.failed":
            summary.ending, summary.turn_error = "error", string(mapping(event.get("error")).get("message"))
        case "error":
            summary.last_error = string(event.get("message"))
        case "item.started" | "item.updated" | "item.completed":
            _apply_item(summary, mapping(event.get("item")))
        case _:
            pass


def _apply_item(summary: StreamSummary, item: Json) -> None:
    kind = item.get("type", item.get("item_type"))
    if kind != "error":
        # Progress after an error line: the program has recovered.
        summary.last_error, summary.usage_incomplete = "", True
    if kind in TEXT_ITEM_TYPES:
        summary.text = string(item.get("text")) or summary.text


def _unwrap_error(message: str) -> tuple[str, int | None]:
    """Return an error's text and the HTTP status of the model's API; some messages are the API's reply, as JSON."""
    body = mapping(decode_object(message.encode()))
    error = mapping(body.get("error"))
    error_text = " ".join(part for part in (string(error.get("code")), string(error.get("message"))) if part)
    match = _STATUS.search(message)
    return error_text or message, count(body.get("status")) or (int(match[1]) if match else None)


def _call_usage(summary: StreamSummary, result: CallResult) -> tuple[Usage, ...]:
    """Return the usage of this call: the thread's totals minus those before the call."""
    if summary.usage is None:
        return ()
    totals = _thread_totals(summary.usage)
    before = tuple(map(sum, zip(*(_counts_of(usage) for usage in result.session_usage_before), strict=True))) or (
        0,
    ) * len(totals)
    if any(old > new for old, new in zip(before, totals, strict=True)):
        # Not the thread we took it for: count too much rather than nothing.
        before = (0,) * len(totals)
    read, write, input_tokens, output, thoughts = (new - old for old, new in zip(before, totals, strict=True))
    # Whatever the stream says, cached tokens are part of the input.
    read = min(read, input_tokens)
    usage = Usage(
        model=result.model, input=input_tokens, output=output, cache_read=read,
        cache_write_5m=min(write, input_tokens - read), reasoning=min(thoughts, output),
    )  # fmt: skip
    return (usage,) if input_tokens or output else ()


def _thread_totals(counts: Json) -> tuple[int, ...]:
    names = ("cached_input_tokens", "cache_write_input_tokens", "input_tokens", "output_tokens")
    return tuple(count(counts.get(name)) or 0 for name in (*names, "reasoning_output_tokens"))


def _counts_of(usage: Usage) -> tuple[int, ...]:
    cache_writes = usage.cache_write_5m + usage.cache_write_1h
    return (usage.cache_read, cache_writes, usage.input, usage.output, usage.reasoning)
