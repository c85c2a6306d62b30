"""Effects that check a pipeline's own rules over a feature: its changes, its request and its artifacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mz_events.names import Commit, Path

from mz_engine.artifacts.feature_rules import rule_finding
from mz_engine.decide.conditions import artifacts_in_view
from mz_engine.decoding.regex import find_matches
from mz_engine.effects.steps import StepContext, Steps, call_port, get_text, get_texts
from mz_engine.model import pipeline as kinds
from mz_engine.model.rules import RuleFinding
from mz_engine.path_patterns import matches
from mz_engine.ports import SelectedLearning, Workspace

LINE_CHARS_MAX = 2000
"""Longer lines are searched up to here; as added lines they are a violation of their own."""
QUOTE_CHARS_MAX = 200


def check_findings(
    context: StepContext, name: str, check: kinds.Check, learnings: Sequence[SelectedLearning]
) -> Steps[tuple[RuleFinding, ...]]:
    """Return how the feature breaks a rule of its pipeline; `learnings` are those of the next call."""
    match check:
        case kinds.RequestCheck(pattern=pattern):
            started = context.phase_state.progress.started
            request = "\n".join((yield from get_texts((started.title, started.body))))
            matched = _search(pattern, request.splitlines())
            return tuple(rule_finding(name, "", f"the request says: {_quote(line)}") for line, _ in matched)
        case kinds.PathsCheck(patterns=patterns):
            _, changes = yield from _changes(context, check)
            paths = [path for path, _ in changes if matches(patterns, path)]
            return tuple(rule_finding(name, path, f"{path} changed") for path in paths)
        case kinds.AddedCheck():
            return (yield from _added_findings(context, name, check))
        case kinds.ValueCheck(artifacts=artifacts, field=field, values=values):
            state, unit_run, phase = context.phase_state, context.unit_run, context.phase
            parsed = [a for artifact in artifacts for a in artifacts_in_view(artifact, state, unit_run, phase)]
            fields = [(a.artifact, a.fields[field]) for a in parsed if field in a.fields]
            wrong = dict.fromkeys(pair for pair in fields if pair[1] not in values)
            return tuple(rule_finding(name, a, f"`{field}` of {a} is {value}") for a, value in wrong)
        case kinds.FirstCheck(artifact=artifact):
            in_view = artifacts_in_view(artifact, context.phase_state, context.unit_run, context.phase)
            ids = dict.fromkeys(id_ for parsed in in_view for id_ in parsed.new_ids)
            return tuple(rule_finding(name, id_, f"{artifact} names {id_} for the first time") for id_ in ids)
        case kinds.NoLearningCheck(of=kind):
            is_broken = all(learning.kind != kind for learning in learnings)
            return (rule_finding(name, "", f"no {kind} is known that concerns the call"),) if is_broken else ()


def _changes(context: StepContext, check: kinds.ChangesCheck) -> Steps[tuple[Commit, list[tuple[Path, str]]]]:
    """Return the tree that changes count from, and changed paths with the kind of change, without papers."""
    progress, unit_run = context.phase_state.progress, context.unit_run
    base = unit_run.base if check.over == "unit" else progress.merged_target or progress.base
    changes = yield from call_port(Workspace.changes, base, unit_run.tree)
    papers = context.pins.pipeline.paper_patterns(context.feature)
    return base, [(change.path, change.kind) for change in changes if not matches(papers, change.path)]


def _added_findings(context: StepContext, name: str, check: kinds.AddedCheck) -> Steps[tuple[RuleFinding, ...]]:
    unit_run, allowed, findings = context.unit_run, set[str](), list[RuleFinding]()
    for artifact in artifacts_in_view(check.unless_in or "", context.phase_state, unit_run, context.phase):
        lines = (yield from get_text(artifact.digest)).splitlines()
        allowed.update(key for _, key in _search(check.pattern, lines))
    base, changes = yield from _changes(context, check)
    for path, kind in changes:
        if kind == "deleted" or (check.files and not matches(check.files, path)):
            continue
        texts = []
        for tree in (base, unit_run.tree):
            data = yield from call_port(Workspace.read, tree, path)
            texts.append(Counter((data or b"").decode("utf-8", "replace").splitlines()))
        added = list(texts[1] - texts[0])
        matched = _search(check.pattern, added)
        matched += [(f"a line of {len(line):,} characters", "") for line in added if len(line) > LINE_CHARS_MAX]
        findings += [rule_finding(name, path, f"{path}: {_quote(line)}") for line, key in matched if key not in allowed]
    return tuple(findings)


def _search(pattern: str, lines: list[str]) -> list[tuple[str, str]]:
    """Return each match with its line: all of it, or its first group if there is one."""
    return [(line, match) for line in lines for match in find_matches(pattern, line[:LINE_CHARS_MAX])]


def _quote(line: str) -> str:
    return " ".join(line.split())[:QUOTE_CHARS_MAX]
