"""Effects that check an agent's work: prepare, revert forbidden changes, rules, gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import ForbiddenChange
from mz_events.catalog.feature import WorkspaceReady
from mz_events.catalog.memory import CapturedLearning, LearningsCaptured
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactsKept,
    ArtifactValidated,
    ChangesChecked,
    CommandRan,
    ConditionsChecked,
    GateChecked,
    Violation,
)
from mz_events.names import BUILDER, Commit, Path, parse_path
from mz_projections.feature.state import RunningSetup, has_passed
from mz_projections.feature.unit import BLOCK, JUDGED_RULES

from mz_engine.artifacts.command_output import UNSTARTABLE_EXITS, without_lines
from mz_engine.artifacts.feature_rules import FEATURE_RULES, rule_finding
from mz_engine.artifacts.parse import extract_learnings, non_blank_strings, parse_artifact
from mz_engine.artifacts.validate import judged_answers, validate
from mz_engine.decide.actions import CheckConditions, CheckRule, RunGate, RunPreparation, RunSetup
from mz_engine.decide.conditions import artifacts_in_view, holds
from mz_engine.decoding.regex import find_matches
from mz_engine.effects.commands import (
    Counts,
    known_failures,
    missing_tests,
    objection,
    open_checkout,
    run_command,
    run_setup_command,
)
from mz_engine.effects.prompt import block_output, outputs_of, read_file, unit_data, write_scope
from mz_engine.effects.steps import (
    Effect,
    StepContext,
    Steps,
    call_port,
    emit,
    get_json,
    get_text,
    get_texts,
    put_blob,
    put_report,
)
from mz_engine.model import pipeline as kinds
from mz_engine.model.pins import MET
from mz_engine.model.pipeline import Condition, FirstCheck, Gate, PhaseOutput, PreparedCommand
from mz_engine.model.rules import ExistingPaths, FeatureRuleInput, ParsedArtifact, RuleFinding
from mz_engine.path_patterns import matches, select
from mz_engine.ports import FILE_BYTES_MAX, Memory, RepositoryUnusable, Secrets, SelectedLearning, Workspace

KILLED = "killed"
"""The field `exit` of the result of a command that ran out of time."""
TREE_CHANGES = {
    "special": "is a FIFO, socket or device, or has a name that no commit can hold",
    "nested-git": "is a git repository inside the worktree",
    "hidden": "is in the place of a file of the repository that this phase does not see",
    "too-big": f"is larger than {FILE_BYTES_MAX // 1_000_000} MB",
}
"""Forbidden changes that no commit can hold, and so no revert: rejected like a violated rule."""
OUTPUT_FILES_MAX, OUTPUT_CHARACTERS_MAX = 200, 1_000_000
"""Of one output, whatever its rules allow: prompts of later calls hold all of it."""


# commands -------------------------------------------------------------------------------------------------------------
def run_setup(action: RunSetup, context: StepContext) -> Effect:
    """Run one set-up command and capture the worktree again, so that what the command created belongs to it."""
    assert isinstance(context.state, RunningSetup)
    ran = yield from run_setup_command(context.worktree, action.command, f"{context.run}/{context.feature}")
    worktree, progress = context.worktree, context.state.progress
    capture = yield from call_port(Workspace.capture, worktree, progress.tree)
    if ran.exit == 0:
        yield from call_port(Workspace.adopt, worktree, capture.tree)
    yield from emit(ran, WorkspaceReady(head=progress.head, tree=capture.tree))


def run_preparation(action: RunPreparation, context: StepContext) -> Effect:
    ran, _ = yield from _run_command(context, "prepare", action.command)
    uses = [use for use in context.phase.prepare if use.run == action.command]
    if ran.stage != "setup":
        yield from emit(ran, *(yield from result_artifacts(context, uses, ran)))
        return
    text = f"mz: {_failed_setup_text(ran, action.command)}; it printed:\n{yield from get_text(ran.excerpt)}"
    digest = yield from put_blob(text)
    not_run = replace(ran, stage="prepare", name=action.command, exit=UNSTARTABLE_EXITS[-1], duration_ms=0)
    not_run = replace(not_run, passed=None, failed=None, failures=None, output=digest, excerpt=digest)
    yield from emit(ran, not_run, *(yield from result_artifacts(context, uses, not_run)))


def run_gate(action: RunGate, context: StepContext) -> Effect:
    gate = action.gate
    ran, reason = yield from _run_command(context, "gate", gate)
    results = yield from result_artifacts(context, [use for use in context.phase.gates if use.run == gate], ran)
    if has_passed(ran) and not reason:
        yield from emit(ran, *results, (yield from gate_checked(context, gate, action.cause)))
        return
    output, new = (yield from get_text(ran.excerpt)), ""
    if ran.new_failures is not None:
        expected = yield from known_failures(context, gate)
        failed, output = (yield from get_json(ran.failures)), without_lines(output, expected)
        names = "\n".join(f"- {name}" for name in sorted((Counter(failed) - Counter(expected)).elements()))
        new = f"; tests that did not fail before your work fail now:\n{names}\n"
    elif reason:
        new = f": {reason}; "
    command = context.pins.config.commands[gate].run
    what = f"the command `{gate}` ({command}) {_ending(ran)}" if ran.stage == "gate" else _failed_setup_text(ran, gate)
    message = f"{what}{new or '; '}it printed:\n{output}"
    finding = RuleFinding(violation=Violation(rule=gate), message=message)
    yield from emit(ran, *results, (yield from gate_checked(context, gate, action.cause, (finding,), ran.signature)))


def result_artifacts(
    context: StepContext, uses: Sequence[PreparedCommand | Gate], ran: CommandRan
) -> Steps[tuple[ArtifactParsed, ...]]:
    """Return the result of a command as the artifact that the pipeline names for it, if it names one."""
    name = next((use.output for use in uses if use.output is not None), None)
    if name is None:
        return ()
    coverage = round(100 * ran.coverage[0] / ran.coverage[1], 2) if ran.coverage else None
    values = {"exit": ran.exit, "passed": ran.passed, "failed": ran.failed, "coverage": coverage}
    text = msgspec.json.format(msgspec.json.encode({"command": uses[0].run, **values}), indent=2)
    fields = {key: str(value) for key, value in values.items() if value is not None}
    return (
        ArtifactParsed(
            artifact=name,
            phase=context.phase_state.phase,
            unit=context.unit_run.unit,
            path=None,
            digest=(yield from put_blob(text.decode() + "\n")),
            fields={**fields, "exit": fields.get("exit", KILLED)},
            is_result=True,
        ),
    )


def _ending(ran: CommandRan) -> str:
    if ran.exit == 0:
        return "proves nothing"
    return "ran out of time" if ran.exit is None else f"failed with exit {ran.exit}"


def _failed_setup_text(ran: CommandRan, name: str) -> str:
    return f"the set-up (`{ran.name}`), which precedes the command `{name}`, {_ending(ran)}, so `{name}` did not run"


def gate_checked(
    context: StepContext, gate: str, cause: str, findings: tuple[RuleFinding, ...] = (), signature: str = ""
) -> Steps[GateChecked]:
    """Return the result of a gate, which passed if there are no findings."""
    return GateChecked(
        phase=context.phase_state.phase,
        unit=context.unit_run.unit,
        gate=gate,
        passed=not findings,
        cause=cause,
        violations=tuple(finding.violation for finding in findings),
        report=(yield from put_report(finding.message for finding in findings)),
        signature=signature,
    )


def ensure_worktree(context: StepContext, tree: Commit) -> Effect:
    """Give the worktree the content of `tree`; a worktree that had to be rebuilt is set up again too."""
    needs_setup = yield from call_port(Workspace.ensure, context.worktree, context.phase_state.progress.head, tree)
    commands = context.pins.config.workspace.setup if needs_setup else ()
    for command in commands:
        ran = yield from run_setup_command(context.worktree, command, f"{context.run}/{context.feature}")
        yield from emit(ran)
        if ran.exit != 0:
            raise RepositoryUnusable("setup-failed", f"the set-up command `{command}` failed")
    if commands:
        yield from call_port(Workspace.adopt, context.worktree, tree)


def _run_command(context: StepContext, stage: Literal["prepare", "gate"], name: str) -> Steps[tuple[CommandRan, str]]:
    """Run a command in a clean checkout of the work, and compare it with the base; also say why its result proves
    nothing. Return the command of a failed set-up instead: it succeeded on the base, so the work is the reason."""
    head, tree, key = context.phase_state.progress.head, context.unit_run.tree, context.key(f"{stage}.{name}")
    setup_key = f"{context.run}/{context.feature}"
    checkout, failed_setup = yield from open_checkout(context.worktree, setup_key, head, tree, context.pins.config)
    command, ran, counts = context.pins.config.commands[name], failed_setup, Counts()
    if ran is None:
        ran, counts = yield from run_command(checkout, command, stage, key, name)
    yield from call_port(Workspace.release, context.worktree)
    before = Counts(*dict((yield from get_json(context.phase_state.progress.started.base_results))).get(name, ()))
    missing = () if failed_setup else missing_tests(before, counts, (yield from get_json(ran.failures)))
    digest = yield from put_report(missing)
    ran = replace(ran, phase=context.phase_state.phase, unit=context.unit_run.unit, missing=digest)
    if not ran.exit:
        ran_none = ran.exit == 0 and before.passed and not (ran.passed or ran.failed)
        return ran, f"no test ran, although {before.passed} passed on the base" if ran_none else ""
    gates, reason = context.phase_state.progress.accepted_gates, ""
    accepted = [(gate.ran.name, gate.ran.exit, gate.ran.excerpt) for gate in gates if gate.ran is not None]
    expected = yield from known_failures(context, name)
    if expected and ran.failures is not None and failed_setup is None:
        new = (Counter((yield from get_json(ran.failures))) - Counter(expected)).total()
        # A run that ended early, or leaves tests out, does not show that no others fail.
        reason = "" if new else objection(before, counts, missing)
        if not reason:
            return replace(ran, new_failures=new), ""
        reason += ", so failures from there excuse nothing"
    return replace(ran, new_failures=0) if (ran.name, ran.exit, ran.excerpt) in accepted else ran, reason


# the tree -------------------------------------------------------------------------------------------------------------
def check_changes(context: StepContext) -> Effect:
    """Compare the trees before and after the reply; revert forbidden changes; reset the branch."""
    unit_run, reply, denied = context.unit_run, context.reply, context.pins.config.denied_paths
    changes = yield from call_port(Workspace.changes, unit_run.tree, reply.tree)
    allowed, tree = write_scope(context, unit_run.role), reply.tree
    papers = [f"/{output.path}" for output in outputs_of(context, unit_run.role) if output.path]
    scope = context.pins.config.scope
    forbidden, block = list(reply.forbidden_changes), block_output(context, unit_run.role)
    for path in (change.path for change in changes if block is None or change.path != block.path):
        is_in_scope = scope is None or path.startswith(f"{scope}/") or matches(papers, path)
        if matches(denied, path) or not (matches(allowed, path) and is_in_scope):
            forbidden.append(ForbiddenChange(kind="denied" if matches(denied, path) else "outside", path=path))
    revert = tuple(Path(offence.path) for offence in forbidden[len(reply.forbidden_changes) :])
    revert += tuple(change.path for change in changes if block is not None and change.path == block.path)
    if revert:
        tree = yield from call_port(Workspace.revert_paths, context.worktree, reply.tree, unit_run.tree, revert)
    for change in (yield from call_port(Workspace.changes, unit_run.base, tree)):
        data = yield from call_port(Workspace.read, tree, change.path)
        if data and (yield from call_port(Secrets.names_in, data)):
            forbidden.append(ForbiddenChange(kind="secret", path=change.path))
    yield from ensure_worktree(context, tree)
    remaining = tuple(change for change in changes if change.path not in revert)
    yield from emit(ChangesChecked(ref=reply.ref, tree=tree, changes=remaining, forbidden_changes=tuple(forbidden)))


# rules ----------------------------------------------------------------------------------------------------------------
def validate_outputs(context: StepContext) -> Effect:
    """Check every output of the reply against its rules, and reject changes that no tree can hold."""
    unit_run, parsed, captured = context.unit_run, [], list[LearningsCaptured]()
    checked = unit_run.last_event
    changes = checked.forbidden_changes if isinstance(checked, ChangesChecked) else ()
    findings = [
        RuleFinding(
            violation=Violation(rule=f"tree.{change.kind}", path=change.path),
            message=f"{change.path}: {TREE_CHANGES[change.kind]}; remove it",
        )
        for change in changes
        if change.kind in TREE_CHANGES
    ]
    texts = yield from artifact_texts(context)
    block, outputs = block_output(context, unit_run.role), outputs_of(context, unit_run.role)
    blocked, before = None, None
    if block is not None:
        blocked = yield from read_file(context.reply.tree, parse_path(block.path or ""))
        before = yield from read_file(unit_run.tree, parse_path(block.path or ""))
    if block is not None and blocked is not None and blocked != before:
        outputs = (block,)
        findings += block_findings(context, block, parse_artifact(context.pins.rules[BLOCK], blocked))
    for output in outputs:
        files = {output.path or "": blocked} if output is block else (yield from output_texts(context, output))
        if len(files) > OUTPUT_FILES_MAX or sum(len(text or "") for text in files.values()) > OUTPUT_CHARACTERS_MAX:
            findings.append(_size_finding(output, context.pins.config.limits.items_max))
            continue
        findings += yield from output_findings(context, output, files, texts)
        text = joined_text(files)
        if text is not None:
            parsed.append((yield from _parse_output(context, output, text)))
            captured += yield from _capture_learnings(context, output, text)
            texts[output.artifact] = text
    report = yield from put_report(finding.message for finding in findings)
    violations = tuple(finding.violation for finding in findings)
    if findings and outputs == (block,):
        parsed = []  # A block that is not valid must not take effect later.
    captured = captured if not findings else []
    yield from emit(*parsed, *captured, ArtifactValidated(ref=context.reply.ref, violations=violations, report=report))


def _size_finding(output: PhaseOutput, items_max: int) -> RuleFinding:
    path = output.path or ""
    files = f"{OUTPUT_FILES_MAX} files, or than " if "*" in path else ""
    items = f"; list at most {items_max} of the kind {output.creates}" if output.creates else ""
    limit = f"more than {files}{OUTPUT_CHARACTERS_MAX:,} characters in all{items}"
    violation = Violation(rule="output.size", path=path)
    return RuleFinding(violation=violation, message=f"{path or output.artifact}: {limit} [output.size]")


def _capture_learnings(context: StepContext, output: PhaseOutput, text: str) -> Steps[tuple[LearningsCaptured, ...]]:
    """Return the event of the learnings that an output states; empty if it states none."""
    learnings = []
    for stated in extract_learnings(context.pins.rules[output.rules], text):
        blob = yield from put_blob(stated.statement)
        learnings.append(
            CapturedLearning(kind=stated.kind, key=stated.key, text=blob, tags=stated.tags, phases=stated.phases)
        )
    phase, unit = context.phase_state.phase, context.unit_run.unit
    captured = LearningsCaptured(phase=phase, unit=unit, artifact=output.artifact, learnings=tuple(learnings))
    return (captured,) if learnings else ()


def output_texts(context: StepContext, output: PhaseOutput) -> Steps[dict[str, str | None]]:
    """Return the text of an output by path, None if it is absent; several of a path with `*`."""
    unit_run = context.unit_run
    if output.path is None:
        assert unit_run.reply_text is not None
        return {output.artifact: (yield from get_text(unit_run.reply_text))}
    paths, texts = [parse_path(output.path)], dict[str, str | None]()
    if "*" in output.path:
        selected = list(select([f"/{output.path}"], (yield from call_port(Workspace.paths, unit_run.tree))))
        paths = selected[: OUTPUT_FILES_MAX + 1] or paths
    for path in paths:
        texts[path] = yield from read_file(unit_run.tree, path)
    return texts


def output_findings(
    context: StepContext, output: PhaseOutput, files: Mapping[str, str | None], texts: Mapping[str, str]
) -> Steps[list[RuleFinding]]:
    """Return the broken rules of each file of an output; `texts` are those of other artifacts."""
    rules, limits = context.pins.rules_of(context.phase, output), context.pins.config.limits
    findings = list[RuleFinding]()
    paths: tuple[Path, ...] | None = None
    if any(isinstance(rule, ExistingPaths) for rule in rules.rules):
        paths = yield from call_port(Workspace.paths, context.unit_run.tree)
    unit = yield from unit_data(context)
    fields = msgspec.json.decode(unit.record) if unit is not None and unit.record else {}
    for path, text in files.items():
        findings += validate(rules, text, path, limits, texts, fields, paths)
    return findings


def joined_text(files: Mapping[str, str | None]) -> str | None:
    """Return the text of an artifact: that of its only file, or those of several, each below a comment with its path;
    None if it is absent."""
    texts = {path: text for path, text in files.items() if text is not None}
    if len(files) == 1:
        return next(iter(texts.values()), None)
    return "\n\n".join(f"<!-- {path} -->\n\n{text}" for path, text in texts.items())


def block_findings(context: StepContext, block: PhaseOutput, parsed: ParsedArtifact) -> Iterator[RuleFinding]:
    """Yield what is wrong with a block that only the pipeline and the feature show: its cause and its units."""
    causes = context.phase.raisable_causes
    units = {unit.id for artifact in context.phase_state.progress.artifacts.values() for unit in artifact.units}
    named = [("cause", parsed.fields.get("cause"), causes), *(("units", name, sorted(units)) for name in parsed.names)]
    for field, value, allowed in named:
        if value is not None and value not in allowed:
            choices = ", ".join(allowed) or "there are none"
            message = f"{block.path}: `{field}` names {value!r}; choose from: {choices} [block.{field}]"
            yield RuleFinding(violation=Violation(rule=f"block.{field}", path=block.path or ""), message=message)


def _parse_output(context: StepContext, output: PhaseOutput, text: str) -> Steps[ArtifactParsed]:
    artifact, new_ids = parse_artifact(context.pins.rules[output.rules], text), tuple[str, ...]()
    checks = context.pins.pipeline.checks.values()
    if any(isinstance(check, FirstCheck) and check.artifact == output.artifact for check in checks):
        delivered = yield from call_port(Memory.delivered_ids, output.artifact)
        new_ids = tuple(id_ for id_ in artifact.ids if id_ not in delivered)
    return ArtifactParsed(
        artifact=output.artifact,
        phase=context.phase_state.phase,
        unit=context.unit_run.unit,
        path=parse_path(output.path) if output.path else None,
        digest=(yield from put_blob(text)),
        units=artifact.units,
        files=artifact.files,
        fields=artifact.fields,
        names=artifact.names,
        ids=artifact.ids,
        new_ids=new_ids,
        counts=artifact.counts,
    )


def keep_artifacts(context: StepContext) -> Steps[bool]:
    """Keep the artifacts of a phase that produces nothing else, instead of calling an agent for the first time, if they
    are there already, valid, and newer than the backlog, which has the request, and the phase's inputs."""
    unit_run, phase, progress = context.unit_run, context.phase, context.phase_state.progress
    outputs = outputs_of(context, BUILDER)
    inputs = [progress.artifacts[use.name].path for use in phase.inputs if use.name in progress.artifacts]
    is_first = unit_run.iteration == 1 and not (unit_run.attempts or unit_run.answered_question or unit_run.notes)
    does_more = phase.writable or phase.edit or phase.deliver or phase.agent_review or phase.for_each or not outputs
    has_records = any(use.record for use in phase.inputs)
    if not is_first or does_more or has_records or None in (*inputs, *(output.path for output in outputs)):
        return False
    backlog_path, input_paths = Path(context.pins.config.backlog), tuple(filter(None, inputs))
    paths = [parse_path(output.path or "") for output in outputs]
    for path in paths:
        if "*" in path or not (
            yield from call_port(Workspace.is_newest, progress.head, path, backlog_path, input_paths)
        ):
            return False
    backlog = (yield from read_file(unit_run.tree, backlog_path)) or ""
    request = yield from get_texts((progress.started.title, progress.started.body))
    texts, parsed = (yield from artifact_texts(context)), []
    for path, output in zip(paths, outputs, strict=True):
        text = yield from read_file(unit_run.tree, path)
        findings = yield from output_findings(context, output, {path: text}, texts)
        if text is None or findings or not all(line in backlog for line in "\n".join(request).splitlines()):
            return False
        parsed.append((yield from _parse_output(context, output, text)))
        texts[output.artifact] = text
    yield from emit(*parsed, ArtifactsKept(phase=phase.phase, unit=unit_run.unit))
    return True


def artifact_texts(context: StepContext) -> Steps[dict[str, str]]:
    """Return the texts of all artifacts by name, and by `name/unit` where a phase has units; those of the current reply
    replace earlier ones."""
    unit_run = context.unit_run
    artifacts = {**context.phase_state.progress.artifacts, **unit_run.parsed_artifacts}
    if unit_run.unit:
        artifacts |= {f"{name}/{unit_run.unit}": parsed for name, parsed in unit_run.parsed_artifacts.items()}
    return dict(zip(artifacts, (yield from get_texts(parsed.digest for parsed in artifacts.values())), strict=True))


def check_judged_rules(context: StepContext) -> Effect:
    """Record how the reviewer judges the rules that only it can."""
    review, request = context.phase.agent_review, context.unit_run.request
    assert review is not None
    assert request is not None
    verdict, reasons = context.unit_run.parsed_artifacts.get(review.output), dict[str, str]()
    met = {rule.id: False for rule in context.pins.judged_rules(context.phase)}
    if verdict is not None:
        rules = context.pins.rules_of(context.phase, PhaseOutput(artifact=review.output, rules=review.rules))
        for answer in judged_answers(rules, (yield from get_text(verdict.digest))):
            for id_ in non_blank_strings(answer.get("id")):
                met[id_] = str(answer.get("result")).strip().casefold() == MET
                reasons[id_] = str(answer.get("reason"))
    findings = tuple(
        RuleFinding(violation=Violation(rule=id_), message=f"{reasons.get(id_, 'the reviewer gave no answer')} [{id_}]")
        for id_ in met
        if not met[id_]
    )
    checked = yield from gate_checked(context, JUDGED_RULES, context.phase.phase, findings)
    yield from emit(replace(checked, judged_by=request.ref.key.partition("/")[2]))


def check_feature_rule(action: CheckRule, context: StepContext) -> Effect:
    """Check a rule that concerns the whole feature."""
    findings = yield from feature_findings(context, action.rule)
    yield from emit((yield from gate_checked(context, action.rule, action.cause, findings)))


def feature_findings(
    context: StepContext, rule: str, learnings: Sequence[SelectedLearning] = ()
) -> Steps[tuple[RuleFinding, ...]]:
    """Return how the feature breaks a rule, of its pipeline or a built-in one."""
    if check := context.pins.pipeline.checks.get(rule):
        return (yield from check_findings(context, rule, check, learnings))
    texts = yield from artifact_texts(context)
    of_units = {name.partition("/")[0] for name in texts if "/" in name}
    rules = {output.artifact: output.rules for phase in context.pins.pipeline.phases for output in phase.outputs}
    rule_input = FeatureRuleInput(
        artifacts={
            name: parse_artifact(context.pins.rules[rules[output]], text)
            for name, text in texts.items()
            if (output := name.partition("/")[0]) in rules and (name != output or name not in of_units)
        },
        changes=(yield from call_port(Workspace.changes, context.unit_run.base, context.unit_run.tree)),
        limits=context.pins.config.limits,
        outputs=tuple(f"/{output.path}" for output in outputs_of(context, BUILDER) if output.path),
    )
    return tuple(FEATURE_RULES[rule](rule_input))


def broken_rules(
    context: StepContext, conditions: Sequence[Condition], learnings: Sequence[SelectedLearning] = ()
) -> Steps[tuple[str, ...]]:
    """Return the rules of these conditions that the feature breaks; `learnings` are those of the next call."""
    broken = []
    for rule in dict.fromkeys(condition.rule for condition in conditions):
        if rule is not None and (yield from feature_findings(context, rule, learnings)):
            broken.append(rule)
    return tuple(broken)


def check_conditions(action: CheckConditions, context: StepContext) -> Effect:
    """Check which conditions of the phase, or of its agent review, hold."""
    phase, state, unit_run = context.phase, context.phase_state, context.unit_run
    conditions = phase.when if action.of == "phase" or phase.agent_review is None else phase.agent_review.when
    broken = yield from broken_rules(context, conditions)
    met = tuple(entry.name for entry in conditions if holds(entry, state, unit_run, phase, broken))
    yield from emit(ConditionsChecked(phase=phase.phase, unit=unit_run.unit, of=action.of, met=met))


# rules of a pipeline, over the changes, the request and the artifacts of a feature ------------------------------------
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
