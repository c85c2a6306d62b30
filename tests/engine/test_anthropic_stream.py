"""What the parser makes of streams: those that the real program wrote, and any bytes at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.anthropic_api.adapter import AnthropicApi
from mz_engine.agents.registry import load_patterns
from mz_engine.ports import CallResult, ParsedReply
from mz_events.catalog.call import Problem, ProblemClass, Usage

from tests.support.anthropic_cases import ANTHROPIC
from tests.support.examples import examples

EXPECTED = ANTHROPIC.expected


def reading(result: CallResult) -> ParsedReply:
    return AnthropicApi(load_patterns()).parse_output(result)


def read(*events: object, exit_: int | None = 0, problem: Problem | None = None, stderr: bytes = b"") -> ParsedReply:
    stdout = b"\n".join(event if isinstance(event, bytes) else json.dumps(event).encode() for event in events)
    return reading(CallResult(stdout=stdout, stderr=stderr, exit=exit_, duration_ms=1, problem=problem))


def ended(**more: object) -> dict[str, object]:
    return {"type": "end", "status": "success", "text": "done", "error": None, **more}


def failed(kind: str, **more: object) -> dict[str, object]:
    return ended(status="error", text="", error={"kind": kind, "message": "words", **more})


def request(name: str, **usage: object) -> dict[str, object]:
    return {"type": "request", "id": name, "model": "m", "usage": usage}


@pytest.mark.parametrize("name", ANTHROPIC.existing)
def test_streams_of_the_real_program(name: str) -> None:
    expected, reply = EXPECTED[name], reading(ANTHROPIC.stored(name))
    problem = reply.problem
    result = (problem.code, problem.kind, problem.retry_after_seconds) if problem else ("", None, None)
    assert (reply.ending, *result) == (expected.terminal, expected.code, expected.kind, expected.wait)
    assert reply.version.startswith("2.")
    assert reply.session == "11111111-2222-4333-8444-555555555555"
    assert reply.undecodable_lines == 0


def test_a_finished_call() -> None:
    reply = reading(ANTHROPIC.stored("works"))
    assert reply.text == "Done: note.md is there."
    first, second, last = reply.usage
    assert (first.requests, first.reasoning, first.cache_write_1h) == (1, 40, 0)
    assert second.cache_write_1h > 0
    assert last.input == last.cache_read + last.cache_write_5m + last.cache_write_1h + 12
    assert reply.reported_nanousd is None


def test_what_was_used_before_the_stream_was_cut_counts() -> None:
    reply = reading(ANTHROPIC.stored("cut"))
    assert len(reply.usage) == 3
    assert reply.problem_detail.startswith("connection error: peer closed connection")
    assert reply.usage == reading(ANTHROPIC.stored("cut")).usage


def test_usage() -> None:
    document = request(
        "a", input_tokens=1, cache_read_input_tokens=20, cache_creation_input_tokens=300, output_tokens=4000,
        cache_creation={"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
        output_tokens_details={"thinking_tokens": 7}, service_tier="priority",
    )  # fmt: skip
    assert read(document, ended()).usage == (
        Usage(
            model="m", input=321, output=4000, cache_read=20, cache_write_5m=100, cache_write_1h=200, reasoning=7,
            requests=1, tier="priority",
        ),
    )  # fmt: skip
    bare = request("b", input_tokens=5, output_tokens=6, cache_creation_input_tokens=3, service_tier="standard")
    assert read(bare).usage == (Usage(model="m", input=8, output=6, cache_write_5m=3, requests=1),)
    assert len(read(document, document, bare, ended()).usage) == 2
    assert read(request("c"), request("d", input_tokens=-1, output_tokens=True)).usage == ()
    assert len(read(*[request("", input_tokens=1)] * 2).usage) == 2


def test_the_exit_code_never_decides() -> None:
    for code in (0, 1, 143, -9, None):
        assert read(ended(), exit_=code).problem is None
        assert read(failed("x"), exit_=code).ending == "error"
        assert read(exit_=code).ending == "no-terminal"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("max_tokens", "output-limit"),
        ("max_turns", "turn-limit"),
        ("model_context_window_exceeded", "prompt-too-long"),
        ("request_too_large", "prompt-too-long"),
        ("refusal", "refused"),
        ("session_taken", "session-taken"),
        ("session_missing", "session-missing"),
        ("timeout_error", "overloaded"),
        ("terminated", "stopped"),
        ("loop_failed", "exit-1"),
        ("invalid_request_error", "exit-1"),
    ],
)
def test_ways_to_fail(kind: str, code: str) -> None:
    problem = read(failed(kind), exit_=1).problem
    assert problem is not None
    assert problem.code == code


def test_a_wait_is_rounded_up() -> None:
    for retry_after, seconds in ((0.02, 1), (61.5, 62), (90, 90), (-1, 600), ("9", 600), (10**30, 600), (True, 600)):
        problem = read(failed("rate_limit_error", retry_after_seconds=retry_after)).problem
        assert problem is not None
        assert problem.retry_after_seconds == seconds


def test_what_contradicts_itself_is_no_success() -> None:
    assert read(ended(error={"kind": "x"})).ending == "error"
    assert read(ended(status="Success")).ending == "error"
    assert read(ended(), failed("x")).ending == "error"


def test_our_own_verdict_comes_first() -> None:
    ours = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
    assert read(ended(), problem=ours).problem == ours


def test_the_last_words_are_kept() -> None:
    assert read({"type": "text", "text": "half"}).text == "half"
    assert read(stderr=b"ImportError: no module").problem_detail == "ImportError: no module"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda more: st.lists(more, max_size=3) | st.dictionaries(st.sampled_from(["usage", "error", "kind"]), more),
    max_leaves=5,
)
KEYS = st.sampled_from(["id", "model", "usage", "status", "text", "error", "session", "version"])
EVENTS = st.dictionaries(KEYS, JSON).flatmap(
    lambda event: st.sampled_from(["start", "text", "request", "end", "x"]).map(lambda kind: {**event, "type": kind})
)
LINES = st.binary(max_size=40) | EVENTS.map(lambda event: json.dumps(event).encode())


@examples(100)
@given(st.lists(LINES, max_size=6), st.sampled_from([0, 1, 143, -9, None]))
@pytest.mark.slow
def test_any_bytes_give_a_reading(lines: list[bytes], code: int | None) -> None:
    reply = reading(CallResult(stdout=b"\n".join(lines), stderr=b"\xff", exit=code, duration_ms=1))
    assert reply.problem is not None or reply.ending == "success"
    assert all(0 <= usage.cache_read <= usage.input and usage.reasoning <= usage.output for usage in reply.usage)
