"""Parser of `codex exec --json` output; accepts any bytes.

The last `turn.completed` or `turn.failed` decides; an `error` line is no end, since the program retries. The stream
names no model, money or single request, so the requested model is assumed. Token counts are totals of the thread, so
its usage before the call is subtracted."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from mz_events.catalog.call import Usage

from mz_engine.agents.classify import Ending, Patterns, classify
from mz_engine.agents.contract import Watch
from mz_engine.agents.jsonline import Json, count, decode, each_object, last_words, mapping, session_id, string
from mz_engine.ports import CallResult, Reading

_STATUS = re.compile(r"\b(?:unexpected|last) status:? (\d{3})\b")
SPOKEN = ("agent_message", "assistant_message")
"""Item types with the agent's text; the second is that of the first versions."""


class Told(msgspec.Struct, kw_only=True):
    """Facts from the lines of one stream, collected in one pass."""

    bad_lines: int = 0
    session: str | None = None
    terminal: Literal["success", "error", "no-terminal"] = "no-terminal"
    usage: Json | None = None
    """Totals of the thread."""
    said: str = ""
    """The agent's newest text."""
    failure: str = ""
    """Error message of the failed turn."""
    trouble: str = ""
    """The newest `error` line."""
    untold: bool = False
    """The model has answered since the last report of tokens."""


def read_stream(result: CallResult, parser: str, patterns: Patterns, watch: Watch | None = None) -> Reading:
    """Parse the output of one call. Never raises: unreadable lines are counted, a missing end is a problem."""
    summary = gather(result.stdout, watch)
    stderr = last_words(result.stderr)
    error_text, status = _unwrapped(summary.failure or ("" if summary.terminal == "success" else summary.trouble))
    call_end = Ending(
        ours=result.problem,
        terminal=summary.terminal,
        exit=result.exit,
        status=status,
        words="\n".join(part for part in (stderr, error_text) if part),
        text=summary.said,
    )
    problem = classify(call_end, patterns)
    return Reading(
        parser=parser,
        terminal=summary.terminal,
        text=summary.said or error_text,
        session=summary.session,
        usage=_usage(summary, result),
        problem=problem,
        problem_detail=(error_text or stderr or summary.said) if problem else "",
        bad_lines=summary.bad_lines,
        version=result.version,
        untold=summary.untold,
    )


def gather(stdout: bytes, watch: Watch | None = None) -> Told:
    """Summarise the lines in one pass; unknown types and fields are ignored."""
    summary = Told()
    summary.bad_lines = each_object(stdout, lambda event: _note(summary, event), watch)
    return summary


def _note(summary: Told, event: Json) -> None:
    match event.get("type"):
        case "thread.started":
            summary.session = session_id(event.get("thread_id")) or summary.session
        case "turn.started":
            summary.terminal, summary.failure = "no-terminal", ""
        case "turn.completed":
            summary.terminal, summary.usage, summary.untold = "success", mapping(event.get("usage")), False
        case "turn.failed":
            summary.terminal, summary.failure = "error", string(mapping(event.get("error")).get("message"))
        case "error":
            summary.trouble = string(event.get("message"))
        case "item.started" | "item.updated" | "item.completed":
            _note_item(summary, mapping(event.get("item")))
        case _:
            pass


def _note_item(summary: Told, item: Json) -> None:
    kind = item.get("type", item.get("item_type"))
    if kind != "error":
        # Progress after an error line: the program has recovered.
        summary.trouble, summary.untold = "", True
    if kind in SPOKEN:
        summary.said = string(item.get("text")) or summary.said


def _unwrapped(message: str) -> tuple[str, int | None]:
    """Return an error's text and the HTTP status of the model's API; some messages are the API's reply, as JSON."""
    body = mapping(decode(message.encode()))
    error = mapping(body.get("error"))
    error_text = " ".join(part for part in (string(error.get("code")), string(error.get("message"))) if part)
    match = _STATUS.search(message)
    return error_text or message, count(body.get("status")) or (int(match[1]) if match else None)


def _usage(summary: Told, result: CallResult) -> tuple[Usage, ...]:
    """Return the usage of this call: the thread's totals minus those before the call."""
    if summary.usage is None:
        return ()
    totals = _sums(summary.usage)
    before = tuple(map(sum, zip(*(_numbers(usage) for usage in result.earlier), strict=True))) or (0,) * len(totals)
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


def _sums(counts: Json) -> tuple[int, ...]:
    names = ("cached_input_tokens", "cache_write_input_tokens", "input_tokens", "output_tokens")
    return tuple(count(counts.get(name)) or 0 for name in (*names, "reasoning_output_tokens"))


def _numbers(usage: Usage) -> tuple[int, ...]:
    cache_writes = usage.cache_write_5m + usage.cache_write_1h
    return (usage.cache_read, cache_writes, usage.input, usage.output, usage.reasoning)
