"""What a phase has to give, and what it is given, in a whole run: outputs of several files, rules about the feature."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.artifacts.command_output import read_coverage
from mz_engine.artifacts.load import assemble_rules
from mz_engine.decide.records import NOTES_LINES_MAX, cited_texts, record_text
from mz_engine.effects.validation import OUTPUT_CHARACTERS_MAX, OUTPUT_FILES_MAX
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Record
from mz_engine.model.rules import RuleSet
from mz_engine.pipelines.load import PipelineSource
from mz_engine.ports import CallSpec
from mz_engine.prompts.render import load_templates
from mz_events.catalog.base import Event
from mz_events.catalog.call import ContextComposed
from mz_events.catalog.delivery import PullRequestRequested
from mz_events.catalog.feature import Blocked, FeatureDelivered, HumanRequested, PhaseCompleted
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactValidated,
    ChangesChecked,
    ConditionsChecked,
    GateChecked,
)
from mz_events.names import Digest, FeatureId, feature_stream
from mz_projections.feature.fold import fold
from mz_projections.feature.state import progress_of
from mz_projections.views.timeline import describe
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Commands, Files, ScriptedReply, World

from tests.engine.test_decide_phase import IN_BUILD
from tests.support import driving
from tests.support.steps import state_after

Written = Mapping[str, str | None]
Act = Callable[[str, int], Written | str]
"""What an agent writes, or says, in the call of a phase (`PHASE`, `PHASE/UNIT` or `PHASE.ROLE`) with this number."""
TEXTS = {"requirement": "Be right.", "message": "wrong: {found}"}
TEMPLATE = """\
{% for output in outputs %}{% for rule in output.requirements %}RULE {{ rule }}
{% endfor %}{% endfor %}{% if rework %}{% for message in rework.messages %}MEND {{ message }}
{% endfor %}{% endif %}{% for name, text in inputs.items() %}INPUT {{ name }}
{{ text }}
{% endfor %}"""
SHIP = """
- phase: ship
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  deliver: [open_pr]
"""
LETTER: Written = {"letters/b.md": "a letter about b"}


class Delivery(msgspec.Struct, kw_only=True):
    world: World
    pins: Pins
    prompts: dict[str, str]
    """By `PHASE[/UNIT][.ROLE]/ITERATION/ATTEMPT`."""

    def resume(self) -> None:
        drive_run(self.world, trial.RUN, self.pins, 1)

    @property
    def events(self) -> list[Event]:
        return [item.event for item in self.world.store.read(feature_stream(trial.RUN, FeatureId("b")))]

    @property
    def calls(self) -> list[str]:
        return list(self.prompts)

    def messages(self) -> list[str]:
        """What was rejected, by the first message of each report."""
        verdicts = [event for event in self.events if isinstance(event, ArtifactValidated) and event.report]
        return [json.loads(self.world.blobs.get(verdict.report))[0] for verdict in verdicts if verdict.report]


def rule_set(name: str, form: str, *rules: dict[str, Any], **extract: Any) -> RuleSet:
    numbered = [{"id": f"{name}.{number}", **TEXTS, **rule} for number, rule in enumerate(rules)]
    return assemble_rules({"name": name, "version": 1, "form": form, "extract": extract, "rules": numbered}, {})


def deliver(
    text: str,
    act: Act,
    rules: Mapping[str, RuleSet] | None = None,
    commands: Commands = trial.commands,
    templates: Mapping[str, str] | None = None,
) -> Delivery:
    """Run one feature, whose last phase is `ship`, through this pipeline."""
    pipeline, _ = PipelineSource(name="p.yaml", text=f"pipeline: p\nversion: 1\n{text}{SHIP}").parse()
    pins = replace(trial.pins(), pipeline=pipeline, templates={**(templates or {}), "do.md.j2": TEMPLATE})
    pins, prompts = replace(pins, rules={**pins.rules, **(rules or {})}), dict[str, str]()

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        phase, unit, iteration, attempt, role = spec.key.split("/")[2:]
        name = phase if unit == "-" else f"{phase}/{unit}"
        name += "" if role == "agent.builder" else f".{role.removeprefix('agent.')}"
        prompts[f"{name}/{iteration}/{attempt}"] = spec.prompt
        number = sum(key.startswith(f"{name}/") for key in prompts)
        written = LETTER if name == "ship" else act(name, number)
        return ScriptedReply(text=written) if isinstance(written, str) else ScriptedReply(files=dict(written))

    world = World(trial.FILES, script, commands)
    trial.begin(world, pins, {"b": ()})
    delivery = Delivery(world=world, pins=pins, prompts=prompts)
    delivery.resume()
    return delivery


# outputs --------------------------------------------------------------------------------------------------------------
DECISIONS = """\
phases:
- phase: decide
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: adr, path: "tasks/{feature}/adr-*.md", rules: adr}]
- phase: build
  agent: {}
  prompt: do.md.j2
  inputs: [{artifact: adr}]
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
"""
NOTE: Written = {"notes/b.md": "this is a note"}


def test_each_file_of_an_output_is_judged() -> None:
    adr = rule_set("adr", "markdown", {"kind": "file"}, {"kind": "title", "max": 9})
    written: list[Written] = [
        {"tasks/b/other.md": "# Stray"},
        {"tasks/b/adr-1.md": "# One", "tasks/b/adr-2.md": "# A title that is too long", "tasks/b/old-adr-3.md": "x"},
        {"tasks/b/adr-2.md": "# Two"},
    ]
    delivery = deliver(DECISIONS, lambda phase, number: written[number - 1] if phase == "decide" else NOTE,
                       {"adr": adr})  # fmt: skip
    assert delivery.messages() == [
        "tasks/b/adr-*.md: wrong:  [adr.0]", "tasks/b/adr-2.md:1: wrong: it has 24 characters [adr.1]",
    ]  # fmt: skip
    text = "<!-- tasks/b/adr-1.md -->\n\n# One\n\n<!-- tasks/b/adr-2.md -->\n\n# Two"
    assert delivery.prompts["build/1/1"].endswith(f"INPUT adr\n{text}\n")
    parsed = [event for event in delivery.events if isinstance(event, ArtifactParsed) and event.artifact == "adr"]
    assert [event.path for event in parsed] == ["tasks/b/adr-*.md"] * 2
    reverted = [event.forbidden_changes for event in delivery.events if isinstance(event, ChangesChecked)]
    assert [[change.path for change in changes] for changes in reverted[:3]] == [
        ["tasks/b/other.md"], ["tasks/b/old-adr-3.md"], [],
    ]  # fmt: skip


@pytest.mark.parametrize("stray", [
    {f"tasks/b/adr-{number}.md": "# One" for number in range(OUTPUT_FILES_MAX + 1)},
    {f"tasks/b/adr-{number}.md": "x" * (OUTPUT_CHARACTERS_MAX // 2) for number in range(3)},
])  # fmt: skip
def test_an_output_that_no_prompt_can_hold_is_rejected(stray: Written) -> None:
    written: list[Written] = [stray, {**dict.fromkeys(stray), "tasks/b/adr-1.md": "# One"}]
    delivery = deliver(DECISIONS, lambda phase, number: written[number - 1] if phase == "decide" else NOTE,
                       {"adr": rule_set("adr", "markdown", {"kind": "file"})})  # fmt: skip
    assert delivery.messages() == [
        "tasks/b/adr-*.md: more than 200 files, or than 1,000,000 characters in all [output.size]"
    ]
    assert isinstance(delivery.events[-1], FeatureDelivered)


UNITS = """\
phases:
- phase: plan
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: work, path: "work.yaml", rules: work}]
- phase: build
  agent: {}
  prompt: do.md.j2
  for_each: {artifact: work}
  outputs: [{artifact: note, path: "notes/{unit}.md", rules: covering}]
"""


def test_rules_look_at_the_tree_and_at_the_present_unit() -> None:
    units = {"id": "id", "depends_on": "depends_on", "files": "files"}
    exists = {"kind": "exists", "field": "files", "new": "new"}
    work = rule_set("work", "yaml", {"kind": "yaml", "root": "list"}, exists, units=units, ids="id")
    covering = rule_set("covering", "markdown", {"kind": "covers", "of": "unit", "field": "criteria"})
    plans = [f"- {{id: u1, files: [README.md, src/a.py], criteria: [AC-1, AC-2]{more}}}\n" for more in ("", NEW)]

    def act(name: str, number: int) -> Written:
        if name == "plan":
            return {"work.yaml": plans[number - 1]}
        return {"notes/u1.md": "AC-1" if number == 1 else "AC-1 and AC-2"}

    delivery = deliver(UNITS, act, {"work": work, "covering": covering})
    assert delivery.messages() == [
        'work.yaml:1: wrong: "src/a.py" [work.1]', "notes/u1.md: wrong: AC-2 [covering.0]",
    ]  # fmt: skip
    (parsed,) = {event.ids for event in delivery.events if isinstance(event, ArtifactParsed) and event.ids}
    assert parsed == ("u1",)
    assert isinstance(delivery.events[-1], FeatureDelivered)


NEW = ", new: [src/a.py]"


# judged rules ---------------------------------------------------------------------------------------------------------
JUDGED = """\
phases:
- phase: design
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: interfaces, path: "interfaces.md", rules: interfaces}]
  agent_review: {role: judge, output: judgement, prompt: do.md.j2}
"""
JUDGED_RULES: tuple[dict[str, Any], ...] = (
    {"kind": "prose", "id": "interfaces.bounded", "requirement": "Every external system is bounded."},
    {"kind": "prose", "id": "interfaces.explicit", "requirement": "Every assumption is explicit."},
)
INTERFACES = rule_set("interfaces", "markdown", {"kind": "file"}, *JUDGED_RULES)


def verdict(**results: str) -> str:
    answers = [{"id": f"interfaces.{name}", "result": result, "reason": f"it is {result}"}
               for name, result in results.items()]  # fmt: skip
    return json.dumps({"severity": "NONE", "cause": "none", "findings": [], "judged": answers})


def test_a_reviewer_answers_each_judged_rule_and_a_broken_one_is_mended() -> None:
    verdicts = [
        verdict(bounded="met"),
        verdict(bounded="met", explicit="broken"),
        verdict(bounded="met", explicit="met"),
    ]

    def act(name: str, number: int) -> Written | str:
        return verdicts[number - 1] if name == "design.judge" else {"interfaces.md": f"version {number}"}

    delivery = deliver(JUDGED, act, {"interfaces": INTERFACES})
    assert delivery.messages() == ["judgement: `judged`: interfaces.explicit is missing [verdict.judged_ids]"]
    assert delivery.calls == [
        "design/1/1", "design.judge/1/1", "design.judge/1/2", "design/1/2", "design.judge/1/3", "ship/1/1",
    ]  # fmt: skip
    assert "RULE Every assumption is explicit.\n" in delivery.prompts["design/1/1"]
    assert "`interfaces.explicit`: Every assumption is explicit." in delivery.prompts["design.judge/1/1"]
    assert "MEND it is broken [interfaces.explicit]\n" in delivery.prompts["design/1/2"]
    gates = [event for event in delivery.events if isinstance(event, GateChecked)]
    assert [(gate.passed, [broken.rule for broken in gate.violations], gate.judged_by) for gate in gates] == [
        (False, ["interfaces.explicit"], "b/design/-/1/2/agent.judge"), (True, [], "b/design/-/1/3/agent.judge"),
    ]  # fmt: skip
    assert [describe(gate) for gate in gates] == [
        "design: gate judged_rules failed: interfaces.explicit, by b/design/-/1/2/agent.judge",
        "design: gate judged_rules judged as met, by b/design/-/1/3/agent.judge",
    ]
    (request,) = [event for event in delivery.events if isinstance(event, PullRequestRequested)]
    line = "- design: `interfaces.bounded`, `interfaces.explicit`: judged by `b/design/-/1/3/agent.judge`\n"
    assert line in delivery.world.blobs.get(request.body).decode()


@pytest.mark.parametrize("id_", [["interfaces.bounded"], " interfaces.bounded "])
def test_an_id_in_another_form_is_the_same_id(id_: object) -> None:
    """The rules accept both, so the answer is read as they read it."""
    answers = json.loads(verdict(bounded="met", explicit="met"))
    answers["judged"][0]["id"] = id_

    def act(name: str, number: int) -> Written | str:
        return json.dumps(answers) if name == "design.judge" else {"interfaces.md": f"version {number}"}

    delivery = deliver(JUDGED, act, {"interfaces": INTERFACES})
    assert [event.passed for event in delivery.events if isinstance(event, GateChecked)] == [True]


def test_a_reviewer_is_not_told_what_the_judged_work_teaches() -> None:
    verdicts = ["no JSON", verdict(bounded="met", explicit="met")]

    def act(name: str, number: int) -> Written | str:
        return verdicts[number - 1] if name == "design.judge" else {"interfaces.md": "long enough"[: 4 * number]}

    rules = rule_set("interfaces", "markdown", {"kind": "bytes", "min": 10, "max": 99}, *JUDGED_RULES)
    delivery = deliver(JUDGED, act, {"interfaces": rules}, templates=load_templates())
    composed = [event for event in delivery.events if isinstance(event, ContextComposed)]
    assert [event.learnings for event in composed if event.key.endswith("judge")] == [(), ()]


def test_a_rule_that_stays_broken_is_a_question() -> None:
    results = verdict(bounded="broken", explicit="met")
    delivery = deliver(JUDGED, lambda name, _: results if name.endswith("judge") else {"interfaces.md": "same"},
                       {"interfaces": INTERFACES})  # fmt: skip
    assert isinstance(delivery.events[-1], HumanRequested)
    assert delivery.events[-1].code == "design.judged_rules"
    driving.answer(delivery.world, "b", Verdict.ACCEPT)
    delivery.resume()
    assert isinstance(delivery.events[-1], FeatureDelivered)


# results of commands --------------------------------------------------------------------------------------------------
TESTED = """\
checks:
  green: {kind: value, artifacts: [lint, unit_tests], field: exit, in: ["0"]}
phases:
- phase: build
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["*.txt"]
- phase: verify
  agent: {}
  prompt: do.md.j2
  prepare: [{run: check, result: before, output: lint%s}]
  outputs: [{artifact: report, path: "report.md", rules: note}]
  gates: [{run: final, output: unit_tests}, {rule: green}]
  on_block: [{cause: regression, to: build}]
- phase: sum_up
  when: [{artifact: unit_tests, field: passed, in: ["3"]}]
  agent: {}
  prompt: do.md.j2
  inputs: [{artifact: lint}, {artifact: unit_tests}]
  outputs: [{artifact: summary, path: "summary.md", rules: note}]
"""
REPORT: Written = {"report.md": "this is a report"}


def counting(command: str, files: Files) -> tuple[int, str]:
    broken = b"broken" in files.values()
    return int(broken), "=== 1 failed, 2 passed in 0.1s ===\n" if broken else "=== 3 passed in 0.1s ===\n"


def builds(*contents: str) -> Act:
    """An agent whose first work is broken, or its later work too."""

    def act(name: str, number: int) -> Written:
        written: dict[str, Written] = {"verify": REPORT, "sum_up": {"summary.md": "this is a summary"}}
        return written.get(name) or {**NOTE, "b.txt": contents[number - 1]}

    return act


def test_the_result_of_a_command_is_an_artifact() -> None:
    delivery = deliver(TESTED % "", builds("fine"), commands=counting)
    result = '{\n  "command": "%s",\n  "exit": 0,\n  "passed": 3,\n  "failed": 0,\n  "coverage": null\n}\n\n'
    texts = f"INPUT lint\n{result % 'check'}INPUT unit_tests\n{result % 'final'}"
    assert delivery.prompts["sum_up/1/1"].endswith(texts.removesuffix("\n"))
    results = [event for event in delivery.events if isinstance(event, ArtifactParsed) and event.is_result]
    assert [(event.artifact, event.phase, event.fields) for event in results] == [
        ("lint", "verify", {"exit": "0", "passed": "3", "failed": "0"}),
        ("unit_tests", "verify", {"exit": "0", "passed": "3", "failed": "0"}),
    ]
    assert describe(results[0]) == "verify: lint in the result of a command"


def test_a_rule_of_the_pipeline_looks_at_results() -> None:
    delivery = deliver(TESTED % "", builds("broken"), commands=counting)
    failed = [event for event in delivery.events if isinstance(event, GateChecked) and not event.passed]
    assert [event.gate for event in failed] == ["final"] * 3, "what failed before is judged too, when the gate passes"
    fields = [event.fields for event in delivery.events if isinstance(event, ArtifactParsed) and event.fields]
    assert fields == [{"exit": "1", "passed": "2", "failed": "1"}] * 4


def test_a_failed_preparation_goes_where_its_cause_leads() -> None:
    delivery = deliver(TESTED % ", must_pass: true, cause: regression", builds("broken", "fine"), commands=counting)
    (block,) = [event for event in delivery.events if isinstance(event, Blocked)]
    assert (block.phase, block.cause, block.check) == ("verify", "regression", "check")
    assert delivery.calls == ["build/1/1", "build/2/1", "verify/2/1", "sum_up/1/1", "ship/1/1"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'<?xml version="1.0"?>\n<coverage line-rate="0.5" lines-covered="3" lines-valid="6">', (3, 6)),
        (b'<coverage line-rate="0.5">', None),
        (b'<testsuite lines-covered="3" lines-valid="6"/>', None),
        (b'{"meta": {}, "totals": {"covered_lines": 7, "num_statements": 9, "percent_covered": 77.7}}', (7, 9)),
        (b'{"totals": {"covered_lines": 7}}', None),
        (b'{"totals": {"covered_lines": 10, "num_statements": 9}}', None),
        (b"{", None),
        (b"TN:\nSF:a.js\nLF:4\nLH:3\nend_of_record\nSF:b.js\nLF:6\nLH:0\nend_of_record\n", (3, 10)),
        (b"LF:0\nLH:0\n", None),
        (b"", None),
    ],
)
def test_covered_lines_are_read_from_reports(data: bytes, expected: tuple[int, int] | None) -> None:
    assert read_coverage(data) == expected


# records --------------------------------------------------------------------------------------------------------------
RECORDED = """\
block_file: "BLOCKED.{phase}"
phases:
- phase: plan
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: plan, path: "plans/{feature}.json", rules: plan}]
- phase: build
  agent: {}
  prompt: do.md.j2
  for_each: {artifact: plan}
  outputs: [{artifact: note, path: "notes/{unit}.md", rules: note}]
  gates: [{run: check}]
- phase: look
  agent: {}
  prompt: do.md.j2
  ask_person: [{}]
  outputs: [{artifact: report, path: "report.md", rules: note}]
  on_block: [{cause: code, to: build, scope: unit}]
- phase: sum_up
  agent: {}
  prompt: do.md.j2
  inputs: [{record: approvals}, {record: order}, {record: history, of: build}, {record: secrets}, {record: notes}]
  outputs: [{artifact: summary, path: "summary.md", rules: note}]
"""
PLAN = '[{"id": "u2", "depends_on": ["u1"], "files": ["b"]}, {"id": "u1", "files": ["a"]}]'
BLOCK = "cause: code\nreason: The units contradict each other.\nmissing: [which holds]\nunits: [u2]\n"


def recorded(record: Record, delivery: Delivery) -> str:
    progress = progress_of(fold(delivery.world.store.read(feature_stream(trial.RUN, FeatureId("b")))))
    assert progress is not None
    texts = {digest: delivery.world.blobs.get(digest).decode() for digest in cited_texts(progress)}
    return record_text(record, None, progress, delivery.pins.pipeline.phases, texts)


def test_records_tell_what_happened() -> None:
    def act(name: str, number: int) -> Written:
        blocked: Written = {"BLOCKED.look": BLOCK}
        written: dict[str, Written] = {"plan": {"plans/b.json": PLAN}, "sum_up": {"summary.md": "this is a summary"}}
        written["look"] = blocked if number == 1 else REPORT
        return written.get(name) or {f"notes/{name[-2:]}.md": f"a note on {name} {number}"}

    delivery = deliver(RECORDED, act)
    driving.answer(delivery.world, "b", Verdict.APPROVE, "good\nwork")
    delivery.resume()
    _, *records = re.split(r"INPUT (.*)\n", delivery.prompts["sum_up/1/1"])
    assert {name: text.strip() for name, text in zip(records[::2], records[1::2], strict=True)} == {
        "approvals": """\
- plan: completed in iteration 1
- build: completed in iteration 1
  - build/u1: gate check: exit 0
  - build/u2: gate check: exit 0
- look: completed in iteration 2
  - look: checkpoint: approve by a person: good work""",
        "order": "- build/u1\n- build/u2, after u1",
        "build.history": """\
- build: started, iteration 1
- build: completed
- build: started, iteration 1
- build: completed""",
        "secrets": "nothing",
        "notes": """\
## State
- plan: completed
- build: completed
- look: completed
- sum_up: open
- ship: open

## Decisions
- look: checkpoint: approve by a person: good work

## Risks
- code: blocked 1 times

## Hand-offs
- look, cause code: cause: code reason: The units contradict each other. missing: [which holds] units: [u2]""",
    }
    history = recorded("history", delivery)
    assert "- look: blocked by raised.code, cause code\n- look: back to build, units u2\n" in history
    assert isinstance(delivery.events[-1], FeatureDelivered)


def test_notes_have_at_most_so_many_lines() -> None:
    phases = trial.pins().pipeline.phases
    blocks = tuple(
        Blocked(phase="build", unit=f"u{number}", cause="code", check="test", note=Digest(f"{number:064}"))
        for number in range(200)
    )
    texts = {block.note: f"reason {number}" for number, block in enumerate(blocks) if block.note}
    progress = progress_of(state_after(*IN_BUILD))
    assert progress is not None
    progress = replace(progress, history=blocks)
    lines = record_text("notes", None, progress, phases, texts).splitlines()
    assert len(lines) == NOTES_LINES_MAX - 1
    assert lines[-1].endswith("reason 199")
    assert not any(line.endswith("reason 0") for line in lines)


# phases that are skipped ----------------------------------------------------------------------------------------------
SKIPPED = """\
checks:
  auth: {kind: paths, patterns: ["auth*"]}
phases:
- phase: build
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["*.txt"]
- phase: secure
  when: [{rule: auth}]
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: report, path: "report.md", rules: note}]
  gates: [{run: check}]
- phase: look
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: look, path: "look.md", rules: note}]
  agent_review: {role: judge, output: judgement, prompt: do.md.j2}
  on_block: [{cause: security, to: secure, scope: tree}]
"""
INSECURE = json.dumps({
    "severity": "MAJOR", "cause": "security",
    "findings": [{"severity": "MAJOR", "path": "a.txt", "message": "This is not secure at all."}],
})  # fmt: skip
SECURE = json.dumps({"severity": "NONE", "cause": "none", "findings": []})


@pytest.mark.parametrize(
    ("answer", "further_calls"),
    [(Verdict.RETRY, ["secure/2/1", "look/2/1"]), (Verdict.APPROVE, ["look/2/1"]), (Verdict.REJECT, None)],
)
def test_work_sent_back_to_a_phase_that_is_skipped_is_a_question(
    answer: Verdict, further_calls: list[str] | None
) -> None:
    def act(name: str, number: int) -> Written | str:
        if name == "look.judge":
            return INSECURE if number == 1 else SECURE
        written: dict[str, Written] = {"secure": REPORT, "look": {"look.md": "it looks good"}}
        return written.get(name) or {**NOTE, "a.txt": "plain"}

    delivery = deliver(SKIPPED, act)
    assert delivery.calls == ["build/1/1", "look/1/1", "look.judge/1/1"]
    question = delivery.events[-1]
    assert isinstance(question, HumanRequested)
    assert (question.phase, question.code) == ("secure", "when.not-needed")
    driving.answer(delivery.world, "b", answer, "look at the host")
    delivery.resume()
    assert isinstance(delivery.events[-1], FeatureDelivered) == (further_calls is not None)
    calls = [*further_calls, "look.judge/2/1", "ship/1/1"] if further_calls is not None else []
    assert delivery.calls[3:] == calls
    gates = [event.gate for event in delivery.events if isinstance(event, GateChecked)]
    assert gates == (["check"] if answer is Verdict.RETRY else []), "a phase that takes place has its gates"
    if further_calls is not None:
        is_retried = answer is Verdict.RETRY
        assert recorded("history", delivery).count("- secure: skipped\n") == (1 if is_retried else 2)
        assert f"- secure: {'completed' if is_retried else 'skipped'} in" in recorded("approvals", delivery)
        assert f"- secure: {'completed' if is_retried else 'skipped'}\n" in recorded("notes", delivery)


def test_a_phase_with_a_skipped_unit_is_completed() -> None:
    progress = progress_of(state_after(*IN_BUILD))
    assert progress is not None
    skipped, end = ConditionsChecked(phase="build", unit="u1", of="phase"), PhaseCompleted(phase="build")
    history = record_text("history", None, replace(progress, history=(skipped, end)), (), {})
    assert history == "- build/u1: skipped\n- build: completed"
