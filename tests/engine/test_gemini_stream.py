"""What the parser makes of streams: those that the real CLI wrote, those of other versions, and any bytes at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.gemini.adapter import Gemini
from mz_engine.agents.gemini.stream import join_pieces
from mz_engine.agents.registry import load_patterns
from mz_engine.ports import CallResult, ParsedReply
from mz_events.catalog.call import Problem, ProblemClass, Usage

from tests.support.examples import examples
from tests.support.gemini_cases import GEMINI
from tests.support.values import JSON, some_of

REQUESTED_MODEL = "gemini-asked-for"


def read(*events: object, exit_: int | None = 0, problem: Problem | None = None, stderr: bytes = b"") -> ParsedReply:
    stdout = b"\n".join(event if isinstance(event, bytes) else json.dumps(event).encode() for event in events)
    return reading(
        CallResult(stdout=stdout, stderr=stderr, exit=exit_, duration_ms=1, problem=problem, model=REQUESTED_MODEL)
    )


def reading(result: CallResult) -> ParsedReply:
    return Gemini(load_patterns()).parse_output(result)


def finished(**more: object) -> dict[str, object]:
    return {"type": "result", "status": "success", **more}


def failed(**more: object) -> dict[str, object]:
    return {"type": "result", "status": "error", **more}


def piece(text: str) -> dict[str, object]:
    return {"type": "message", "role": "assistant", "content": text, "delta": True}


def problem_of(parsed_reply: ParsedReply) -> tuple[str, ProblemClass | None, int | None]:
    if parsed_reply.problem is None:
        return "", None, None
    return parsed_reply.problem.code, parsed_reply.problem.kind, parsed_reply.problem.retry_after_seconds


@pytest.mark.parametrize("name", GEMINI.existing)
def test_streams_of_the_real_cli(name: str) -> None:
    expected, reply = GEMINI.expected[name], reading(GEMINI.stored(name))
    assert (reply.ending, *problem_of(reply)) == (expected.terminal, expected.code, expected.kind, expected.wait)
    assert reply.undecodable_lines == 0
    assert bool(reply.problem_detail) == (reply.problem is not None and name not in ("terminated", "interrupted"))


def test_a_finished_call() -> None:
    reply = reading(GEMINI.stored("works"))
    assert reply.text == "Done: note.md is there."
    assert reply.session == "11111111-2222-4333-8444-555555555555"
    (usage,) = reply.usage
    assert usage.model == "gemini-2.5-pro"
    assert usage.input > usage.cache_read > 0
    assert usage.reasoning == 0
    assert usage.requests is None
    assert reply.reported_nanousd is None


def test_what_the_model_thought_is_output() -> None:
    (usage,) = reading(GEMINI.stored("continued")).usage
    assert (usage.output, usage.reasoning) == (47, 40)


def test_an_answer_that_was_begun_twice_is_told_once() -> None:
    assert reading(GEMINI.stored("begun-again")).text == "I looked at all the files. There is nothing to do."


@pytest.mark.parametrize("name", GEMINI.existing)
def test_every_prefix_is_read(name: str) -> None:
    result = GEMINI.stored(name)
    reply = reading(result)
    for cut in range(0, len(result.stdout.rstrip()), 7):
        observed = reading(CallResult(stdout=result.stdout[:cut], stderr=b"", exit=0, duration_ms=1))
        assert observed.ending == "no-terminal"
        assert observed.problem is not None
        assert observed.session in (None, reply.session)
        assert observed.undecodable_lines <= 1


@examples(100)
@given(st.data())
@pytest.mark.slow
def test_any_shape_in_any_field_is_read(data: st.DataObject) -> None:
    events = [json.loads(line) for line in GEMINI.stored("works").stdout.splitlines()]
    for event in data.draw(some_of(events)):
        for name in data.draw(st.lists(st.sampled_from(sorted(event)), max_size=3)):
            event[name] = data.draw(JSON)
        stats = event.get("stats")
        if isinstance(stats, dict) and stats:
            stats[data.draw(st.sampled_from(sorted(stats)))] = data.draw(JSON)
    reply = read(*events)
    assert all(usage.input >= usage.cache_read >= 0 and usage.output >= usage.reasoning >= 0 for usage in reply.usage)


def test_lines_that_are_no_json_are_counted() -> None:
    reply = read(b"warning: \xff\xfe", b"[1, 2]", b"[" * 100_000, b"1" * 10_000, b"", finished(), b'{"type": "resu')
    assert reply.ending == "success"
    assert reply.undecodable_lines == 5


@pytest.mark.parametrize("status", ["error", "cancelled", None, True, 1])
def test_only_success_is_success(status: object) -> None:
    reply = read(piece("all done"), {"type": "result", "status": status})
    assert reply.ending == "error"
    assert reply.problem is not None


def test_exit_0_without_a_result_is_a_failure() -> None:
    reply = read({"type": "init", "session_id": "s", "model": "m"}, piece("all done"), exit_=0)
    assert (reply.ending, problem_of(reply)[0]) == ("no-terminal", "no-terminal")
    assert (reply.session, reply.text, reply.usage) == ("s", "all done", ())


def test_a_whole_answer_before_an_error_is_kept() -> None:
    """Some versions end so, without saying what failed in the result itself."""
    broken = {"type": "error", "severity": "error", "message": "The model response was blocked due to safety settings."}
    reply = read(piece("all done"), broken, failed())
    assert reply.text == "all done"
    assert problem_of(reply)[:2] == ("refused", ProblemClass.PHASE)
    assert reply.problem_detail == broken["message"]


def test_a_warning_on_the_way_is_none_in_the_end() -> None:
    warned = {"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"}
    reply = read(warned, piece("all done"), finished())
    assert (reply.problem, reply.problem_detail) == (None, "")


@pytest.mark.parametrize(
    ("exit_", "code", "kind"),
    [
        (41, "auth-failure", ProblemClass.FATAL),
        (44, "agent-settings", ProblemClass.FATAL),
        (52, "agent-settings", ProblemClass.FATAL),
        (53, "turn-limit", ProblemClass.PHASE),
        (55, "agent-settings", ProblemClass.FATAL),
        (42, "no-terminal", ProblemClass.PHASE),
        (None, "no-terminal", ProblemClass.PHASE),
    ],
)
def test_exit_codes_of_the_cli_itself(exit_: int | None, code: str, kind: ProblemClass) -> None:
    assert problem_of(read(exit_=exit_))[:2] == (code, kind)


def test_what_we_did_ourselves_comes_first() -> None:
    ours = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
    assert read(finished(), exit_=41, problem=ours).problem == ours


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("Please retry in 34.07s.", 35),
        ("retry in 2s", 2),
        ("first retry in 2s, then Retry in 9s", 9),
        ("retry in 99999999999s", 600),
        ("retry in -3s", 600),
        ("quota exceeded", 600),
    ],
)
def test_the_wait_that_the_api_asks_for(text: str, wait: int) -> None:
    error = {"type": "unknown", "message": f'[API Error: {{"error":{{"code":429,"message":"{text}"}}}}]'}
    assert problem_of(read(failed(error=error), exit_=173)) == ("rate-limit", ProblemClass.TRANSIENT, wait)


def test_the_status_may_stand_in_the_report_alone() -> None:
    report = b"Error when talking to Gemini API Full report available at: /tmp/x.json ApiError: busy\n  status: 503\n}"
    assert problem_of(read(failed(error={"message": "busy"}), exit_=247, stderr=report))[0] == "overloaded"
    assert problem_of(read(failed(error={"message": "busy"}), exit_=9, stderr=b"status: 503"))[0] == "exit-9"


# text -----------------------------------------------------------------------------------------------------------------
def test_what_was_said_after_the_last_tool_is_the_text() -> None:
    tool, answer = {"type": "tool_use", "tool_name": "t"}, {"type": "tool_result", "status": "success"}
    reply = read(piece("I "), piece("look."), tool, answer, piece("All "), piece("is well."), finished())
    assert reply.text == "All is well."


def test_with_no_word_after_the_last_tool_the_words_before_are_the_text() -> None:
    """As the CLI itself does in its JSON document."""
    tool = {"type": "tool_use", "tool_name": "t"}
    assert read(piece("I look."), tool, tool, finished()).text == "I look."


def test_the_prompt_is_no_text() -> None:
    reply = read({"type": "message", "role": "user", "content": "Write."}, piece("ok"), finished())
    assert reply.text == "ok"


def test_a_whole_message_replaces_the_pieces() -> None:
    assert read(piece("al"), {"type": "message", "role": "assistant", "content": "all"}, finished()).text == "all"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((), ""),
        (("one piece",), "one piece"),
        (("A long beginning ", "A long beginning ", "A long beginning and an end"), "A long beginning and an end"),
        (("A long be", "ginning", "A long beginning and", " an end"), "A long beginning and an end"),
        (("ha ", "ha ", "ha"), "ha ha ha"),
        (("=" * 40, "=" * 40), "=" * 80),
        (("A long beginning ", "A long bend"), "A long beginning A long bend"),
        (("A long beginning ", "and A long beginning "), "A long beginning and A long beginning "),
    ],
)
def test_a_beginning_that_is_told_again_counts_once(pieces: tuple[str, ...], text: str) -> None:
    assert join_pieces(list(pieces)) == text


@given(st.lists(st.text("ab ", min_size=1, max_size=30), max_size=12))
def test_the_end_of_what_was_said_is_always_there(pieces: list[str]) -> None:
    value = "".join(pieces)
    text = join_pieces(pieces)
    assert value.endswith(text)
    assert bool(text) == bool(value)


# tokens ---------------------------------------------------------------------------------------------------------------
def stats(**models: dict[str, int]) -> dict[str, object]:
    return {"stats": {"total_tokens": 1, "models": {name.replace("_", "-"): counts for name, counts in models.items()}}}


def test_several_models_are_told_apart() -> None:
    pro = {"total_tokens": 1578, "input_tokens": 1000, "output_tokens": 300, "cached": 400, "input": 600}
    lite = {"total_tokens": 30, "input_tokens": 20, "output_tokens": 10, "cached": 0, "input": 20}
    idle = {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0}
    reply = read({"type": "init", "model": "auto"}, finished(**stats(pro=pro, flash_lite=lite, idle=idle)))
    assert reply.usage == (
        Usage(model="flash-lite", input=20, output=10),
        Usage(model="pro", input=1000, output=578, cache_read=400, reasoning=278),
    )


def test_without_models_the_sums_are_those_of_the_model_that_it_began_with() -> None:
    sums = {"total_tokens": 36, "input_tokens": 20, "output_tokens": 10}
    assert read({"type": "init", "model": "m"}, finished(stats=sums)).usage == (
        Usage(model="m", input=20, output=16, reasoning=6),
    )
    assert read(finished(stats=sums)).usage[0].model == REQUESTED_MODEL


@pytest.mark.parametrize("total", [None, 5, "9", -1, 2.5, True])
def test_a_total_that_is_less_than_its_parts_says_nothing_of_thoughts(total: object) -> None:
    numbers = {"total_tokens": total, "input_tokens": 20, "output_tokens": 10, "cached": 99}
    (usage,) = read(finished(stats={"models": {"m": numbers}})).usage
    assert usage == Usage(model="m", input=20, output=10, cache_read=20)


def test_stored_streams_name_no_place_of_this_machine() -> None:
    for path in GEMINI.folder.glob("*"):
        assert str(Path.home()).encode() not in path.read_bytes().replace(b"/home/somebody/home", b"")
