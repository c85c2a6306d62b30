"""What a phase knows of its units: record and fields, and files and artifacts of those that they depend on."""

from __future__ import annotations

import json
import re
from collections import Counter

from msgspec.structs import replace
from mz_engine.artifacts.load import assemble_rules
from mz_engine.artifacts.parse import parse_artifact, unit_record
from mz_engine.model.pins import Pins
from mz_engine.model.rules import RuleSet
from mz_engine.pipelines.load import PipelineSource
from mz_engine.ports import CallSpec
from mz_events.catalog.call import ReplyParsed
from mz_events.catalog.feature import Blocked, FeatureDelivered
from mz_events.catalog.validation import ArtifactParsed, Unit
from mz_events.names import FeatureId, Path, feature_stream
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, World

from tests.support import driving

PIPELINE = """\
pipeline: units
version: 1
phases:
- phase: plan
  agent: {}
  prompt: trial/plan.md.j2
  outputs: [{artifact: plan, path: "plans/{feature}.yaml", rules: work}]
- phase: build
  agent: {}
  prompt: unit.md.j2
  inputs: [{artifact: plan}, {artifact: absent, optional: true}]
  context: {include: ["{unit.files}", "{dependencies.files}"]}
  for_each: {artifact: plan}
  outputs: [{artifact: note, path: "notes/{feature}.{unit}.md", rules: note}]
  writable: ["src/", "!{dependencies.files}"]
- phase: look
  agent: {}
  prompt: unit.md.j2
  inputs: [{artifact: note, units: own}, {artifact: look, units: dependencies}]
  for_each: {artifact: plan}
  outputs: [{artifact: look, path: "looks/{feature}.{unit}.md", rules: note}]
- phase: ship
  agent: {}
  prompt: unit.md.j2
  inputs: [{artifact: note}]
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  deliver: [open_pr]
"""
TEMPLATE = """\
{% if unit %}UNIT {{ unit.id }} {{ unit.fields }} {{ unit.depends_on }} {{ unit.record }}{% endif %}
FILES {{ context | map(attribute='path') | join(' ') }}
MAY {{ may_change | join(' ') }}
{% for name, text in inputs.items() %}INPUT {{ name }} {{ text }}
{% endfor %}"""
WORK = """\
- {id: u1, files: [src/a.py], type: auth, story: "Check the token"}
- {id: u2, files: [src/b.py], type: page, depends_on: [u1], story: "Show it"}
"""


def work_rules() -> RuleSet:
    text = {"requirement": "Be right.", "message": "wrong: {found}"}
    units = {"id": "id", "depends_on": "depends_on", "files": "files", "fields": ["type"]}
    choice = {"kind": "field", "id": "work.type", "field": "type", "type": "choice", "values": ["auth", "page"], **text}
    rules = [{"kind": "yaml", "id": "work.yaml", "root": "list", **text}, choice]
    return assemble_rules(
        {"name": "work", "version": 1, "form": "yaml", "extract": {"units": units}, "rules": rules}, {}
    )


def pins() -> Pins:
    pipeline, _ = PipelineSource(name="units.yaml", text=PIPELINE).parse()
    base = trial.pins()
    return replace(
        base,
        pipeline=pipeline,
        rules={**base.rules, "work": work_rules()},
        templates={**base.templates, "unit.md.j2": TEMPLATE},
    )


def test_fields_and_records_of_units_are_read() -> None:
    rules = work_rules()
    assert parse_artifact(rules, WORK).units == (
        Unit(id="u1", files=(Path("src/a.py"),), fields={"type": "auth"}),
        Unit(id="u2", depends_on=("u1",), files=(Path("src/b.py"),), fields={"type": "page"}),
    )
    assert json.loads(unit_record(rules, WORK, "u1"))["story"] == "Check the token"
    texts = {"requirement": "", "message": ""}
    section = {"kind": "section", "id": "work.section", "aliases": ["Work"], **texts}
    table = {"kind": "items", "id": "work.items", "section": "work.section", "shape": "table", **texts}
    extract = {"units": {"id": "id", "depends_on": "needs", "files": "files"}}
    data = {"name": "work", "version": 1, "form": "markdown", "extract": extract, "rules": [section, table]}
    markdown = assemble_rules(data, {})
    text = "## Work\n\n| id | story |\n|---|---|\n| u1 | Check it |\n"
    assert json.loads(unit_record(markdown, text, "u1")) == {"id": "u1", "story": "Check it"}
    assert unit_record(rules, WORK, "u9") == unit_record(rules, "no: [", "u1") == ""


def test_each_unit_is_shown_what_it_needs_and_no_more() -> None:
    prompts: dict[str, str] = {}

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        phase, unit = spec.key.split("/")[2:4]
        prompts[f"{phase}/{unit}"] = spec.prompt
        written: dict[str, dict[str, str | None]] = {
            "plan": {"plans/b.yaml": WORK},
            "build": {f"notes/b.{unit}.md": f"a note on {unit}", f"src/{unit}.py": unit, "src/a.py": f"by {unit}"},
            "look": {f"looks/b.{unit}.md": f"a look at {unit}"},
            "ship": {"letters/b.md": "a letter about b"},
        }
        return ScriptedReply(files=written[phase])

    world = World({**trial.FILES, "src/a.py": "1", "src/b.py": "2", "src/c.py": "3"}, script, trial.commands)
    trial.begin(world, pins(), {"b": ()})
    drive_run(world, trial.RUN, pins(), 1)
    events = [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]
    assert isinstance(events[-1], FeatureDelivered)
    assert not [event for event in events if isinstance(event, Blocked)]
    assert "UNIT u1 {'type': 'auth'} () {" in prompts["build/u1"]
    assert '"story": "Check the token"' in prompts["build/u1"]
    assert "FILES src/a.py\nMAY src/ notes/b.u1.md\n" in prompts["build/u1"]
    assert "FILES src/a.py src/b.py\nMAY src/ !src/a.py notes/b.u2.md\n" in prompts["build/u2"]
    assert prompts["look/u1"].endswith("INPUT note a note on u1\n")
    assert prompts["look/u2"].endswith("INPUT note a note on u2\nINPUT look [unit u1]\n\na look at u1\n")
    assert prompts["ship/-"].endswith("INPUT note [unit u1]\n\na note on u1\n\n[unit u2]\n\na note on u2\n")
    (plan,) = [event for event in events if isinstance(event, ArtifactParsed) and event.artifact == "plan"]
    assert [unit.fields for unit in plan.units] == [{"type": "auth"}, {"type": "page"}]


def test_each_commit_has_the_usage_of_its_unit_run() -> None:
    world, pins = driving.new_world(), trial.pins()
    trial.begin(world, pins, {"b": ()})
    driving.deliver(world, pins, 1)
    inputs = [re.findall(rb"Mz-Tokens: (\d+) in", tree.message) for tree in world.commits("feat/b")]
    expected = Counter[tuple[str, str]]()
    for recorded in world.store.read(feature_stream(trial.RUN, FeatureId("b"))):
        if isinstance(recorded.event, ReplyParsed):
            ref = recorded.event.ref
            expected[ref.phase, ref.unit] += sum(usage.input for usage in recorded.event.usage)
    assert sorted(int(tokens) for (tokens,) in filter(None, inputs)) == sorted(expected.values())
    assert len(expected) > len(pins.pipeline.phases)
