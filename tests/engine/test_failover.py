"""Failover: when another agent takes over, which one, and that everything recorded says so."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_engine.decide import actions as act
from mz_engine.decide.caller import agent_of, next_agent
from mz_engine.effects.prompt import configured_model
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins
from mz_engine.ports import CallSpec
from mz_engine.run.fork import ForkChange, forked_pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentRequested,
    AgentSwitched,
    Problem,
    ProblemClass,
    SessionDropped,
    SessionDropReason,
)
from mz_events.catalog.feature import FeatureHeld, FeatureRetried, HoldReleased, PhaseStarted, QuestionKind, UnitStarted
from mz_events.catalog.run import FeatureOutcome, Hold
from mz_events.names import FeatureId, feature_stream, run_stream
from mz_projections.feature.state import progress_of
from mz_projections.run.fold import fold_run
from mz_qa.simulation import trial
from mz_qa.simulation.world import Files, ScriptedReply, World

from tests.support import driving
from tests.support.steps import DIGEST, OPENED, ref, replied, state_after, when_decided

TWO = trial.pins(Config(agent="one", failover=("two", "three")))
SINGLE_AGENT = trial.pins(Config(agent="one"))
IN_PLAN = (*OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1))


def problem(kind: ProblemClass, code: str, retry: int | None = None) -> Problem:
    return Problem(kind=kind, code=code, retry_after_seconds=retry)


LOGIN = problem(ProblemClass.FATAL, "auth-failure")
LIMIT = problem(ProblemClass.TRANSIENT, "rate-limit", 3000)


def after(*problems: Problem, pins: Pins = TWO, switched: tuple[Event, ...] = ()) -> act.Action | None:
    calls = [event for at, item in enumerate(problems, 1) for event in replied(ref("plan", at), item)]
    return when_decided(state_after(*IN_PLAN, *switched, *calls), pins)


def switch(attempt: int, source: str, to: str, code: str = "x") -> AgentSwitched:
    return AgentSwitched(ref=ref("plan", attempt), source=source, to=to, code=code)


@pytest.mark.parametrize(
    "item",
    [
        LOGIN,
        LIMIT,
        problem(ProblemClass.FATAL, "tool-missing"),
        problem(ProblemClass.FATAL, "billing"),
        problem(ProblemClass.FATAL, "model-missing"),
        problem(ProblemClass.TRANSIENT, "rate-limit"),
    ],
)
def test_what_one_agent_cannot_do_the_next_one_does(item: Problem) -> None:
    assert after(item) == switch(1, "simulated", "two", item.code)
    assert not isinstance(after(item, pins=SINGLE_AGENT), AgentSwitched), "it is off by default"


@pytest.mark.parametrize(
    "item",
    [
        problem(ProblemClass.TRANSIENT, "rate-limit", 300),
        problem(ProblemClass.TRANSIENT, "overloaded"),
        problem(ProblemClass.PHASE, "turn-limit"),
        problem(ProblemClass.UNKNOWN, "exit-1"),
        problem(ProblemClass.FATAL, "disk-full"),
        problem(ProblemClass.FATAL, "drift"),
        problem(ProblemClass.NEEDS_PERSON, "agent-blocker"),
    ],
)
def test_what_would_meet_any_agent_is_decided_as_without_others(item: Problem) -> None:
    assert after(item) == after(item, pins=SINGLE_AGENT)


def test_transient_failures_that_do_not_end_are_a_reason_too() -> None:
    overloaded = problem(ProblemClass.TRANSIENT, "overloaded", 0)
    assert after(*[overloaded] * 3) == act.CallAgent(role="builder", attempt=4)
    assert after(*[overloaded] * 4) == switch(4, "simulated", "two", "overloaded")
    odd = problem(ProblemClass.UNKNOWN, "exit-1")
    restore_tree = after(*[odd] * 4)
    assert isinstance(restore_tree, act.AskPerson)
    assert restore_tree.question_kind is QuestionKind.RETRIES


def test_the_next_agent_has_retries_of_its_own_and_is_called_at_once() -> None:
    overloaded = problem(ProblemClass.TRANSIENT, "overloaded", 0)
    calls = [event for at in range(1, 5) for event in replied(ref("plan", at), overloaded)]
    state = state_after(*IN_PLAN, *calls, switch(4, "one", "two"))
    assert when_decided(state, TWO) == act.CallAgent(role="builder", attempt=5)
    again = state_after(*IN_PLAN, *calls, switch(4, "one", "two"), *replied(ref("plan", 5), overloaded))
    assert when_decided(again, TWO) == act.CallAgent(role="builder", attempt=6)


def test_the_last_agents_problem_is_decided_as_ever() -> None:
    events = (*IN_PLAN, *replied(ref("plan"), LOGIN), switch(1, "one", "two"))
    events = (*events, *replied(ref("plan", 2), LOGIN))
    assert when_decided(state_after(*events), TWO) == switch(2, "simulated", "three", "auth-failure")
    events = (*events, switch(2, "two", "three"), *replied(ref("plan", 3), LOGIN))
    assert when_decided(state_after(*events), TWO) == FeatureHeld(hold=Hold.FATAL, code="auth-failure")


def test_who_comes_after_whom() -> None:
    config = Config(agent="one", failover=("two", "one", "two", "three"))
    assert [next_agent(name, config) for name in ("one", "two", "three")] == ["two", "three", None]
    assert next_agent("other", config) == "one"
    assert next_agent("one", Config(agent="one")) is None


def agent_after(*events: Event, config: Config = TWO.config) -> str:
    book = progress_of(state_after(*IN_PLAN, *replied(ref("plan"), LOGIN), switch(1, "one", "two"), *events))
    assert book is not None
    return agent_of(book, config)


def test_it_stays_until_a_person_has_seen_to_it() -> None:
    """After a retry, or when a run goes on that was halted, the agent of the settings is asked first again."""
    assert agent_after() == "two"
    failed = replied(ref("plan", 2), LOGIN)
    assert agent_after(*failed) == "two"
    held = (*failed, FeatureHeld(hold=Hold.FATAL, code="auth-failure"))
    assert agent_after(*held, HoldReleased(run_version=5, hold=Hold.FATAL)) == "one"
    waits = (*failed, FeatureHeld(hold=Hold.TIMER, until_us=1))
    assert agent_after(*waits, HoldReleased(run_version=5, hold=Hold.TIMER)) == "two"
    assert agent_after(FeatureRetried(run_version=5, to="plan", note=None, actor=DIGEST)) == "one"


def test_a_fork_with_another_agent_has_that_one() -> None:
    assert agent_after(config=Config(agent="four")) == "four"
    forked = forked_pins(TWO, state_after(*IN_PLAN), ForkChange(agent="four"), "r2")
    assert (forked.config.agent, forked.config.failover) == ("four", ())
    same = forked_pins(TWO, state_after(*IN_PLAN), ForkChange(model="m"), "r2")
    assert same.config.failover == ("two", "three")


def test_a_fork_has_what_was_asked_for_whoever_had_taken_over() -> None:
    there = state_after(*IN_PLAN, *replied(ref("plan"), LOGIN), switch(1, "one", "two"))
    book = progress_of(there)
    assert book is not None
    back = forked_pins(TWO, there, ForkChange(agent="one"), "r2").config
    assert (agent_of(book, back), back.failover) == ("one", ())
    renamed = forked_pins(TWO, there, ForkChange(model="m"), "r2").config
    assert agent_of(book, renamed) == "two"
    assert configured_model(renamed, "two", "mid") == "m"
    as_it_was = forked_pins(TWO, there, ForkChange(), "r2").config
    assert (agent_of(book, as_it_was), as_it_was.agent, as_it_was.failover) == ("two", "one", ("two", "three"))


# runs in a simulated world --------------------------------------------------------------------------------------------
def without_login(spec: CallSpec, files: Files) -> ScriptedReply:
    """The first agent loses its login after three calls of a feature."""
    answer = trial.script(spec, files)
    lost = spec.agent == "simulated" and spec.key.split("/")[2:3] == ["build"]
    return ScriptedReply(problem=LOGIN) if lost else answer


def run(sessions: bool = False) -> World:
    config = trial.trial_config("continue" if sessions else "fresh", failover=("other",))
    world = World({"README.md": "a project"}, without_login, trial.commands)
    pins = trial.pins(config)
    trial.begin(world, pins, {"b": (), "c": ()})
    driving.deliver(world, pins, 3)
    return world


def requests(world: World) -> list[AgentRequested]:
    stream = world.store.read(feature_stream(trial.RUN, FeatureId("b")))
    return [recorded.event for recorded in stream if isinstance(recorded.event, AgentRequested)]


def test_a_feature_is_delivered_by_the_agent_that_took_over() -> None:
    world = run()
    tracks = fold_run(world.store.read(run_stream(trial.RUN))).tracks.values()
    assert all(track.last_stop is not None and track.last_stop.status is FeatureOutcome.DELIVERED for track in tracks)
    agents = [request.agent for request in requests(world)]
    at = agents.index("other")
    assert set(agents[at:]) == {"other"}, "it stays for the rest of the feature"
    assert set(agents[:at]) == {"simulated"}
    switches = [recorded.event for recorded in world.store.log if isinstance(recorded.event, AgentSwitched)]
    actual = {(agent_switched.source, agent_switched.to, agent_switched.code) for agent_switched in switches}
    assert actual == {("simulated", "other", "auth-failure")}
    assert len(switches) == 2, "once a feature"


def test_another_agent_has_a_session_of_its_own() -> None:
    world = run(sessions=True)
    ends = [recorded.event.reason for recorded in world.store.log if isinstance(recorded.event, SessionDropped)]
    assert ends == [SessionDropReason.FAILED, SessionDropReason.FAILED]
    first = next(request for request in requests(world) if request.agent == "other")
    assert (first.full_prompt, first.resumes, first.keeps_session) == (True, False, True)
    later = [
        agent_requested
        for agent_requested in requests(world)
        if agent_requested.agent == "other" and agent_requested.ref.role == "builder"
    ][1:]
    assert all(item.resumes for item in later)


def test_settings_of_models_are_those_of_the_first_agent() -> None:
    config = trial.trial_config(failover=("other",))
    config = replace(config, models=replace(config.models, mid="large", cheap="small", premium="large"))
    world = World({"README.md": "a project"}, without_login, trial.commands)
    pins = trial.pins(config)
    trial.begin(world, pins, {"b": ()})
    driving.deliver(world, pins, 3)
    actual = {(request.agent, request.model) for request in requests(world) if request.ref.phase != "ship"}
    assert actual == {("simulated", "large"), ("other", "simulated")}
