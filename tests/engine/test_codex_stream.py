"""What the parser makes of streams of Codex: those that the real CLI wrote, and what can be said of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mz_engine.agents.codex.adapter import Codex
from mz_engine.agents.registry import load_patterns
from mz_engine.ports import CallResult, ParsedReply
from mz_events.catalog.call import Problem, ProblemClass, Usage

from tests.support.codex_cases import CODEX

THREAD = {"type": "thread.started", "thread_id": "t"}
TURN = {"type": "turn.started"}


def read(*events: object, exit_: int | None = 0, earlier: tuple[Usage, ...] = (), stderr: bytes = b"") -> ParsedReply:
    stdout = b"\n".join(json.dumps(event).encode() for event in events)
    return reading(
        CallResult(stdout=stdout, stderr=stderr, exit=exit_, duration_ms=1, model="m", session_usage_before=earlier)
    )


def reading(result: CallResult) -> ParsedReply:
    return Codex(load_patterns()).parse_output(result)


def message_line(text: str) -> dict[str, object]:
    return {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": text}}


def finished(input_: int = 10, output: int = 2, **more: int) -> dict[str, object]:
    return {"type": "turn.completed", "usage": {"input_tokens": input_, "output_tokens": output, **more}}


def failed(message: str) -> dict[str, object]:
    return {"type": "turn.failed", "error": {"message": message}}


def trouble(message: str) -> dict[str, object]:
    return {"type": "error", "message": message}


def code(parsed_reply: ParsedReply) -> str:
    return parsed_reply.problem.code if parsed_reply.problem else ""


@pytest.mark.parametrize("name", CODEX.existing)
def test_streams_of_the_real_cli(name: str) -> None:
    expected, reply = CODEX.expected[name], reading(CODEX.stored(name))
    problem = reply.problem
    summary = (problem.code, problem.kind, problem.retry_after_seconds) if problem else ("", None, None)
    assert (reply.ending, *summary) == (expected.terminal, expected.code, expected.kind, expected.wait)
    assert reply.undecodable_lines == 0
    assert reply.reported_nanousd is None


def test_a_finished_call() -> None:
    reply = reading(CODEX.stored("works"))
    assert reply.text == "Done: note.md is there."
    assert reply.session == "11111111-2222-4333-8444-555555555555"
    (usage,) = reply.usage
    assert usage.input > usage.cache_read + usage.cache_write_5m > 0
    assert usage.requests is None


def test_what_the_thread_had_used_before_is_taken_off() -> None:
    result = CODEX.stored("continued")
    (usage,) = reading(result).usage
    assert (usage.input, usage.output) == CODEX.expected["continued"].tokens
    assert usage.cache_read == result.session_usage_before[0].input
    assert usage.reasoning == 40


def test_several_calls_before_are_taken_off() -> None:
    item = Usage(model="m", input=100, output=10, cache_read=40, reasoning=3)
    other = Usage(model="n", input=50, output=5, cache_write_1h=20)
    document = finished(200, 18, cached_input_tokens=80, cache_write_input_tokens=25, reasoning_output_tokens=4)
    reply = read(THREAD, TURN, document, earlier=(item, other))
    assert reply.usage == (Usage(model="m", input=50, output=3, cache_read=40, cache_write_5m=5, reasoning=1),)


def test_a_thread_that_is_not_that_one_counts_whole() -> None:
    """Less than before: the count began anew. Better too much than a call for nothing."""
    reply = read(THREAD, TURN, finished(30, 3), earlier=(Usage(model="m", input=100, output=10),))
    assert reply.usage == (Usage(model="m", input=30, output=3),)


def test_parts_are_no_more_than_the_whole() -> None:
    odd = finished(10, 2, cached_input_tokens=8, cache_write_input_tokens=8, reasoning_output_tokens=5)
    assert read(THREAD, TURN, odd).usage == (
        Usage(model="m", input=10, output=2, cache_read=8, cache_write_5m=2, reasoning=2),
    )


def test_the_last_words_count() -> None:
    assert read(THREAD, TURN, message_line("one"), message_line("two"), finished()).text == "two"


def test_reconnecting_is_no_end() -> None:
    going_on = read(THREAD, TURN, trouble("Reconnecting... 1/5 (x)"), exit_=None)
    assert going_on.ending == "no-terminal"
    reply = read(
        THREAD,
        TURN,
        trouble("Reconnecting... 1/5 (unexpected status 401 Unauthorized)"),
        message_line("ok"),
        finished(),
    )
    assert (reply.ending, code(reply)) == ("success", "")


def test_a_call_that_broke_off_while_it_reconnected_says_why() -> None:
    reply = read(THREAD, TURN, trouble("Reconnecting... 2/5 (unexpected status 429 Too Many Requests)"), exit_=-9)
    assert (reply.ending, code(reply)) == ("no-terminal", "rate-limit")


def test_trouble_that_was_overcome_is_not_why_it_broke_off() -> None:
    reply = read(THREAD, TURN, trouble("unexpected status 401 Unauthorized"), message_line("I go on."), exit_=-9)
    assert code(reply) == "no-terminal"


def test_a_turn_that_was_begun_owes_an_end() -> None:
    assert read(THREAD, TURN, finished(), TURN, message_line("more")).ending == "no-terminal"


def test_work_before_a_failure_is_known_though_no_tokens_are_told() -> None:
    """A budget keeps the reservation of such a call; a call that was refused at once cost nothing."""
    limit = failed("You've hit your usage limit. Try again later.")
    refused, worked = read(THREAD, TURN, limit, exit_=1), read(THREAD, TURN, message_line("I begin."), limit, exit_=1)
    assert [(reply.usage, reply.usage_incomplete) for reply in (refused, worked)] == [((), False), ((), True)]
    assert not read(THREAD, TURN, message_line("ok"), finished()).usage_incomplete
    assert read(THREAD, TURN, finished(), TURN, message_line("more"), limit, exit_=1).usage_incomplete
    warned = {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "odd settings"}}
    assert not read(THREAD, TURN, warned, limit, exit_=1).usage_incomplete


def test_an_answer_of_the_api_within_the_message_is_read() -> None:
    answer = {"type": "error", "status": 400, "error": {"code": "context_length_exceeded", "message": "Too much."}}
    reply = read(THREAD, TURN, failed(json.dumps(answer)), exit_=1)
    assert reply.problem_detail == "context_length_exceeded Too much."


@pytest.mark.parametrize(
    ("text", "expected", "wait"),
    [
        ("You've hit your usage limit. Try again in 3 days 4 hours.", "rate-limit", 3 * 86400),
        ("You’ve hit your usage limit. Try again later.", "rate-limit", 600),
        ("exceeded retry limit, last status: 500 Internal Server Error", "overloaded", 30),
        ("unexpected status 503 Service Unavailable: x", "overloaded", 30),
        ("Quota exceeded. Check your plan and billing details.", "billing", None),
    ],
)
def test_words_of_other_versions(text: str, expected: str, wait: int | None) -> None:
    reply = read(THREAD, TURN, failed(text), exit_=1)
    assert reply.problem is not None
    assert (reply.problem.code, reply.problem.retry_after_seconds) == (expected, wait)


def test_what_we_did_ourselves_comes_first() -> None:
    ours = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
    stdout = b"\n".join(json.dumps(event).encode() for event in (THREAD, TURN, finished()))
    assert reading(CallResult(stdout=stdout, stderr=b"", exit=None, duration_ms=1, problem=ours)).problem == ours


def test_stored_streams_name_no_place_of_this_machine() -> None:
    for path in CODEX.folder.glob("*"):
        assert str(Path.home()).encode() not in path.read_bytes().replace(b"/home/somebody", b"")
