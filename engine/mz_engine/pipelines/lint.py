"""Check the meaning of a pipeline. All findings are reported at once, each with its location.

Names are known and unique, needed artifacts exist, `on_block` routes are valid, and phases and units cannot write each
other's outputs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_events.names import BUILDER, InvalidName, parse_name, parse_path

from mz_engine.decoding.structs import KeyPath, did_you_mean
from mz_engine.decoding.yaml import YamlDocument
from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.graph import find_cycles
from mz_engine.model.pipeline import Phase, PhaseOutput, Pipeline
from mz_engine.path_patterns import matches

Severity = Literal["error", "warning"]
References = list[tuple[KeyPath, str | None]]
"""Names that a phase uses, if it uses one there."""


class LintFinding(NamedTuple):
    route: KeyPath
    code: str
    message: str
    hint: str = ""
    severity: Severity = "error"


def check_flow(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ3003 unknown artifact, MZ3004 used too early, MZ3005 cycle, MZ3006 unreachable, MZ3012 routes, MZ3015 no
    delivery."""
    producers = _artifact_producers(pipeline)
    needed_phases = {
        phase.phase: [producers[artifact] for _, artifact in _needed_artifacts(phase) if artifact in producers]
        for phase in pipeline.phases
    }
    cycles, names = list(find_cycles(needed_phases)), [phase.phase for phase in pipeline.phases]
    stuck_positions: list[int] = []
    for position in range(len(pipeline.phases)):
        findings = list(_check_needs(pipeline, position, producers, cycles))
        stuck_positions += [position] if findings else []
        yield from findings
        yield from _check_questions(pipeline, position, producers)
        yield from _check_routes(pipeline, position)
    for cycle in cycles:
        stuck_positions.append(min(map(names.index, cycle)))
        at: KeyPath = ("phases", names.index(cycle[0]), "inputs")
        yield LintFinding(at, "MZ3005", f"phases need each other's artifacts: {' -> '.join([*cycle, cycle[0]])}")
    yield from _check_reachability(pipeline, stuck_positions)


def _artifact_producers(pipeline: Pipeline) -> dict[str, str]:
    """Map each artifact to the first phase that produces it."""
    producers: dict[str, str] = {}
    for phase in pipeline.phases:
        for output in phase.outputs:
            producers.setdefault(output.artifact, phase.phase)
        if phase.agent_review:
            producers.setdefault(phase.agent_review.output, phase.phase)
    return producers


def _needed_artifacts(phase: Phase) -> Iterator[tuple[KeyPath, str]]:
    """Yield the artifacts that must exist before the phase begins."""
    for number, phase_input in enumerate(phase.inputs):
        yield ("inputs", number, "artifact"), phase_input.artifact
    if phase.claim:
        yield ("claim", "artifact"), phase.claim.artifact
    if phase.for_each:
        yield ("for_each", "artifact"), phase.for_each.artifact


def _check_needs(
    pipeline: Pipeline, position: int, producers: dict[str, str], cycles: list[list[str]]
) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    earlier_phases = {other.phase for other in pipeline.phases[:position]}
    for route, artifact in _needed_artifacts(phase):
        at: KeyPath = ("phases", position, *route)
        producer = producers.get(artifact)
        if producer is None:
            yield LintFinding(at, "MZ3003", f"no phase produces `{artifact[:80]}`", did_you_mean(artifact, producers))
        elif producer == phase.phase:
            yield LintFinding(at, "MZ3005", f"`{phase.phase}` needs `{artifact}`, which it produces itself")
        elif producer not in earlier_phases and not any({producer, phase.phase} <= set(cycle) for cycle in cycles):
            message = f"`{phase.phase}` needs `{artifact}`, which the later phase `{producer}` produces"
            yield LintFinding(at, "MZ3004", message, f"move `{producer}` before `{phase.phase}`")


def _check_questions(pipeline: Pipeline, position: int, producers: dict[str, str]) -> Iterator[LintFinding]:
    """Check questions about artifacts. People are asked after the agent review, so the phase's own artifacts exist."""
    finished_phases = {other.phase for other in pipeline.phases[: position + 1]}
    for number, human in enumerate(pipeline.phases[position].ask_person):
        at: KeyPath = ("phases", position, "ask_person", number, "artifact")
        producer = producers.get(human.artifact or "")
        if human.artifact is not None and producer is None:
            message = f"no phase produces `{human.artifact[:80]}`"
            yield LintFinding(at, "MZ3003", message, did_you_mean(human.artifact, producers))
        elif producer is not None and producer not in finished_phases:
            yield LintFinding(at, "MZ3004", f"`{human.artifact}` is produced by the later phase `{producer}`")


def _check_routes(pipeline: Pipeline, position: int) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    earlier = [other.phase for other in pipeline.phases[: position + 1]]
    later = [other.phase for other in pipeline.phases[position + 1 :]]
    causes: set[str] = set()
    for number, route in enumerate(phase.on_block):
        at: KeyPath = ("phases", position, "on_block", number)
        if route.to in later:
            message = f"`on_block` of `{phase.phase}` cannot go to the later phase `{route.to}`"
            yield LintFinding((*at, "to"), "MZ3012", message)
        elif route.to not in earlier:
            message = f"there is no phase `{route.to[:80]}`"
            yield LintFinding((*at, "to"), "MZ3012", message, did_you_mean(route.to, earlier))
        elif route.scope == "unit" and not (phase.for_each and route.to == phase.phase):
            message = f"`scope: unit` is only valid from a phase with `for_each` to itself, not to `{route.to}`"
            yield LintFinding((*at, "scope"), "MZ3012", message)
        if route.max_times is not None and route.max_times < 1:
            yield LintFinding((*at, "max_times"), "MZ3014", f"`max_times` is {route.max_times}; it must be at least 1")
        if route.cause in causes:
            yield LintFinding((*at, "cause"), "MZ3012", f"the cause `{route.cause[:80]}` has two routes")
        causes.add(route.cause)


def _check_reachability(pipeline: Pipeline, stuck_positions: list[int]) -> Iterator[LintFinding]:
    phases = pipeline.phases
    first_stuck = min(stuck_positions, default=len(phases))
    if unreachable_phases := phases[first_stuck + 1 :]:
        names = ", ".join(f"`{other.phase}`" for other in unreachable_phases)
        message = f"unreachable: {names}, since `{phases[first_stuck].phase}` can never start"
        yield LintFinding(("phases", first_stuck + 1), "MZ3006", message)
    delivery: Phase | None = None
    for position, phase in enumerate(phases):
        if delivery is not None:
            message = f"unreachable: `{phase.phase}`, since `{delivery.phase}` delivers before it"
            yield LintFinding(("phases", position), "MZ3006", message)
        elif "open_pr" in phase.deliver:
            delivery = phase
    if delivery is None and phases:
        yield LintFinding(("phases",), "MZ3015", "no phase delivers: none has `open_pr` under `deliver`")


SAMPLE_VALUES = {"feature": "feature-id", "unit": "unit-id", "title": "Title", "phase": "phase"}
UNIT_FILES = "{unit.files}"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def check_writes(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ3010 a phase or unit that may write another's outputs, MZ3016 unknown placeholders, MZ2013 bad paths."""
    for position, phase in enumerate(pipeline.phases):
        at: KeyPath = ("phases", position)
        yield from _check_placeholders(phase, at)
        yield from _check_outputs(pipeline, position)
        yield from _check_writable(pipeline, position)


def _check_placeholders(phase: Phase, at: KeyPath) -> Iterator[LintFinding]:
    names, unit_files = ({"feature", "unit"}, {UNIT_FILES[1:-1]}) if phase.for_each else ({"feature"}, set[str]())
    texts: list[tuple[KeyPath, str, set[str]]] = [
        *((("outputs", number, "path"), output.path or "", names) for number, output in enumerate(phase.outputs)),
        *((("context", "include", number), pattern, names) for number, pattern in enumerate(phase.context.include)),
        *((("context", "exclude", number), pattern, names) for number, pattern in enumerate(phase.context.exclude)),
        *((("writable", number), pattern, names | unit_files) for number, pattern in enumerate(phase.writable)),
        (("commit",), phase.commit or "", names | {"title", "phase"}),
    ]
    for inner, text, allowed in texts:
        route: KeyPath = (*at, *inner)
        hint = "known here: " + ", ".join(f"{{{pattern}}}" for pattern in sorted(allowed))
        for name in _PLACEHOLDER.findall(text):
            if name not in allowed:
                yield LintFinding(route, "MZ3016", f"unknown placeholder `{{{name[:40]}}}`", hint)
            elif name == "unit.files" and text != UNIT_FILES:
                message = f"`{UNIT_FILES}` must be a whole entry: each of the files becomes a pattern"
                yield LintFinding(route, "MZ3016", message)
        if {"{", "}"} & set(_PLACEHOLDER.sub("", text)):
            yield LintFinding(route, "MZ3016", "unbalanced brace", hint)


def _check_outputs(pipeline: Pipeline, position: int) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    other_paths = {
        _fill_samples(output.path): output for other in pipeline.phases[:position] for output in _file_outputs(other)
    }
    own_paths: set[str] = set()
    for number, output in enumerate(phase.outputs):
        if output.path is None:
            continue
        at: KeyPath = ("phases", position, "outputs", number, "path")
        path = _fill_samples(output.path)
        try:
            path = str(parse_path(path))
        except InvalidName as error:
            yield LintFinding(at, "MZ2013", str(error))
        if path in own_paths or path in other_paths:
            yield LintFinding(at, "MZ3010", f"another output has the path `{output.path}` too")
        if phase.for_each and "{unit}" not in output.path:
            hint = "add `{unit}` to the path"
            yield LintFinding(at, "MZ3010", f"every unit would overwrite `{output.path}`", hint)
        own_paths.add(path)


def _check_writable(pipeline: Pipeline, position: int) -> Iterator[LintFinding]:
    phase = pipeline.phases[position]
    patterns = tuple(_fill_samples(pattern) for pattern in phase.writable if pattern != UNIT_FILES)
    at: KeyPath = ("phases", position, "writable")
    try:
        covered = [
            (other, output)
            for other in pipeline.phases
            for output in _file_outputs(other)
            if other.phase != phase.phase and matches(patterns, _fill_samples(output.path))
        ]
    except ValueError as error:
        yield LintFinding(at, "MZ2013", f"invalid .gitignore pattern: {error}")
        return
    for other, output in covered:
        message = f"`{phase.phase}` may change `{output.path}`, which `{other.phase}` produces"
        yield LintFinding(
            at, "MZ3010", message, f'exclude it with a last pattern "!{output.path}" or one for its folder'
        )


def _file_outputs(phase: Phase) -> list[PhaseOutput]:
    return [output for output in phase.outputs if output.path is not None]


def _fill_samples(text: str | None) -> str:
    """Replace placeholders by sample values."""
    return _PLACEHOLDER.sub(lambda match: SAMPLE_VALUES.get(match[1], match[0]), text or "")


DELIVERY_STEP_NEEDS = {"open_pr": "push", "await_checks": "open_pr"}
"""Delivery steps that need another one before them."""

MISSING_COMMAND_CODE = "MZ3009"


class MissingBlock(NamedTuple):
    """A block that a template has to define."""

    block: str
    required_by: str
    """`TEMPLATE:LINE` that declares it as required."""


class KnownNames(msgspec.Struct, frozen=True, kw_only=True):
    """Valid names in a pipeline."""

    rule_sets: frozenset[str]
    """For `rules`."""
    rules: frozenset[str]
    """For `rule`."""
    templates: frozenset[str]
    missing_blocks: Mapping[str, tuple[MissingBlock, ...]] = {}
    """Missing required blocks by template, of templates that cannot be rendered without them."""
    commands: frozenset[str]
    """Of mz.yaml."""


def lint_pipeline(
    pipeline: Pipeline, known_names: KnownNames, document: YamlDocument, built_in: bool = False
) -> tuple[Diagnostic, ...]:
    """Return all errors and warnings (MZ3002 to MZ3017) in the order of the text. `document` is what the pipeline was
    parsed from. In a built-in pipeline an unknown command is a warning."""
    findings = [*_check_names(pipeline), *_check_numbers(pipeline), *_check_completeness(pipeline)]
    findings += [*check_flow(pipeline), *check_writes(pipeline)]
    for position, phase in enumerate(pipeline.phases):
        findings += _check_references(phase, ("phases", position), known_names, built_in)
        findings += _check_questions_and_gates(phase, ("phases", position))
    located = sorted(
        ((document.location(*finding.route), finding) for finding in findings),
        key=lambda pair: (pair[0].line, pair[0].column),
    )
    return tuple(
        Diagnostic(
            code=finding.code, message=finding.message, hint=finding.hint, location=location, severity=finding.severity
        )
        for location, finding in located
    )


def summarise_warnings(
    diagnostics: Iterable[Diagnostic], pipeline: Pipeline, commands: Collection[str]
) -> tuple[Diagnostic, ...]:
    """Return the warnings of a run's pipeline, each once and without a location; steps left out for missing commands
    are merged into one. `commands` are those of mz.yaml."""
    warnings = dict.fromkeys(replace(diagnostic, location=None) for diagnostic in diagnostics)
    others = tuple(
        diagnostic
        for diagnostic in warnings
        if (diagnostic.code, diagnostic.severity) != (MISSING_COMMAND_CODE, "warning")
    )
    if len(others) == len(warnings):
        return others
    missing_names = ", ".join(f"`{name}`" for name in missing_commands(pipeline, commands))
    message = f"pipeline steps are skipped: mz.yaml has no command {missing_names}"
    hint = "write `NAME: COMMAND LINE` under `commands:` in mz.yaml"
    return (*others, Diagnostic(code=MISSING_COMMAND_CODE, message=message, hint=hint, severity="warning"))


def missing_commands(pipeline: Pipeline, commands: Collection[str]) -> tuple[str, ...]:
    """Return the commands that the pipeline runs and that are not among these, in the order of the text."""
    used = dict.fromkeys(name for phase in pipeline.phases for _, name in _commands(phase))
    return tuple(name for name in used if name and name not in commands)


def _commands(phase: Phase) -> References:
    commands: References = [(("prepare", number, "run"), step.run) for number, step in enumerate(phase.prepare)]
    return commands + [(("gates", number, "run"), gate.run) for number, gate in enumerate(phase.gates)]


def _check_names(pipeline: Pipeline) -> Iterator[LintFinding]:
    phases: set[str] = set()
    artifacts: set[str] = set()
    for position, phase in enumerate(pipeline.phases):
        at: KeyPath = ("phases", position)
        yield from _check_name(phase.phase, (*at, "phase"), phases, "phase")
        for number, output in enumerate(phase.outputs):
            yield from _check_name(output.artifact, (*at, "outputs", number, "artifact"), artifacts, "artifact")
        if phase.agent_review:
            yield from _check_name(phase.agent_review.output, (*at, "agent_review", "output"), artifacts, "artifact")
            yield from _check_name(phase.agent_review.role, (*at, "agent_review", "role"), set(), "role")
        for number, gate in enumerate(phase.gates):
            if gate.name and gate.name in [other.name for other in phase.gates[:number]]:
                yield LintFinding((*at, "gates", number), "MZ3002", f"duplicate gate `{gate.name[:80]}`")
        results: set[str] = set()
        for number, step in enumerate(phase.prepare):
            route: KeyPath = (*at, "prepare", number, "result")
            yield from _check_name(step.result, route, results, "result of a prepared command")


def _check_name(name: str, at: KeyPath, used_names: set[str], kind: str) -> Iterator[LintFinding]:
    try:
        parse_name(name)
    except InvalidName as error:
        yield LintFinding(at, "MZ2013", str(error))
    if name in used_names:
        yield LintFinding(at, "MZ3002", f"duplicate name `{name[:80]}`; each {kind} needs its own name")
    used_names.add(name)


def _check_numbers(pipeline: Pipeline) -> Iterator[LintFinding]:
    numbers: list[tuple[KeyPath, int, int]] = [
        (("version",), pipeline.version, 1),
        (("rollbacks_max",), pipeline.rollbacks_max, 0),
    ]
    for position, phase in enumerate(pipeline.phases):
        at: KeyPath = ("phases", position)
        numbers += [((*at, "attempts"), phase.attempts, 1), ((*at, "retries"), phase.retries, 0)]
        numbers += [((*at, "context", "token_budget"), phase.context.token_budget, 0)]
    for route, number, minimum in numbers:
        if number < minimum:
            yield LintFinding(route, "MZ3014", f"`{route[-1]}` is {number}; it must be at least {minimum}")


def _check_completeness(pipeline: Pipeline) -> Iterator[LintFinding]:
    if not pipeline.phases:
        yield LintFinding(("phases",), "MZ3015", "the pipeline has no phases")
    for position, phase in enumerate(pipeline.phases):
        at: KeyPath = ("phases", position)
        if phase.agent and not phase.prompt:
            yield LintFinding((*at, "agent"), "MZ3015", f"`{phase.phase}` has an agent but no `prompt`")
        if phase.prompt and not phase.agent:
            yield LintFinding((*at, "prompt"), "MZ3015", f"`{phase.phase}` has a prompt but no `agent` to send it to")
        if not phase.agent and (phase.outputs or phase.agent_review):
            key = "outputs" if phase.outputs else "agent_review"
            yield LintFinding((*at, key), "MZ3015", f"`{phase.phase}` has `{key}` but no `agent` to produce it")
        has_work = phase.agent or phase.prompt or phase.outputs or phase.agent_review or phase.deliver
        if not (has_work or phase.prepare or phase.gates or phase.ask_person):
            yield LintFinding(at, "MZ3015", f"`{phase.phase}` does nothing")
        yield from _check_delivery(phase, (*at, "deliver"))


def _check_delivery(phase: Phase, at: KeyPath) -> Iterator[LintFinding]:
    steps = phase.deliver
    for position, step in enumerate(steps):
        if step in steps[:position]:
            yield LintFinding((*at, position), "MZ3015", f"duplicate step `{step}`")
        needed = DELIVERY_STEP_NEEDS.get(step)
        if needed and needed not in steps[:position]:
            yield LintFinding((*at, position), "MZ3015", f"`{step}` needs `{needed}` before it")
        if step == "merge_base" and "push" in steps[:position]:
            message = "`merge_base` must come before `push`, so that the merge is pushed"
            yield LintFinding((*at, position), "MZ3015", message)
        if step == "merge_base" and not any(route.cause == "base" for route in phase.on_block):
            hint = "add `on_block: [{cause: base, to: PHASE, scope: tree, max_times: 1}]`"
            yield LintFinding((*at, position), "MZ3012", "a conflict of `merge_base` has no `on_block` route", hint)


def _check_references(phase: Phase, at: KeyPath, known_names: KnownNames, built_in: bool) -> Iterator[LintFinding]:
    """Yield MZ3007 unknown rules, MZ3008 unknown templates, MZ3009 unknown commands, MZ3017 missing blocks."""
    rule_sets: References = [
        (("outputs", number, "rules"), output.rules) for number, output in enumerate(phase.outputs)
    ]
    templates: References = [(("prompt",), phase.prompt)]
    if review := phase.agent_review:
        rule_sets.append((("agent_review", "rules"), review.rules))
        templates.append((("agent_review", "prompt"), review.prompt))
    rules: References = [(("gates", number, "rule"), gate.rule) for number, gate in enumerate(phase.gates)]
    rules += [(("ask_person", number, "rule"), human.rule) for number, human in enumerate(phase.ask_person)]
    for kind, code, references, valid_names in (
        ("rule set", "MZ3007", rule_sets, known_names.rule_sets),
        ("template", "MZ3008", templates, known_names.templates),
        ("rule", "MZ3007", rules, known_names.rules),
    ):
        for route, name in references:
            if name and name not in valid_names:
                hint = did_you_mean(name, sorted(valid_names))
                yield LintFinding((*at, *route), code, f"there is no {kind} `{name[:80]}`", hint)
    for route, name in templates:
        for block, required_by in known_names.missing_blocks.get(name or "", ()):
            message = f"the template `{name}` does not define the block `{block[:80]}`, which {required_by} requires"
            hint = f"write {{% block {block[:80]} %}}...{{% endblock %}} in pipelines/templates/{name}"
            yield LintFinding((*at, *route), "MZ3017", message, hint)
    for route, command in _commands(phase):
        if command and command not in known_names.commands:
            hint = f"write `{command}: COMMAND LINE` under `commands:` in mz.yaml"
            message = f"mz.yaml has no command `{command[:80]}`" + ", so this step is skipped" * built_in
            severity: Severity = "warning" if built_in else "error"
            yield LintFinding((*at, *route), MISSING_COMMAND_CODE, message, hint, severity)


def _check_questions_and_gates(phase: Phase, at: KeyPath) -> Iterator[LintFinding]:
    """Yield MZ3013 for gates and questions that contradict themselves, MZ3011 for reviewers that do not review."""
    for position, gate in enumerate(phase.gates):
        if bool(gate.run) == bool(gate.rule):
            keys = "both `run` and `rule`" if gate.run else "neither `run` nor `rule`"
            message = f"this gate has {keys}; it needs exactly one"
            yield LintFinding((*at, "gates", position), "MZ3013", message)
    for position, human in enumerate(phase.ask_person):
        route: KeyPath = (*at, "ask_person", position)
        present_keys = [human.artifact is not None, human.field is not None, bool(human.values)]
        if any(present_keys) and not all(present_keys):
            yield LintFinding(route, "MZ3013", "a question about an artifact needs all of `artifact`, `field` and `in`")
        if human.rule and any(present_keys):
            yield LintFinding(route, "MZ3013", "a question is about an artifact or a rule, not both; split it in two")
        if not human.autonomy:
            message = "without a level of autonomy this question is never asked"
            yield LintFinding((*route, "autonomy"), "MZ3013", message)
    if review := phase.agent_review:
        route = (*at, "agent_review")
        if not review.independent:
            message = "a reviewer must not share the builder's session or context"
            yield LintFinding((*route, "independent"), "MZ3011", message)
        if review.role == BUILDER:
            message = f"the reviewer has the role of the builder, `{review.role}`"
            yield LintFinding((*route, "role"), "MZ3011", message)
