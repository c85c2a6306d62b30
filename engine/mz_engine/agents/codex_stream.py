"""Pure: reads what `codex exec --json` wrote. Total over any bytes.

The verdict is the last `turn.completed` or `turn.failed`; an `error` line is no end, since the program goes on trying.
The stream names no model, no money and no single request: the model is the one that was asked for. Tokens count on over
the whole thread, so what the thread had used before the call is taken off.
"""

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
"""What the agent says; the second name is that of the first versions."""


class Told(msgspec.Struct, kw_only=True):
    """What the lines of one stream say, gathered in one pass."""

    bad_lines: int = 0
    session: str | None = None
    terminal: Literal["success", "error", "no-terminal"] = "no-terminal"
    usage: Json | None = None
    """Of the whole thread."""
    said: str = ""
    """The newest words of the agent."""
    failure: str = ""
    """What the turn failed with."""
    trouble: str = ""
    """The newest `error` line."""
    untold: bool = False
    """The model has answered since tokens were told, or at all."""


def read_stream(result: CallResult, parser: str, patterns: Patterns, watch: Watch | None = None) -> Reading:
    """What one call said. Never raises: unreadable lines are counted, a missing end is a problem."""
    told = gather(result.stdout, watch)
    stderr = last_words(result.stderr)
    words, status = _unwrapped(told.failure or ("" if told.terminal == "success" else told.trouble))
    ending = Ending(
        ours=result.problem,
        terminal=told.terminal,
        exit=result.exit,
        status=status,
        words="\n".join(part for part in (stderr, words) if part),
        text=told.said,
    )
    problem = classify(ending, patterns)
    return Reading(
        parser=parser,
        terminal=told.terminal,
        text=told.said or words,
        session=told.session,
        usage=_usage(told, result),
        problem=problem,
        problem_detail=(words or stderr or told.said) if problem else "",
        bad_lines=told.bad_lines,
        version=result.version,
        untold=told.untold,
    )


def gather(stdout: bytes, watch: Watch | None = None) -> Told:
    """One pass over the lines; unknown types and fields are passed over."""
    told = Told()
    told.bad_lines = each_object(stdout, lambda event: _note(told, event), watch)
    return told


def _note(told: Told, event: Json) -> None:
    match event.get("type"):
        case "thread.started":
            told.session = session_id(event.get("thread_id")) or told.session
        case "turn.started":
            told.terminal, told.failure = "no-terminal", ""
        case "turn.completed":
            told.terminal, told.usage, told.untold = "success", mapping(event.get("usage")), False
        case "turn.failed":
            told.terminal, told.failure = "error", string(mapping(event.get("error")).get("message"))
        case "error":
            told.trouble = string(event.get("message"))
        case "item.started" | "item.updated" | "item.completed":
            _note_item(told, mapping(event.get("item")))
        case _:
            pass


def _note_item(told: Told, item: Json) -> None:
    kind = item.get("type", item.get("item_type"))
    if kind != "error":
        # It goes on: what it had trouble with is over.
        told.trouble, told.untold = "", True
    if kind in SPOKEN:
        told.said = string(item.get("text")) or told.said


def _unwrapped(message: str) -> tuple[str, int | None]:
    """The words of an error and the status of the model's API; some messages are the API's own answer, as JSON."""
    answer = mapping(decode(message.encode()))
    error = mapping(answer.get("error"))
    words = " ".join(part for part in (string(error.get("code")), string(error.get("message"))) if part)
    found = _STATUS.search(message)
    return words or message, count(answer.get("status")) or (int(found[1]) if found else None)


def _usage(told: Told, result: CallResult) -> tuple[Usage, ...]:
    """What this call used: the thread's sums less those from before, which are of the same thread."""
    if told.usage is None:
        return ()
    now = _sums(told.usage)
    before = tuple(map(sum, zip(*(_numbers(usage) for usage in result.earlier), strict=True))) or (0,) * len(now)
    if any(was > now_ for was, now_ in zip(before, now, strict=True)):
        # Not the thread that it was taken for: better too much than a call for nothing.
        before = (0,) * len(now)
    read, write, whole, out, thoughts = (now_ - was for was, now_ in zip(before, now, strict=True))
    # Parts are no more than the whole, whatever the stream says.
    read = min(read, whole)
    usage = Usage(
        model=result.model, input=whole, output=out, cache_read=read, cache_write_5m=min(write, whole - read),
        reasoning=min(thoughts, out),
    )  # fmt: skip
    return (usage,) if whole or out else ()


def _sums(numbers: Json) -> tuple[int, ...]:
    names = ("cached_input_tokens", "cache_write_input_tokens", "input_tokens", "output_tokens")
    return tuple(count(numbers.get(name)) or 0 for name in (*names, "reasoning_output_tokens"))


def _numbers(usage: Usage) -> tuple[int, ...]:
    written = usage.cache_write_5m + usage.cache_write_1h
    return (usage.cache_read, written, usage.input, usage.output, usage.reasoning)
