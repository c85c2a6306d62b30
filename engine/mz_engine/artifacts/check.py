"""Rules over a feature as a whole, which gates and questions of a pipeline name by `rule:`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mz_events.catalog.check import Violation

from mz_engine.artifacts.rule import Finding, RuleFacts
from mz_engine.patterns import matches

TESTS = """
test/ tests/ __tests__/ spec/ specs/ testdata/ conftest.py test_*.py *_test.py *_test.go *.test.* *.spec.*
*_spec.rb *_test.rb *Test.java *Tests.java *IT.java *Test.kt *Test.php *Tests.cs *Tests.swift
"""
"""Test files: patterns as in .gitignore."""


def size(facts: RuleFacts) -> Iterator[Finding]:
    """The feature is small enough for one pull request: criteria, tasks and files that its artifacts list."""
    parsed = facts.artifacts.values()
    limits = facts.limits
    counts = (
        ("acceptance criteria", sum(p.criteria for p in parsed), "feature_criteria_max", limits.feature_criteria_max),
        ("tasks", sum(len(p.units) for p in parsed), "feature_tasks_max", limits.feature_tasks_max),
        ("files", len({file for p in parsed for file in p.files}), "feature_files_max", limits.feature_files_max),
    )
    for noun, count, limit, most in counts:
        if count > most:
            yield finding("size", limit, f"the feature lists {count} {noun}; at most {most} are allowed ({limit})")


def files_listed(facts: RuleFacts) -> Iterator[Finding]:
    """Every changed file is listed by an artifact."""
    listed = {file for parsed in facts.artifacts.values() for file in parsed.files}
    for path in changed(facts):
        if path not in listed:
            yield finding("files_listed", path, f"{path} changed, but no artifact lists it; list it, or leave it alone")


def files_max(facts: RuleFacts) -> Iterator[Finding]:
    """The number of changed files is within the limit."""
    count, most = len(changed(facts)), facts.limits.feature_files_max
    if count > most:
        yield finding("files_max", "", f"{count} files changed; at most {most} are allowed (feature_files_max)")


def breaking(facts: RuleFacts) -> Iterator[Finding]:
    """No artifact announces a breaking change."""
    for name, parsed in facts.artifacts.items():
        for line in parsed.breaking:
            yield finding("breaking", name, f"{name} announces it: {line[:300]}")


def tests_only(facts: RuleFacts) -> Iterator[Finding]:
    """Only tests changed."""
    patterns = TESTS.split()
    for path in changed(facts):
        if not matches(patterns, path):
            yield finding("tests_only", path, f"{path} changed, and it is no test; only tests may change here")


def changed(facts: RuleFacts) -> tuple[str, ...]:
    return tuple(change.path for change in facts.changes if change.path not in facts.outputs)


def finding(rule: str, path: str, message: str) -> Finding:
    return Finding(violation=Violation(rule=rule, path=path), message=f"{message} [{rule}]")


RULES: dict[str, Callable[[RuleFacts], Iterator[Finding]]] = {
    "size": size,
    "files_listed": files_listed,
    "files_max": files_max,
    "breaking": breaking,
    "tests_only": tests_only,
}
"""By name."""
