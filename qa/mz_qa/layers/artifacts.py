"""Layer 3: every rule set accepts valid artifacts and rejects invalid ones by the violated rule.

Artifacts are generated from the rules, then broken one rule at a time. `mz check` checks the project's rule sets, the
self-test the bundled ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from multiprocessing import TimeoutError as PoolTimeout
from multiprocessing import get_context

from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.artifacts.validate import BLOCKING_KINDS, MESSAGE_SLOT, requirements, validate
from mz_engine.model.config import Limits
from mz_engine.model.rules import Rule, RuleSet
from mz_engine.pipelines.load import RULES_FOLDER, load_pipeline_files
from mz_recordings.findings.model import Finding

from mz_qa.conformance.parsing import damage
from mz_qa.generators import CannotGenerate, GeneratedArtifact, generate_artifact
from mz_qa.mutations import Mutation, mutations
from mz_qa.results import CheckedItem, LayerOutput, Project, Remark

SEED_COUNT = 6
TIMEOUT_SECONDS = 60
"""Time limit for one rule set of a project; usually less than a second."""
DAMAGED_COUNT = 20
ARTIFACT_NAME = "artifact"
SHOWN_MAX = 200
LINES_MAX = 12


def check(project: Project) -> Iterator[LayerOutput]:
    """Check the project's rule sets."""
    material = load_pipeline_files(project.root)
    for file in material.files:
        rules = material.rules.get(file.rpartition("/")[2].removesuffix(".yaml"))
        if rules is not None and file.startswith(RULES_FOLDER):
            yield from check_project_rules(rules, project.config.limits, file)


def check_bundled(project: Project) -> Iterator[LayerOutput]:
    """Check the bundled rule sets with the project's limits."""
    for rules in load_rules().values():
        yield from check_rules(rules, project.config.limits, "")


def check_project_rules(
    rules: RuleSet, limits: Limits, file: str, seconds: float = TIMEOUT_SECONDS
) -> tuple[LayerOutput, ...]:
    """Check a project's rule set in a separate process, since its patterns may run for ever."""
    with get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply_async(_collect_rule_checks, (rules, limits, file)).get(seconds)
        except PoolTimeout:
            problem = f"cannot be checked within {seconds:g} s: one of its patterns may never end on some texts"
            return (CheckedItem("rule sets"), _rule_finding(rules, file, problem))


def _collect_rule_checks(rules: RuleSet, limits: Limits, file: str) -> tuple[LayerOutput, ...]:
    return tuple(check_rules(rules, limits, file))


def check_rules(rules: RuleSet, limits: Limits, file: str) -> Iterator[LayerOutput]:
    """Check one rule set; `file` is its file, empty for a bundled one."""
    yield CheckedItem("rule sets")
    unfilled = dict.fromkeys(
        requirement
        for requirement in requirements(rules, limits)
        if not requirement.strip() or MESSAGE_SLOT.search(requirement)
    )
    for requirement in unfilled:
        yield _rule_finding(rules, file, f"tells the agent {requirement!r}, which has an unfilled placeholder")
    tested, reported = set[str](), set[tuple[str, str]]()
    for seed in range(SEED_COUNT):
        try:
            artifact = generate_artifact(rules, limits, seed)
        except CannotGenerate as error:
            yield _rule_finding(rules, file, f"cannot be fulfilled: {error}")
            return
        others, unit, paths = artifact.other_artifacts, artifact.unit, artifact.paths
        diagnostics = validate(rules, artifact.text, ARTIFACT_NAME, limits, others, unit, paths)
        yield CheckedItem("artifacts")
        if diagnostics:
            detail = (
                *(f"  {diagnostic.message[:SHOWN_MAX]}" for diagnostic in diagnostics),
                *(f"  | {line[:SHOWN_MAX]}" for line in artifact.text.splitlines()[:LINES_MAX]),
            )
            contradiction = "rejects an artifact generated from it: its rules contradict each other"
            yield _rule_finding(rules, file, contradiction, detail)
            return
        yield from _check_extraction(rules, file, artifact)
        yield from _check_damaged(rules, file, artifact, seed)
        for rule in rules.rules:
            for mutation in mutations(artifact, rule):
                yield CheckedItem("artifacts")
                problem = rejection_error(artifact, rule, mutation)
                tested |= {rule.id} if problem is not None else set()
                if problem and (rule.id, mutation.description) not in reported:
                    reported.add((rule.id, mutation.description))
                    yield Finding(
                        kind="RULE",
                        cause=rule.id,
                        file=file,
                        detail=(f"  {problem}",),
                        fix=fix_for(file),
                        message=f"the rule set {rules.name}: an artifact {mutation.description} is not "
                        f"rejected by {rule.id}",
                    )
    untested = [rule.id for rule in rules.rules if rule.id not in tested and rule not in rules.judged_rules]
    if untested:
        yield Remark(f"untested rules of {rules.name}: {', '.join(untested)}")


def rejection_error(artifact: GeneratedArtifact, rule: Rule, mutation: Mutation) -> str | None:
    """Return empty if the rule rejected the mutation; None if an earlier rule stopped validation; else what is
    wrong."""
    others = artifact.other_artifacts if mutation.other_artifacts is None else mutation.other_artifacts
    unit = artifact.unit if mutation.unit is None else mutation.unit
    diagnostics = validate(artifact.rules, mutation.text, ARTIFACT_NAME, artifact.limits, others, unit, artifact.paths)
    violated_rules = {diagnostic.violation.rule for diagnostic in diagnostics}
    if rule.id in violated_rules:
        message_with_slot = next((entry.message for entry in diagnostics if MESSAGE_SLOT.search(entry.message)), "")
        return f"its message has an unfilled placeholder: {message_with_slot}" if message_with_slot else ""
    earlier_rules = artifact.rules.rules[: artifact.rules.rules.index(rule)]
    if any(other.id in violated_rules for other in earlier_rules if isinstance(other, BLOCKING_KINDS)):
        return None
    return f"it is rejected by {', '.join(sorted(violated_rules))} only" if violated_rules else "it is accepted"


def _check_extraction(rules: RuleSet, file: str, artifact: GeneratedArtifact) -> Iterator[Finding]:
    """Check that parsing a valid artifact finds all that the engine extracts."""
    parsed, extract = parse_artifact(rules, artifact.text), rules.extract
    if extract.units and len(parsed.units) != len(artifact.items):
        yield _rule_finding(rules, file, f"yields {len(parsed.units)} units from {len(artifact.items)} items")
    if extract.files and not parsed.files:
        yield _rule_finding(rules, file, f"yields no files, though `extract` names {extract.files}")
    missing = [
        name for name in extract.fields if artifact.items and name in artifact.items[0] and name not in parsed.fields
    ]
    if missing:
        yield _rule_finding(rules, file, f"does not yield {', '.join(missing)}, which the artifact has")


def _check_damaged(rules: RuleSet, file: str, artifact: GeneratedArtifact, seed: int) -> Iterator[LayerOutput]:
    """Check that damaged artifacts are parsed and validated without an exception."""
    rng = random.Random(f"{rules.name}/{seed}")
    yield CheckedItem("artifacts", DAMAGED_COUNT)
    for _ in range(DAMAGED_COUNT):
        text = damage(artifact.text.encode(), rng).decode("utf-8", "replace")
        try:
            parse_artifact(rules, text)
            validate(rules, text, ARTIFACT_NAME, artifact.limits, dict.fromkeys(artifact.other_artifacts, text))
        except Exception as error:
            yield _rule_finding(rules, file, f"cannot validate a damaged artifact: {type(error).__name__}: {error}")
            return


def _rule_finding(rules: RuleSet, file: str, problem: str, detail: tuple[str, ...] = ()) -> Finding:
    message = f"the rule set {rules.name} {problem}"
    return Finding(kind="RULE", message=message, cause=rules.name, detail=detail, file=file, fix=fix_for(file))


def fix_for(file: str) -> str:
    """Return the fix: a project can change its own rules."""
    return "change the rules, then run: mz check --layer 3" if file else "report it: these rules are bundled with mz"
