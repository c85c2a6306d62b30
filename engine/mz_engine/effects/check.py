"""Effects that check an agent's work: prepare, revert forbidden changes, rules, gates."""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.call import AgentReplied, Offence
from mz_events.catalog.check import (
    ArtifactParsed,
    ArtifactValidated,
    Change,
    ChangesChecked,
    CommandRan,
    GateChecked,
    Violation,
)
from mz_events.catalog.feature import WorkspaceReady
from mz_events.names import Commit, Path, parse_path
from mz_projections.state import Setting

from mz_engine.artifacts.output import count_tests, excerpt, signature
from mz_engine.artifacts.parse import parse
from mz_engine.artifacts.rule import Finding, Parsed, RuleFacts
from mz_engine.artifacts.validate import check_rule, validate
from mz_engine.decide.actions import CheckRule, Prepare, RunGate, SetUp
from mz_engine.effects.prompt import may_change, outputs_of, read_file
from mz_engine.effects.steps import Effect, Scene, Steps, do, emit, get, put, put_report
from mz_engine.patterns import matches
from mz_engine.pipelines.definition import Output
from mz_engine.ports import RepositoryUnusable

SETUP_SECONDS = 1800
TREE_OFFENCES = frozenset({"special", "nested-git", "too-big"})
"""Forbidden changes that no commit can hold, and so no revert: rejected like a violated rule."""


# commands -------------------------------------------------------------------------------------------------------------
def set_up(action: SetUp, scene: Scene) -> Effect:
    """Run one set-up command and capture the worktree again, so that what the command created belongs to it."""
    assert isinstance(scene.state, Setting)
    ran = yield from run_set_up(scene, action.command)
    place, book = scene.place, scene.state.book
    capture = yield from do("workspace.capture", lambda ports: ports.workspace.capture(place, book.tree))
    if ran.exit == 0:
        yield from do("workspace.adopt", lambda ports: ports.workspace.adopt(place, capture.tree))
    yield from emit(ran, WorkspaceReady(head=book.head, tree=capture.tree))


def run_set_up(scene: Scene, command: str) -> Steps[CommandRan]:
    key = f"{scene.run}/{scene.feature}/setup/{command}"
    return (yield from _run(scene, "setup", command, command, SETUP_SECONDS, key))


def prepare(action: Prepare, scene: Scene) -> Effect:
    yield from stand_on(scene, scene.cell.tree)
    yield from emit((yield from _run_named(scene, "prepare", action.command)))


def run_gate(action: RunGate, scene: Scene) -> Effect:
    yield from stand_on(scene, scene.cell.tree)
    ran = yield from _run_named(scene, "gate", action.gate)
    passed = ran.exit == 0
    report = None
    if not passed:
        words = yield from get(ran.excerpt)
        how = "ran out of time" if ran.exit is None else f"failed with exit {ran.exit}"
        command = scene.pins.config.commands[action.gate].run
        report = yield from put_report((f"the command `{action.gate}` ({command}) {how}; it printed:\n{words}",))
    gate = GateChecked(
        phase=scene.work.phase,
        unit=scene.cell.unit,
        gate=action.gate,
        passed=passed,
        cause=action.cause,
        violations=() if passed else (Violation(rule=action.gate),),
        report=report,
        signature="" if passed else ran.signature,
    )
    yield from emit(ran, gate)


def stand_on(scene: Scene, tree: Commit) -> Effect:
    """Give the worktree the content of `tree`; a worktree that had to be rebuilt is set up again too."""
    head, place = scene.work.book.head, scene.place
    commands = scene.pins.config.workspace.setup
    needs_setup = yield from do("workspace.ensure", lambda ports: ports.workspace.ensure(place, head, tree))
    if not commands or not needs_setup:
        return
    for command in commands:
        ran = yield from run_set_up(scene, command)
        yield from emit(ran)
        if ran.exit != 0:
            raise RepositoryUnusable("setup-failed", f"the set-up command `{command}` failed")
    yield from do("workspace.adopt", lambda ports: ports.workspace.adopt(place, tree))


def _run_named(scene: Scene, stage: Literal["prepare", "gate"], name: str) -> Steps[CommandRan]:
    command = scene.pins.config.commands[name]
    return (yield from _run(scene, stage, name, command.run, command.timeout_seconds, scene.key(f"{stage}.{name}")))


def _run(
    scene: Scene, stage: Literal["setup", "prepare", "gate"], name: str, command: str, seconds: int, key: str
) -> Steps[CommandRan]:
    place = scene.place
    result = yield from do("executor.run", lambda ports: ports.executor.run(place, command, seconds, key))
    words = excerpt(result.output, (result.root,) if result.root else ())
    tests = count_tests(result.output)
    inside = stage != "setup"
    return CommandRan(
        stage=stage,
        phase=scene.work.phase if inside else "",
        unit=scene.cell.unit if inside else "",
        name=name,
        exit=result.exit,
        passed=tests[0] if tests else None,
        failed=tests[1] if tests else None,
        signature=signature(words),
        output=(yield from put(result.output)),
        excerpt=(yield from put(words)),
        duration_ms=result.duration_ms,
    )


# the tree -------------------------------------------------------------------------------------------------------------
def check_changes(scene: Scene) -> Effect:
    """Compare the trees before and after the reply; revert forbidden changes; reset the branch."""
    cell, place, reply = scene.cell, scene.place, reply_of(scene)
    changes = yield from do("workspace.changes", lambda ports: ports.workspace.changes(cell.tree, reply.tree))
    outside = _outside(changes, may_change(scene, cell.role), scene.pins.config.denied_paths)
    revert, tree = tuple(Path(offence.path) for offence in outside), reply.tree
    if revert:
        tree = yield from do(
            "workspace.revert_paths", lambda ports: ports.workspace.keep(place, reply.tree, cell.tree, revert)
        )
    kept = tuple(change for change in changes if change.path not in revert)
    base = cell.base
    secrets = yield from _secrets(
        (yield from do("workspace.changes", lambda ports: ports.workspace.changes(base, tree))), tree
    )
    yield from stand_on(scene, tree)
    offences = (*reply.offences, *outside, *secrets)
    yield from emit(ChangesChecked(ref=reply.ref, tree=tree, changes=kept, offences=offences))


def reply_of(scene: Scene) -> AgentReplied:
    assert scene.cell.replied is not None
    return scene.cell.replied


def _outside(changes: tuple[Change, ...], allowed: tuple[str, ...], denied: tuple[str, ...]) -> list[Offence]:
    offences = []
    for change in changes:
        if matches(denied, change.path):
            offences.append(Offence(kind="denied", path=change.path))
        elif not matches(allowed, change.path):
            offences.append(Offence(kind="outside", path=change.path))
    return offences


def _secrets(changes: tuple[Change, ...], tree: Commit) -> Steps[list[Offence]]:
    secrets = []
    for change in changes:
        if (yield from _holds_secret(tree, change.path)):
            secrets.append(Offence(kind="secret", path=change.path))
    return secrets


def _holds_secret(tree: Commit, path: Path) -> Steps[bool]:
    data = yield from do("workspace.read", lambda ports: ports.workspace.read(tree, path))
    return bool(data and (yield from do("secrets.scan", lambda ports: ports.secrets.scan(data))))


# rules ----------------------------------------------------------------------------------------------------------------
def validate_outputs(scene: Scene) -> Effect:
    """Check every output of the reply against its rules, and reject changes that no tree can hold."""
    findings = [_tree_finding(offence) for offence in _offences(scene) if offence.kind in TREE_OFFENCES]
    others = yield from _texts(scene)
    parsed = []
    for output in outputs_of(scene, scene.cell.role):
        text = yield from _output_text(output, scene)
        rules = scene.pins.rules[output.rules]
        findings += validate(rules, text, output.path or output.artifact, scene.pins.config.limits, others)
        if text is not None:
            parsed.append((yield from _parsed(output, text, parse(rules, text), scene)))
            others[output.artifact] = text
    report = (yield from put_report(tuple(finding.message for finding in findings))) if findings else None
    violations = tuple(finding.violation for finding in findings)
    yield from emit(*parsed, ArtifactValidated(ref=reply_of(scene).ref, violations=violations, report=report))


def _offences(scene: Scene) -> tuple[Offence, ...]:
    last = scene.cell.last
    return last.offences if isinstance(last, ChangesChecked) else ()


def _tree_finding(offence: Offence) -> Finding:
    messages = {
        "special": "is a FIFO, socket or device, or has a name that no commit can hold; remove it",
        "nested-git": "is a git repository inside the worktree; remove it",
        "too-big": "is larger than 50 MB; remove it",
    }
    return Finding(
        violation=Violation(rule=f"tree.{offence.kind}", path=offence.path),
        message=f"{offence.path}: {messages[offence.kind]}",
    )


def _output_text(output: Output, scene: Scene) -> Steps[str | None]:
    if output.path is not None:
        return (yield from read_file(scene.cell.tree, parse_path(output.path)))
    assert scene.cell.reply is not None
    return (yield from get(scene.cell.reply))


def _parsed(output: Output, text: str, found: Parsed, scene: Scene) -> Steps[ArtifactParsed]:
    return ArtifactParsed(
        artifact=output.artifact,
        phase=scene.work.phase,
        unit=scene.cell.unit,
        path=parse_path(output.path) if output.path else None,
        digest=(yield from put(text)),
        units=found.units,
        files=found.files,
        fields=found.fields,
    )


def _texts(scene: Scene) -> Steps[dict[str, str]]:
    """Return the texts of all artifacts by name; those of the current reply replace earlier ones."""
    texts = {}
    for name, artifact in {**scene.work.book.artifacts, **scene.cell.parsed}.items():
        texts[name] = yield from get(artifact.digest)
    return texts


def check_feature_rule(action: CheckRule, scene: Scene) -> Effect:
    """Check a rule that concerns the whole feature."""
    texts = yield from _texts(scene)
    artifacts = {**scene.work.book.artifacts, **scene.cell.parsed}
    rules = {output.artifact: output.rules for phase in scene.pins.pipeline.phases for output in phase.outputs}
    base, tree = scene.cell.base, scene.cell.tree
    changes = yield from do("workspace.changes", lambda ports: ports.workspace.changes(base, tree))
    facts = RuleFacts(
        artifacts={name: parse(scene.pins.rules[rules[name]], texts[name]) for name in artifacts if name in rules},
        changes=changes,
        limits=scene.pins.config.limits,
        outputs=tuple(output.path for output in outputs_of(scene, "builder") if output.path),
    )
    findings = check_rule(action.rule, facts)
    report = (yield from put_report(tuple(finding.message for finding in findings))) if findings else None
    yield from emit(
        GateChecked(
            phase=scene.work.phase,
            unit=scene.cell.unit,
            gate=action.rule,
            passed=not findings,
            cause=action.cause,
            violations=tuple(finding.violation for finding in findings),
            report=report,
        )
    )
