"""Effects that check a pipeline's own rules over a feature: its changes, its request and its artifacts."""

from __future__ import annotations

import re
from collections import Counter

from mz_events.names import Path

from mz_engine.artifacts.feature_rules import rule_finding
from mz_engine.effects.steps import StepContext, Steps, call_port, get_text, get_texts
from mz_engine.model.pipeline import AddedCheck, ChangesCheck, Check, PathsCheck, RequestCheck, ValueCheck
from mz_engine.model.rules import RuleFinding
from mz_engine.path_patterns import matches
from mz_engine.ports import Workspace

LINE_CHARS_MAX = 2000
"""Longer lines are searched up to here."""
QUOTE_CHARS_MAX = 200


def check_findings(context: StepContext, name: str, check: Check) -> Steps[tuple[RuleFinding, ...]]:
    """Return how the feature breaks a rule of its pipeline."""
    match check:
        case RequestCheck(pattern=pattern):
            started = context.phase_state.progress.started
            request = "\n".join((yield from get_texts((started.title, started.body))))
            matched = _search(pattern, request.splitlines())
            return tuple(rule_finding(name, "", f"the request says: {_quote(line)}") for line, _ in matched)
        case PathsCheck(patterns=patterns):
            paths = [path for path, _ in (yield from _changes(context, check)) if matches(patterns, path)]
            return tuple(rule_finding(name, path, f"{path} changed") for path in paths)
        case AddedCheck():
            return (yield from _added_findings(context, name, check))
        case ValueCheck(artifacts=artifacts, field=field, values=values):
            by_name = {**context.phase_state.progress.artifacts, **context.unit_run.parsed_artifacts}
            fields = {artifact: by_name[artifact].fields.get(field) for artifact in artifacts if artifact in by_name}
            wrong = {artifact: value for artifact, value in fields.items() if value is not None and value not in values}
            return tuple(rule_finding(name, a, f"`{field}` of {a} is {value}") for a, value in wrong.items())


def _changes(context: StepContext, check: ChangesCheck) -> Steps[list[tuple[Path, str]]]:
    """Return changed paths with the kind of change, without outputs of phases."""
    progress, unit_run = context.phase_state.progress, context.unit_run
    base = unit_run.base if check.over == "unit" else progress.merged_target or progress.base
    changes = yield from call_port(Workspace.changes, base, unit_run.tree)
    papers = context.pins.pipeline.paper_patterns(context.feature)
    return [(change.path, change.kind) for change in changes if not matches(papers, change.path)]


def _added_findings(context: StepContext, name: str, check: AddedCheck) -> Steps[tuple[RuleFinding, ...]]:
    progress, unit_run, allowed = context.phase_state.progress, context.unit_run, ""
    artifact = {**progress.artifacts, **unit_run.parsed_artifacts}.get(check.unless_in or "")
    if artifact is not None:
        allowed = yield from get_text(artifact.digest)
    base, findings = unit_run.base if check.over == "unit" else progress.merged_target or progress.base, []
    for path, kind in (yield from _changes(context, check)):
        if kind == "deleted" or (check.files and not matches(check.files, path)):
            continue
        texts = []
        for tree in (base, unit_run.tree):
            data = yield from call_port(Workspace.read, tree, path)
            texts.append(Counter((data or b"").decode("utf-8", "replace").splitlines()))
        matched = _search(check.pattern, list(texts[1] - texts[0]))
        findings += [rule_finding(name, path, f"{path}: {_quote(line)}") for line, key in matched if key not in allowed]
    return tuple(findings)


def _search(pattern: str, lines: list[str]) -> list[tuple[str, str]]:
    """Return the lines that match, each with its match, or the match's first group if there is one."""
    matched = ((line, re.search(pattern, line[:LINE_CHARS_MAX])) for line in lines)
    return [(line, match[match.re.groups and 1] or match[0]) for line, match in matched if match]


def _quote(line: str) -> str:
    return " ".join(line.split())[:QUOTE_CHARS_MAX]
