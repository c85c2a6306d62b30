"""Commands that a project denies: found in the streams of agents, and decided by a person."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.artifacts.agent_commands import commands_of, denied_uses
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ProblemClass
from mz_events.catalog.run import FeatureOutcome, Verdict
from mz_events.catalog.validation import GateChecked
from mz_events.names import FeatureId, feature_stream
from mz_projections.audit.auditor import audit
from mz_qa.simulation import trial
from mz_qa.simulation.world import SimulatedPorts, World

from tests.engine.test_scheduler import DEPENDENCIES, Misbehaving, fails, run_threads, statuses, world_of
from tests.support import driving

STREAMS = {
    "claude": {"type": "assistant", "message": {"content": [{"type": "tool_use", "input": {"command": "git push"}}]}},
    "codex": {"type": "item.completed", "item": {"type": "command_execution", "command": "bash -lc 'git push'"}},
    "older codex": {"id": "1", "msg": {"type": "exec_command_begin", "command": ["git", "push"]}},
    "gemini": {"type": "tool_use", "tool_name": "run_shell_command", "parameters": {"command": "git push"}},
    "opencode": {"type": "tool_use", "part": {"state": {"input": {"cmd": "git push"}}}},
}


@pytest.mark.parametrize("name", STREAMS)
def test_commands_are_read_from_the_stream_of_any_agent(name: str) -> None:
    stream = b"no JSON\n" + json.dumps(STREAMS[name]).encode() + b"\n{\n"
    assert list(denied_uses(stream, ("curl", "git push")).values()) == ["git push"]
    assert denied_uses(stream, ()) == {}


MATCHES: list[tuple[str, str, bool]] = [
    ("git push", "git push", True),
    ("git push", "cd x && git  push origin main", True),
    ("git push", "/usr/bin/git push", True),
    ("git push", "bash -c 'git push'", True),
    ("git push", "(git push)", True),
    ("git push", "first\ngit push\n", True),
    ("git push", "git -C . push", False),
    ("git * push", "git -C . push", True),
    ("git push", "git pushed", False),
    ("git push", "legit push", False),
    ("git push", "./run-git push", False),
    ("rm -rf /", "rm -rf / ", True),
    ("rm -rf /", "rm -rf /tmp/x", False),
    ("rm -rf /*", "rm -rf /tmp/x", True),
    ("curl", "curl https://x | sh", True),
    ("curl", "libcurl-config", False),
    ("a.b", "axb", False),
    ("(x", "(x", True),
]


@pytest.mark.parametrize(("pattern", "command", "is_denied"), MATCHES)
def test_what_a_pattern_names(pattern: str, command: str, is_denied: bool) -> None:
    stream = json.dumps({"command": command}).encode()
    assert denied_uses(stream, (pattern,)) == ({command: pattern} if is_denied else {})


@given(st.binary(), st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_output_can_be_read(garbage: bytes, value: object) -> None:
    line = json.dumps({"command": value, "cmd": [value]}).encode()
    list(commands_of(garbage + b'"command"\n' + line + b"\n" + b'{"command":' + b"[" * 100_000))


class Running(SimulatedPorts):
    """Agents whose output tells of a command in the chosen calls."""

    def __init__(self, world: World, ran: Callable[[CallSpec], bool]) -> None:
        super().__init__(world)
        call = self.agents.call

        def with_command(spec: CallSpec) -> CallResult:
            result = call(spec)
            reply = json.loads(result.stdout) | ({"command": "git push origin"} if ran(spec) else {})
            return replace(result, stdout=json.dumps(reply).encode())

        self.agents.call = with_command  # type: ignore[method-assign]
        self.bodies = list[str]()

        def write(worktree: FeatureWorktree, target: str, title: str, body: str) -> str:
            self.bodies.append(body)
            return "description.md"

        self.forge.write_description = write  # type: ignore[method-assign]


def events_of(world: World) -> list[Event]:
    return [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]


def in_plan(attempts: int) -> Callable[[CallSpec], bool]:
    return lambda spec: spec.key.split("/")[2] == "plan" and int(spec.key.split("/")[5]) <= attempts


def test_a_person_accepts_what_a_call_did() -> None:
    """The work is taken as it is; log, audit and pull request name the person and the reason."""
    world, pins = world_of(items=DEPENDENCIES, denied_commands=("git push",))
    ports = Running(world, in_plan(9))
    state = run_threads(world, pins, ports)
    assert statuses(state) == {"b": FeatureOutcome.WAITING}
    assert state.tracks["b"].last_stop is not None
    assert state.tracks["b"].last_stop.code == "reply.denied_commands"
    (gate,) = [event for event in events_of(world) if isinstance(event, GateChecked)]
    assert gate.report is not None
    assert world.blobs.get(gate.report).decode() == '["the agent ran a denied command (`git push`): git push origin"]'
    driving.answer(world, "b", Verdict.ACCEPT, "to a fork of mine")
    assert statuses(run_threads(world, pins, ports)) == {"b": FeatureOutcome.DELIVERED}
    calls = [event.ref.phase for event in events_of(world) if isinstance(event, AgentRequested)]
    assert calls.count("plan") == 1, "its reply was taken"
    text = "`denied_commands` failed and was accepted as it is by tester: to a fork of mine"
    assert [text in body for body in ports.bodies] == [True]
    (gap,) = [gap for gap in audit(trial.RUN, tuple(world.store.read_all()), None).all_gaps if gap.kind == "past-gate"]
    assert gap.message == "plan was committed although denied_commands had rejected it"
    assert gap.allowed_by


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.APPROVE, Verdict.REJECT])
def test_a_person_lets_the_agent_try_again_or_ends_it(verdict: Verdict) -> None:
    world, pins = world_of(items=DEPENDENCIES, denied_commands=("git push",))
    ports = Running(world, in_plan(1))
    run_threads(world, pins, ports)
    driving.answer(world, "b", verdict, "do not push")
    ended = FeatureOutcome.FAILED if verdict is Verdict.REJECT else FeatureOutcome.DELIVERED
    assert statuses(run_threads(world, pins, ports)) == {"b": ended}
    assert [event.ref.phase for event in events_of(world) if isinstance(event, AgentRequested)].count("plan") == (
        1 if verdict is Verdict.REJECT else 2
    )


def test_a_call_that_failed_hides_nothing() -> None:
    """And its reply is none, so that an accepted one is called again."""
    script = Misbehaving(1, b=fails(ProblemClass.PHASE, "exit-9"))
    world, pins = world_of(script, DEPENDENCIES, denied_commands=("git push",))
    ports = Running(world, in_plan(1))
    state = run_threads(world, pins, ports)
    assert state.tracks["b"].last_stop is not None
    assert state.tracks["b"].last_stop.code == "call.denied_commands"
    driving.answer(world, "b", Verdict.ACCEPT)
    assert statuses(run_threads(world, pins, ports)) == {"b": FeatureOutcome.DELIVERED}


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.ACCEPT])
def test_a_reviewer_is_watched_too(verdict: Verdict) -> None:
    world, pins = world_of(items=DEPENDENCIES, denied_commands=("git push",))
    ports = Running(world, lambda spec: spec.key.endswith("u1/1/1/agent.reviewer"))
    assert statuses(run_threads(world, pins, ports)) == {"b": FeatureOutcome.WAITING}
    driving.answer(world, "b", verdict)
    assert statuses(run_threads(world, pins, ports)) == {"b": FeatureOutcome.DELIVERED}


def test_without_a_list_nothing_is_denied() -> None:
    world, pins = world_of(items=DEPENDENCIES)
    assert statuses(run_threads(world, pins, Running(world, lambda spec: True))) == {"b": FeatureOutcome.DELIVERED}
