"""What the parser makes of the output of described programs."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.described.adapter import DescribedAgent
from mz_engine.agents.described.stream import LINE_CHARS_MAX
from mz_engine.agents.registry import built_in_adapters, load_patterns
from mz_engine.decoding import regex
from mz_engine.model.agent_description import AgentDescription
from mz_engine.ports import CallResult, ParsedReply
from mz_events.catalog.call import Problem, ProblemClass, Usage
from mz_qa.conformance.endings import stored_endings

LINES = {"form": "jsonl", "text": {"where": {"type": "result"}, "path": "words"}}
WELL = {"success": [{"type": "result", "ok": True}], "error": [{"type": "result", "ok": False}]}


def described(**parts: object) -> AgentDescription:
    return msgspec.convert({"command": ["local"], **parts}, AgentDescription)


def read(reported: AgentDescription, *events: object, exit_: int | None = 0, stderr: bytes = b"") -> ParsedReply:
    stdout = b"\n".join(event if isinstance(event, bytes) else json.dumps(event).encode() for event in events)
    return reading(reported, CallResult(stdout=stdout, stderr=stderr, exit=exit_, duration_ms=1, model="asked"))


def reading(reported: AgentDescription, result: CallResult) -> ParsedReply:
    return DescribedAgent("local", reported, load_patterns()).parse_output(result)


def code(parsed_reply: ParsedReply) -> str:
    return parsed_reply.problem.code if parsed_reply.problem else ""


# what ends a call -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("exit_", [0, 1, 143, -9, None])
def test_an_object_says_how_it_ended_whatever_the_exit_code(exit_: int | None) -> None:
    agent = described(output=LINES, ends=WELL)
    good = read(agent, {"type": "result", "ok": True, "words": "It is done."}, exit_=exit_)
    assert (good.ending, good.text, good.problem) == ("success", "It is done.", None)
    assert read(agent, {"type": "result", "ok": False}, exit_=exit_).ending == "error"
    assert code(read(agent, {"type": "other"}, exit_=exit_)) == "no-terminal"


def test_the_last_object_that_says_something_decides() -> None:
    agent = described(output=LINES, ends=WELL)
    good, bad = {"type": "result", "ok": True}, {"type": "result", "ok": False}
    assert read(agent, bad, good, {"type": "bye"}).ending == "success"
    assert read(agent, good, bad, {"type": "bye"}).ending == "error"


def test_true_is_not_one() -> None:
    assert read(described(output=LINES, ends=WELL), {"type": "result", "ok": 1}).ending == "no-terminal"


def test_what_was_begun_anew_has_to_be_finished_anew() -> None:
    ends = {"open": [{"type": "ask"}], "success": [{"type": "told"}], "last": {"type": "bye"}}
    agent = described(output=LINES, ends=ends)
    ask, answer, bye = {"type": "ask"}, {"type": "told"}, {"type": "bye"}
    assert read(agent, ask, answer, bye).ending == "success"
    assert read(agent, ask, answer, ask, bye).ending == "error"
    assert read(agent, ask, answer, ask).ending == "no-terminal"
    assert read(agent, ask, answer).ending == "no-terminal"


def test_exit_codes_count_where_the_description_says_so() -> None:
    agent = described(output=LINES, ends={**WELL, "exits": [0, 3]})
    good = {"type": "result", "ok": True}
    assert [read(agent, good, exit_=exit_).ending for exit_ in (0, 3, 1, None)] == [
        "success", "success", "error", "success",
    ]  # fmt: skip


def test_words_need_an_exit_code_and_cannot_be_silence() -> None:
    agent = described(ends={"exits": [0]})
    assert read(agent, b"I did it.\n").ending == "success"
    assert read(agent, b"I did it.\n").text == "I did it."
    assert code(read(agent, b" \n")) == "no-terminal"
    assert read(agent, b"I did it.\n", exit_=1).ending == "error"
    assert read(agent, b"I did it.\n", exit_=None).ending == "no-terminal"


def test_words_that_prove_and_disprove() -> None:
    agent = described(ends={"proof": {"pattern": "^paid"}, "disproof": {"stream": "stdout", "pattern": "limit hit"}})
    assert read(agent, b"yes", stderr=b"x\npaid 3\n", exit_=None).ending == "success"
    assert read(agent, b"yes", stderr=b"unpaid\n").ending == "no-terminal"
    assert read(agent, b"yes\nlimit hit\n", stderr=b"paid 3\n").ending == "no-terminal"


def test_no_session_is_an_option_of_the_next_call() -> None:
    agent = described(output={**LINES, "session": {"path": "id"}}, ends=WELL)
    lines = (b'{"id": "s-1"}', b'{"id": "--yolo"}', b'{"id": ""}', b'{"id": 7}')
    results = (CallResult(stdout=line, stderr=b"", exit=0, duration_ms=1) for line in lines)
    sessions = [reading(agent, result).session for result in results]
    assert sessions == ["s-1", None, None, None]


def test_what_we_did_to_the_call_wins() -> None:
    ours = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
    result = CallResult(stdout=b"I did it.", stderr=b"", exit=0, duration_ms=1, problem=ours)
    assert reading(described(ends={"exits": [0]}), result).problem == ours


# failures -------------------------------------------------------------------------------------------------------------
def test_failures_by_the_words_of_the_description_then_by_those_that_all_agents_share() -> None:
    full = {"code": "full", "kind": "transient", "patterns": ["slot available"], "retry_after": 7}
    agent = described(
        output={**LINES, "error": {"path": "why"}, "status": {"path": "http"}}, ends=WELL, problems=[full]
    )
    bad = {"type": "result", "ok": False}
    reply = read(agent, {**bad, "why": "no slot available"})
    assert reply.problem == Problem(kind=ProblemClass.TRANSIENT, code="full", retry_after_seconds=7)
    assert (reply.problem_detail, reply.text) == ("no slot available", "no slot available")
    assert code(read(agent, {**bad, "http": 429})) == "rate-limit"
    busy = read(agent, {**bad, "why": "no slot available", "http": 429})
    assert busy.problem == reply.problem, "whatever status comes with them"
    assert code(read(agent, bad, stderr=b"Invalid API key\n")) == "auth-failure"
    assert code(read(agent, bad, exit_=4)) == "exit-4"


# tokens and money -----------------------------------------------------------------------------------------------------
USED = {"where": {"type": "use"}, "input": "n.in", "output": "n.out"}


def used(reported: object, *events: object, earlier: tuple[Usage, ...] = ()) -> tuple[Usage, ...]:
    stdout = b"\n".join(json.dumps(event).encode() for event in events)
    result = CallResult(stdout=stdout, stderr=b"", exit=0, duration_ms=1, model="asked", session_usage_before=earlier)
    return reading(described(output={**LINES, "usage": reported}, ends=WELL), result).usage


def use(into: int, out: int, **more: object) -> dict[str, object]:
    return {"type": "use", "n": {"in": into, "out": out, **more}}


def test_requests_add_up_and_sums_of_a_call_replace_one_another() -> None:
    usages = used({**USED, "counts": "request"}, use(10, 1), use(20, 2))
    actual = [(usage.model, usage.input, usage.output, usage.requests) for usage in usages]
    assert actual == [("asked", 10, 1, 1), ("asked", 20, 2, 1)]
    (sums,) = used(USED, use(10, 1), use(30, 3))
    assert (sums.input, sums.output, sums.requests) == (30, 3, None)


@pytest.mark.parametrize(
    ("hit_before", "now", "counted"),
    [(50, use(130, 14, hit=70), (30, 4, 20)), (0, use(30, 14), (30, 14, 0)), (0, use(110, 14, hit=70), (10, 4, 10))],
    ids=["what came since", "another session counts whole", "a part is no more than the whole"],
)
def test_sums_of_a_session_count_what_came_since(
    hit_before: int, now: dict[str, object], counted: tuple[int, int, int]
) -> None:
    before = Usage(model="asked", input=100, output=10, cache_read=hit_before)
    (usage,) = used({**USED, "cache_read": "n.hit", "counts": "session"}, now, earlier=(before,))
    assert (usage.input, usage.output, usage.cache_read) == counted


def test_caches_and_thoughts_apart_are_added() -> None:
    collections = {
        **USED, "cache_read": "n.hit", "cache_write": "n.put", "cache_write_1h": "n.hour", "reasoning": "n.why",
        "cached": "apart", "thoughts": "apart", "model": "m",
    }  # fmt: skip
    (usage,) = used(collections, {**use(10, 1, hit=5, put=4, hour=3, why=2), "m": "local-2"})
    assert usage == Usage(
        model="local-2", input=19, output=3, cache_read=5, cache_write_5m=1, cache_write_1h=3, reasoning=2
    )


def test_counts_that_are_none_are_nothing() -> None:
    assert used(USED, use(-1, 5), {"type": "use", "n": {"in": "many", "out": True}}, {"type": "use"}) == (
        Usage(model="asked", input=0, output=5),
    )


def test_money_is_exact_and_nothing_reported_is_not_free() -> None:
    agent = described(output={**LINES, "usage": USED, "money": {"path": "usd"}}, ends=WELL)
    assert read(agent, {"usd": "0.1"}, {"usd": 0.123456789}).reported_nanousd == 123_456_789
    assert read(agent, use(1, 1), {"usd": 0}).reported_nanousd is None
    assert read(agent, {"usd": 0}).reported_nanousd == 0
    assert read(agent, {"usd": "free"}).reported_nanousd is None
    per = described(output={**LINES, "money": {"path": "usd", "counts": "request"}}, ends=WELL)
    assert read(per, {"usd": 0.1}, {"usd": 0.2}).reported_nanousd == 300_000_000


# forms ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("before", [b"", b"Loading...\n"])
def test_one_document_with_or_without_words_before_it(before: bytes) -> None:
    output = {"form": "json", "text": {"path": "answers.0.text"}, "session": {"path": "id"}}
    agent = described(output=output, ends={"success": [{"ok": True}]})
    reply = read(agent, before + json.dumps({"ok": True, "id": "s", "answers": [{"text": "Hi"}]}, indent=1).encode())
    assert (reply.ending, reply.text) == ("success", "Hi")
    assert (reply.session, reply.undecodable_lines) == ("s", 0)
    assert read(agent, before + b'{"ok": tr').undecodable_lines == 1


def test_pieces_of_text_are_joined() -> None:
    output = {"form": "jsonl", "text": {"where": {"type": "piece"}, "path": "t", "joined": True}}
    agent = described(output=output, ends={"success": [{"type": "end"}]})
    reply = read(agent, {"type": "piece", "t": "one "}, {"type": "piece", "t": "two"}, {"type": "end"})
    assert (reply.text, reply.undecodable_lines) == ("one two", 0)
    assert read(agent, b"no JSON", b"[1]").undecodable_lines == 2


def test_colours_go_and_what_the_description_takes_out() -> None:
    agent = described(output={"remove": ["^> ", "^Tokens: .*"]}, ends={"exits": [0]})
    reply = read(agent, b"\x1b[?25l\x1b[38;5;141m> \x1b[0mHello\r\n\nTokens: 5\n\x1b]0;title\x07there\x1b[0m\n")
    assert reply.text == "Hello\n\nthere"


WAYS = "(a+)+$"
"""Matches a line of `a` in more ways than there are atoms."""
ALL_BUT = b"\n".join([b"a" * (LINE_CHARS_MAX - 1) + b"b"] * 100)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "parts",
    [
        {"output": {"remove": [WAYS]}, "ends": {"exits": [0]}},
        {"output": {"version_pattern": WAYS}, "ends": {"exits": [0]}},
        {"output": {}, "ends": {"proof": {"stream": "stdout", "pattern": WAYS}}},
        {"output": {}, "ends": {"exits": [0], "disproof": {"stream": "stdout", "pattern": WAYS}}},
        {"output": {}, "ends": {"exits": [1]}, "problems": [{"code": "full", "kind": "phase", "patterns": [WAYS]}]},
    ],
    ids=["remove", "version", "proof", "disproof", "problems"],
)
def test_no_output_is_searched_for_ever(parts: dict[str, object]) -> None:
    reply = reading(described(**parts), CallResult(stdout=ALL_BUT, stderr=ALL_BUT, exit=0, duration_ms=1))
    assert (reply.ending == "success") is (reply.problem is None)


MANY = "x{0,1000}" * 50 + "y"
"""A hundred thousand states, each of which a line of `x` could be in."""


@pytest.mark.timeout(10)
@pytest.mark.slow
def test_what_would_take_long_all_the_same_is_refused() -> None:
    assert regex.inspect_expression(MANY).error == "it is too large: it has too many repetitions"
    assert regex.inspect_expression(f"(?:{MANY})?").error == regex.inspect_expression(MANY).error
    line = "x" * (LINE_CHARS_MAX - 1) + "z"
    for large in ("(x?)" * 2_000 + "y", "x{0,1000}" * 5 + "y"):
        assert regex.inspect_expression(large).error == ""
        assert not regex.matches_any((large,), line)
        assert regex.remove_matches((large, "z"), line) == line[:-1]


def test_half_a_character_is_none() -> None:
    """JSON can hold it, UTF-8 cannot."""
    line = "a\ud800b"
    assert regex.matches_any(("^a.b$",), line)
    assert regex.first_group("^a(.)b$", line) == "?"
    assert regex.remove_matches(("b",), line) == "a?"
    assert regex.remove_matches(("c",), line) == "a?b"


# those that come with mz ----------------------------------------------------------------------------------------------
STORED = [(agent, ending) for agent in ("aider", "kiro") for ending in stored_endings(agent)]


@pytest.mark.parametrize(("agent", "ending"), STORED, ids=[f"{agent}-{ending.name}" for agent, ending in STORED])
def test_streams_of_the_programs_that_mz_describes(agent: str, ending: object) -> None:
    from mz_qa.conformance.endings import StoredEnding

    assert isinstance(ending, StoredEnding)
    reply, expected = built_in_adapters()[agent].parse_output(ending.result), ending.expected
    problem = reply.problem
    summary = (problem.code, problem.kind, problem.retry_after_seconds) if problem else ("", None, None)
    assert (reply.ending, *summary) == (expected.terminal, expected.code, expected.kind, expected.wait)


def test_aiders_words_are_those_of_its_model() -> None:
    (works,) = [ending for ending in stored_endings("aider") if ending.name == "works"]
    reply = built_in_adapters()["aider"].parse_output(works.result)
    assert reply.text.startswith("I write the note.")
    assert reply.version == "0.86.2"
    assert not {"Tokens:", "Aider", "Applied", "HTTPS"} & {word for word in reply.text.split() if word in reply.text}
    assert (reply.reported_nanousd, [item.requests for item in reply.usage]) == (270_000, [1])


BEGINNINGS = st.sampled_from([b'{"type":"result"', b'{"type": "result"', b'{"type":"use"', b'{"type": "use"'])
PARTS = st.binary(max_size=60) | st.tuples(BEGINNINGS, st.binary(max_size=20)).map(b"".join)


@given(st.lists(PARTS))
@pytest.mark.slow
def test_any_bytes_give_a_reading_or_a_failure(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    for form in ("jsonl", "json"):
        for stream in ("stdout", "stderr"):
            agent_description = described(output={**LINES, "form": form, "stream": stream, "usage": USED}, ends=WELL)
            reply = reading(agent_description, CallResult(stdout=data, stderr=data, exit=0, duration_ms=1))
            assert (reply.ending == "success") is (reply.problem is None) or code(reply) == "agent-blocker"
