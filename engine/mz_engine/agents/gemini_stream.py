"""Pure: reads what `gemini --output-format stream-json` wrote. Total over any bytes.

The verdict is the `status` of the last `result`, never the exit code; without a `result` the call failed. Tokens come
from its `stats`, per model and for this call alone. What the model thought is billed as output and has no field: it is
what the total has more than its parts. The text is what was said after the last use of a tool, and comes in pieces.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec
from mz_events.catalog.call import Usage

from mz_engine.agents.classify import Ending, Patterns, classify
from mz_engine.agents.contract import Watch
from mz_engine.agents.jsonline import Json, count, each_object, last_words, mapping, session_id, string
from mz_engine.ports import CallResult, Reading

EXITS = {
    41: "exit_authentication",
    42: "exit_input",
    44: "exit_sandbox",
    52: "exit_configuration",
    53: "exit_turns",
    55: "exit_untrusted",
}
"""This CLI's own exit codes. An API's status comes as its remainder by 256, and is read where it is told in full."""

AGAIN_CHARACTERS = 12
"""A shorter beginning may well be there twice by itself."""
AGAIN_TRIES = 20
"""More often than the CLI ever asks again."""
WAIT_DIGITS_MAX = 7

_CHATTER = re.compile(r"^(?:Warning: 256-color support|Ripgrep is not available|\[STARTUP\]).*\n?", re.MULTILINE)
"""What the CLI says on standard error whenever it starts without a terminal."""
_STATUS = re.compile(r'"code"\s*:\s*([45]\d\d)\b')
_STATUS_REPORTED = re.compile(r"^\s+(?:status|code): ([45]\d\d)\b", re.MULTILINE)
_WAIT = re.compile(rf"\bretry in (\d{{1,{WAIT_DIGITS_MAX}}}(?:\.\d{{1,9}})?)s\b", re.IGNORECASE)


class Told(msgspec.Struct, kw_only=True):
    """What the lines of one stream say, gathered in one pass."""

    bad_lines: int = 0
    session: str | None = None
    model: str = ""
    result: Json | None = None
    pieces: list[str] = []
    """Of what the agent said last, without a tool in between."""
    closed: bool = False
    """A tool was used after these pieces: with the next one something new begins."""
    error: str = ""
    """The newest error of which the CLI tells besides the result."""


def read_stream(result: CallResult, parser: str, patterns: Patterns, watch: Watch | None = None) -> Reading:
    """What one call said. Never raises: unreadable lines are counted, a missing end is a problem."""
    told = gather(result.stdout, watch)
    last: Json = told.result or {}
    failure = mapping(last.get("error"))
    words = string(failure.get("message")) or ("" if last.get("status") == "success" else told.error)
    stderr = _CHATTER.sub("", last_words(result.stderr)).strip()
    text = said(told.pieces)
    terminal = terminal_of(told.result)
    every = "\n".join(part for part in (stderr, words) if part)
    ending = Ending(
        ours=result.problem,
        terminal=terminal,
        exit=result.exit,
        stops=_stops(failure, result.exit),
        status=_status(words, stderr),
        words=every,
        text=text,
        retry_after_seconds=_wait(every),
    )
    problem = classify(ending, patterns)
    return Reading(
        parser=parser,
        terminal=terminal,
        text=text or words,
        session=told.session,
        usage=usage_of(mapping(last.get("stats")), told.model or result.model),
        problem=problem,
        problem_detail=(words or stderr or text) if problem else "",
        bad_lines=told.bad_lines,
        version=result.version,
    )


def gather(stdout: bytes, watch: Watch | None = None) -> Told:
    """One pass over the lines; unknown types and fields are passed over."""
    told = Told()
    told.bad_lines = each_object(stdout, lambda event: _note(told, event), watch)
    return told


def _note(told: Told, event: Json) -> None:
    match event.get("type"):
        case "init":
            told.session = session_id(event.get("session_id")) or told.session
            told.model = string(event.get("model")) or told.model
        case "message" if event.get("role") == "assistant":
            _note_words(told, event)
        case "tool_use":
            told.closed = True
        case "error":
            told.error = string(event.get("message")) or told.error
        case "result":
            told.result = event
        case _:
            pass


def _note_words(told: Told, event: Json) -> None:
    if told.closed or event.get("delta") is not True:
        told.pieces, told.closed = [], False
    if words := string(event.get("content")):
        told.pieces.append(words)


def terminal_of(result: Json | None) -> Literal["success", "error", "no-terminal"]:
    """What the last `result` says; anything but `success` is an error."""
    if result is None:
        return "no-terminal"
    return "success" if result.get("status") == "success" else "error"


# text -----------------------------------------------------------------------------------------------------------------
def said(pieces: list[str]) -> str:
    """The pieces in one. After a stream that broke off the model is asked again, and nothing says so: where the text
    so far begins anew at a piece, it is taken once. A second answer in other words cannot be told from the first."""
    whole = "".join(pieces)
    for _ in range(AGAIN_TRIES):
        at = _again(whole, pieces)
        if at is None:
            break
        whole, pieces = whole[at:], _without(pieces, at)
    return whole


def _again(whole: str, pieces: list[str]) -> int | None:
    """Where what stands before begins once more."""
    head = whole[:AGAIN_CHARACTERS]
    if not any(letter.isalpha() for letter in head):
        return None
    at = tried = 0
    for piece in pieces[:-1]:
        at += len(piece)
        if at < AGAIN_CHARACTERS or not whole.startswith(head, at):
            continue
        if whole.startswith(whole[:at], at):
            return at
        if (tried := tried + 1) > AGAIN_TRIES:
            return None
    return None


def _without(pieces: list[str], characters: int) -> list[str]:
    for index, piece in enumerate(pieces):
        if characters <= 0:
            return pieces[index:]
        characters -= len(piece)
    return []


# failures -------------------------------------------------------------------------------------------------------------
def _stops(failure: Json, exit_: int | None) -> tuple[str, ...]:
    named = (string(failure.get("type")), "" if exit_ is None else EXITS.get(exit_, ""))
    return tuple(name for name in named if name)


def _status(words: str, stderr: str) -> int | None:
    """The HTTP status: in the API's own words, else in what the CLI reports of its error."""
    found = _STATUS.search(words)
    if found:
        return int(found[1])
    reported = _STATUS_REPORTED.findall(stderr)
    return int(reported[-1]) if reported else None


def _wait(words: str) -> int | None:
    """Whole seconds until the API wants to be asked again."""
    found = _WAIT.findall(words)
    return math.ceil(float(found[-1])) if found else None


# tokens ---------------------------------------------------------------------------------------------------------------
def usage_of(stats: Json, model: str) -> tuple[Usage, ...]:
    """Per model; where the models are not told apart, of the one that the call began with."""
    models = mapping(stats.get("models"))
    found = tuple(_usage(name, mapping(numbers)) for name, numbers in sorted(models.items()) if name)
    if not found and model:
        found = (_usage(model, stats),)
    return tuple(usage for usage in found if usage.input or usage.output)


def _usage(model: str, numbers: Json) -> Usage:
    """`input_tokens` includes what came from the cache; `output_tokens` leaves out what the model thought."""
    entered = count(numbers.get("input_tokens")) or 0
    spoken = count(numbers.get("output_tokens")) or 0
    thought = max(0, (count(numbers.get("total_tokens")) or 0) - entered - spoken)
    return Usage(
        model=model,
        input=entered,
        output=spoken + thought,
        cache_read=min(entered, count(numbers.get("cached")) or 0),
        reasoning=thought,
    )
