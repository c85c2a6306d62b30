"""Artifacts that are there already take the place of a call, if they are valid and newer than what they depend on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.model.pins import Pins
from mz_engine.pipelines.load import PipelineSource
from mz_engine.ports import CallSpec
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import load_config
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.feature import HumanRequested
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import ArtifactsKept, GateChecked
from mz_events.names import FeatureId, feature_stream
from mz_events.names import Path as TreePath
from mz_projections.views.timeline import describe
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, SimulatedWorkspace, World

from tests.support import driving
from tests.support.desk import Desk
from tests.support.workshop import Copy, Workshop

NOTE = "notes/alpha.md"


def test_the_order_of_changes_is_that_of_the_commits(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    paths = TreePath("a"), TreePath("b"), TreePath("both")
    first = desk.repo.commit({"a": "1", "both": "1"})
    head = desk.repo.commit({"b": "1"})
    a, b, both = paths
    readme, untracked = TreePath("README.md"), TreePath("untracked")
    assert not desk.port.is_newest(first, b, readme, ())
    assert desk.port.is_newest(head, b, readme, (a, both))
    assert desk.port.is_newest(head, a, readme, (both,)), "an input of the same commit is no newer"
    assert not desk.port.is_newest(head, a, both, ()), "nor is the artifact newer than a request of the same commit"
    assert not desk.port.is_newest(head, a, readme, (b,))
    assert not desk.port.is_newest(head, b, readme, (untracked,))
    assert not desk.port.is_newest(head, b, untracked, ())


def test_what_the_first_commit_of_a_cut_history_has_is_not_newer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.repo.commit({"a": "1"})
    head = desk.repo.commit({"b": "1"})
    readme, a, b = TreePath("README.md"), TreePath("a"), TreePath("b")
    assert desk.port.is_newest(head, a, readme, ())
    (desk.repo.root / ".git" / "shallow").write_text(f"{desk.repo.git('rev-parse', 'HEAD~1')}\n")
    assert not desk.another().is_newest(head, a, readme, ())
    assert desk.another().is_newest(head, b, readme, (a,)), "made after the cut"


PIPELINE = """\
pipeline: kept
version: 1
phases:
- phase: plan
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: plan, path: "plans/{feature}.json", rules: plan}]
- phase: write
  agent: {}
  prompt: do.md.j2
  OUTPUTS
  MORE
- phase: ship
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  deliver: [open_pr]
"""
OUTPUTS = 'outputs: [{artifact: text, path: "notes/{feature}.md", rules: note}]'
REVIEW = "agent_review: {role: judge, output: verdict, prompt: do.md.j2}"


def kept_world(monkeypatch: pytest.MonkeyPatch, more: str, outputs: str) -> tuple[World, Pins]:
    """A world in which every artifact is there already, valid and newer than what it depends on."""
    monkeypatch.setattr(SimulatedWorkspace, "is_newest", lambda *_: True)
    pipeline, _ = PipelineSource(
        name="kept.yaml", text=PIPELINE.replace("OUTPUTS", outputs).replace("MORE", more)
    ).parse()
    pins = replace(
        trial.pins(),
        pipeline=pipeline,
        templates={"do.md.j2": "Do {{ phase }}.{% for n in notes %} {{ n }}{% endfor %}"},
    )
    files = {"features.md": "## [FEAT] b: Feature b\nPlease.\n", "plans/b.json": json.dumps(trial.units("b"))}
    files |= {"notes/b.md": "a note that is long enough", "letters/b.md": "a letter that is long enough"}

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        name = "/".join(spec.key.split("/")[3:1:-1]).replace("-/", "")
        written: dict[str, str | None] = {f"letters/{spec.worktree.feature}.md": "a letter"} if "ship" in name else {}
        return ScriptedReply(
            files=written or {"notes/b.md": "a note that was written again"}, text="a reply, long enough"
        )

    world = World(files, script, trial.commands)
    trial.begin(world, pins, {"b": ()})
    drive_run(world, trial.RUN, pins, 1)
    return world, pins


def events_of(world: World) -> list[Event]:
    return [recorded.event for recorded in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]


@pytest.mark.parametrize(
    ("more", "outputs", "is_kept"),
    [
        ("", OUTPUTS, True),
        ("inputs: [{artifact: plan}]", OUTPUTS, True),
        ("gates: [{run: check}]", OUTPUTS, True),
        ("inputs: [{record: notes}]", OUTPUTS, False),
        ('writable: ["*.txt"]', OUTPUTS, False),
        ("for_each: {artifact: plan}", OUTPUTS.replace("{feature}", "{unit}"), False),
        (REVIEW, OUTPUTS, False),
        ('deliver: [{tag: "{item}-written"}]', OUTPUTS, False),
        ("", OUTPUTS.replace("{feature}", "*"), False),
        ("", "outputs: [{artifact: text, rules: note}]", False),
    ],
)
def test_only_a_phase_that_writes_artifacts_alone_is_kept(
    monkeypatch: pytest.MonkeyPatch, more: str, outputs: str, is_kept: bool
) -> None:
    world, _ = kept_world(monkeypatch, more, outputs)
    kept = [event.phase for event in events_of(world) if isinstance(event, ArtifactsKept)]
    assert kept == ["plan", "write"][: 1 + is_kept]
    assert ("write" in called(events_of(world))) != is_kept


def test_a_question_about_kept_artifacts_is_asked_and_its_answer_calls_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, pins = kept_world(monkeypatch, "ask_person: [{}]", OUTPUTS)
    assert isinstance(events_of(world)[-1], HumanRequested)
    assert called(events_of(world)) == []
    driving.answer(world, "b", Verdict.RETRY, "friendlier, please")
    drive_run(world, trial.RUN, pins, 1)
    assert called(events_of(world)) == ["write"]


def first_phase(workshop: Workshop) -> tuple[list[Event], str]:
    """Delivers alpha as far as a person is asked; returns its events and its run."""
    with RunProcess(workshop.root, workshop.environment, lambda recorded: None) as session:
        session.start({}, ("alpha",))
        state = session.drive()
        assert state.started is not None
        stream = feature_stream(state.started.run, FeatureId("alpha"))
        return [recorded.event for recorded in session.store.read(stream)], state.started.run


def called(events: list[Event]) -> list[str]:
    return [event.ref.phase for event in events if isinstance(event, AgentRequested)]


@pytest.mark.slow
def test_a_phase_with_valid_artifacts_calls_no_agent(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.repository.commit({NOTE: "# Alpha\nwritten by a person\n"})
    events, run = first_phase(workshop)
    assert called(events) == ["sign"]
    (kept,) = [event for event in events if isinstance(event, ArtifactsKept)]
    assert describe(kept) == "write: valid and newer than what they depend on, no agent is called"
    assert [(event.phase, event.passed) for event in events if isinstance(event, GateChecked)] == [("write", True)]
    workshop.keep(workshop.record(run).cassette)
    copy = Copy(workshop.root)
    assert copy.settle(keep=True).findings == (), "with processes"
    replayed = copy.settle()
    assert (replayed.findings, replayed.in_memory) == ((), True)


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["invalid", "older", "of one commit", "other request"])
def test_otherwise_the_agent_is_called(tmp_path: Path, reason: str) -> None:
    workshop = Workshop(tmp_path)
    backlog = (workshop.root / "features.md").read_text()
    workshop.repository.commit({NOTE: "short" if reason == "invalid" else "# Alpha\nwritten by a person\n"})
    if reason == "older":
        workshop.repository.commit({"features.md": backlog + "\nMore.\n"})
    if reason == "of one commit":
        workshop.repository.commit({NOTE: "# Alpha\nwritten again\n", "features.md": backlog + "\nMore.\n"})
    if reason == "other request":
        workshop.repository.write({"features.md": backlog.replace("Please.", "Please, at once.")})
    assert load_config(workshop.root, {}, {}).config.backlog == "features.md"
    assert called(first_phase(workshop)[0])[0] == "write"
