"""Layer 3: every rule set accepts valid artifacts and rejects invalid ones by the violated rule.

Artifacts are generated from the rules, then broken one rule at a time; artifacts recorded in cassettes are validated
again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from mz_engine.artifacts.parse import parse
from mz_engine.artifacts.rule import Rule, RuleSet
from mz_engine.artifacts.validate import SLOT, STOPPING, requirements, validate
from mz_engine.config import Limits
from mz_engine.pipelines.own import RULES, load_material
from mz_recordings.findings import Finding

from mz_qa.conformance.readings import damage
from mz_qa.layers.drafts import Draft, Unmakeable, draft
from mz_qa.layers.drifting import ABOUT_ARTIFACTS, drifted, told
from mz_qa.layers.facts import Checked, Project, Remark, Said
from mz_qa.layers.mutations import Mutation, mutations
from mz_qa.layers.within import TookTooLong, within

SEEDS = 6
SECONDS = 60
"""Time limit for one rule set of a project; usually less than a second."""
DAMAGES = 20
WHERE = "artifact"
SHOWN_MAX = 200
TOLD = (*ABOUT_ARTIFACTS, "PIPELINE", "UNUSABLE")
"""Kinds of findings about validation, and those that prevent it."""


def check(project: Project) -> Iterator[Said]:
    """Check all rule sets available here, and the artifacts of all cassettes."""
    material = load_material(project.root)
    own = {file.rpartition("/")[2].removesuffix(".yaml"): file for file in material.files if file.startswith(RULES)}
    for name, rules in material.rules.items():
        if name in own:
            yield from own_rules(rules, project.config.limits, own[name])
        else:
            yield from check_rules(rules, project.config.limits, "")
    yield from recorded(project)


def own_rules(rules: RuleSet, limits: Limits, file: str, seconds: float = SECONDS) -> tuple[Said, ...]:
    """Check a project's rule set in a separate process, since its patterns may run for ever."""
    try:
        return within(seconds, _all_said, rules, limits, file)
    except TookTooLong:
        problem = f"cannot be checked within {seconds:g} s: one of its patterns may never end on some texts"
        return (Checked("rule sets"), _broken(rules, file, problem))


def _all_said(rules: RuleSet, limits: Limits, file: str) -> tuple[Said, ...]:
    return tuple(check_rules(rules, limits, file))


def recorded(project: Project) -> Iterator[Said]:
    """Validate and parse the artifacts recorded in cassettes; also report what prevents that."""
    played, _ = drifted(project, played=False) if project.cassettes else ((), ())
    for result in played:
        yield Checked("recorded artifacts", result.judged)
        yield from told(project, Path(result.path), [finding for finding in result.findings if finding.kind in TOLD])


def check_rules(rules: RuleSet, limits: Limits, file: str) -> Iterator[Said]:
    """Check one rule set; `file` is its file, empty for a bundled one."""
    yield Checked("rule sets")
    blanks = dict.fromkeys(
        requirement
        for requirement in requirements(rules, limits)
        if not requirement.strip() or SLOT.search(requirement)
    )
    for requirement in blanks:
        yield _broken(rules, file, f"tells the agent {requirement!r}, which has an unfilled placeholder")
    tried, reported = set[str](), set[tuple[str, str]]()
    for seed in range(SEEDS):
        try:
            artifact = draft(rules, limits, seed)
        except Unmakeable as error:
            yield _broken(rules, file, f"cannot be fulfilled: {error}")
            return
        diagnostics = validate(rules, artifact.text, WHERE, limits, artifact.others)
        yield Checked("artifacts")
        if diagnostics:
            yield _contradiction(rules, file, artifact, tuple(diagnostic.message for diagnostic in diagnostics))
            return
        yield from _unread(rules, file, artifact)
        yield from _total(rules, file, artifact, seed)
        for rule in rules.rules:
            for mutation in mutations(artifact, rule):
                yield Checked("artifacts")
                problem = judged(artifact, rule, mutation)
                tried |= {rule.id} if problem is not None else set()
                if problem and (rule.id, mutation.what) not in reported:
                    reported.add((rule.id, mutation.what))
                    yield Finding(
                        kind="RULE", cause=rule.id, file=file, detail=(f"  {problem}",), mend=mend_of(file),
                        what=f"the rule set {rules.name}: an artifact {mutation.what} is not rejected by {rule.id}",
                    )  # fmt: skip
    untried = [rule.id for rule in rules.rules if rule.id not in tried]
    if untried:
        yield Remark(f"untested rules of {rules.name}: {', '.join(untried)}")


def judged(artifact: Draft, rule: Rule, mutation: Mutation) -> str | None:
    """Return empty if the rule rejected the mutation; None if an earlier rule stopped validation; else what is
    wrong."""
    others = artifact.others if mutation.others is None else mutation.others
    diagnostics = validate(artifact.rules, mutation.text, WHERE, artifact.limits, others)
    violated_rules = {diagnostic.violation.rule for diagnostic in diagnostics}
    if rule.id in violated_rules:
        message_with_slot = next((entry.message for entry in diagnostics if SLOT.search(entry.message)), "")
        return f"its message has an unfilled placeholder: {message_with_slot}" if message_with_slot else ""
    before = artifact.rules.rules[: artifact.rules.rules.index(rule)]
    if any(other.id in violated_rules for other in before if isinstance(other, STOPPING)):
        return None
    return f"it is rejected by {', '.join(sorted(violated_rules))} only" if violated_rules else "it is accepted"


def _contradiction(rules: RuleSet, file: str, artifact: Draft, messages: tuple[str, ...]) -> Finding:
    return Finding(
        kind="RULE",
        what=f"the rule set {rules.name} rejects an artifact generated from it: its rules contradict each other",
        cause=rules.name,
        detail=(
            *(f"  {message[:SHOWN_MAX]}" for message in messages),
            *(f"  | {line}" for line in _head(artifact.text)),
        ),
        mend=mend_of(file),
        file=file,
    )


def _head(text: str) -> list[str]:
    return [line[:SHOWN_MAX] for line in text.splitlines()[:12]]


def _unread(rules: RuleSet, file: str, artifact: Draft) -> Iterator[Finding]:
    """Check that parsing a valid artifact finds all that the engine extracts."""
    parsed, extract = parse(rules, artifact.text), rules.extract
    if extract.units and len(parsed.units) != len(artifact.items):
        yield _broken(rules, file, f"yields {len(parsed.units)} units from {len(artifact.items)} items")
    if extract.files and not parsed.files:
        yield _broken(rules, file, f"yields no files, though `extract` names {extract.files}")
    missing = [
        name for name in extract.fields if artifact.items and name in artifact.items[0] and name not in parsed.fields
    ]
    if missing:
        yield _broken(rules, file, f"does not yield {', '.join(missing)}, which the artifact has")


def _total(rules: RuleSet, file: str, artifact: Draft, seed: int) -> Iterator[Said]:
    """Check that damaged artifacts are parsed and validated without an exception."""
    rng = random.Random(f"{rules.name}/{seed}")
    yield Checked("artifacts", DAMAGES)
    for _ in range(DAMAGES):
        text = damage(artifact.text.encode(), rng).decode("utf-8", "replace")
        try:
            parse(rules, text)
            validate(rules, text, WHERE, artifact.limits, dict.fromkeys(artifact.others, text))
        except Exception as error:
            yield _broken(rules, file, f"cannot validate a damaged artifact: {type(error).__name__}: {error}")
            return


def _broken(rules: RuleSet, file: str, problem: str) -> Finding:
    return Finding(
        kind="RULE", what=f"the rule set {rules.name} {problem}", cause=rules.name, file=file, mend=mend_of(file)
    )


def mend_of(file: str) -> str:
    """Return the fix: a project can change its own rules."""
    return "change the rules, then run: mz gate --layer 3" if file else "report it: these rules are bundled with mz"
