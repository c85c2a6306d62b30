"""A call with `not_as` shares neither the session nor, with `independence: agent`, the agent of the phase it names."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.decide.caller import agent_for, allowed_agents, planned_calls
from mz_engine.model.config import Config, Route, RouteChoice
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import AgentUse
from mz_engine.model.rules import FieldRule
from mz_engine.pipelines.lint import lint_pipeline
from mz_engine.pipelines.lint_phase import PipelineFiles
from mz_engine.pipelines.load import PipelineSource
from mz_engine.ports import CallSpec
from mz_events.catalog.call import AgentRequested, AgentSwitched, Problem, ProblemClass
from mz_events.catalog.feature import FeatureHeld, PhaseCompleted
from mz_events.names import BUILDER, FeatureId, feature_stream
from mz_projections.feature.state import FeatureProgress, progress_of
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, World

from tests.support.examples import examples
from tests.support.steps import OPENED, state_after

PIPELINE = """\
pipeline: independence
version: 1
phases:
- phase: build
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
- phase: check
  agent: {not_as: build}
  prompt: do.md.j2
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  agent_review: {role: judge, not_as: check, output: verdict, prompt: do.md.j2}
  deliver: [push, open_pr]
"""
NO_CAUSE = '{"severity": "NONE", "cause": "none", "findings": []}'
AGENTS = ("simulated", "other", "third", "fourth")
LOGIN = Problem(kind=ProblemClass.FATAL, code="auth-failure")


def pins(independence: Literal["session", "agent"], *failover: str, sessions: Literal["fresh", "continue"]) -> Pins:
    pipeline, _ = PipelineSource(name="independence.yaml", text=PIPELINE).parse()
    config = replace(trial.trial_config(sessions, failover), independence=independence)
    return replace(trial.pins(config), pipeline=pipeline, templates={"do.md.j2": "Do {{ phase }}."})


def calls(pinned: Pins, without_login: tuple[tuple[str, str], ...] = ()) -> list[tuple[str, str, bool]]:
    """Run a feature; return phase and role, agent, and whether the session is continued, of each call."""

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        phase, role = spec.key.split("/")[2], spec.key.rpartition(".")[2]
        if (f"{phase}.{role}", spec.agent) in without_login:
            return ScriptedReply(problem=LOGIN)
        folder = {"build": "notes", "check": "letters"}[phase]
        files = {} if role == "judge" else {f"{folder}/b.md": "A note about b."}
        return ScriptedReply(text=NO_CAUSE, files=files)

    world = World(trial.FILES, script, trial.commands)
    trial.begin(world, pinned, {"b": ()})
    drive_run(world, trial.RUN, pinned, 1)
    events = [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]
    held = [event.code or "" for event in events if isinstance(event, FeatureHeld)]
    switched = [event.to for event in events if isinstance(event, AgentSwitched)]
    requests = [event for event in events if isinstance(event, AgentRequested)]
    made = [(f"{event.ref.phase}.{event.ref.role}", event.agent, event.resumes) for event in requests]
    return [*made, *((f"switched to {to}", "", False) for to in switched), *((code, "", False) for code in held)]


def test_it_never_continues_the_session() -> None:
    expected = [("build.builder", "simulated", False), ("check.builder", "simulated", False)]
    assert calls(pins("session", sessions="continue")) == [*expected, ("check.judge", "simulated", False)]


def test_with_agents_each_is_another_one_than_the_one_it_checks() -> None:
    expected = [("build.builder", "simulated", False), ("check.builder", "other", False)]
    assert calls(pins("agent", "other", sessions="fresh")) == [*expected, ("check.judge", "simulated", False)]


def test_an_agent_that_takes_over_is_not_the_one_that_built() -> None:
    pinned = pins("agent", "other", "third", sessions="fresh")
    made = [agent for call, agent, _ in calls(pinned, (("check.builder", "other"),)) if call == "check.builder"]
    assert made == ["other", "third"]
    pinned = pins("agent", "other", sessions="fresh")
    assert calls(pinned, (("check.builder", "other"),))[-1][0] == "auth-failure", "nobody else may take over"


def test_an_agent_that_built_nothing_may_check() -> None:
    pinned = pins("agent", "other", sessions="fresh")
    made = calls(pinned, (("build.builder", "simulated"),))
    assert made[1:3] == [("build.builder", "other", False), ("check.builder", "simulated", False)]


def test_without_any_other_agent_the_run_halts() -> None:
    """As in a fork with one agent: before a run, the lint refuses this."""
    made = calls(pins("agent", sessions="fresh"))
    assert [call for call, _, _ in made] == ["build.builder", "no-other-agent"]


def test_before_a_run_another_agent_is_asked_for() -> None:
    pipeline, document = PipelineSource(name="p.yaml", text=PIPELINE).parse()
    files = PipelineFiles(templates={"do.md.j2": ""}, rules=trial.pins().rules, files=())
    config = Config(agent="one", independence="agent")
    codes = [diagnostic.code for diagnostic in lint_pipeline(pipeline, files, config, document)]
    assert codes == ["MZ3024"] * 2
    assert lint_pipeline(pipeline, files, replace(config, failover=("two",)), document) == ()


TYPES = ("auth", "page", "")
CHOICES = st.builds(RouteChoice, agent=st.sampled_from((None, *AGENTS)), tier=st.sampled_from((None, "cheap")))
ROUTES = st.builds(
    Route,
    agent=st.sampled_from((None, *AGENTS)),
    units=st.dictionaries(st.just("type"), st.dictionaries(st.sampled_from(TYPES[:2]), CHOICES), max_size=1),
    agent_review=CHOICES,
)


@given(
    route=ROUTES,
    types=st.lists(st.sampled_from(TYPES), min_size=1, max_size=4),
    failover=st.sampled_from((("other",), ("other", "third"))),
    independence=st.sampled_from(("session", "agent")),
)
@example(Route(units={"type": {"auth": RouteChoice(agent="other", tier="cheap")}}), ["", "auth"], ("other",), "agent")
@examples(60, quick=20)
def test_a_run_calls_only_whom_the_plan_names(
    route: Route, types: list[str], failover: tuple[str, ...], independence: Literal["session", "agent"]
) -> None:
    """And whom it names first, if units are alike."""
    config = replace(trial.trial_config(failover=failover), independence=independence, routing={"build": route})
    base = trial.pins(config)
    plan_rules = base.rules["plan"]
    assert plan_rules.extract.units
    extract = replace(plan_rules.extract, units=replace(plan_rules.extract.units, fields=("type",)))
    kind = FieldRule(id="plan.type", field="type", type="text", optional=True, requirement="", message="")
    plan_rules = replace(plan_rules, extract=extract, rules=(*plan_rules.rules, kind))
    plan, build, ship = base.pipeline.phases
    assert ship.agent
    ship = replace(ship, agent=replace(ship.agent, not_as="build"))
    pipeline = replace(base.pipeline, phases=(plan, build, ship))
    pinned = replace(base, pipeline=pipeline, rules={**base.rules, "plan": plan_rules})
    listed = [
        {"id": f"u{number}", "files": [f"b{number}.txt"], **({"type": name} if name else {})}
        for number, name in enumerate(types)
    ]

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        is_plan = spec.key.split("/")[2] == "plan"
        return ScriptedReply(files={"plans/b.json": json.dumps(listed)}) if is_plan else trial.script(spec, files)

    world = World(trial.FILES, script, trial.commands)
    trial.begin(world, pinned, {"b": ()})
    drive_run(world, trial.RUN, pinned, 1)
    events = [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]
    assert sum(isinstance(event, PhaseCompleted) for event in events) == 3
    for phase, use in pipeline.calls:
        role = BUILDER if isinstance(use, AgentUse) else use.role
        planned = planned_calls(pinned.config, pipeline, phase, use)
        made = [
            (event.agent, event.tier or use.tier)
            for event in events
            if isinstance(event, AgentRequested) and (event.ref.phase, event.ref.role) == (phase.phase, role)
        ]
        assert {*made} <= {*planned}
        if not any(types):
            assert {*made} == {planned[0]}


@pytest.mark.parametrize(
    ("units", "building", "reviewing"),
    [
        ({}, ["simulated mid"], ["other premium"]),
        ({"auth": RouteChoice(tier="premium")}, ["simulated mid", "simulated premium"], ["other premium"]),
        (
            {"auth": RouteChoice(agent="other", tier="cheap")},
            ["simulated mid", "other cheap"],
            ["other premium", "simulated premium", "third premium"],
        ),
    ],
)
def test_the_plan_names_whom_routes_of_units_and_independence_call(
    units: dict[str, RouteChoice], building: list[str], reviewing: list[str]
) -> None:
    routing = {"build": Route(units={"type": units})}
    config = Config(agent="simulated", failover=("other", "third"), independence="agent", routing=routing)
    pipeline = trial.pins().pipeline
    build = pipeline.find_phase("build")
    planned = [[" ".join(call) for call in planned_calls(config, pipeline, build, use)] for use in build.calls]
    assert planned == [building, reviewing]


@pytest.mark.parametrize("order", list(permutations(("one", "two", "three"))))
@given(st.lists(st.tuples(st.sampled_from(("build", "check")), st.integers(0, 2)), max_size=12))
def test_whoever_builds_another_agent_is_left_to_check(order: tuple[str, ...], turns: list[tuple[str, int]]) -> None:
    config = Config(agent=order[0], failover=order[1:], independence="agent")
    pinned = replace(pins("agent", sessions="fresh"), config=config)
    progress = progress_of(state_after(*OPENED))
    assert progress is not None
    for name, at_work in turns:
        progress = replace(progress, replaced_agents={order[0]: order[at_work]} if at_work else {})
        phase = pinned.pipeline.find_phase(name)
        agent = agent_for(allowed_agents(progress, phase, BUILDER, pinned), progress, config)
        others = progress.builder_agents.get(phase.agent.not_as or "", ()) if phase.agent else ()
        assert agent not in others
        progress = built(progress, name, agent)


def built(progress: FeatureProgress, phase: str, agent: str) -> FeatureProgress:
    agents = dict.fromkeys((*progress.builder_agents.get(phase, ()), agent))
    return replace(progress, builder_agents={**progress.builder_agents, phase: tuple(agents)})
