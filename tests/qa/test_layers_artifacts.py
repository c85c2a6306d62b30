"""Layer 3: every rule of every rule set is tried, and rules that cannot be obeyed, or are not enforced, are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mz_engine.artifacts.load import assemble_rules, load_rules, shared_rules
from mz_engine.artifacts.validate import validate
from mz_engine.decoding.yaml import load_yaml
from mz_engine.model.config import Limits
from mz_engine.model.rules import ByteSize, FieldRule, RuleSet, SectionRule
from mz_qa.generators import generate_artifact
from mz_qa.layers.artifacts import check_project_rules, check_rules, rejection_error
from mz_qa.mutations import Mutation, mutations

from tests.support.gates import checked, findings, remarks
from tests.support.tree import ROOT

BUNDLED = ROOT / "recordings" / "mz_recordings" / "bundled" / "monozukuri-claude-code"
KINDS = sorted(load_rules())
TRIAL = sorted((ROOT / "pipelines" / "rules").glob("*.yaml"))


def rules_of(*rules: dict[str, Any], form: str = "markdown", **more: Any) -> RuleSet:
    """A rule set `own` of these rules."""
    documents = [{"id": f"own.{rule.get('kind')}{at}", "requirement": "r", "message": "m", **rule}
             for at, rule in enumerate(rules)]  # fmt: skip
    return assemble_rules({"name": "own", "version": 1, "form": form, "rules": documents, **more}, shared_rules())


def field(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": "field", "field": name, "type": kind, **more}


JSON = {"kind": "json", "root": "list"}
FILE = {"kind": "file"}
SECTION = {"kind": "section", "aliases": ["Plan"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_what_comes_with_mz_accepts_and_refuses_as_it_says(kind: str) -> None:
    outputs = list(check_rules(load_rules()[kind], Limits(), ""))
    assert findings(outputs) == []
    assert remarks(outputs) == [], "each rule was tried"
    assert checked(outputs)["artifacts"] > 200


@pytest.mark.parametrize("path", TRIAL, ids=lambda path: path.stem)
def test_so_do_the_projects_own(path: Path) -> None:

    rules = assemble_rules(load_yaml(path.read_text("utf-8")), shared_rules())
    assert findings(check_rules(rules, Limits(), "")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_makes_the_same_artifact(kind: str) -> None:
    rules = load_rules()[kind]
    texts = [generate_artifact(rules, Limits(), seed).text for seed in range(4)]
    assert texts == [generate_artifact(rules, Limits(), seed).text for seed in range(4)]
    assert len(set(texts)) > 1


OBEYABLE = {
    "long words": rules_of({"kind": "bytes", "min": 3_000, "max": 9_000}, {"kind": "words", "max": 12}),
    "headings that begin alike": rules_of(
        {"kind": "title", "max": 9},
        {"kind": "section", "aliases": ["Plan of work", "Plan"]},
        {"kind": "section", "aliases": ["Plan of work today"]},
        {"kind": "section", "aliases": [], "keys": ["risk"]},
    ),
    "ids": rules_of(
        {"kind": "unique", "pattern": r"^(\d+)\. "}, {"kind": "covers", "artifact": "a", "pattern": r"^- (T\d+)"}
    ),
    "files": rules_of(
        {"kind": "section", "aliases": ["Files"]},
        {"kind": "files", "section": "own.section0", "min": 2, "max": 3},
        {"kind": "paths", "files": "own.files1"},
        {"kind": "bytes", "min": 500, "max": 700},
    ),
    "little": rules_of(FILE, {"kind": "bytes", "min": 10, "max": 100_000}),
    "numbers": rules_of(JSON, field("n", "number", min=3, max=3), field("t", "text", min=300, max=320), form="json"),
    "dependencies": rules_of(
        JSON,
        field("id", "name"),
        field("after", "names", optional=True),
        {"kind": "unique", "field": "id"},
        {"kind": "references", "field": "after", "to": "id"},
        {"kind": "acyclic", "field": "after", "to": "id"},
        form="json",
    ),
    "a verdict": rules_of(
        JSON | {"root": "object", "embedded": True},
        field("all", "objects", min=1),
        field("level", "choice", values=["low", "high"]),
        field("level", "choice", values=["low", "high"], within="all"),
        {"kind": "worst", "field": "level", "within": "all"},
        form="json",
    ),
    "some items": rules_of(
        JSON,
        field("kind", "choice", values=["big", "small"]),
        field("reason", "text", min=4, when={"field": "kind", "in": ["big"]}),
        field("files", "paths", min=1),
        {"kind": "exists", "field": "files"},
        form="json",
    ),
    "ids within items": rules_of(
        JSON | {"root": "object"},
        field("parts", "objects"),
        field("id", "name", within="parts"),
        {"kind": "exactly", "field": "id", "within": "parts", "values": ["a", "b"]},
        form="json",
    ),
    "patterns": rules_of(
        SECTION,
        {"kind": "items", "section": "own.section0", "shape": "checklist"},
        field("id", "name"),
        {"kind": "pattern", "where": "id", "pattern": r"^AC-\d{3}$"},
        {"kind": "pattern", "pattern": "^PASSED", "example": "`PASSED: all`"},
        {"kind": "covers", "of": "unit", "field": "criteria"},
    ),
    "entries": rules_of(
        SECTION,
        {"kind": "items", "section": "own.section0", "shape": "entries", "max": 3},
        field("errors", "texts", min=1),
    ),
    "a table": rules_of(
        SECTION,
        {"kind": "items", "section": "own.section0", "shape": "table"},
        field("unit", "name"),
        {"kind": "exactly", "field": "unit", "artifact": "work", "artifact_field": "id"},
    ),
}


@pytest.mark.parametrize("name", OBEYABLE)
def test_rules_of_all_kinds_can_be_obeyed(name: str) -> None:
    outputs = list(check_rules(OBEYABLE[name], Limits(), ""))
    assert findings(outputs) == []
    assert remarks(outputs) == []


CONTRADICTION = "its rules contradict each other"
WRONG = {
    "the same heading": (rules_of(SECTION, SECTION), "no heading fulfils own.section1"),
    "bytes": (rules_of({"kind": "bytes", "min": 50, "max": 40}), CONTRADICTION),
    "title": (rules_of({"kind": "title", "max": 0}), CONTRADICTION),
    "no example": (rules_of(SECTION, {"kind": "pattern", "pattern": "^PASSED"}), "no `example` that matches"),
    "every word": (
        rules_of({"kind": "placeholders", "patterns": [r"\w+"], "aliases": ["x"]}),
        "its placeholder patterns match ordinary words",
    ),
    "an alias without a pattern": (
        rules_of({"kind": "placeholders", "patterns": [r"\bTBD\b"], "aliases": ["TBD", "TODO"]}),
        "an artifact with 'TODO' in it is not rejected by own.placeholders0",
    ),
    "number": (rules_of(JSON, field("n", "number", min=9, max=3), form="json"), CONTRADICTION),
    "requirement": (rules_of({**SECTION, "requirement": "a {item} of work"}), "has an unfilled placeholder"),
    "files": (rules_of(SECTION, {"kind": "files", "section": "own.section0", "min": 9, "max": 2}), CONTRADICTION),
}


@pytest.mark.parametrize("name", WRONG)
def test_rules_that_are_wrong_are_named(name: str) -> None:
    rules, text = WRONG[name]
    rule_findings = findings(check_rules(rules, Limits(), "pipelines/rules/own.yaml"))
    assert any(text in finding.message for finding in rule_findings), rule_findings
    assert {(finding.kind, finding.file) for finding in rule_findings} == {("RULE", "pipelines/rules/own.yaml")}


def test_what_nothing_can_try_is_told() -> None:
    outputs = list(check_rules(rules_of({"kind": "unique", "pattern": r"^!!(\w+)!!$"}), Limits(), ""))
    assert findings(outputs) == []
    assert remarks(outputs) == ["untested rules of own: own.unique0"]


def test_a_rule_that_is_not_enforced_is_told_apart_from_one_that_is() -> None:
    """What the check itself says: refused by name, refused by others only, accepted, ended before."""
    rules = rules_of({"kind": "bytes", "min": 10, "max": 90_000}, {"kind": "section", "aliases": ["Plan"]})
    size, section = rules.rules
    assert isinstance(size, ByteSize)
    assert isinstance(section, SectionRule)
    artifact = generate_artifact(rules, Limits(), 1)
    assert rejection_error(artifact, section, Mutation("", "# no section here\n\nwords and words\n")) == ""
    assert rejection_error(artifact, section, Mutation("", artifact.text)) == "it is accepted"
    assert rejection_error(artifact, section, Mutation("", "short")) is None
    assert (
        rejection_error(artifact, size, Mutation("", "# no section here\n\nwords and words\n"))
        == "it is rejected by own.section1 only"
    )


def test_every_mutation_changes_something() -> None:
    for kind in KINDS:
        artifact = generate_artifact(load_rules()[kind], Limits(), 0)
        others, unit = artifact.other_artifacts, artifact.unit
        assert validate(artifact.rules, artifact.text, "x", Limits(), others, unit, artifact.paths) == ()
        for rule in artifact.rules.rules:
            for mutation in mutations(artifact, rule):
                changed = mutation.text, mutation.other_artifacts or others, mutation.unit or unit
                assert changed != (artifact.text, others, unit), (rule.id, mutation.description)


@pytest.mark.slow
def test_limits_by_name_are_those_of_the_project() -> None:
    rules = load_rules()["tasks"]
    (files,) = (rule for rule in rules.rules if isinstance(rule, FieldRule) and rule.max == "task_files_max")
    artifact = generate_artifact(rules, Limits(task_files_max=1), 3)
    assert all(len(item.get(files.field, item.get("files", ()))) == 1 for item in artifact.items)
    assert findings(check_rules(rules, Limits(task_files_max=1), "")) == []


@pytest.mark.slow
def test_a_pattern_that_takes_for_ever_does_not_hold_up_the_gate() -> None:
    endless = {"kind": "placeholders", "patterns": [r"(a+)+$"], "aliases": ["a" * 40 + "!"]}
    (finding,) = findings(check_project_rules(rules_of(endless), Limits(), "pipelines/rules/own.yaml", 3))
    assert "cannot be checked within 3 s" in finding.message
    sound = check_project_rules(OBEYABLE["little"], Limits(), "")
    assert checked(sound) == checked(check_rules(OBEYABLE["little"], Limits(), ""))
