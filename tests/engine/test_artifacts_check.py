"""Rules over a feature as a whole, as gates and human entries name them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.model.config import Limits
from mz_engine.model.rules import FeatureRuleInput, ParsedArtifact
from mz_events.catalog.validation import Change, Unit
from mz_events.names import Path


def facts(*changed: str, artifacts: dict[str, ParsedArtifact] | None = None, **limits: int) -> FeatureRuleInput:
    return FeatureRuleInput(
        artifacts=artifacts or {},
        changes=tuple(Change(path=Path(path), kind="modified") for path in changed),
        limits=replace(Limits(), **limits),
        outputs=("tasks/f/code.md",),
    )


def broken(name: str, feature_rule_input: FeatureRuleInput) -> list[tuple[str, str]]:
    findings = tuple(FEATURE_RULES[name](feature_rule_input))
    assert all(finding.message.endswith(f" [{finding.violation.rule}]") for finding in findings)
    return [(finding.violation.rule, finding.violation.path) for finding in findings]


PLANNED = {
    "prd": ParsedArtifact(criteria=3),
    "techspec": ParsedArtifact(files=(Path("a.py"), Path("b.py"))),
    "tasks": ParsedArtifact(units=(Unit(id="T1"), Unit(id="T2")), files=(Path("b.py"), Path("c.py"))),
}


def test_the_known_names() -> None:
    assert set(FEATURE_RULES) == {"size", "files_listed", "files_max", "breaking", "tests_only", "changed"}


def test_size_is_kept_at_the_limits() -> None:
    limits = {"feature_criteria_max": 3, "feature_tasks_max": 2, "feature_files_max": 3}
    assert broken("size", facts(artifacts=PLANNED, **limits)) == []


def test_size_names_every_limit_that_is_passed() -> None:
    limits = {"feature_criteria_max": 2, "feature_tasks_max": 1, "feature_files_max": 2}
    assert broken("size", facts(artifacts=PLANNED, **limits)) == [(("size"), name) for name in limits]
    assert "3 acceptance criteria; at most 2" in next(FEATURE_RULES["size"](facts(artifacts=PLANNED, **limits))).message


def test_files_listed() -> None:
    feature_rule_input = facts("a.py", "c.py", "d.py", "tasks/f/code.md", artifacts=PLANNED)
    assert broken("files_listed", feature_rule_input) == [("files_listed", "d.py")]


def test_files_max_counts_no_outputs() -> None:
    assert broken("files_max", facts("a.py", "tasks/f/code.md", feature_files_max=1)) == []
    assert broken("files_max", facts("a.py", "b.py", feature_files_max=1)) == [("files_max", "")]


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("BREAKING CHANGE: `load` takes a path", True),
        ("- **BREAKING CHANGE:** `load` takes a path", True),
        ("> BREAKING-CHANGE: `load` takes a path", True),
        ("There is no BREAKING CHANGE here", False),
        ("BREAKING CHANGES are avoided", False),
        ("Breaking changes: none", False),
    ],
)
def test_breaking_is_what_an_artifact_announces_as_such(line: str, result: bool) -> None:
    parsed = parse_artifact(load_rules()["techspec"], f"# T\n\n## Approach\nSimple.\n{line}\n")
    feature_rule_input = facts(artifacts={"techspec": parsed})
    assert broken("breaking", feature_rule_input) == ([("breaking", "techspec")] if result else [])


def test_tests_only() -> None:
    tests = [
        "tests/x.py",
        "src/tests/data.json",
        "a/test_b.py",
        "a_test.go",
        "web/x.spec.ts",
        "src/FooTest.java",
        "spec/a_spec.rb",
    ]
    assert broken("tests_only", facts(*tests, "tasks/f/code.md")) == []
    code = ["src/x.py", "contest.py", "testing.md", "src/latest/x.py"]
    assert broken("tests_only", facts(*tests, *code)) == [("tests_only", path) for path in code]
