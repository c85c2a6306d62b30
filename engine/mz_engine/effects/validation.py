"""Effects that check an agent's work: prepare, revert forbidden changes, rules, gates."""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.call import AgentReplied, ForbiddenChange
from mz_events.catalog.feature import WorkspaceReady
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactValidated,
    Change,
    ChangesChecked,
    CommandRan,
    GateChecked,
    Violation,
)
from mz_events.names import BUILDER, Commit, Path, parse_path
from mz_projections.feature.state import RunningSetup

from mz_engine.artifacts.command_output import count_tests, excerpt, failure_signature
from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.artifacts.validate import validate
from mz_engine.decide.actions import CheckRule, RunGate, RunPreparation, RunSetup
from mz_engine.effects.prompt import outputs_of, read_file, write_scope
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_text, put_blob, put_report
from mz_engine.model.pipeline import PhaseOutput
from mz_engine.model.rules import FeatureRuleInput, ParsedArtifact, RuleFinding
from mz_engine.path_patterns import matches
from mz_engine.ports import Executor, RepositoryUnusable, Secrets, Workspace

SETUP_SECONDS = 1800
TREE_CHANGES = frozenset({"special", "nested-git", "too-big"})
"""Forbidden changes that no commit can hold, and so no revert: rejected like a violated rule."""


# commands -------------------------------------------------------------------------------------------------------------
def run_setup(action: RunSetup, context: StepContext) -> Effect:
    """Run one set-up command and capture the worktree again, so that what the command created belongs to it."""
    assert isinstance(context.state, RunningSetup)
    ran = yield from run_setup_command(context, action.command)
    worktree, progress = context.worktree, context.state.progress
    capture = yield from call_port(Workspace.capture, worktree, progress.tree)
    if ran.exit == 0:
        yield from call_port(Workspace.adopt, worktree, capture.tree)
    yield from emit(ran, WorkspaceReady(head=progress.head, tree=capture.tree))


def run_setup_command(context: StepContext, command: str) -> Steps[CommandRan]:
    key = f"{context.run}/{context.feature}/setup/{command}"
    return (yield from _run_command(context, "setup", command, command, SETUP_SECONDS, key))


def run_preparation(action: RunPreparation, context: StepContext) -> Effect:
    yield from ensure_worktree(context, context.unit_run.tree)
    yield from emit((yield from _run_configured(context, "prepare", action.command)))


def run_gate(action: RunGate, context: StepContext) -> Effect:
    yield from ensure_worktree(context, context.unit_run.tree)
    ran = yield from _run_configured(context, "gate", action.gate)
    passed = ran.exit == 0
    report = None
    if not passed:
        output = yield from get_text(ran.excerpt)
        ending = "ran out of time" if ran.exit is None else f"failed with exit {ran.exit}"
        command = context.pins.config.commands[action.gate].run
        report = yield from put_report((f"the command `{action.gate}` ({command}) {ending}; it printed:\n{output}",))
    gate = GateChecked(
        phase=context.phase_state.phase,
        unit=context.unit_run.unit,
        gate=action.gate,
        passed=passed,
        cause=action.cause,
        violations=() if passed else (Violation(rule=action.gate),),
        report=report,
        signature="" if passed else ran.signature,
    )
    yield from emit(ran, gate)


def ensure_worktree(context: StepContext, tree: Commit) -> Effect:
    """Give the worktree the content of `tree`; a worktree that had to be rebuilt is set up again too."""
    head, worktree = context.phase_state.progress.head, context.worktree
    commands = context.pins.config.workspace.setup
    needs_setup = yield from call_port(Workspace.ensure, worktree, head, tree)
    if not commands or not needs_setup:
        return
    for command in commands:
        ran = yield from run_setup_command(context, command)
        yield from emit(ran)
        if ran.exit != 0:
            raise RepositoryUnusable("setup-failed", f"the set-up command `{command}` failed")
    yield from call_port(Workspace.adopt, worktree, tree)


def _run_configured(context: StepContext, stage: Literal["prepare", "gate"], name: str) -> Steps[CommandRan]:
    command = context.pins.config.commands[name]
    return (yield from _run_command(context, stage, name, command.run, command.timeout, context.key(f"{stage}.{name}")))


def _run_command(
    context: StepContext,
    stage: Literal["setup", "prepare", "gate"],
    name: str,
    command: str,
    timeout_seconds: int,
    key: str,
) -> Steps[CommandRan]:
    worktree = context.worktree
    result = yield from call_port(Executor.run, worktree, command, timeout_seconds, key)
    output_excerpt = excerpt(result.output, (result.root,) if result.root else ())
    tests = count_tests(result.output)
    in_phase = stage != "setup"
    return CommandRan(
        stage=stage,
        phase=context.phase_state.phase if in_phase else "",
        unit=context.unit_run.unit if in_phase else "",
        name=name,
        exit=result.exit,
        passed=tests[0] if tests else None,
        failed=tests[1] if tests else None,
        signature=failure_signature(output_excerpt),
        output=(yield from put_blob(result.output)),
        excerpt=(yield from put_blob(output_excerpt)),
        duration_ms=result.duration_ms,
    )


# the tree -------------------------------------------------------------------------------------------------------------
def check_changes(context: StepContext) -> Effect:
    """Compare the trees before and after the reply; revert forbidden changes; reset the branch."""
    unit_run, worktree, reply = context.unit_run, context.worktree, current_reply(context)
    changes = yield from call_port(Workspace.changes, unit_run.tree, reply.tree)
    outside = _forbidden_changes(changes, write_scope(context, unit_run.role), context.pins.config.denied_paths)
    revert, tree = tuple(Path(offence.path) for offence in outside), reply.tree
    if revert:
        tree = yield from call_port(Workspace.revert_paths, worktree, reply.tree, unit_run.tree, revert)
    remaining = tuple(change for change in changes if change.path not in revert)
    base = unit_run.base
    secrets = yield from _find_secrets((yield from call_port(Workspace.changes, base, tree)), tree)
    yield from ensure_worktree(context, tree)
    forbidden_changes = (*reply.forbidden_changes, *outside, *secrets)
    yield from emit(ChangesChecked(ref=reply.ref, tree=tree, changes=remaining, forbidden_changes=forbidden_changes))


def current_reply(context: StepContext) -> AgentReplied:
    assert context.unit_run.reply_event is not None
    return context.unit_run.reply_event


def _forbidden_changes(
    changes: tuple[Change, ...], allowed: tuple[str, ...], denied: tuple[str, ...]
) -> list[ForbiddenChange]:
    forbidden_changes = []
    for change in changes:
        if matches(denied, change.path):
            forbidden_changes.append(ForbiddenChange(kind="denied", path=change.path))
        elif not matches(allowed, change.path):
            forbidden_changes.append(ForbiddenChange(kind="outside", path=change.path))
    return forbidden_changes


def _find_secrets(changes: tuple[Change, ...], tree: Commit) -> Steps[list[ForbiddenChange]]:
    secrets = []
    for change in changes:
        if (yield from _has_secret(tree, change.path)):
            secrets.append(ForbiddenChange(kind="secret", path=change.path))
    return secrets


def _has_secret(tree: Commit, path: Path) -> Steps[bool]:
    data = yield from call_port(Workspace.read, tree, path)
    return bool(data and (yield from call_port(Secrets.names_in, data)))


# rules ----------------------------------------------------------------------------------------------------------------
def validate_outputs(context: StepContext) -> Effect:
    """Check every output of the reply against its rules, and reject changes that no tree can hold."""
    findings = [_tree_finding(change) for change in _current_forbidden_changes(context) if change.kind in TREE_CHANGES]
    texts = yield from _artifact_texts(context)
    parsed = []
    for output in outputs_of(context, context.unit_run.role):
        text = yield from _output_text(output, context)
        rules = context.pins.rules[output.rules]
        findings += validate(rules, text, output.path or output.artifact, context.pins.config.limits, texts)
        if text is not None:
            parsed.append((yield from _artifact_parsed(output, text, parse_artifact(rules, text), context)))
            texts[output.artifact] = text
    report = (yield from put_report(tuple(finding.message for finding in findings))) if findings else None
    violations = tuple(finding.violation for finding in findings)
    yield from emit(*parsed, ArtifactValidated(ref=current_reply(context).ref, violations=violations, report=report))


def _current_forbidden_changes(context: StepContext) -> tuple[ForbiddenChange, ...]:
    last = context.unit_run.last_event
    return last.forbidden_changes if isinstance(last, ChangesChecked) else ()


def _tree_finding(change: ForbiddenChange) -> RuleFinding:
    messages = {
        "special": "is a FIFO, socket or device, or has a name that no commit can hold; remove it",
        "nested-git": "is a git repository inside the worktree; remove it",
        "too-big": "is larger than 50 MB; remove it",
    }
    return RuleFinding(
        violation=Violation(rule=f"tree.{change.kind}", path=change.path),
        message=f"{change.path}: {messages[change.kind]}",
    )


def _output_text(output: PhaseOutput, context: StepContext) -> Steps[str | None]:
    if output.path is not None:
        return (yield from read_file(context.unit_run.tree, parse_path(output.path)))
    assert context.unit_run.reply_text is not None
    return (yield from get_text(context.unit_run.reply_text))


def _artifact_parsed(
    output: PhaseOutput, text: str, parsed: ParsedArtifact, context: StepContext
) -> Steps[ArtifactParsed]:
    return ArtifactParsed(
        artifact=output.artifact,
        phase=context.phase_state.phase,
        unit=context.unit_run.unit,
        path=parse_path(output.path) if output.path else None,
        digest=(yield from put_blob(text)),
        units=parsed.units,
        files=parsed.files,
        fields=parsed.fields,
    )


def _artifact_texts(context: StepContext) -> Steps[dict[str, str]]:
    """Return the texts of all artifacts by name; those of the current reply replace earlier ones."""
    texts = {}
    for name, artifact in {**context.phase_state.progress.artifacts, **context.unit_run.parsed_artifacts}.items():
        texts[name] = yield from get_text(artifact.digest)
    return texts


def check_feature_rule(action: CheckRule, context: StepContext) -> Effect:
    """Check a rule that concerns the whole feature."""
    texts = yield from _artifact_texts(context)
    artifacts = {**context.phase_state.progress.artifacts, **context.unit_run.parsed_artifacts}
    rules = {output.artifact: output.rules for phase in context.pins.pipeline.phases for output in phase.outputs}
    base, tree = context.unit_run.base, context.unit_run.tree
    changes = yield from call_port(Workspace.changes, base, tree)
    facts = FeatureRuleInput(
        artifacts={
            name: parse_artifact(context.pins.rules[rules[name]], texts[name]) for name in artifacts if name in rules
        },
        changes=changes,
        limits=context.pins.config.limits,
        outputs=tuple(output.path for output in outputs_of(context, BUILDER) if output.path),
    )
    findings = tuple(FEATURE_RULES[action.rule](facts))
    report = (yield from put_report(tuple(finding.message for finding in findings))) if findings else None
    yield from emit(
        GateChecked(
            phase=context.phase_state.phase,
            unit=context.unit_run.unit,
            gate=action.rule,
            passed=not findings,
            cause=action.cause,
            violations=tuple(finding.violation for finding in findings),
            report=report,
        )
    )
