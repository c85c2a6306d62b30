"""Conditions decide whether phases and reviews take place, which tier is called, and who is asked; rules of a pipeline
look at the request, the changes and the artifacts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.artifacts.load import assemble_rules
from mz_engine.decide.conditions import escalation, holds
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import AgentUse, Condition, Escalation
from mz_engine.model.rules import RuleSet
from mz_engine.pipelines.load import PipelineSource
from mz_engine.ports import CallSpec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.feature import Blocked, FeatureDelivered, FeatureStarted, HumanRequested, UnitCompleted
from mz_events.catalog.validation import ArtifactParsed, CommandRan, ConditionsChecked, GateChecked
from mz_events.names import FeatureId, feature_stream
from mz_events.store import Append
from mz_projections.feature.state import InPhase
from mz_projections.views.timeline import describe
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, SimulatedAdapter, SimulatedPorts, World
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.past_runs.replay import FeatureReplay

from tests.engine.test_decide_phase import IN_BUILD
from tests.support import driving
from tests.support.samples import sample
from tests.support.steps import ref, requested, state_after
from tests.support.workshop import PIPELINE as NOTES
from tests.support.workshop import SCRIPT, Copy, Workshop

PIPELINE = """\
pipeline: conditions
version: 1
checks:
  money: {kind: request, pattern: '(?i)\\bpay(ment)?s?\\b'}
  auth: {kind: paths, patterns: ["auth*", "!auth_notes.txt"]}
  hosts: {kind: added, pattern: 'https://([a-z.]+)', files: ["*.txt"], unless_in: note}
  own_hosts: {kind: added, pattern: 'https://([a-z.]+)', over: unit}
  graded: {kind: value, artifacts: [report, absent], field: grade, in: [GOOD]}
phases:
- phase: build
  agent: {tier: cheap, escalate: [{to: mid, rule: money}, {to: premium, rolled_back: 1}]}
  prompt: do.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["*.txt"]
- phase: secure
  when: [{rule: auth}, {rule: hosts}]
  agent: {tier: mid, escalate: [{to: premium, artifact: report, field: grade, in: [BAD]}]}
  prompt: do.md.j2
  outputs: [{artifact: report, path: "reports/{feature}.yaml", rules: report}]
  gates: [{rule: own_hosts}]
  agent_review:
    {role: judge, when: [{artifact: report, field: grade, in: [BAD]}], output: verdict, prompt: do.md.j2}
  ask_person: [{rule: graded}]
  on_block: [{cause: code, to: build}]
- phase: ship
  agent: {}
  prompt: do.md.j2
  inputs: [{artifact: report, optional: true}]
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  deliver: [open_pr]
"""
TEXTS = {"requirement": "Be right.", "message": "wrong: {found}"}
NO_CAUSE = '{"severity": "NONE", "cause": "none", "findings": []}'
FINDING = '{"severity": "MAJOR", "path": "a.txt", "message": "Do it again."}'
CODE = f'{{"severity": "MAJOR", "cause": "code", "findings": [{FINDING}]}}'
Written = Mapping[str, str | None]


def report_rules() -> RuleSet:
    grade = {"kind": "field", "id": "report.grade", "field": "grade", "type": "choice", "values": ["GOOD", "BAD"]}
    rules = [{"kind": "yaml", "id": "report.yaml", "root": "object", **TEXTS}, {**grade, **TEXTS}]
    extract = {"fields": ["grade"]}
    return assemble_rules({"name": "report", "version": 1, "form": "yaml", "extract": extract, "rules": rules}, {})


def pins(text: str = PIPELINE) -> Pins:
    pipeline, _ = PipelineSource(name="conditions.yaml", text=text).parse()
    base = trial.pins()
    rules, templates = {**base.rules, "report": report_rules()}, {"do.md.j2": "Do {{ phase }}."}
    return replace(base, pipeline=pipeline, rules=rules, templates=templates)


def deliver(files: Written, grade: str = "GOOD", verdict: str = NO_CAUSE, title: str = "A feature") -> list[Event]:
    """Run one feature whose builder writes these files; return its events."""

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        if spec.key.endswith("agent.judge"):
            return ScriptedReply(text=verdict)
        written: dict[str, Written] = {
            "build": {"notes/b.md": "a note on b, by way of https://declared.example", **files},
            "secure": {"reports/b.yaml": f"grade: {grade}"},
            "ship": {"letters/b.md": "a letter about b"},
        }
        return ScriptedReply(files=written[spec.key.split("/")[2]])

    world = World({**trial.FILES, "old.txt": "https://old.example\n"}, script, trial.commands)
    put = world.blobs.put
    world.blobs.put = lambda data: put(title.encode() if data == b"Feature b" else data)  # type: ignore[method-assign]
    trial.begin(world, pins(), {"b": ()})
    drive_run(world, trial.RUN, pins(), 1)
    return [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]


def calls(events: list[Event]) -> list[str]:
    return [
        f"{event.ref.phase}.{event.ref.role} {event.ref.iteration}.{event.ref.attempt} "
        f"{event.escalated_to}:{event.escalated_by}"
        for event in events
        if isinstance(event, AgentRequested)
    ]


def conditions(events: list[Event]) -> list[tuple[str, tuple[str, ...]]]:
    return [(event.of, event.met) for event in events if isinstance(event, ConditionsChecked)]


def test_a_phase_is_skipped_unless_a_condition_holds() -> None:
    events = deliver({"a.txt": "plain"})
    assert calls(events) == ["build.builder 1.1 :", "ship.builder 1.1 :"]
    assert conditions(events) == [("phase", ())]
    assert [event.phase for event in events if isinstance(event, UnitCompleted)] == ["build", "secure", "ship"]
    assert isinstance(events[-1], FeatureDelivered)
    (checked,) = [event for event in events if isinstance(event, ConditionsChecked)]
    assert describe(checked) == "secure: skipped, none of its conditions holds"
    assert describe(replace(checked, of="review")) == "secure: no review, none of its conditions holds"
    assert describe(replace(checked, met=("auth", "hosts"))) == "secure: takes place because of auth, hosts"


@pytest.mark.parametrize(
    ("files", "met"),
    [
        ({"auth_client.txt": "x"}, ("auth",)),
        ({"auth_notes.txt": "x"}, ()),
        ({"a.txt": "see https://other.example"}, ("hosts",)),
        ({"a.txt": "see https://declared.example"}, ()),
        ({"old.txt": "https://old.example\nand more\n"}, ()),
        ({"old.txt": None}, ()),
        ({"auth.txt": "https://other.example"}, ("auth", "hosts")),
        ({"a.txt": "https://declared.example https://other.example"}, ("hosts",)),
        ({"a.txt": "see https://clared.example"}, ("hosts",)),
        ({"a.txt": "x" * 2001}, ("hosts",)),
    ],
)
def test_rules_of_a_pipeline_look_at_paths_and_added_lines(files: Written, met: tuple[str, ...]) -> None:
    events = deliver(files)
    assert conditions(events)[0] == ("phase", met)
    assert ("secure.builder 1.1 :" in calls(events)) == bool(met)
    gates = {event.gate: event.passed for event in events if isinstance(event, GateChecked)}
    assert gates.get("own_hosts") is (True if met else None), "nothing was added in this phase"


def test_a_request_asks_for_a_better_tier() -> None:
    assert calls(deliver({"a.txt": "x"}, title="Let people pay"))[0] == "build.builder 1.1 mid:money"


def test_a_reply_of_a_tier_that_its_result_finds_too_low_is_asked_for_again() -> None:
    events = deliver({"auth.txt": "x"}, grade="BAD")
    assert calls(events)[1:] == [
        "secure.builder 1.1 :", "secure.builder 1.2 premium:report.grade", "secure.judge 1.1 :",
    ]  # fmt: skip
    assert conditions(events) == [("phase", ("auth",)), ("review", ("report.grade",))]
    assert isinstance(events[-1], HumanRequested), "the pipeline's rule `graded` is broken"
    assert events[-1].code == "graded"


def test_a_review_that_no_condition_asks_for_is_left_out() -> None:
    events = deliver({"auth.txt": "x"})
    assert calls(events) == ["build.builder 1.1 :", "secure.builder 1.1 :", "ship.builder 1.1 :"]
    assert conditions(events) == [("phase", ("auth",)), ("review", ())]
    assert isinstance(events[-1], FeatureDelivered)


def test_after_a_rollback_a_better_tier_is_called() -> None:
    events = deliver({"auth.txt": "x"}, grade="BAD", verdict=CODE)
    assert [event.cause for event in events if isinstance(event, Blocked)] == ["code"] * 3
    assert [call for call in calls(events) if call.startswith("build")] == [
        "build.builder 1.1 :", "build.builder 2.1 premium:rolled_back", "build.builder 3.1 premium:rolled_back",
    ]  # fmt: skip


UNITS = """\
pipeline: units
version: 1
checks:
  graded: {kind: value, artifacts: [report], field: grade, in: [GOOD]}
phases:
- phase: plan
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: plan, path: "plans/{feature}.json", rules: plan}]
- phase: build
  when: [{unit: kind, in: [code]}]
  for_each: {artifact: plan}
  prepare: [{run: final, result: before, per: phase}]
  agent: {tier: cheap, escalate: [{to: premium, artifact: report, field: grade, in: [BAD]}]}
  prompt: do.md.j2
  outputs: [{artifact: report, path: "reports/{feature}.{unit}.yaml", rules: report}]
  writable: ["*.txt"]
  gates: [{run: check, per: phase}]
- phase: judge
  when: [{artifact: report, field: grade, in: [BAD]}]
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: verdict, path: "verdict.md", rules: note}]
- phase: ship
  gates: [{rule: graded}]
  deliver: [open_pr]
"""


def of_units(kinds: dict[str, str], grades: dict[str, str], text: str = "fine") -> list[Event]:
    """Run a feature with units of these kinds, whose reports have these grades."""
    pipeline, _ = PipelineSource(name="units.yaml", text=UNITS).parse()
    base, units = pins(), [{"id": name, "files": [f"{name}.txt"], "kind": kind} for name, kind in kinds.items()]
    extract = {"units": {"id": "id", "depends_on": "depends_on", "files": "files", "fields": ["kind"]}}
    kind = {"kind": "field", "id": "plan.kind", "field": "kind", "type": "name", **TEXTS}
    form = {"kind": "json", "id": "plan.json", "root": "list", **TEXTS}
    plan = assemble_rules({"name": "plan", "version": 1, "form": "json", "extract": extract, "rules": [form, kind]}, {})
    pinned = replace(base, pipeline=pipeline, rules={**base.rules, "plan": plan})

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        phase, unit = spec.key.split("/")[2:4]
        written: dict[str, Written] = {
            "plan": {"plans/b.json": json.dumps(units)},
            "build": {f"reports/b.{unit}.yaml": f"grade: {grades.get(unit)}", "b.txt": text},
            "judge": {"verdict.md": "this is a verdict"},
        }
        return ScriptedReply(files=written[phase])

    world = World(trial.FILES, script, trial.commands)
    trial.begin(world, pinned, {"b": ()})
    drive_run(world, trial.RUN, pinned, 1)
    return [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]


@pytest.mark.parametrize("kinds", [{"u1": "code", "u2": "docs"}, {"u1": "docs", "u2": "code"}])
def test_gates_and_preparations_of_a_phase_run_whichever_unit_is_skipped(kinds: dict[str, str]) -> None:
    (worked,) = [unit for unit, kind in kinds.items() if kind == "code"]
    events = of_units(kinds, {worked: "GOOD"})
    ran = [(event.stage, event.name) for event in events if isinstance(event, CommandRan)]
    assert ran == [("prepare", "final"), ("gate", "check")]
    assert isinstance(events[-1], FeatureDelivered)
    blocked = of_units(kinds, {worked: "GOOD"}, text="broken")
    assert isinstance(blocked[-1], HumanRequested)


def test_a_phase_whose_every_unit_is_skipped_runs_no_preparation() -> None:
    events = of_units({"u1": "docs"}, {})
    assert not [event for event in events if isinstance(event, CommandRan)]
    assert isinstance(events[-1], FeatureDelivered)


def test_artifacts_of_units_are_those_of_the_own_unit_or_of_any() -> None:
    events = of_units({"u1": "code", "u2": "code"}, {"u1": "BAD", "u2": "GOOD"})
    assert calls(events) == [
        "plan.builder 1.1 :", "build.builder 1.1 :", "build.builder 1.2 premium:report.grade", "build.builder 1.1 :",
        "judge.builder 1.1 :",
    ]  # fmt: skip
    assert [gate.passed for gate in events if isinstance(gate, GateChecked) and gate.gate == "graded"] == [False]


def test_a_better_tier_is_kept_for_the_work_on_a_unit() -> None:
    assert isinstance(STATE, InPhase)
    assert STATE.unit_run is not None
    request = requested(ref("build", 1, unit="u1"))
    again = replace(STATE.unit_run, request=replace(request, escalated_to="premium", escalated_by="rolled_back"))
    phase = trial.pins().pipeline.find_phase("build")
    assert escalation(AgentUse(tier="cheap"), STATE, again, phase) == ("premium", "rolled_back")
    assert phase.agent_review is not None
    assert escalation(phase.agent_review, STATE, again, phase) == ("premium", ""), "its own tier"


STATE = state_after(*IN_BUILD)
assert isinstance(STATE, InPhase)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition(), True),
        (Condition(rule="a"), True),
        (Condition(rule="b"), False),
        (Condition(artifact="plan", field="f", values=("x",)), False),
        (Condition(artifact="absent", field="f", values=("x",)), False),
        (Condition(unit="type", values=("auth",)), False),
        (Condition(rolled_back=1), False),
    ],
)
def test_what_holds(condition: Condition, expected: bool) -> None:
    assert isinstance(STATE, InPhase)
    assert STATE.unit_run is not None
    phase = trial.pins().pipeline.find_phase("build")
    assert holds(condition, STATE, STATE.unit_run, phase, ("a",)) == expected
    again = replace(STATE.unit_run, iteration=2)
    assert holds(Condition(rolled_back=1), STATE, again, phase, ())


def test_the_best_tier_of_all_that_hold_is_called() -> None:
    assert isinstance(STATE, InPhase)
    assert STATE.unit_run is not None
    phase = trial.pins().pipeline.find_phase("build")
    raised = (Escalation(to="premium", rule="a"), Escalation(to="cheap", rule="b"), Escalation(to="mid", rule="b"))
    use, expected = (
        AgentUse(tier="mid", escalate=raised),
        {(): ("mid", ""), ("b",): ("mid", ""), ("a", "b"): ("premium", "a")},
    )
    assert {broken: escalation(use, STATE, STATE.unit_run, phase, broken) for broken in expected} == expected


FIRST = """\
pipeline: first
version: 1
checks:
  new_system: {kind: first, artifact: systems}
phases:
- phase: plan
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: systems, path: "plans/{feature}.yaml", rules: systems}]
  agent_review: {role: judge, when: [{rule: new_system}], output: verdict, prompt: do.md.j2}
  ask_person: [{rule: new_system}]
- phase: ship
  agent: {tier: cheap, escalate: [{to: mid, rule: new_system}]}
  prompt: do.md.j2
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  deliver: [open_pr]
"""
SYSTEMS: dict[str, object] = {
    "name": "systems", "version": 1, "form": "yaml", "extract": {"ids": "systems.id"},
    "rules": [
        {"kind": "yaml", "id": "systems.yaml", "root": "object", **TEXTS},
        {"kind": "field", "id": "systems.id", "field": "id", "within": "systems", "type": "name", **TEXTS},
    ],
}  # fmt: skip


def test_a_person_is_asked_where_something_occurs_for_the_first_time() -> None:
    """Ids count that delivered features had in the same artifact; forks and features that failed do not."""
    pipeline, _ = PipelineSource(name="first.yaml", text=FIRST).parse()
    base, rules = pins(), assemble_rules(SYSTEMS, {})
    pinned = replace(base, pipeline=pipeline, rules={**base.rules, "systems": rules})
    named = {"b": "pager", "c": "pager", "d": "mail"}

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        feature = spec.worktree.feature
        if spec.key.endswith("agent.judge"):
            return ScriptedReply(text=NO_CAUSE)
        systems = f"systems: [{{id: {named[feature]}}}]"
        return ScriptedReply(files={f"plans/{feature}.yaml": systems, f"letters/{feature}.md": "a letter about it"})

    world = World(trial.FILES, script, trial.commands)
    parsed, delivered = replace(sample(ArtifactParsed), artifact="systems", ids=("mail",)), sample(FeatureDelivered)
    world.store.append([Append(feature_stream("failed", FeatureId("z")), 0, (parsed,))], 1)
    forked = Append(feature_stream("fork", FeatureId("z")), 0, (sample(FeatureStarted), parsed, delivered), "run/r/z@1")
    world.store.append([forked], 1)
    trial.begin(world, pinned, {"b": (), "c": ("b",), "d": ("c",)})
    driving.deliver(world, pinned, 1)
    streams = {name: list(world.store.read(feature_stream(trial.RUN, FeatureId(name)))) for name in named}
    reviewed = {name: [item.event for item in stream] for name, stream in streams.items()}
    codes = {name: [e.code for e in made if isinstance(e, HumanRequested)] for name, made in reviewed.items()}
    assert codes == {"b": ["new_system"], "c": [], "d": ["new_system"]}
    new = "plan.builder 1.1 :", "plan.judge 1.1 :", "ship.builder 1.1 mid:new_system"
    assert [tuple(calls(reviewed[name])) for name in "bcd"] == [new, ("plan.builder 1.1 :", "ship.builder 1.1 :"), new]
    assert [e.violations[0].path for e in reviewed["d"] if isinstance(e, GateChecked)] == ["mail"]
    inputs = ReplayInputs(
        blobs=world.blobs, trees=SimulatedPorts(world).workspace, adapters={"simulated": SimulatedAdapter()}
    )
    for stream in streams.values():
        assert FeatureReplay(stream, pinned, inputs, "main").run().divergences == ()


LETTER_RULES = 'letters/{feature}.md", rules: systems'


@pytest.mark.slow
def test_what_is_new_is_recorded_for_replays(tmp_path: Path) -> None:
    script = dict(SCRIPT)
    for call in (call for call in SCRIPT if ".sign." in call):
        script[call] = {"write": {f"letters/{call.partition('.')[0]}.md": f"systems: [{{id: pager}}] # {call}"}}
    workshop = Workshop(tmp_path, script)
    checks = "checks:\n  fresh: {kind: first, artifact: letter}\nphases:\n"
    pipeline = NOTES.replace("phases:\n", checks).replace('letters/{feature}.md", rules: note', LETTER_RULES)
    pipeline = pipeline.replace("[{autonomy: [supervised, checkpoint, full_auto]}]", "[{rule: fresh}]")
    workshop.repository.commit({"pipelines/notes.yaml": pipeline, "pipelines/rules/systems.yaml": json.dumps(SYSTEMS)})
    cassette = workshop.record(workshop.run()).cassette
    assert cassette.manifest.fixture.delivered_ids == {"beta/letter": ("pager",)}
    workshop.keep(cassette)
    copy = Copy(workshop.root)
    assert copy.settle(keep=True).findings == (), "with processes"
    replayed = copy.settle()
    assert (replayed.findings, replayed.in_memory) == ((), True)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{kind: first, artifacts: [a]}", "unknown key `artifacts` in `checks.x`"),
        ("{kind: path, patterns: [a]}", "`checks.x`: `kind` is 'path', not one of paths, added, request, value, first"),
        ("{patterns: [a]}", "`checks.x`: `kind` is nothing, not one of paths, added, request, value, first"),
        ("{kind: paths, pattern: a}", "unknown key `pattern` in `checks.x`"),
        ("{kind: value, artifacts: [a], field: b}", "`checks.x` has no key `in`"),
        ("{kind: [paths]}", "`checks.x`: `kind` is a list, not one of"),
    ],
)
def test_a_rule_of_the_pipeline_with_a_wrong_form_is_refused(entry: str, message: str) -> None:
    with pytest.raises(MzError) as caught:
        PipelineSource(name="p.yaml", text=f"pipeline: p\nversion: 1\nchecks: {{x: {entry}}}\nphases: []\n").parse()
    assert message in caught.value.message


@pytest.mark.slow
def test_conditions_are_recomputed_in_replays(tmp_path: Path) -> None:
    """A changed rule of the pipeline is seen, with and without processes."""
    workshop = Workshop(tmp_path)
    checks = "checks:\n  gruff: {kind: request, pattern: 'angry'}\nphases:\n"
    skipped = "- phase: soften\n  when: [{rule: gruff}]\n  gates: [{run: check}]\n- phase: sign\n"
    raised = "agent: {tier: mid, tools: [read, write], escalate: [{to: premium, rolled_back: 1}]}"
    pipeline = NOTES.replace("phases:\n", checks).replace("- phase: sign\n", skipped)
    pipeline = pipeline.replace("agent: {tier: mid, tools: [read, write]}", raised, 1)
    workshop.repository.commit({"pipelines/notes.yaml": pipeline})
    workshop.keep(workshop.record(workshop.run()).cassette)
    copy = Copy(workshop.root)
    assert copy.settle(keep=True).findings == (), "with processes"
    replayed = copy.settle()
    assert (replayed.findings, replayed.in_memory) == ((), True)
    copy.edit("pipelines/notes.yaml", "'angry'", "'Please'")
    findings = [copy.settle(real=real).findings for real in (False, True)]
    assert findings[0], "the phase now takes place"
    assert findings[0] == findings[1]
