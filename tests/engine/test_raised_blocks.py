"""A phase that cannot be done: its agent writes a block instead of its outputs, and the work goes where that leads."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_cli.live.milestones import milestone_text
from mz_engine.model.pins import Pins
from mz_engine.pipelines.load import PipelineSource
from mz_engine.ports import CallSpec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.feature import Blocked, FeatureDelivered, FeatureFailed, HumanRequested, RolledBack
from mz_events.catalog.run import FeatureOutcome, Verdict
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, ChangesChecked
from mz_events.names import FeatureId, feature_stream
from mz_projections.views.feature import evolve_feature
from mz_projections.views.model import FeatureView
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, World

from tests.support import driving
from tests.support.workshop import PIPELINE as NOTES
from tests.support.workshop import SCRIPT, Copy, Workshop

PIPELINE = """\
pipeline: raising
version: 1
block_file: "blocked/{feature}.{phase}.md"
phases:
- phase: plan
  agent: {}
  prompt: trial/plan.md.j2
  outputs: [{artifact: plan, path: "plans/{feature}.json", rules: plan}]
- phase: build
  agent: {}
  prompt: block.md.j2
  inputs: [{artifact: plan}]
  for_each: {artifact: plan}
  outputs: [{artifact: note, path: "notes/{feature}.{unit}.md", rules: note}]
  writable: ["{unit.files}"]
  gates: [{run: check, cause: broken}]
  on_block: [{cause: spec, to: plan}, {cause: broken, to: plan}]
- phase: verify
  agent: {}
  prompt: block.md.j2
  inputs: [{artifact: note}, {record: patch, of: build}, {record: results, of: build, optional: true}]
  ask_person: [{artifact: block, field: severity, in: [CRITICAL]}]
  outputs: [{artifact: report, path: "reports/{feature}.md", rules: note}]
  on_block: [{cause: code, to: build, scope: unit}, {cause: unclear, to: person}]
- phase: ship
  agent: {}
  prompt: trial/ship.md.j2
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  deliver: [open_pr]
"""
TEMPLATE = """\
{% include "partials/block.md.j2" %}{% include "trial/again.md.j2" %}
{% for name, text in inputs.items() %}INPUT {{ name }}
{{ text }}
{% endfor %}"""
PARTIAL = "{% if block %}BLOCK {{ block.path }}: {{ causes | join(' ') }}\n{% endif %}"
MISSING = "missing: [which of both holds]"
Act = Callable[[str, str, str], dict[str, str | None] | None]


def raising(cause: str, more: str = "") -> str:
    return f"Stopped.\n\n```yaml\ncause: {cause}\nreason: The criteria contradict each other.\n{MISSING}\n{more}\n```\n"


def pins() -> Pins:
    pipeline, _ = PipelineSource(name="raising.yaml", text=PIPELINE).parse()
    base = trial.pins()
    templates = base.templates | {"block.md.j2": TEMPLATE, "partials/block.md.j2": PARTIAL}
    return replace(base, pipeline=pipeline, templates=templates)


def deliver(act: Act, before: dict[str, str] | None = None) -> tuple[World, list[Event], dict[str, str]]:
    """Run one feature, whose agent does what `act` says for a call (phase, unit, prompt), or else what is right; return
    its events and prompts by key."""
    prompts: dict[str, str] = {}

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        phase, unit = spec.key.split("/")[2:4]
        prompts["/".join(spec.key.split("/")[2:6])] = spec.prompt
        written = act(phase, unit, spec.prompt)
        if written is None:
            right: dict[str, dict[str, str | None]] = {
                "plan": {"plans/b.json": json.dumps(trial.units("b"))},
                "build": {f"b{unit[-1]}.txt": f"{unit} {len(prompts)}", f"notes/b.{unit}.md": f"a note on {unit}"},
                "verify": {"reports/b.md": "all is as it was asked"},
                "ship": {"letters/b.md": "a letter about b"},
            }
            written = right[phase]
        return ScriptedReply(files=written)

    world = World({**trial.FILES, **(before or {})}, script, trial.commands)
    trial.begin(world, pins(), {"b": ()})
    drive_run(world, trial.RUN, pins(), 1)
    return world, events_of(world), prompts


def events_of(world: World) -> list[Event]:
    return [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]


def calls(events: list[Event]) -> list[str]:
    refs = [event.ref for event in events if isinstance(event, AgentRequested)]
    return [f"{ref.phase}/{ref.unit or '-'}/{ref.iteration}/{ref.attempt}" for ref in refs]


def once(phase: str, unit: str, files: dict[str, str | None]) -> Act:
    """The first call of this phase and unit does this."""
    left = [files]
    return lambda at, of, _: left.pop() if (at, of) == (phase, unit) and left else None


def test_a_block_goes_where_its_cause_leads() -> None:
    blocked: dict[str, str | None] = {
        "blocked/b.build.md": raising("spec"),
        "notes/b.u1.md": "half",
        "b1.txt": "broken",
    }
    world, events, prompts = deliver(once("build", "u1", blocked))
    builds = ["build/u1/2/1", "build/u2/2/1", "build/u3/2/1"]
    assert calls(events) == ["plan/-/1/1", "build/u1/1/1", "plan/-/2/1", *builds, "verify/-/1/1", "ship/-/1/1"]
    (block,) = [event for event in events if isinstance(event, Blocked)]
    assert (block.cause, block.check, block.unit) == ("spec", "raised.spec", "u1")
    assert block.note is not None
    assert world.blobs.get(block.note).decode() == raising("spec")
    assert "The criteria contradict each other." in prompts["plan/-/2/1"]
    assert [event.artifact for event in events if isinstance(event, ArtifactParsed)][1] == "block", "nothing beside it"
    trees = [event.tree for event in events if isinstance(event, ChangesChecked)]
    assert not any(path.startswith("blocked/") for tree in trees for path in world.objects[tree].files)
    assert all(event.forbidden_changes == () for event in events if isinstance(event, ChangesChecked))


def test_the_prompt_names_the_file_and_the_causes_that_an_agent_may_raise() -> None:
    _, _, prompts = deliver(lambda *_: None)
    assert "BLOCK blocked/b.build.md: spec\n" in prompts["build/u1/1/1"], "a gate's cause is the gate's"
    assert "BLOCK blocked/b.verify.md: code unclear\n" in prompts["verify/-/1/1"]
    assert "BLOCK" not in prompts["plan/-/1/1"] + prompts["ship/-/1/1"]


@pytest.mark.parametrize(
    ("named", "redone"),
    [("units: [u2]", ["u2", "u3"]), ("units: [u3]", ["u3"]), ("", ["u1", "u2", "u3"])],
    ids=["a unit and what depends on it", "a last unit", "none named"],
)
def test_a_later_phase_sends_back_single_units(named: str, redone: list[str]) -> None:
    _, events, _ = deliver(once("verify", "-", {"blocked/b.verify.md": raising("code", named)}))
    (rollback,) = [event for event in events if isinstance(event, RolledBack)]
    assert (rollback.to, list(rollback.units)) == ("build", redone)
    first = [f"build/{unit}/1/1" for unit in ("u1", "u2", "u3")]
    again = [f"build/{unit}/2/1" for unit in redone]
    assert calls(events) == ["plan/-/1/1", *first, "verify/-/1/1", *again, "verify/-/2/1", "ship/-/1/1"]


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        (raising("broken"), "block.cause", "`cause` names 'broken'; choose from: code, unclear"),
        (raising("code", "units: [u9]"), "block.units", "`units` names 'u9'; choose from: u1, u2, u3"),
        ("", "block.cause", "`cause` is missing"),
        ("I cannot.", "block.yaml", "it holds a text, not an object"),
        ("cause: [code", "block.yaml", "blocked/b.verify.md:1:"),
        ("cause: code\nreason: no\nmissing: []", "block.reason", "has 2 characters; at least 20 are needed"),
        (f"cause: code\nreason: {'x' * 20}\nmissing: []", "block.missing", "must be non-empty"),
    ],
)
def test_a_block_that_is_not_valid_goes_back(text: str, rule: str, message: str) -> None:
    world, events, _ = deliver(once("verify", "-", {"blocked/b.verify.md": text}))
    rejected = next(event for event in events if isinstance(event, ArtifactValidated) and event.violations)
    assert rejected.violations[0].rule == rule
    assert rejected.report is not None
    assert message in world.blobs.get(rejected.report).decode()
    assert calls(events)[-2:] == ["verify/-/1/2", "ship/-/1/1"], "the corrected reply has the outputs"
    assert not [event for event in events if isinstance(event, Blocked)]


def test_a_route_to_a_person_asks_and_goes_on_with_the_answer() -> None:
    world, events, prompts = deliver(once("verify", "-", {"blocked/b.verify.md": raising("unclear")}))
    (question,) = [event for event in events if isinstance(event, HumanRequested)]
    assert question.detail is not None
    assert world.blobs.get(question.detail).decode() == raising("unclear")
    driving.answer(world, "b", Verdict.RETRY, "the second one holds")
    coordinator = drive_run(world, trial.RUN, pins(), 1)
    stop = coordinator.state.tracks[FeatureId("b")].last_stop
    assert stop is not None
    assert stop.status is FeatureOutcome.DELIVERED
    assert "the second one holds" in prompts["verify/-/1/2"]


def test_a_block_that_leads_to_a_person_is_asked_about_once() -> None:
    world, _, _ = deliver(once("verify", "-", {"blocked/b.verify.md": raising("unclear", "severity: CRITICAL")}))
    driving.answer(world, "b", Verdict.RETRY, "the second one holds")
    drive_run(world, trial.RUN, pins(), 1)
    events = events_of(world)
    assert [event.code for event in events if isinstance(event, HumanRequested)] == ["unclear.raised.unclear"]
    assert isinstance(events[-1], FeatureDelivered)


def test_a_file_that_was_there_before_blocks_nothing() -> None:
    _, events, _ = deliver(lambda *_: None, {"blocked/b.verify.md": raising("code")})
    assert not [event for event in events if isinstance(event, Blocked)]
    assert calls(events)[-2:] == ["verify/-/1/1", "ship/-/1/1"]


def test_the_patch_of_a_unit_has_the_work_of_all_its_iterations() -> None:
    _, _, prompts = deliver(once("verify", "-", {"blocked/b.verify.md": raising("code", "units: [u3]")}))
    _, _, text = prompts["verify/-/2/1"].partition("INPUT build.patch\n")[2].partition("[unit u3]")
    first, again = "+u3 4\n", "-u3 4\n\\ No newline at end of file\n+u3 6\n"
    assert first in text.partition("INPUT")[0]
    assert again in text.partition("INPUT")[0]


def test_a_person_is_asked_about_a_block_that_is_bad_before_it_goes_its_way() -> None:
    world, events, _ = deliver(once("verify", "-", {"blocked/b.verify.md": raising("code", "severity: CRITICAL")}))
    assert isinstance(events[-1], HumanRequested)
    assert (events[-1].code, events[-1].question_kind.value) == ("block.severity", "approval")
    assert events[-1].detail is not None
    assert b"severity: CRITICAL" in world.blobs.get(events[-1].detail)
    driving.answer(world, "b", Verdict.APPROVE)
    drive_run(world, trial.RUN, pins(), 1)
    assert calls(events_of(world))[5:] == ["build/u1/2/1", "build/u2/2/1", "build/u3/2/1", "verify/-/2/1", "ship/-/1/1"]


def test_who_rejects_a_block_is_not_asked_again() -> None:
    world, _, _ = deliver(once("verify", "-", {"blocked/b.verify.md": raising("code", "severity: CRITICAL")}))
    driving.answer(world, "b", Verdict.REJECT, "it is not worth it")
    drive_run(world, trial.RUN, pins(), 1)
    events = events_of(world)
    assert isinstance(events[-1], FeatureFailed)
    assert len([event for event in events if isinstance(event, HumanRequested)]) == 1


def test_a_raised_block_is_a_milestone_and_a_rejection_with_its_reason() -> None:
    world, _, _ = deliver(once("verify", "-", {"blocked/b.verify.md": raising("code")}))
    recorded = list(world.store.read(feature_stream(trial.RUN, FeatureId("b"))))
    (milestone,) = [milestone_text(item) for item in recorded if isinstance(item.event, Blocked)]
    assert milestone == "b: phase blocked: verify: raised.code, cause code"
    view = reduce(evolve_feature, recorded, FeatureView(feature="b"))
    (rejection,) = [rejection for call in view.calls for rejection in call.rejections]
    assert rejection.gate == "raised.code"
    assert rejection.note is not None
    assert world.blobs.get(rejection.note).decode() == raising("code")


def test_a_later_phase_sees_what_was_changed_and_no_papers() -> None:
    _, _, prompts = deliver(lambda *_: None)
    _, _, text = prompts["verify/-/1/1"].partition("INPUT build.patch\n")
    patch, _, results = text.partition("INPUT build.results\n")
    units = [f"[unit u{number}]\n\ngate check: exit 0\n" for number in (1, 2, 3)]
    assert results == "\n".join(units)
    assert patch.rstrip("\n") + "\n" == "".join(
        f"[unit u{number}]\n\n--- /dev/null\n+++ b/b{number}.txt\n@@ -0,0 +1 @@\n"
        f"+u{number} {number + 1}\n\\ No newline at end of file\n" + "\n" * (number < 3)
        for number in (1, 2, 3)
    )


def test_the_third_block_on_the_same_issue_goes_to_a_person() -> None:
    def always(phase: str, unit: str, prompt: str) -> dict[str, str | None] | None:
        return {"blocked/b.build.md": raising("spec")} if unit == "u1" else None

    _, events, _ = deliver(always)
    assert [event.check for event in events if isinstance(event, Blocked)] == ["raised.spec"] * 3
    assert isinstance(events[-1], HumanRequested)


@pytest.mark.slow
def test_a_block_is_recorded_and_replayed(tmp_path: Path) -> None:
    """By a real process, with git; the file is in no commit of a branch."""
    blocked = "cause: text\nreason: The note says nothing about beta.\nmissing: [a word on beta]\n"
    script = {**SCRIPT, "alpha.sign.1.1": {"write": {"blocked/alpha.md": blocked, "letters/alpha.md": "too early"}}}
    workshop = Workshop(tmp_path, script)
    pipeline = NOTES.replace("version: 1\n", "version: 1\nblock_file: 'blocked/{feature}.md'\n")
    pipeline = pipeline.replace("on_block: [{cause: person, to: write},", "on_block: [{cause: text, to: write},")
    pipeline = pipeline.replace("  ask_person: [{autonomy: [supervised, checkpoint, full_auto]}]\n", "")
    workshop.repository.commit({"pipelines/notes.yaml": pipeline})
    run = workshop.run()
    files = workshop.repository.git("log", "--branches", "--name-only", "--format=").split()
    assert "letters/alpha.md" in files
    assert "blocked/alpha.md" not in files
    workshop.keep(workshop.record(run).cassette)
    copy = Copy(workshop.root)
    assert copy.settle(keep=True).findings == (), "with processes"
    replayed = copy.settle()
    assert (replayed.findings, replayed.in_memory) == ((), True)
    copy.edit("pipelines/notes.yaml", "{cause: text, to: write}", "{cause: text, to: person}")
    findings = [copy.settle(real=real).findings for real in (False, True)]
    assert findings[0], "a person is asked now"
    assert findings[0] == findings[1]
