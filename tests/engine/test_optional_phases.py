"""Phases after the delivery leave the branch alone; where one that is not required fails, the feature continues."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_engine.model.pins import Pins
from mz_engine.pipelines.load import PipelineSource
from mz_engine.ports import CallSpec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, Problem, ProblemClass
from mz_events.catalog.delivery import CommitRequested, Pushed
from mz_events.catalog.feature import FeatureDelivered, HumanRequested, PhaseSkipped
from mz_events.catalog.validation import ArtifactParsed
from mz_events.names import FeatureId, feature_stream
from mz_projections.audit.auditor import audit
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.fold import fold
from mz_projections.feature.state import BetweenPhases
from mz_projections.views.timeline import describe
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, World

PIPELINE = """\
pipeline: optional
version: 1
phases:
- phase: build
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["*.txt"]
- phase: polish
  required: false
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: polish, path: "polish/{feature}.md", rules: note}]
  writable: ["*.txt"]
  gates: [{run: check}]
- phase: ship
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  deliver: [push, open_pr]
- phase: look_back
  required: false
  agent: {}
  prompt: do.md.j2
  inputs: [{record: patch, of: build}]
  outputs: [{artifact: lessons, path: "lessons/{feature}.md", rules: note}]
"""
NO_CREDIT = Problem(kind=ProblemClass.FATAL, code="billing")


def pins() -> Pins:
    pipeline, _ = PipelineSource(name="optional.yaml", text=PIPELINE).parse()
    return replace(trial.pins(), pipeline=pipeline, templates={"do.md.j2": "Do {{ phase }}. {{ inputs }}"})


def deliver(polish: str = "fine", problem: Problem | None = None) -> tuple[World, list[Event], dict[str, str]]:
    """Run one feature whose agent polishes so, and ends its last call with the problem."""
    prompts: dict[str, str] = {}

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        phase = spec.key.split("/")[2]
        prompts[phase] = spec.prompt
        files: dict[str, dict[str, str | None]] = {
            "build": {"notes/b.md": "a note on b", "b.txt": "built"},
            "polish": {"polish/b.md": "what was polished", "b.txt": polish},
            "ship": {"letters/b.md": "a letter about b"},
            "look_back": {"lessons/b.md": "a lesson from b", "b.txt": "changed too late"},
        }
        return ScriptedReply(files=files[phase], problem=problem if phase == "look_back" else None)

    world = World(trial.FILES, script, trial.commands)
    trial.begin(world, pins(), {"b": ()})
    drive_run(world, trial.RUN, pins(), 1)
    return world, [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))], prompts


def shipped(world: World, events: list[Event]) -> bytes:
    (pushed,) = [event.commit for event in events if isinstance(event, Pushed)]
    return world.objects[pushed].files["b.txt"]


def test_a_phase_after_the_delivery_leaves_the_branch_alone() -> None:
    world, events, prompts = deliver()
    assert isinstance(events[-1], FeatureDelivered)
    commits = [event.phase for event in events if isinstance(event, CommitRequested)]
    assert commits == ["build", "polish", "ship"]
    assert [event.artifact for event in events if isinstance(event, ArtifactParsed)][-1] == "lessons"
    assert shipped(world, events) == b"fine"
    assert "+built" in prompts["look_back"]
    recorded = tuple(world.store.read(feature_stream(trial.RUN, FeatureId("b"))))
    state = fold(recorded[:-1])
    assert isinstance(state, BetweenPhases)
    files = world.objects[state.progress.tree].files
    assert files["b.txt"] == b"fine", "what a revision starts from"
    assert "lessons/b.md" not in files


@pytest.mark.parametrize("problem", [NO_CREDIT, replace(NO_CREDIT, kind=ProblemClass.NEEDS_PERSON, code="question")])
def test_what_is_not_required_halts_nothing_and_asks_nobody(problem: Problem) -> None:
    _, events, _ = deliver(problem=problem)
    assert isinstance(events[-1], FeatureDelivered)
    (skipped,) = [event for event in events if isinstance(event, PhaseSkipped)]
    assert (skipped.phase, skipped.code) == ("look_back", problem.code)
    assert describe(skipped) == f"look_back: left out, since it is not required: {problem.code}"
    assert not [event for event in events if isinstance(event, HumanRequested)]


def test_the_work_of_a_phase_that_was_left_out_is_left_out() -> None:
    world, events, prompts = deliver(polish="broken")
    (skipped,) = [event for event in events if isinstance(event, PhaseSkipped)]
    assert (skipped.phase, skipped.code) == ("polish", "polish.check")
    assert shipped(world, events) == b"built"
    refs = [event.ref for event in events if isinstance(event, AgentRequested)]
    assert [f"{ref.phase} {ref.attempt}" for ref in refs] == [
        "build 1", "polish 1", "polish 2", "polish 3", "ship 1", "look_back 1",
    ]  # fmt: skip
    assert "-" not in prompts["look_back"].partition("+built")[2], "the patch ends with what was built"
    recorded = tuple(world.store.read_all())
    outcomes = {call.key.split("/")[2]: call.outcome for call in paid_calls(recorded)}
    assert outcomes == {"build": "kept", "polish": "superseded", "ship": "kept", "look_back": "kept"}
    (result,) = audit(trial.RUN, recorded, None).features
    assert [gap.message for gap in result.gaps if gap.fault] == []
