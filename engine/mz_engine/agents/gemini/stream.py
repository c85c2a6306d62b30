"""Parser of `gemini --output-format stream-json` output; accepts any bytes.

The `status` of the last `result` decides, never the exit code; without a `result` the call failed. Tokens come from its
`stats`, per model and for this call alone. Reasoning is billed as output and has no field: it is the total minus the
other parts. The text is everything after the last use of a tool, in pieces.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec
from mz_events.catalog.call import Usage

from mz_engine.agents.classify import CallEnd, ProblemPatterns, classify
from mz_engine.agents.contract import ObjectObserver
from mz_engine.agents.reading.json_lines import Json, count, mapping, scan_objects, session_id, stderr_tail, string
from mz_engine.ports import CallResult, ParsedReply

STOP_REASONS_BY_EXIT = {
    41: "exit_authentication",
    42: "exit_input",
    44: "exit_sandbox",
    52: "exit_configuration",
    53: "exit_turns",
    55: "exit_untrusted",
}
"""Stop reasons by the CLI's exit code. An API status appears here modulo 256, so it is read from the messages
instead."""

REPEAT_PREFIX_CHARS = 12
"""A shorter prefix may repeat by chance."""
REPEATS_MAX = 20
"""More than the CLI's own retries."""
WAIT_DIGITS_MAX = 7

_STARTUP_NOISE = re.compile(r"^(?:Warning: 256-color support|Ripgrep is not available|\[STARTUP\]).*\n?", re.MULTILINE)
"""Lines on standard error at every start without a terminal."""
_STATUS = re.compile(r'"code"\s*:\s*([45]\d\d)\b')
_STATUS_REPORTED = re.compile(r"^\s+(?:status|code): ([45]\d\d)\b", re.MULTILINE)
_WAIT = re.compile(rf"\bretry in (\d{{1,{WAIT_DIGITS_MAX}}}(?:\.\d{{1,9}})?)s\b", re.IGNORECASE)


class StreamSummary(msgspec.Struct, kw_only=True):
    """Facts from the lines of one stream, collected in one pass."""

    bad_lines: int = 0
    session: str | None = None
    model: str = ""
    result: Json | None = None
    pieces: list[str] = []
    """Pieces of the agent's text since the last use of a tool."""
    text_closed: bool = False
    """A tool was used after these pieces, so the next piece starts a new text."""
    error: str = ""
    """Newest error message outside the result."""


def read_stream(
    result: CallResult, parser: str, patterns: ProblemPatterns, watch: ObjectObserver | None = None
) -> ParsedReply:
    """Parse the output of one call. Never raises: unreadable lines are counted, a missing end is a problem."""
    summary = summarize_stream(result.stdout, watch)
    last_result: Json = summary.result or {}
    failure = mapping(last_result.get("error"))
    error_text = string(failure.get("message")) or ("" if last_result.get("status") == "success" else summary.error)
    stderr = _STARTUP_NOISE.sub("", stderr_tail(result.stderr)).strip()
    text = join_pieces(summary.pieces)
    ending = ending_of(summary.result)
    all_errors = "\n".join(part for part in (stderr, error_text) if part)
    call_end = CallEnd(
        own_problem=result.problem,
        ending=ending,
        exit=result.exit,
        stop_reasons=_stop_reasons(failure, result.exit),
        status=_find_status(error_text, stderr),
        error_text=all_errors,
        text=text,
        retry_after_seconds=_find_wait_seconds(all_errors),
    )
    problem = classify(call_end, patterns)
    return ParsedReply(
        parser=parser,
        ending=ending,
        text=text or error_text,
        session=summary.session,
        usage=usage_of(mapping(last_result.get("stats")), summary.model or result.model),
        problem=problem,
        problem_detail=(error_text or stderr or text) if problem else "",
        undecodable_lines=summary.bad_lines,
        version=result.version,
    )


def summarize_stream(stdout: bytes, watch: ObjectObserver | None = None) -> StreamSummary:
    """Summarise the lines in one pass; unknown types and fields are ignored."""
    summary = StreamSummary()
    summary.bad_lines = scan_objects(stdout, lambda event: _apply_event(summary, event), watch)
    return summary


def _apply_event(summary: StreamSummary, event: Json) -> None:
    match event.get("type"):
        case "init":
            summary.session = session_id(event.get("session_id")) or summary.session
            summary.model = string(event.get("model")) or summary.model
        case "message" if event.get("role") == "assistant":
            _apply_text(summary, event)
        case "tool_use":
            summary.text_closed = True
        case "error":
            summary.error = string(event.get("message")) or summary.error
        case "result":
            summary.result = event
        case _:
            pass


def _apply_text(summary: StreamSummary, event: Json) -> None:
    if summary.text_closed or event.get("delta") is not True:
        summary.pieces, summary.text_closed = [], False
    if text := string(event.get("content")):
        summary.pieces.append(text)


def ending_of(result: Json | None) -> Literal["success", "error", "no-terminal"]:
    """Return how the last `result` ended; any status but `success` is an error."""
    if result is None:
        return "no-terminal"
    return "success" if result.get("status") == "success" else "error"


# text -----------------------------------------------------------------------------------------------------------------
def join_pieces(pieces: list[str]) -> str:
    """Join the pieces, without repeats. After a broken stream the CLI asks the model again without a mark in the
    output: where the text so far starts again at a piece, keep it once. A retry with different text cannot be
    detected."""
    text = "".join(pieces)
    for _ in range(REPEATS_MAX):
        at = _find_repeat(text, pieces)
        if at is None:
            break
        text, pieces = text[at:], _drop_characters(pieces, at)
    return text


def _find_repeat(text: str, pieces: list[str]) -> int | None:
    """Return the offset of a piece at which the whole text before it starts again."""
    head = text[:REPEAT_PREFIX_CHARS]
    if not any(letter.isalpha() for letter in head):
        return None
    at = comparisons = 0
    for piece in pieces[:-1]:
        at += len(piece)
        if at < REPEAT_PREFIX_CHARS or not text.startswith(head, at):
            continue
        if text.startswith(text[:at], at):
            return at
        if (comparisons := comparisons + 1) > REPEATS_MAX:
            return None
    return None


def _drop_characters(pieces: list[str], characters: int) -> list[str]:
    for index, piece in enumerate(pieces):
        if characters <= 0:
            return pieces[index:]
        characters -= len(piece)
    return []


# failures -------------------------------------------------------------------------------------------------------------
def _stop_reasons(failure: Json, exit_: int | None) -> tuple[str, ...]:
    reasons = (string(failure.get("type")), "" if exit_ is None else STOP_REASONS_BY_EXIT.get(exit_, ""))
    return tuple(reason for reason in reasons if reason)


def _find_status(error_text: str, stderr: str) -> int | None:
    """Find the HTTP status: in the API's message, else in the CLI's error report."""
    match = _STATUS.search(error_text)
    if match:
        return int(match[1])
    reported = _STATUS_REPORTED.findall(stderr)
    return int(reported[-1]) if reported else None


def _find_wait_seconds(text: str) -> int | None:
    """Find the wait that the API asks for, in whole seconds."""
    waits = _WAIT.findall(text)
    return math.ceil(float(waits[-1])) if waits else None


# tokens ---------------------------------------------------------------------------------------------------------------
def usage_of(stats: Json, model: str) -> tuple[Usage, ...]:
    """Return usage per model; without a breakdown, all of it for the model that the call began with."""
    models = mapping(stats.get("models"))
    usages = tuple(_model_usage(name, mapping(numbers)) for name, numbers in sorted(models.items()) if name)
    if not usages and model:
        usages = (_model_usage(model, stats),)
    return tuple(usage for usage in usages if usage.input or usage.output)


def _model_usage(model: str, numbers: Json) -> Usage:
    """Convert one model's counts: `input_tokens` includes cache reads, `output_tokens` excludes reasoning."""
    input_tokens = count(numbers.get("input_tokens")) or 0
    output_tokens = count(numbers.get("output_tokens")) or 0
    reasoning_tokens = max(0, (count(numbers.get("total_tokens")) or 0) - input_tokens - output_tokens)
    return Usage(
        model=model,
        input=input_tokens,
        output=output_tokens + reasoning_tokens,
        cache_read=min(input_tokens, count(numbers.get("cached")) or 0),
        reasoning=reasoning_tokens,
    )
