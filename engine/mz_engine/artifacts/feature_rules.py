"""Rules over a feature as a whole, which gates and questions of a pipeline name by `rule:`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mz_events.catalog.validation import Violation

from mz_engine.model.rules import FeatureRuleInput, RuleFinding
from mz_engine.path_patterns import matches

TEST_PATTERNS = """
test/ tests/ __tests__/ spec/ specs/ testdata/ conftest.py test_*.py *_test.py *_test.go *.test.* *.spec.*
*_spec.rb *_test.rb *Test.java *Tests.java *IT.java *Test.kt *Test.php *Tests.cs *Tests.swift
"""
"""Test files: patterns as in .gitignore."""


def feature_size(facts: FeatureRuleInput) -> Iterator[RuleFinding]:
    """The feature is small enough for one pull request: criteria, tasks and files that its artifacts list."""
    parsed = facts.artifacts.values()
    limits = facts.limits
    counts = (
        ("acceptance criteria", sum(p.criteria for p in parsed), "feature_criteria_max", limits.feature_criteria_max),
        ("tasks", sum(len(p.units) for p in parsed), "feature_tasks_max", limits.feature_tasks_max),
        ("files", len({file for p in parsed for file in p.files}), "feature_files_max", limits.feature_files_max),
    )
    for noun, count, limit, maximum in counts:
        if count > maximum:
            yield rule_finding(
                "size", limit, f"the feature lists {count} {noun}; at most {maximum} are allowed ({limit})"
            )


def files_listed(facts: FeatureRuleInput) -> Iterator[RuleFinding]:
    """Every changed file is listed by an artifact."""
    listed_files = {file for parsed in facts.artifacts.values() for file in parsed.files}
    for path in changed_paths(facts):
        if path not in listed_files:
            yield rule_finding(
                "files_listed", path, f"{path} changed, but no artifact lists it; list it, or leave it alone"
            )


def files_max(facts: FeatureRuleInput) -> Iterator[RuleFinding]:
    """The number of changed files is within the limit."""
    count, maximum = len(changed_paths(facts)), facts.limits.feature_files_max
    if count > maximum:
        yield rule_finding("files_max", "", f"{count} files changed; at most {maximum} are allowed (feature_files_max)")


def no_breaking_changes(facts: FeatureRuleInput) -> Iterator[RuleFinding]:
    """No artifact announces a breaking change."""
    for name, parsed in facts.artifacts.items():
        for line in parsed.breaking:
            yield rule_finding("breaking", name, f"{name} announces it: {line[:300]}")


def tests_only(facts: FeatureRuleInput) -> Iterator[RuleFinding]:
    """Only tests changed."""
    patterns = TEST_PATTERNS.split()
    for path in changed_paths(facts):
        if not matches(patterns, path):
            yield rule_finding("tests_only", path, f"{path} changed, and it is no test; only tests may change here")


def changed(facts: FeatureRuleInput) -> Iterator[RuleFinding]:
    """Something changed, beside artifacts."""
    if not changed_paths(facts):
        yield rule_finding("changed", "", "no file was changed; the request asks for a change")


def changed_paths(facts: FeatureRuleInput) -> tuple[str, ...]:
    return tuple(change.path for change in facts.changes if not matches(facts.outputs, change.path))


def rule_finding(rule: str, path: str, message: str) -> RuleFinding:
    return RuleFinding(violation=Violation(rule=rule, path=path), message=f"{message} [{rule}]")


FEATURE_RULES: dict[str, Callable[[FeatureRuleInput], Iterator[RuleFinding]]] = {
    "size": feature_size,
    "files_listed": files_listed,
    "files_max": files_max,
    "breaking": no_breaking_changes,
    "tests_only": tests_only,
    "changed": changed,
}
"""By name."""
