"""The loop of `mz-anthropic` in this process, against a real endpoint on loopback."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.agents.anthropic_api.main import Environment, execute, parse
from mz_engine.agents.anthropic_api.model import PROGRESS_SECONDS, Options, OutputWriter
from mz_engine.agents.registry import built_in_adapters
from mz_engine.ports import CallResult, ParsedReply

from tests.support.agent_cases import refuses, works
from tests.support.endpoint import Answer, Cut, Endpoint, Garbage, Refusal, Reply, Request, Script, Use
from tests.support.examples import examples
from tests.support.model_stream import answer, breaks_off, sent, text, use

pytestmark = pytest.mark.slow  # Loading the package takes seconds.
OPTIONS = Options(model="m", tools=("read", "write", "shell"), turns_max=9, session="s-1", resumes=False)
SOON = {"retry-after-ms": "1"}


class Desk:
    """A working directory, a place for sessions, and calls to a scripted model from there."""

    def __init__(self, location: Path) -> None:
        self.folder, self.work, self.state = location, location / "work", location / "state"
        subprocess.run(["git", "init", "-q", str(self.work)], check=True)
        self.requests: list[Request] = []
        self.lines: list[dict[str, Any]] = []
        self.waits: list[float] = []

    def call(self, script: Script, prompt: str = "Do it.", **more: Any) -> ParsedReply:
        """What the adapter reads of the call; `lines` is what the program said, `requests` what the model got."""
        out = bytearray()
        with Endpoint(script) as endpoint:
            environment = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": endpoint.url, "PATH": "/usr/bin:/bin"}
            environment |= more.pop("environment", {})
            context = Environment(prompt.encode, environment, self.work, self.state, self.waits.append)
            options = replace(OPTIONS, **more)
            code = execute(options, context, OutputWriter(out.extend))
        assert endpoint.complaints == []
        self.requests = endpoint.requests
        self.lines = [json.loads(line) for line in out.splitlines()]
        assert (self.lines[0]["type"], self.lines[-1]["type"]) == ("start", "end")
        assert sum(line["type"] == "end" for line in self.lines) == 1
        return built_in_adapters()["anthropic"].parse_output(
            CallResult(stdout=bytes(out), stderr=b"", exit=code, duration_ms=1)
        )

    def lines_of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == kind]


@pytest.fixture(scope="module", autouse=True)
def no_authorities() -> Iterator[None]:
    """Nobody here is spoken to through TLS, and to load whom to trust is most of the work of a client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
        yield


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def code_of(parsed_reply: ParsedReply) -> str:
    return parsed_reply.problem.code if parsed_reply.problem else ""


def in_turn(*answers: Answer) -> Script:
    """These, one after the other; the last one again and again."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


# what goes over the wire ----------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_it_works_and_counts_each_request(desk: Desk) -> None:
    reply = desk.call(works)
    assert (reply.text, code_of(reply)) == ("Done: note.md is there.", "")
    assert (desk.work / "note.md").read_text() == "# Hi\n"
    assert len(reply.usage) == len(desk.requests) == 3
    assert [line["name"] for line in desk.lines_of("tool")] == ["write_file", "run_command"]
    assert desk.lines[-1]["requests"] == 3


@pytest.mark.slow
def test_what_the_model_is_told(desk: Desk) -> None:
    desk.call(works, prompt="Write é\n")
    first, _, last = desk.requests
    assert first.prompt == "Write é\n"
    assert first.cwd == str(desk.work)
    assert first.tools == {"read_file", "list_files", "search_files", "write_file", "edit_file", "run_command"}
    assert [message["role"] for message in last.body["messages"]] == ["user", "assistant"] * 2 + ["user"]
    (result,) = sent(last.body["messages"][-1]["content"])
    assert result == {"type": "tool_result", "tool_use_id": "toolu_0002_0", "content": "# Hi\n"}


@pytest.mark.parametrize(
    ("tools", "names"),
    [(("read",), {"read_file", "list_files", "search_files"}), (("shell",), {"run_command"}), ((), set())],
)
def test_only_the_tools_of_the_phase_are_offered(tools: tuple[str, ...], names: set[str], desk: Desk) -> None:
    desk.call(lambda _: Reply("ok"), tools=tools)
    assert desk.requests[0].tools == names
    assert ("tools" in desk.requests[0].body) == bool(names)


def test_a_tool_that_was_not_offered_does_nothing(desk: Desk) -> None:
    reply = desk.call(works, tools=("read",))
    assert code_of(reply) == ""
    assert not (desk.work / "note.md").exists()
    assert all(line["failed"] for line in desk.lines_of("tool_result"))


def test_the_cache_keeps_what_stays(desk: Desk) -> None:
    """Marks: the tools, the system prompt, and the newest two messages of the user's; the API takes four."""
    desk.call(works)
    for request in desk.requests:
        body = json.dumps(request.body)
        actual = body.count('"cache_control"')
        assert actual == min(4, 2 + len([m for m in request.body["messages"] if m["role"] == "user"]))
        assert request.body["system"][-1]["cache_control"] == {"type": "ephemeral"}
        assert "cache_control" in request.body["tools"][-1]
        assert "cache_control" in request.body["messages"][-1]["content"][-1]


@pytest.mark.slow
def test_what_a_command_is_given_holds_no_key(desk: Desk) -> None:
    script = in_turn(Reply("", (Use("run_command", {"command": "env"}),)), Reply("ok"))
    desk.call(script, environment={"ANTHROPIC_AUTH_TOKEN": "t", "MZ_KEY": "r/f/p/-/1/1/agent.builder"})
    (result,) = desk.lines_of("tool_result")
    assert "ANTHROPIC" not in result["text"]
    assert "MZ_KEY=r/f/p" in result["text"]


def test_errors_of_tools_go_back_to_the_model(desk: Desk) -> None:
    desk.call(in_turn(Reply("", (Use("read_file", {"path": "../x"}), Use("read_file", {}))), Reply("ok")))
    results = sent(desk.requests[1].body["messages"][-1]["content"])
    assert [result["is_error"] for result in results] == [True, True]
    assert "outside the working directory" in results[0]["content"]


# how it ends ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        (answer("end_turn", text("ok")), ""),
        (answer("stop_sequence", text("ok")), ""),
        (answer("end_turn"), ""),
        (answer("end_turn", text("")), ""),
        (answer("max_tokens", text("half")), "output-limit"),
        (answer("max_tokens", use("write_file", '{"path": "x", "content": "ha')), "output-limit"),
        (answer("model_context_window_exceeded"), "prompt-too-long"),
        (answer("refusal"), "refused"),
        (answer("tool_use"), "connection"),
        (answer("news"), "connection"),
        (answer(None), "connection"),
        (answer("pause_turn"), "turn-limit"),
        (answer("tool_use", use("read_file", {"path": "."})), "turn-limit"),
    ],
)
@pytest.mark.slow
def test_reasons_to_stop(garbage: Answer, code: str, desk: Desk) -> None:
    reply = desk.call(lambda _: garbage)
    assert code_of(reply) == code
    assert not list(desk.work.glob("x"))


def test_a_pause_is_gone_on_from(desk: Desk) -> None:
    reply = desk.call(in_turn(answer("pause_turn", text("half")), answer("end_turn", text("whole"))))
    assert reply.text == "whole"
    assert sent(desk.requests[1].body["messages"])[-1]["role"] == "assistant"


@pytest.mark.slow
def test_thoughts_go_back_as_they_came(desk: Desk) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    desk.call(in_turn(answer("tool_use", thought, use("list_files", {})), answer("end_turn", text("ok"))))
    assert desk.requests[1].body["messages"][1]["content"][0] == thought


@pytest.mark.slow
def test_turns_are_limited(desk: Desk) -> None:
    reply = desk.call(lambda _: Reply("on", (Use("list_files", {}),)), turns_max=3)
    assert code_of(reply) == "turn-limit"
    assert len(reply.usage) == 3


@pytest.mark.parametrize(
    ("failure", "count"),
    [
        (Refusal(529, "overloaded_error", "Overloaded", SOON), 3),
        (Refusal(503, "api_error", "x", SOON), 3),
        (Refusal(429, "rate_limit_error", "slow down", {"retry-after": "61"}), 1),
        (Refusal(429, "rate_limit_error", "slow down", {**SOON, "x-should-retry": "false"}), 1),
        (Refusal(400, "invalid_request_error", "x", {**SOON, "x-should-retry": "true"}), 3),
        (Refusal(400, "invalid_request_error", "x", SOON), 1),
        (Refusal(401, "authentication_error", "x", SOON), 1),
    ],
)
def test_what_is_tried_again(failure: Refusal, count: int, desk: Desk) -> None:
    reply = desk.call(lambda _: failure)
    assert reply.problem is not None
    assert len(desk.requests) == count
    assert len(desk.lines_of("retry")) == count - 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "exit-1"), (401, "auth-failure"), (403, "auth-failure"), (404, "exit-1"), (413, "prompt-too-long"),
     (429, "rate-limit"), (502, "overloaded")],
)  # fmt: skip
def test_what_answers_without_a_kind_is_known_by_its_status(status: int, code: str) -> None:
    import anthropic  # It takes seconds to load, and most workers do without.
    import httpx2
    from mz_engine.agents.anthropic_api.client import failure_of

    response = httpx2.Response(status, text="<html>nothing here</html>", request=httpx2.Request("POST", "http://x"))
    failure = failure_of(anthropic.APIStatusError("no", response=response, body=None))
    end = json.dumps({"type": "end", "status": "error", "text": "", "error": failure.output_fields()})
    result = CallResult(stdout=end.encode(), stderr=b"", exit=1, duration_ms=1)
    assert code_of(built_in_adapters()["anthropic"].parse_output(result)) == code


def test_what_passes_is_passed(desk: Desk) -> None:
    failures = (refuses(529, "overloaded_error", "Overloaded", SOON), refuses(500, "api_error", "x", SOON))
    answers = [script(None) for script in failures]  # type: ignore[arg-type]
    reply = desk.call(in_turn(*answers, Reply("ok")))
    assert reply.text == "ok"
    assert [line["attempt"] for line in desk.lines_of("retry")] == [1, 2]
    assert desk.waits == [0.001, 0.001]


def test_a_long_wait_is_named(desk: Desk) -> None:
    reply = desk.call(refuses(429, "rate_limit_error", "slow down", {"retry-after": "300"}))
    assert reply.problem is not None
    assert reply.problem.retry_after_seconds == 300


def test_an_error_in_the_middle_of_a_stream(desk: Desk) -> None:
    reply = desk.call(lambda _: breaks_off("rate_limit_error", "slow down"), turns_max=1)
    assert code_of(reply) == "rate-limit"
    assert len(reply.usage) == 1
    assert reply.usage[0].input == 10


def test_half_an_answer_runs_no_tool(desk: Desk) -> None:
    reply = desk.call(in_turn(Cut(Reply("", (Use("write_file", {"path": "x", "content": "y"}),))), Reply("ok")))
    assert reply.text == "ok"
    assert not (desk.work / "x").exists()


def test_without_a_key_nothing_is_asked(desk: Desk) -> None:
    reply = desk.call(works, environment={"ANTHROPIC_API_KEY": ""})
    assert code_of(reply) == "auth-failure"
    assert "set ANTHROPIC_API_KEY" in reply.problem_detail
    assert desk.requests == []


def test_without_a_key_no_prompt_is_waited_for(tmp_path: Path) -> None:
    def prompt() -> bytes:
        raise AssertionError

    out = bytearray()
    environment = Environment(prompt, {}, tmp_path, tmp_path)
    assert execute(replace(OPTIONS, count_only=True), environment, OutputWriter(out.extend)) == 1
    assert "set ANTHROPIC_API_KEY" in json.loads(out.splitlines()[-1])["error"]["message"]


def test_another_way_to_log_in(desk: Desk) -> None:
    desk.call(lambda _: Reply("ok"), environment={"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": "t"})
    headers = {name.lower(): value for name, value in desk.requests[0].headers.items()}
    assert headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://127.0.0.1", "http://127.0.0.1:99999"])
def test_an_address_that_is_none(url: str, desk: Desk) -> None:
    assert desk.call(works, environment={"ANTHROPIC_BASE_URL": url}).ending == "error"


def test_an_empty_prompt_is_not_sent(desk: Desk) -> None:
    assert desk.call(works, prompt=" \n").problem is not None
    assert desk.requests == []


# sessions -------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_conversation_is_continued(desk: Desk) -> None:
    desk.call(works, prompt="Remember seven.")
    reply = desk.call(lambda _: Reply("seven"), prompt="Which number?", resumes=True)
    assert (reply.text, reply.session) == ("seven", "s-1")
    texts = desk.requests[0].user_texts()
    assert (texts[0], texts[-1]) == ("Remember seven.", "Which number?")
    desk.call(lambda _: Reply("eight"), prompt="And more?", resumes=True)
    assert len(desk.requests[0].body["messages"]) == 9


def test_a_conversation_is_for_its_owner_alone(desk: Desk) -> None:
    desk.call(works)
    (path,) = desk.state.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert desk.state.stat().st_mode & 0o777 == 0o700
    assert "cache_control" not in path.read_text()


@pytest.mark.slow
def test_a_conversation_of_another_directory_is_refused(desk: Desk) -> None:
    desk.call(works)
    desk.work = desk.folder / "elsewhere"
    desk.work.mkdir()
    reply = desk.call(works, resumes=True)
    assert code_of(reply) == "session-missing"
    assert str(desk.folder / "work") in reply.problem_detail


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "half": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "list": lambda path: path.write_text("[]"),
    "newer": lambda path: path.write_text('{"format": 2, "cwd": "/", "messages": []}'),
    "odd": lambda path: path.write_text('{"format": 1, "cwd": "/", "messages": [{"role": "user", "content": 1}]}'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "folder": _folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.slow
def test_a_conversation_that_is_lost_is_a_clear_failure(damage: str, desk: Desk) -> None:
    desk.call(works)
    DAMAGES[damage](desk.state / "s-1.json")
    reply = desk.call(works, resumes=True)
    assert code_of(reply) == "session-missing"
    assert desk.requests == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 200, "a\0b"])
def test_a_session_id_names_no_other_file(name: str, desk: Desk) -> None:
    assert code_of(desk.call(works, session=name)) == "session-missing"
    assert code_of(desk.call(works, session=name, resumes=True)) == "session-missing"


def test_a_session_that_is_in_use(desk: Desk) -> None:
    desk.call(works)
    assert code_of(desk.call(works)) == "session-taken"


@pytest.mark.slow
def test_a_conversation_is_kept_after_each_turn(desk: Desk) -> None:
    failing = refuses(400, "invalid_request_error", "x")
    used = Reply("", (Use("list_files", {}),))
    desk.call(lambda request: failing(request) if request.results() else used)
    reply = desk.call(lambda _: Reply("went on"), resumes=True)
    assert reply.text == "went on"
    assert [m["role"] for m in desk.requests[0].body["messages"]] == ["user", "assistant", "user", "user"]


def test_where_nothing_can_be_kept_the_work_goes_on(desk: Desk) -> None:
    desk.state.write_text("a file")
    reply = desk.call(works)
    assert code_of(reply) == ""
    (note,) = desk.lines_of("note")
    assert "not kept" in note["text"]


def test_old_conversations_are_forgotten(desk: Desk) -> None:
    desk.state.mkdir()
    old, new = desk.state / "old.json", desk.state / "new.json"
    for path in (old, new):
        path.touch()
    os.utime(old, (1, 1))
    desk.call(works)
    assert not old.exists()
    assert new.exists()


# counting, signs of life, arguments -----------------------------------------------------------------------------------
def test_tokens_are_counted_without_an_answer(desk: Desk) -> None:
    assert desk.call(works, count_only=True).ending == "success"
    (document,) = desk.lines_of("count")
    assert document["input_tokens"] > 100
    assert desk.requests == []
    assert not desk.state.exists()


def test_signs_of_life_are_rare() -> None:
    now, out = [0.0], bytearray()
    voice = OutputWriter(out.extend, lambda: now[0])
    for _ in range(3):
        voice.heartbeat()
        now[0] += PROGRESS_SECONDS
    assert [json.loads(line)["seconds"] for line in out.splitlines()] == [10, 20]


def test_a_line_of_any_text_is_one_line() -> None:
    out = bytearray()
    OutputWriter(out.extend).write_event("text", text="a\nb\u2028c\ud800 é")
    assert json.loads(out)["text"] == "a\nb\u2028c? é"
    assert out.count(b"\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [(), ("--model",), ("--model", "m", "--tools=fly"), ("--model", "m", "--session", "a", "--resume", "b"), ("--x",)],
)
def test_arguments_that_make_no_sense(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert "usage: mz-anthropic" in capsys.readouterr().err


def test_a_session_of_its_own() -> None:
    assert parse(["--model", "m"]).session != parse(["--model", "m"]).session


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": formatdate(0)}, None),
    ],
)
def test_waits(headers: dict[str, str], seconds: float | None) -> None:
    from mz_engine.agents.anthropic_api.client import retry_after_seconds

    assert retry_after_seconds(headers) == seconds


def test_a_wait_until_a_date() -> None:
    import time

    from mz_engine.agents.anthropic_api.client import retry_after_seconds

    wait = retry_after_seconds({"retry-after": formatdate(time.time() + 100)})
    assert wait is not None
    assert 90 < wait <= 100


# whatever the model says ----------------------------------------------------------------------------------------------
TEXTS = st.text(max_size=8) | st.sampled_from(["note.md", "../x", ".", "true"])
INPUTS = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda more: (
        st.lists(more, max_size=2)
        | st.dictionaries(st.sampled_from(["path", "content", "old", "new", "pattern", "expression", "limit"]), more)
    ),
    max_leaves=4,
)
TOOLS = st.sampled_from(["read_file", "list_files", "search_files", "write_file", "edit_file", "fly", ""])
BLOCKS = (
    st.builds(text, TEXTS)
    | st.builds(use, TOOLS, INPUTS | st.sampled_from(['{"path": "a', "", "[" * 50]), st.integers(0, 3))
    | st.just({"type": "thinking", "thinking": "hm", "signature": "s"})
    | st.just({"type": "unheard_of", "more": [1]})
)
STOPS = st.sampled_from(["end_turn", "tool_use", "pause_turn", "max_tokens", "refusal", "odd", None, 7])
USAGES = st.sampled_from([{}, None, {"input_tokens": "x"}, {"input_tokens": -1, "output_tokens": None}])
ANSWERS = (
    st.builds(answer, STOPS, BLOCKS)
    | st.builds(answer, STOPS, BLOCKS, BLOCKS, usage=USAGES)
    | st.builds(Refusal, st.sampled_from([400, 401, 404, 413, 429, 500, 529]), TEXTS, TEXTS, st.just(SOON))
    | st.builds(breaks_off, st.sampled_from(["overloaded_error", "x"]), TEXTS)
    | st.builds(Garbage, st.binary(max_size=60) | st.just(b'event: message_start\ndata: {"type": "message_start"}\n\n'))
)


@pytest.mark.slow
@examples(60, suppress_health_check=list(HealthCheck))
@given(st.lists(ANSWERS, min_size=1, max_size=4))
def test_whatever_the_model_says_there_is_a_last_word(answers: list[Answer]) -> None:
    """And nothing outside the working directory came to be."""
    folder = Path(tempfile.mkdtemp())
    try:
        desk = Desk(folder)
        reply = desk.call(in_turn(*answers), turns_max=4, tools=("read", "write"))
        assert reply.problem is not None or reply.ending == "success"
        assert "loop_failed" not in json.dumps(desk.lines[-1])
        assert {path.name for path in folder.iterdir()} <= {"work", "state"}
    finally:
        shutil.rmtree(folder)
