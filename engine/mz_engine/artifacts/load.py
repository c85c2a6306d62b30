"""Rule sets and patterns that come with the package.

Patterns for reading and normalising process output. Their values are data files beside this module.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, TypeVar

import msgspec

from mz_engine.model.rules import RuleSet


class PatternData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: an unknown key is an error."""


class Replacement(PatternData, frozen=True, kw_only=True):
    """Every match of `find` becomes `put` (with `\\1` for groups)."""

    name: str
    find: str
    put: str


class OutputPatterns(PatternData, frozen=True, kw_only=True):
    replacements: tuple[Replacement, ...]
    insignificant: tuple[str, ...]
    """Lines that say nothing about a failure; matched at their start, after normalisation."""


class RunnerPatterns(PatternData, frozen=True, kw_only=True):
    """Report format of one test runner. Within each match of `block` the numbers (first group) are added up; a pattern
    without a group counts 1. Passed is `passed`, or else `total` minus the others."""

    name: str
    block: str
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    total: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    """Neither passed nor failed: skipped, pending, expected failures."""
    alone: bool = False
    """Used only if no other runner reported."""


class CountPatterns(PatternData, frozen=True, kw_only=True):
    runners: tuple[RunnerPatterns, ...]


T = TypeVar("T")
SHARED_RULES_FILE = "shared.yaml"


@cache
def load_rules() -> dict[str, RuleSet]:
    """Return the built-in rule sets by name."""
    folder = resources.files("mz_engine.artifacts") / "rules"
    texts = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    del texts[SHARED_RULES_FILE]
    sets = (assemble_rules(_parse_yaml(text), shared_rules()) for _, text in sorted(texts.items()))
    return {rules.name: rules for rules in sets}


@cache
def shared_rules() -> dict[str, dict[str, Any]]:
    """Return the rules that sets include by `shared: NAME`."""
    return dict(_parse_yaml((resources.files("mz_engine.artifacts") / "rules" / SHARED_RULES_FILE).read_text("utf-8")))


def _parse_yaml(text: str) -> Any:
    """Parse YAML, with PyYAML's C loader if available: every run reads all rules, and the other takes ten times as
    long."""
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def assemble_rules(data: dict[str, Any], shared: dict[str, dict[str, Any]]) -> RuleSet:
    """Build a rule set from its YAML, with `shared: NAME` entries filled in. Raises msgspec.ValidationError."""
    rules = [
        {**shared[rule["shared"]], "id": f"{data['name']}.{rule['shared']}", **without_key(rule, "shared")}
        if "shared" in rule
        else rule
        for rule in data["rules"]
    ]
    return msgspec.convert({**data, "rules": rules}, RuleSet)


def without_key(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


@cache
def output_patterns() -> OutputPatterns:
    """Return the normalisation patterns, in order."""
    return read_patterns("output.yaml", OutputPatterns)


@cache
def count_patterns() -> CountPatterns:
    """Return the report formats of test runners, in order."""
    return read_patterns("counts.yaml", CountPatterns)


def read_patterns(name: str, shape: type[T]) -> T:
    text = (resources.files("mz_engine.artifacts") / name).read_text("utf-8")
    return msgspec.convert(_parse_yaml(text), shape)
