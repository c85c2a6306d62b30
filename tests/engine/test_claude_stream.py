"""What the parser makes of streams: those that the real CLI wrote, those of other versions, and any bytes at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.agents.claude_code.stream import StreamReader
from mz_engine.agents.reading.anthropic import model_usage, request_usage
from mz_engine.agents.reading.call import read_call
from mz_engine.agents.reading.records import ReaderState
from mz_engine.agents.registry import load_patterns
from mz_engine.ports import CallResult, ParsedReply
from mz_events.catalog.call import Problem, ProblemClass, Usage

from tests.support.claude_cases import CLAUDE
from tests.support.examples import examples
from tests.support.tree import ROOT
from tests.support.values import JSON, some_of


def read(*events: object, exit_: int | None = 0, problem: Problem | None = None, stderr: bytes = b"") -> ParsedReply:
    stdout = b"\n".join(event if isinstance(event, bytes) else json.dumps(event).encode() for event in events)
    return reading(CallResult(stdout=stdout, stderr=stderr, exit=exit_, duration_ms=1, problem=problem))


def reading(result: CallResult) -> ParsedReply:
    return ClaudeCode(load_patterns()).parse_output(result)


def finished(**more: object) -> dict[str, object]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "s", **more}


def assistant_line(name: str, text: str, **usage: object) -> dict[str, object]:
    message = {"id": name, "model": "m", "content": [{"type": "text", "text": text}], "usage": usage}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None}


@pytest.mark.parametrize("name", CLAUDE.existing)
def test_streams_of_the_real_cli(name: str) -> None:
    expected, reply = CLAUDE.expected[name], reading(CLAUDE.stored(name))
    code, kind, wait = _problem(reply)
    assert (reply.ending, code, kind, wait) == (expected.terminal, expected.code, expected.kind, expected.wait)
    assert reply.version == "" if name == "no-session" else reply.version.startswith("2.")
    assert reply.undecodable_lines == 0


def _problem(parsed_reply: ParsedReply) -> tuple[str, ProblemClass | None, int | None]:
    if parsed_reply.problem is None:
        return "", None, None
    return parsed_reply.problem.code, parsed_reply.problem.kind, parsed_reply.problem.retry_after_seconds


def test_a_finished_call() -> None:
    reply = reading(CLAUDE.stored("works"))
    assert reply.text == "Done: note.md is there."
    assert reply.session == "11111111-2222-4333-8444-555555555555"
    (usage,) = reply.usage
    assert usage.model == "claude-sonnet-4-6"
    assert usage.requests == 3
    assert usage.input > usage.cache_read + usage.cache_write_5m > 0
    assert reply.reported_nanousd is not None
    by_hand = 3_000 * (usage.input - usage.cache_read - usage.cache_write_5m)
    by_hand += 300 * usage.cache_read + 3_750 * usage.cache_write_5m + 15_000 * usage.output
    assert reply.reported_nanousd == by_hand


@pytest.mark.parametrize("name", CLAUDE.existing)
@pytest.mark.slow
def test_every_prefix_is_read(name: str) -> None:
    result = CLAUDE.stored(name)
    reply = reading(result)
    for cut in range(0, len(result.stdout.rstrip()), 7):
        observed = reading(CallResult(stdout=result.stdout[:cut], stderr=b"", exit=0, duration_ms=1))
        assert observed.ending == "no-terminal"
        assert observed.problem is not None
        assert observed.session in (None, reply.session)
        assert observed.undecodable_lines <= 1


@examples(300)
@given(st.binary(max_size=400))
def test_any_bytes_are_read(data: bytes) -> None:
    reply = reading(CallResult(stdout=data, stderr=data, exit=None, duration_ms=1))
    assert reply.ending in ("success", "error", "no-terminal")


@examples(100)
@given(st.data())
@pytest.mark.slow
def test_any_shape_in_any_field_is_read(data: st.DataObject) -> None:
    events = [json.loads(line) for line in CLAUDE.stored("works").stdout.splitlines()]
    for event in data.draw(some_of(events)):
        for name in data.draw(st.lists(st.sampled_from(sorted(event)), max_size=3)):
            event[name] = data.draw(JSON)
        for name in ("usage", "modelUsage", "message"):
            inner = event.get(name)
            if isinstance(inner, dict) and inner:
                inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(JSON)
    reply = read(*events)
    assert all(usage.input >= 0 and usage.output >= 0 for usage in reply.usage)


def test_lines_that_are_no_json_are_counted() -> None:
    reply = read(b"warning: \xff\xfe", b"[1, 2]", b"[" * 100_000, b"1" * 10_000, b"", finished(), b'{"type": "resu')
    assert reply.ending == "success"
    assert reply.undecodable_lines == 5


def test_an_api_error_is_an_error_though_it_calls_itself_success() -> None:
    reply = read(finished(is_error=True, result="API Error: 500 upstream", api_error_status=500), exit_=1)
    assert reply.ending == "error"
    assert _problem(reply)[0] == "overloaded"


def test_without_is_error_the_subtype_decides() -> None:
    old = {"type": "result", "subtype": "error_during_execution", "errors": ["it broke", 3]}
    reply = read(old, exit_=1)
    assert reply.ending == "error"
    assert reply.text == reply.problem_detail == "it broke"
    assert _problem(reply)[:2] == ("exit-1", ProblemClass.UNKNOWN)


@pytest.mark.parametrize(
    ("subtype", "code"), [("error_max_turns", "turn-limit"), ("error_max_budget_usd", "call-budget")]
)
def test_limits_of_the_cli(subtype: str, code: str) -> None:
    reply = read(finished(subtype=subtype, is_error=True, result=None, errors=["Reached it"]), exit_=1)
    assert _problem(reply)[:2] == (code, ProblemClass.PHASE)


def test_exit_0_without_a_result_is_a_failure() -> None:
    reply = read({"type": "system", "subtype": "init", "session_id": "s", "claude_code_version": "2.0.0"}, exit_=0)
    assert _problem(reply)[0] == "no-terminal"
    assert reply.session == "s"
    assert reply.version == "2.0.0"


def test_what_we_did_ourselves_comes_first() -> None:
    ours = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
    assert read(finished(), problem=ours).problem == ours


def test_an_earlier_api_error_that_was_retried_is_over() -> None:
    broken = assistant_line("a", "API Error") | {"error": "rate_limit"}
    reply = read(broken, assistant_line("b", "fine"), finished(subtype="error_max_turns", is_error=True), exit_=1)
    assert _problem(reply)[0] == "turn-limit"


def test_the_last_of_several_results_counts() -> None:
    """Money and `modelUsage` accumulate over the results of one stream; `usage` does not."""
    models = {"m": {"inputTokens": 5, "outputTokens": 9, "cacheReadInputTokens": 100, "cacheCreationInputTokens": 70}}
    split = {"cache_creation_input_tokens": 30, "cache_creation": {"ephemeral_1h_input_tokens": 30}}
    document = {"cache_creation_input_tokens": 40, "cache_creation": {"ephemeral_5m_input_tokens": 40}}
    reply = read(
        finished(result="first", total_cost_usd=0.10, usage=split, modelUsage={}),
        finished(result="second", total_cost_usd=0.1394, usage=document, modelUsage=models),
    )
    assert reply.text == "second"
    assert reply.reported_nanousd == 139_400_000
    (usage,) = reply.usage
    assert usage == Usage(model="m", input=175, output=9, cache_read=100, cache_write_5m=40, cache_write_1h=30)


def test_side_models_are_counted() -> None:
    models = {
        "big": {"inputTokens": 5, "outputTokens": 9, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 20},
        "small": {"inputTokens": 2, "outputTokens": 1, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0},
    }
    main = {"cache_creation_input_tokens": 20, "cache_creation": {"ephemeral_1h_input_tokens": 20}}
    reply = read(finished(modelUsage=models, usage=main))
    actual = [(usage.model, usage.input, usage.cache_write_1h) for usage in reply.usage]
    assert actual == [("big", 25, 20), ("small", 2, 0)]


def test_requests_are_told_apart_where_they_add_up() -> None:
    """Long contexts have prices of their own, so each request is priced by itself where the stream allows it."""
    models = {"m": {"inputTokens": 30, "outputTokens": 7, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0}}
    document, other = (
        assistant_line("a", "x", input_tokens=10, output_tokens=3),
        assistant_line("b", "y", input_tokens=20, output_tokens=4),
    )
    reply = read(document, document, other, finished(modelUsage=models))
    assert [(usage.input, usage.output, usage.requests) for usage in reply.usage] == [(10, 3, 1), (20, 4, 1)]


def test_what_a_killed_call_used_is_kept() -> None:
    reply = read(
        assistant_line("a", "x", input_tokens=10, output_tokens=3),
        assistant_line("a", "more", input_tokens=10, output_tokens=1),
    )
    assert [(usage.model, usage.input, usage.output) for usage in reply.usage] == [("m", 10, 3)]
    assert reply.text == "x\nmore"
    assert reply.reported_nanousd is None


def test_a_result_of_zeros_after_work_reports_nothing() -> None:
    reply = read(
        assistant_line("a", "x", input_tokens=10, output_tokens=3),
        finished(is_error=True, total_cost_usd=0, modelUsage={}),
    )
    assert reply.usage
    assert reply.reported_nanousd is None


@pytest.mark.parametrize("delay", [b"1e999", b"-1e999", b"1e30", b"9" * 400, b"0", b"true", b'"1000"', b"null"])
def test_a_wait_that_is_none_is_nobodys(delay: bytes) -> None:
    retry = b'{"type":"system","subtype":"api_retry","error_status":429,"retry_delay_ms":%s}' % delay
    assert read_call(StreamReader(ReaderState()), retry).error.retry_after_seconds is None


@pytest.mark.parametrize("money", ["0.25", 0.25])
def test_money_is_exact(money: object) -> None:
    assert read(finished(total_cost_usd=money)).reported_nanousd == 250_000_000


@pytest.mark.parametrize("money", [None, "n/a", True, -1, 1e300, [], "NaN", "1e999999"])
def test_money_that_is_none(money: object) -> None:
    stub = assistant_line("a", "x", input_tokens=10, output_tokens=3)
    assert read(stub, finished(total_cost_usd=money)).reported_nanousd is None


def test_the_text_of_subagents_is_not_the_agents() -> None:
    side = assistant_line("b", "from a helper") | {"parent_tool_use_id": "t"}
    assert read(assistant_line("a", "mine"), side).text == "mine"


def test_stored_streams_name_no_place_of_this_machine() -> None:
    for path in CLAUDE.folder.glob("*"):
        assert str(Path.home()).encode() not in path.read_bytes().replace(b"/home/somebody/home", b"")


def test_a_resumed_session_of_newer_versions_is_charged_for_what_is_new() -> None:
    """Since 2.1.3 `total_cost_usd` and `modelUsage` include what the session cost before."""
    stream = (ROOT / "tests/cases/transcripts/claude-code/resumed-stream-2.1.329.jsonl").read_bytes()
    first, second = stream.split(b'{"type":"system","subtype":"init"')[1:]
    calls = [
        reading(CallResult(stdout=b'{"type":"system","subtype":"init"' + part, stderr=b"", exit=0, duration_ms=1))
        for part in (first, second)
    ]
    sums = [sum(usage.input for usage in call.usage) for call in calls]
    assert sums == [14_899, 14_968]
    assert [call.reported_nanousd for call in calls] == [55_922_250, 4_775_850]


@pytest.mark.parametrize(
    ("name", "code", "wait"),
    [("refused", "auth-failure", None), ("limited", "rate-limit", 2), ("unreachable", "connection", 30)],
)
def test_api_errors_of_newer_versions_are_told_apart(name: str, code: str, wait: int | None) -> None:
    """The terminal reason of each is `api_error`, and waits that the API asked for have a random part."""
    stdout = (ROOT / f"tests/cases/transcripts/claude-code/{name}-stream-2.1.330.jsonl").read_bytes()
    reply = reading(CallResult(stdout=stdout, stderr=b"", exit=1, duration_ms=1))
    assert (_problem(reply)[0], _problem(reply)[2]) == (code, wait)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Unable to connect to API (FailedToOpenSocket)", "connection"),
        ("Unable to connect to API (EAI_AGAIN)", "connection"),
        ("Unable to connect to API. Check your internet connection", "connection"),
        ("Unable to connect to API: SSL certificate has expired", "exit-1"),
    ],
)
def test_a_lost_network_is_waited_for_and_a_wrong_certificate_is_not(text: str, code: str) -> None:
    assert _problem(read(finished(is_error=True, result=f"API Error: {text}"), exit_=1))[0] == code


def test_thoughts_are_no_more_than_the_output() -> None:
    counts = {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 99}}
    assert request_usage("m", counts).reasoning == 2
    assert model_usage("m", {"inputTokens": 1, "outputTokens": 2, "thinkingTokens": 99}).reasoning == 2


def test_a_result_of_zeros_after_work_is_not_all_that_was_used() -> None:
    """Lines of requests tell the output as it begins, so that a budget keeps the reservation."""
    zeros = finished(is_error=True, total_cost_usd=0, modelUsage={})
    work = assistant_line("a", "x", input_tokens=10, output_tokens=1)
    assert read(work, zeros).usage_incomplete
    assert not read(zeros).usage_incomplete
    models = {"m": {"inputTokens": 10, "outputTokens": 7}}
    assert not read(work, finished(is_error=True, modelUsage=models)).usage_incomplete
