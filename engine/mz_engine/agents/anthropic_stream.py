"""Pure: reads what `mz-anthropic` wrote (see `anthropic_loop.facts`). Total over any bytes.

The verdict is the last `end`, never the exit code. Tokens are those of each `request`, as the API counted them.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Literal

import msgspec
from mz_events.catalog.call import Usage

from mz_engine.agents.classify import Ending, Patterns, classify
from mz_engine.agents.claude_usage import request_usage
from mz_engine.agents.contract import Watch
from mz_engine.agents.jsonline import Json, count, each_object, last_words, mapping, objects, session_id, string
from mz_engine.ports import COUNT_MAX, CallResult, Reading

WAIT_SECONDS_MAX = 10**8
"""Three years; beyond it the number is noise."""


class Told(msgspec.Struct, kw_only=True):
    """What the lines of one stream say, gathered in one pass."""

    bad_lines: int = 0
    session: str | None = None
    version: str = ""
    end: Json | None = None
    said: str = ""
    """The model's newest text."""
    requests: dict[str, Usage] = {}
    """By the message's id, so that a line that is there twice counts once."""


def read_count(stdout: bytes) -> int | None:
    """Tokens that `mz-anthropic --count` said a request would take; None where it said none that can be."""
    said = [count(line.get("input_tokens")) for line in objects(stdout) if line and line.get("type") == "count"]
    tokens = said[-1] if said else None
    return tokens if tokens and tokens <= COUNT_MAX else None


def read_stream(result: CallResult, parser: str, patterns: Patterns, watch: Watch | None = None) -> Reading:
    """What one call said. Never raises: unreadable lines are counted, a missing end is a problem."""
    told = gather(result.stdout, watch)
    end: Json = told.end or {}
    error = mapping(end.get("error"))
    text, words, stderr = string(end.get("text")), string(error.get("message")), last_words(result.stderr)
    terminal = terminal_of(told.end)
    ending = Ending(
        ours=result.problem,
        terminal=terminal,
        exit=result.exit,
        stops=tuple(filter(None, (string(error.get("kind")),))),
        status=count(error.get("status")),
        words="\n".join(part for part in (stderr, words) if part),
        text=text,
        retry_after_seconds=_wait(error.get("retry_after_seconds")),
    )
    problem = classify(ending, patterns)
    return Reading(
        parser=parser,
        terminal=terminal,
        text=text or words or told.said,
        session=told.session,
        usage=tuple(told.requests.values()),
        problem=problem,
        problem_detail=(words or stderr or told.said) if problem else "",
        bad_lines=told.bad_lines,
        version=told.version or result.version,
    )


def gather(stdout: bytes, watch: Watch | None = None) -> Told:
    """One pass over the lines; unknown types and fields are passed over."""
    told = Told()
    told.bad_lines = each_object(stdout, lambda event: _note(told, event), watch)
    return told


def _note(told: Told, event: Json) -> None:
    match event.get("type"):
        case "start":
            told.session = session_id(event.get("session")) or told.session
            told.version = string(event.get("version")) or told.version
        case "text":
            told.said = string(event.get("text")) or told.said
        case "request":
            model, name = string(event.get("model")), string(event.get("id"))
            usage = request_usage(model, mapping(event.get("usage")))
            if model and (usage.input or usage.output):
                told.requests[name or f"#{len(told.requests)}"] = usage
        case "end":
            told.end = event
        case _:
            pass


def terminal_of(end: Json | None) -> Literal["success", "error", "no-terminal"]:
    """How a call ended, by its `end`; None: it has none."""
    if end is None:
        return "no-terminal"
    return "success" if end.get("status") == "success" and end.get("error") is None else "error"


def _wait(value: object) -> int | None:
    """Whole seconds, rounded up."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 < value <= WAIT_SECONDS_MAX:
        return None
    return math.ceil(value)
