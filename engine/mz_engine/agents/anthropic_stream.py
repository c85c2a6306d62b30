"""Parser of `mz-anthropic` output (see `anthropic_loop.facts`); accepts any bytes.

The last `end` decides, never the exit code. Tokens are those of each `request`, as the API counted them.
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
"""Three years; larger numbers are ignored."""


class Told(msgspec.Struct, kw_only=True):
    """Facts from the lines of one stream, collected in one pass."""

    bad_lines: int = 0
    session: str | None = None
    version: str = ""
    end: Json | None = None
    said: str = ""
    """Newest text of the model."""
    requests: dict[str, Usage] = {}
    """By message id, so that a repeated line counts once."""


def read_count(stdout: bytes) -> int | None:
    """Return the count printed by `mz-anthropic --count`; None if missing or out of range."""
    counts = [count(line.get("input_tokens")) for line in objects(stdout) if line and line.get("type") == "count"]
    tokens = counts[-1] if counts else None
    return tokens if tokens and tokens <= COUNT_MAX else None


def read_stream(result: CallResult, parser: str, patterns: Patterns, watch: Watch | None = None) -> Reading:
    """Parse the output of one call. Never raises: unreadable lines are counted, a missing end is a problem."""
    summary = gather(result.stdout, watch)
    end: Json = summary.end or {}
    error = mapping(end.get("error"))
    text, error_text, stderr = string(end.get("text")), string(error.get("message")), last_words(result.stderr)
    terminal = terminal_of(summary.end)
    call_end = Ending(
        ours=result.problem,
        terminal=terminal,
        exit=result.exit,
        stops=tuple(filter(None, (string(error.get("kind")),))),
        status=count(error.get("status")),
        words="\n".join(part for part in (stderr, error_text) if part),
        text=text,
        retry_after_seconds=_wait(error.get("retry_after_seconds")),
    )
    problem = classify(call_end, patterns)
    return Reading(
        parser=parser,
        terminal=terminal,
        text=text or error_text or summary.said,
        session=summary.session,
        usage=tuple(summary.requests.values()),
        problem=problem,
        problem_detail=(error_text or stderr or summary.said) if problem else "",
        bad_lines=summary.bad_lines,
        version=summary.version or result.version,
    )


def gather(stdout: bytes, watch: Watch | None = None) -> Told:
    """Summarise the lines in one pass; unknown types and fields are ignored."""
    summary = Told()
    summary.bad_lines = each_object(stdout, lambda event: _note(summary, event), watch)
    return summary


def _note(summary: Told, event: Json) -> None:
    match event.get("type"):
        case "start":
            summary.session = session_id(event.get("session")) or summary.session
            summary.version = string(event.get("version")) or summary.version
        case "text":
            summary.said = string(event.get("text")) or summary.said
        case "request":
            model, name = string(event.get("model")), string(event.get("id"))
            usage = request_usage(model, mapping(event.get("usage")))
            if model and (usage.input or usage.output):
                summary.requests[name or f"#{len(summary.requests)}"] = usage
        case "end":
            summary.end = event
        case _:
            pass


def terminal_of(end: Json | None) -> Literal["success", "error", "no-terminal"]:
    """Return how a call ended by its `end` event, None if it has none."""
    if end is None:
        return "no-terminal"
    return "success" if end.get("status") == "success" and end.get("error") is None else "error"


def _wait(value: object) -> int | None:
    """Convert a wait to whole seconds, rounded up."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 < value <= WAIT_SECONDS_MAX:
        return None
    return math.ceil(value)
