"""What a call's first request holds: counted by the agent's API where it can, else estimated; and what is reserved."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.agents.anthropic_api.adapter import AnthropicApi
from mz_engine.agents.anthropic_api.main import Environment, execute, parse
from mz_engine.agents.anthropic_api.model import OutputWriter
from mz_engine.agents.anthropic_api.stream import read_count
from mz_engine.agents.contract import Invocation
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import COUNT_WAIT_MAX_MS, AgentRegistry, load_patterns
from mz_engine.effects.call import REPLY_TOKENS, estimated_input_tokens
from mz_engine.model.config import Coefficients
from mz_engine.model.pins import Pins
from mz_engine.paths import MZ_FOLDER, SPOOL_FOLDER
from mz_engine.ports import COUNT_MAX, CallResult, CallSpec, Interrupted
from mz_engine.pricing.calibration import expected_tokens
from mz_engine.pricing.table import GenaiPrices
from mz_engine.processes import guard
from mz_engine.processes.supervise import best_level
from mz_engine.run.process import RunProcess
from mz_events.catalog.call import AgentRequested, CallReserved, ReplyParsed
from mz_events.catalog.run import FeatureOutcome, FeatureStopped
from mz_events.names import FeatureId, feature_stream, run_stream
from mz_events.redaction.redactor import Secrets
from mz_projections.feature.state import AgentSession
from mz_qa.simulation import trial
from mz_qa.simulation.world import NANO_PER_TOKEN, World

from tests.engine.test_conversations import deliver, new_world, pins
from tests.support import anthropic_cli
from tests.support.dialects.messages import Messages
from tests.support.endpoint import Answer, Endpoint, Reply, Request
from tests.support.examples import examples
from tests.support.processes import call, fresh_key, left, repository, shell
from tests.support.workshop import Workshop

estimate_tokens = AnthropicApi(load_patterns()).estimate_tokens

HELD = AgentSession(agent="a", model="m", id="s", key="k", estimated_tokens=3000)


# by rule --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("counted", "goes_on", "tokens"),
    [(None, None, 400), (None, HELD, 3400), (1234, None, 1234), (1234, HELD, 1234), (5, HELD, 5)],
)
def test_what_was_counted_goes_before_what_was_estimated(
    counted: int | None, goes_on: AgentSession | None, tokens: int
) -> None:
    assert estimated_input_tokens(counted, 400, goes_on) == tokens


MANY = st.integers(0, 2_000_000)
SHARES = st.floats(0, 1).map(lambda share: round(share, 3))
COUNTS = st.builds(
    Coefficients, agent=st.just("a"), model=st.just(""), phase=st.just(""), calls=st.just(5),
    input=st.floats(0.1, 30).map(lambda ratio: round(ratio, 3)), output=st.floats(0.1, 5), cache_read=SHARES,
    cache_write=st.just(0.0), input_tokens=MANY, output_tokens=MANY,
)  # fmt: skip
PRICES = GenaiPrices()


@examples(100)
@given_any(MANY, MANY, st.one_of(st.none(), COUNTS))
def test_to_go_on_is_never_reserved_less_than_to_begin(held: int, prompt: int, expected: Coefficients | None) -> None:
    """With the same prompt, calibrated or not; but for the one token that a share of it may be rounded by."""

    def reserved(tokens: int) -> int:
        coefficients = (expected,) if expected else ()
        guess = expected_tokens(coefficients, "a", "claude-sonnet-4-6", "write", tokens, REPLY_TOKENS)
        count = PRICES.price_entry(guess, 1_790_000_000_000_000)
        assert count is not None
        return count

    fresh = estimated_input_tokens(None, prompt, None)
    going_on = estimated_input_tokens(None, prompt, replace(HELD, estimated_tokens=held))
    assert reserved(going_on) >= reserved(fresh) - 3_000


@given_any(st.binary(max_size=400))
def test_any_bytes_are_a_count_or_none(message: bytes) -> None:
    count = read_count(message)
    assert count is None or 0 < count <= COUNT_MAX


# in a simulated world -------------------------------------------------------------------------------------------------
def builders(world: World, feature: str = "b") -> list[AgentRequested]:
    stream = world.store.read(feature_stream(trial.RUN, FeatureId(feature)))
    requests = [recorded.event for recorded in stream if isinstance(recorded.event, AgentRequested)]
    return [request for request in requests if request.ref.role == "builder"]


def test_a_call_that_goes_on_counts_what_its_session_holds() -> None:
    """The estimate of the call before is what it holds: its prompts and replies, one after the other."""
    first, *others = builders(deliver(new_world(), pins()))
    assert first.estimated_tokens > REPLY_TOKENS
    held = first.estimated_tokens
    assert len(others) > 2
    for request in others:
        assert (request.resumes, request.counted_tokens) == (True, None)
        assert request.prompt_tokens is not None
        assert request.estimated_tokens == held + request.prompt_tokens + REPLY_TOKENS
        assert request.estimated_nanousd == request.estimated_tokens * NANO_PER_TOKEN
        held = request.estimated_tokens


def test_a_session_that_begins_anew_holds_nothing() -> None:
    world = deliver(new_world(), pins())
    requests = [request for feature in "abc" for request in builders(world, feature) if not request.resumes]
    assert len(requests) > 3, "one for each feature, and one after each rollback"
    for item in requests:
        prompt = len(world.blobs.get(item.prompt).decode()) // 4
        assert item.estimated_tokens == prompt + REPLY_TOKENS


def counting(pinned: Pins, counts: Mapping[int, int | None]) -> tuple[World, list[AgentRequested]]:
    """A run whose agent counts some of the calls of `b`: by their number, from 0."""
    world, texts = new_world(), list[str]()

    def count(spec: CallSpec) -> int | None:
        if spec.key.split("/")[1] != "b" or not spec.key.endswith(".builder"):
            return None
        if spec.key not in texts:
            texts.append(spec.key)
        return counts.get(texts.index(spec.key))

    world.count_tokens = count
    return world, builders(deliver(world, pinned))


def test_what_the_agent_counts_is_recorded_and_reserved() -> None:
    world, (first, second, third, *_) = counting(pins(), {0: 7_000, 1: 9_500})
    assert (first.counted_tokens, first.estimated_tokens) == (7_000, 7_000 + REPLY_TOKENS)
    assert (second.counted_tokens, second.estimated_tokens) == (9_500, 9_500 + REPLY_TOKENS)
    assert third.counted_tokens is None
    assert third.prompt_tokens is not None
    assert third.estimated_tokens == second.estimated_tokens + third.prompt_tokens + REPLY_TOKENS
    reserved = {
        recorded.event.key: recorded.event.nanousd
        for recorded in world.store.log
        if isinstance(recorded.event, CallReserved)
    }
    for request in (first, second, third):
        assert reserved[request.ref.key] == request.estimated_tokens * NANO_PER_TOKEN


@pytest.mark.slow
def test_prompts_are_measured_alone_all_the_same() -> None:
    """What a session saves is told by its prompts (`mz cost --sessions`), counted or not."""
    _, plain = counting(pins(), {})
    _, counted = counting(pins(), {0: 7_000, 1: 9_500, 2: 11_000})
    actual = [(item.prompt_tokens, item.full_prompt_tokens) for item in plain]
    assert actual == [(request.prompt_tokens, request.full_prompt_tokens) for request in counted]


# a question beside a call ---------------------------------------------------------------------------------------------
def ask(root: Path, script: str, **more: Any) -> tuple[int | None, str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(root)}
    result = AgentProcesses(root, environment, Secrets({}), **more).query(call(fresh_key()), shell(script))
    return result.exit, result.stdout.decode()


def test_a_question_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither a spool, which could be taken for the call's, nor a process, nor, where that can be, a file."""
    path = repository(tmp_path)
    status, output = ask(tmp_path, 'pwd; echo "$MZ_KEY"; (setsid sleep 600 &); touch note 2>/dev/null; exit 3')
    cwd, key = output.split()
    assert (status, cwd) == (3, str(path))
    assert key.startswith("check/claude-code/")
    assert not left(key, 0)
    assert not (tmp_path / MZ_FOLDER / SPOOL_FOLDER).exists()
    fenced = best_level() in (guard.NAMESPACE, guard.USER_NAMESPACE)
    assert [folder.name for folder in path.iterdir()] == ([] if fenced else ["note"])


def test_a_question_that_hangs_ends_with_the_run(tmp_path: Path) -> None:
    """And by itself after a while that is short for a call, whatever limits that has."""
    repository(tmp_path)
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Interrupted):
        ask(tmp_path, "sleep 600", stop=stop)


class Answers:
    """Processes that answer any question after the same time with the same words."""

    def __init__(self, duration_ms: int, data: bytes) -> None:
        self.duration_ms, self.output, self.questions = duration_ms, data, 0

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        raise AssertionError(spec.key)

    def query(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        self.questions += 1
        exit_code = 0 if self.output else 1
        return CallResult(stdout=self.output, stderr=b"", exit=exit_code, duration_ms=self.duration_ms)

    def salvage(self, key: str) -> CallResult | None:
        raise AssertionError(key)


@pytest.mark.parametrize(
    ("duration_ms", "data", "questions"),
    [
        (COUNT_WAIT_MAX_MS, b"", 1),
        (COUNT_WAIT_MAX_MS - 1, b"", 3),
        (COUNT_WAIT_MAX_MS, b'{"type": "count", "input_tokens": 7}', 3),
    ],
    ids=["waited for nothing", "refused", "slow"],
)
def test_nobody_waits_twice_for_nothing(duration_ms: int, data: bytes, questions: int) -> None:
    processes = Answers(duration_ms, data)
    door, spec = AgentRegistry(processes, {}), replace(call(fresh_key()), agent="anthropic")
    assert {door.count_tokens(spec) for _ in range(3)} == {7 if data else None}
    assert processes.questions == questions


def test_a_question_may_be_about_anything_but_say_little(tmp_path: Path) -> None:
    repository(tmp_path)
    result = AgentProcesses(tmp_path, {"PATH": "/usr/bin:/bin"}, Secrets({})).query(call(fresh_key()), shell("yes"))
    assert result.problem is not None
    assert result.problem.code == "output-limit"
    missing = Invocation(argv=("no-such-program",), stdin=b"", env={})
    none = AgentProcesses(tmp_path, {"PATH": "/usr/bin:/bin"}, Secrets({})).query(call(fresh_key()), missing)
    assert none.problem is not None
    assert none.problem.code == "tool-missing"


# the real program -----------------------------------------------------------------------------------------------------
class CountsOnce(Messages):
    """An API whose counting goes out of order."""

    counted = 0

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        self.counted += path.endswith("/count_tokens")
        return super().other(path, body) if self.counted == 1 else None


def works(request: Request) -> Answer:
    """Writes what the phase asks for."""
    text = "letters/alpha.md" if request.prompt.startswith("Sign") else "notes/alpha.md"
    return Reply("Done.") if request.results() else Reply("", (request.write(text, "# Alpha\nabout alpha\n"),))


@pytest.mark.slow
def test_a_run_reserves_by_the_count_and_goes_on_without(tmp_path: Path) -> None:
    made, dialect = Workshop(tmp_path, settings="agent: anthropic\nsessions: continue\n"), CountsOnce()
    made.ramble()
    with Endpoint(works, speaks=(dialect,)) as endpoint:
        made.environment = anthropic_cli.environment(tmp_path / "home", endpoint.url)
        with RunProcess(made.root, made.environment, lambda recorded: None) as session:
            session.start({}, ("alpha",))
            started = session.drive().started
            assert started is not None
            events = [single.event for single in session.store.read(feature_stream(started.run, FeatureId("alpha")))]
            requests = [entry for entry in events if isinstance(entry, AgentRequested)]
            prompts = [estimate_tokens(session.blobs.get(single.prompt).decode()) for single in requests]
    read = [element for element in events if isinstance(element, ReplyParsed)]
    assert (endpoint.complaints, dialect.counted) == ([], 2), [type(entry).__name__ for entry in events]
    assert [(single.ref.phase, single.resumes) for single in requests] == [("write", False), ("sign", True)]
    assert [reply_parsed.ending for reply_parsed in read] == ["success", "success"]
    write, sign = requests
    assert write.counted_tokens == read[0].usage[0].input, (
        "as the API counted its first request, instructions and tools too"
    )
    assert write.estimated_tokens == write.counted_tokens + REPLY_TOKENS > prompts[0] + REPLY_TOKENS
    assert sign.counted_tokens is None
    assert sign.estimated_tokens == write.estimated_tokens + prompts[1] + REPLY_TOKENS
    actual = [item.nanousd for item in events if isinstance(item, CallReserved)]
    assert actual == [agent_requested.estimated_nanousd for agent_requested in requests]
    assert len(list((made.root / MZ_FOLDER / SPOOL_FOLDER).iterdir())) == len(requests), "questions leave none"


class NeverCounts(Messages):
    """An API that keeps whoever counts waiting."""

    def __init__(self) -> None:
        self.requested, self.over = threading.Event(), threading.Event()

    def other(self, path: str, body: dict[str, Any]) -> Mapping[str, Any] | None:
        if path.endswith("/count_tokens"):
            self.requested.set()
            self.over.wait(60)
        return super().other(path, body)


@pytest.mark.slow
def test_a_run_that_is_ended_while_it_counts_asks_for_nothing(tmp_path: Path) -> None:
    """Neither money nor a call: the next resume counts anew."""
    made, dialect = Workshop(tmp_path, settings="agent: anthropic\n"), NeverCounts()
    made.ramble()
    with Endpoint(works, speaks=(dialect,)) as endpoint:
        made.environment = anthropic_cli.environment(tmp_path / "home", endpoint.url)
        with RunProcess(made.root, made.environment, lambda recorded: None) as session:
            session.start({}, ("alpha",))

            def end() -> None:
                dialect.requested.wait(60)
                session.scheduler.stop()
                session.kill()

            threading.Thread(target=end, daemon=True).start()
            started = session.drive().started
            dialect.over.set()
            assert started is not None
            streams = (feature_stream(started.run, FeatureId("alpha")), run_stream(started.run))
            events = [item.event for stream in streams for item in session.store.read(stream)]
    assert dialect.requested.is_set(), [type(entry).__name__ for entry in events]
    assert not [element for element in events if isinstance(element, AgentRequested | CallReserved)]
    assert [entry.status for entry in events if isinstance(entry, FeatureStopped)] == [FeatureOutcome.INTERRUPTED]
    assert endpoint.requests == []


class Here(Answers):
    """Runs the program in this process: to load it takes most of the time of a question."""

    def __init__(self, cwd: Path, sessions: Path) -> None:
        super().__init__(1, b"")
        self.cwd, self.sessions = cwd, sessions

    def query(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        out, context = bytearray(), Environment(lambda: invocation.stdin, invocation.env, self.cwd, self.sessions)
        code = execute(parse(invocation.argv[1:]), context, OutputWriter(out.extend))
        return CallResult(stdout=bytes(out), stderr=b"", exit=code, duration_ms=1)


@pytest.mark.slow
def test_the_program_counts_and_touches_nothing(tmp_path: Path) -> None:
    """A conversation that goes on is counted with all that it holds. Nobody is asked for an answer; no conversation is
    begun, made longer or, where it is old, forgotten."""
    path, home = repository(tmp_path / "project"), tmp_path / "home"
    kept = home / ".local" / "state" / "mz" / "anthropic" / "s-1.json"
    kept.parent.mkdir(parents=True)
    output = [("user", "Write a note. " * 100), ("assistant", "It is written. " * 100)]
    messages = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in output]
    kept.write_text(json.dumps({"format": 1, "cwd": str(path), "messages": messages}))
    os.utime(kept, (1e9, 1e9))
    before = kept.read_bytes()
    with Endpoint(lambda _: Reply("This costs money.")) as endpoint:
        texts = anthropic_cli.environment(home, endpoint.url)
        door = AgentRegistry(Here(path, kept.parent), texts)
        spec = replace(call(fresh_key()), agent="anthropic", prompt="Make it longer.", session="s-2")
        fresh, going_on = door.count_tokens(spec), door.count_tokens(replace(spec, session="s-1", resumes=True))
    assert fresh is not None
    assert going_on is not None
    assert (
        going_on > fresh + estimate_tokens("".join(text for _, text in output)) > fresh > estimate_tokens(spec.prompt)
    )
    assert endpoint.requests == []
    assert [(folder.name, folder.read_bytes()) for folder in kept.parent.iterdir()] == [("s-1.json", before)]
    assert list(path.iterdir()) == []
