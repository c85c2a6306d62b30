"""Check the meaning of a pipeline. All findings are reported at once, each with its location.

Names are known and unique, needed artifacts exist, `on_block` routes are valid, and phases and units cannot write each
other's outputs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_events.names import BUILDER, InvalidName, parse_name, parse_path
from mz_projections.feature.unit import BLOCK, DENIED_COMMANDS

from mz_engine.decoding.structs import KeyPath, did_you_mean
from mz_engine.decoding.yaml import YamlDocument
from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.graph import find_cycles
from mz_engine.model.pipeline import (
    PERSON,
    AddedCheck,
    Condition,
    PathsCheck,
    PersonGate,
    Phase,
    PhaseInput,
    PhaseOutput,
    Pipeline,
    RequestCheck,
    ValueCheck,
)
from mz_engine.path_patterns import matches

References = list[tuple[KeyPath, Any]]
"""Names or numbers in a phase, with their locations in it."""
MISSING_COMMAND_CODE = "MZ3009"
DELIVERY_STEP_NEEDS = {"open_pr": "push", "await_checks": "open_pr"}
"""Delivery steps that need another one before them."""
SAMPLE_VALUES = {"feature": "feature-id", "unit": "unit-id", "title": "Title", "phase": "phase"}
FILES_OF_UNITS = frozenset({"unit.files", "dependencies.files"})
"""Placeholders that stand for several patterns."""
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class LintFinding(NamedTuple):
    route: KeyPath
    """In the checks of one phase: from that phase."""
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"


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
    agents: tuple[str, ...] | None = None
    """Those of which a call with `not_as` takes another one; None: a session of its own is enough."""


def lint_pipeline(
    pipeline: Pipeline, known_names: KnownNames, document: YamlDocument, built_in: bool = False
) -> tuple[Diagnostic, ...]:
    """Return all errors and warnings (MZ3002 to MZ3017) in the order of the text. `document` is what the pipeline was
    parsed from. In a built-in pipeline an unknown command is a warning."""
    findings = [*_too_small([(("version",), pipeline.version, 1), (("rollbacks_max",), pipeline.rollbacks_max, 0)])]
    findings += [*_check_block_file(pipeline), *_check_own_rules(pipeline, known_names.rules, known_names.commands)]
    needed_phases = {
        phase.phase: [producer for _, name in _needs(phase) if (producer := _producer(name, pipeline.phases))]
        for phase in pipeline.phases
    }
    cycles, stuck_positions = list(find_cycles(needed_phases)), list[int]()
    for position, phase in enumerate(pipeline.phases):
        earlier = pipeline.phases[:position]
        unmet_needs = list(_check_needs(pipeline, phase, earlier, cycles))
        stuck_positions += [position] if unmet_needs else []
        for check in (
            _check_names(phase, earlier),
            _check_numbers(phase),
            _check_completeness(phase),
            _check_delivery(phase),
            unmet_needs,
            _check_units(phase, earlier),
            _check_skipped_inputs(phase, earlier),
            _check_conditions(pipeline, phase, earlier),
            _check_routes(pipeline, phase, [other.phase for other in (*earlier, phase)]),
            _check_placeholders(phase),
            _check_outputs(phase, earlier),
            _check_writable(pipeline, phase),
            _check_references(phase, known_names, pipeline.checks),
            _check_commands(phase, known_names, built_in),
            _check_choices(phase),
            _check_independence(phase, earlier, known_names.agents),
        ):
            findings += [finding._replace(route=("phases", position, *finding.route)) for finding in check]
    findings += _check_flow(pipeline.phases, cycles, stuck_positions)
    located = [(document.location(*finding.route), finding) for finding in findings]
    located.sort(key=lambda pair: pair[0].position)
    return tuple(
        Diagnostic(code=code, message=message, hint=hint, location=location, severity=severity)
        for location, (_, code, message, hint, severity) in located
    )


def summarise_warnings(
    diagnostics: Iterable[Diagnostic], pipeline: Pipeline, commands: Collection[str]
) -> tuple[Diagnostic, ...]:
    """Return the warnings of a run's pipeline, each once and without a location; steps left out for missing commands
    are merged into one. `commands` are those of mz.yaml."""
    warnings = dict.fromkeys(replace(diagnostic, location=None) for diagnostic in diagnostics)
    skipped_step = (MISSING_COMMAND_CODE, "warning")
    others = tuple(warning for warning in warnings if (warning.code, warning.severity) != skipped_step)
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


def _entries(phase: Phase, key: str, field: str) -> References:
    """Return what the entries of one of the phase's lists have in a field."""
    values = ((number, getattr(entry, field)) for number, entry in enumerate(getattr(phase, key)))
    return [((key, number, field), value) for number, value in values if value is not None]


def _commands(phase: Phase) -> References:
    return [*_entries(phase, "prepare", "run"), *_entries(phase, "gates", "run")]


def _artifacts(phase: Phase) -> References:
    """Return the artifacts that the phase produces."""
    verdict: References = [(("agent_review", "output"), phase.agent_review.output)] if phase.agent_review else []
    return _entries(phase, "outputs", "artifact") + verdict


def _needs(phase: Phase) -> References:
    """Return the artifacts that must exist before the phase begins."""
    uses = (("claim", phase.claim), ("for_each", phase.for_each))
    return _entries(phase, "inputs", "artifact") + [((key, "artifact"), use.artifact) for key, use in uses if use]


def _producer(artifact: str, phases: Iterable[Phase]) -> str | None:
    """Return the first phase that produces the artifact."""
    return next((phase.phase for phase in phases for _, name in _artifacts(phase) if name == artifact), None)


# between phases -------------------------------------------------------------------------------------------------------
def _check_flow(
    phases: tuple[Phase, ...], cycles: list[list[str]], stuck_positions: list[int]
) -> Iterator[LintFinding]:
    """Yield MZ3005 cycle, MZ3006 unreachable, MZ3015 no phases or no delivery."""
    names = [phase.phase for phase in phases]
    for cycle in cycles:
        route: KeyPath = ("phases", names.index(cycle[0]), "inputs")
        yield LintFinding(route, "MZ3005", f"phases need each other's artifacts: {' -> '.join([*cycle, cycle[0]])}")
    stuck_positions += [names.index(name) for cycle in cycles for name in cycle]
    first_stuck = min(stuck_positions, default=len(names))
    if unreachable := ", ".join(f"`{name}`" for name in names[first_stuck + 1 :]):
        message = f"unreachable: {unreachable}, since `{names[first_stuck]}` can never start"
        yield LintFinding(("phases", first_stuck + 1), "MZ3006", message)
    delivery = next((position for position, phase in enumerate(phases) if "open_pr" in phase.deliver), len(names))
    for position, phase in enumerate(phases[delivery + 1 :], delivery + 1):
        uses = {"writable": phase.writable, "claim": phase.claim, "deliver": phase.deliver, "on_block": phase.on_block}
        for key in (key for key, use in uses.items() if use):
            message = f"`{phase.phase}` follows `{names[delivery]}`, which delivers, so it cannot have `{key}`"
            yield LintFinding(("phases", position, key), "MZ3015", message)
    if not phases:
        yield LintFinding(("phases",), "MZ3015", "the pipeline has no phases")
    elif delivery == len(names):
        yield LintFinding(("phases",), "MZ3015", "no phase delivers: none has `open_pr` under `deliver`")


def _check_needs(
    pipeline: Pipeline, phase: Phase, earlier: tuple[Phase, ...], cycles: list[list[str]]
) -> Iterator[LintFinding]:
    """Yield MZ3003 unknown artifact, MZ3004 used too early, MZ3005 needed by its producer."""
    for route, artifact in _needs(phase):
        producer = _producer(artifact, pipeline.phases)
        if producer is None:
            yield _unknown_artifact(route, artifact, pipeline)
        elif producer == phase.phase:
            yield LintFinding(route, "MZ3005", f"`{phase.phase}` needs `{artifact}`, which it produces itself")
        elif not _producer(artifact, earlier) and not any({producer, phase.phase} <= set(cycle) for cycle in cycles):
            message = f"`{phase.phase}` needs `{artifact}`, which the later phase `{producer}` produces"
            yield LintFinding(route, "MZ3004", message, f"move `{producer}` before `{phase.phase}`")


def _source(use: PhaseInput, earlier: Iterable[Phase]) -> Phase | None:
    """Return the phase that an input comes from."""
    sources = (other for other in earlier if use.of == other.phase or use.artifact in dict(_artifacts(other)).values())
    return next(sources, None)


def _check_units(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3020 for inputs whose texts cannot be chosen by unit, MZ3013 for those that name no one thing."""
    for number, use in enumerate(phase.inputs):
        source = _source(use, earlier)
        if (use.artifact is None) == (use.record is None) or (use.record is None) != (use.of is None):
            message = "an input has either `artifact`, or `record` and `of`"
            yield LintFinding(("inputs", number), "MZ3013", message)
        elif use.of is not None and source is None:
            hint = did_you_mean(use.of, [other.phase for other in earlier])
            yield LintFinding(("inputs", number, "of"), "MZ3004", f"no earlier phase is called `{use.of[:80]}`", hint)
        if source and use.units != "all" and (phase.for_each is None or phase.for_each != source.for_each):
            message = f"`units: {use.units}` needs the same `for_each` here and in `{source.phase}`, which makes it"
            yield LintFinding(("inputs", number, "units"), "MZ3020", message)


def _conditions(phase: Phase) -> list[tuple[KeyPath, Condition]]:
    """Return the conditions of a phase with their locations in it."""
    review = phase.agent_review
    lists: list[tuple[KeyPath, Iterable[Condition]]] = [(("when",), phase.when), (("ask_person",), phase.ask_person)]
    lists += [(("agent", "escalate"), phase.agent.escalate)] if phase.agent else []
    lists += (
        [(("agent_review", "when"), review.when), (("agent_review", "escalate"), review.escalate)] if review else []
    )
    return [((*route, number), entry) for route, entries in lists for number, entry in enumerate(entries)]


def _check_conditions(pipeline: Pipeline, phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3003 and MZ3004 for artifacts in conditions, MZ3013 for conditions that contradict themselves. All but
    `when` are looked at when the phase's own artifacts exist."""
    for route, entry in _conditions(phase):
        if entry.artifact is not None:
            producer = _producer(entry.artifact, pipeline.phases)
            if entry.artifact == BLOCK and pipeline.block_file and route[0] == "ask_person":
                pass
            elif producer is None:
                yield _unknown_artifact((*route, "artifact"), entry.artifact, pipeline)
            elif not _producer(entry.artifact, earlier if route[0] == "when" else (*earlier, phase)):
                producer = "this phase itself" if producer == phase.phase else f"the later phase `{producer}`"
                message = f"`{entry.artifact}` is produced by {producer}"
                yield LintFinding((*route, "artifact"), "MZ3004", message)
        about_values = [entry.artifact is not None or entry.unit is not None, bool(entry.values)]
        about_values += [entry.field is not None] if entry.unit is None else []
        subjects = [entry.rule, entry.unit, entry.rolled_back, entry.artifact or entry.field]
        count = sum(subject is not None for subject in subjects)
        if any(about_values) and not all(about_values):
            message = "a condition on values needs `artifact`, `field` and `in`, or `unit` and `in`"
            yield LintFinding(route, "MZ3013", message)
        elif count > 1 or (entry.values and (entry.rule or entry.rolled_back is not None)):
            message = "a condition has one of `rule`, `artifact`, `unit` and `rolled_back`; write an entry for each"
            yield LintFinding(route, "MZ3013", message)
        elif not count and not isinstance(entry, PersonGate):
            message = "this always holds; name one of `rule`, `artifact`, `unit` and `rolled_back`"
            yield LintFinding(route, "MZ3013", message)
        if entry.unit is not None and phase.for_each is None:
            yield LintFinding((*route, "unit"), "MZ3013", f"`{phase.phase}` has no units: it has no `for_each`")
        if isinstance(entry, PersonGate) and not entry.autonomy:
            message = "without a level of autonomy this question is never asked"
            yield LintFinding((*route, "autonomy"), "MZ3013", message)
    for key, may_be_skipped in (("when", bool(phase.when)), ("required", not phase.required)):
        if may_be_skipped and phase.deliver:
            yield LintFinding((key,), "MZ3013", "a phase that delivers cannot be skipped")
    if phase.for_each and not phase.required:
        message = "a phase with `for_each` commits unit by unit, so its work cannot be left out"
        yield LintFinding(("required",), "MZ3013", message)


def _check_skipped_inputs(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3025 for needed artifacts from phases that may be skipped."""
    optional = [use.artifact for use in phase.inputs if use.optional]
    for route, artifact in _needs(phase):
        source = _source(PhaseInput(artifact=artifact), earlier)
        may_be_skipped = source is not None and (source.when or not source.required)
        if source and may_be_skipped and not (route[0] == "inputs" and artifact in optional):
            hint = "add `optional: true`" if route[0] == "inputs" else ""
            message = f"`{source.phase}`, which produces `{artifact}`, may be skipped"
            yield LintFinding(route[:2] if route[0] == "inputs" else route, "MZ3025", message, hint)


def _check_own_rules(pipeline: Pipeline, built_in: Collection[str], commands: Collection[str]) -> Iterator[LintFinding]:
    """Yield MZ3023 for `checks` with wrong arguments, MZ3003 for unknown artifacts in them."""
    for name, check in pipeline.checks.items():
        route, artifacts = ("checks", name), dict[KeyPath, str]()
        if name in (*built_in, *commands, DENIED_COMMANDS):
            kind = "built-in rule" if name in built_in else "command or gate"
            yield LintFinding(route, "MZ3023", f"`{name}` is a {kind}; choose another name")
        try:
            match check:
                case PathsCheck(patterns=patterns):
                    matches(patterns, "a")
                case AddedCheck(pattern=pattern, files=files, unless_in=artifact):
                    re.compile(pattern)
                    matches(files, "a")
                    artifacts = {(*route, "unless_in"): artifact} if artifact else {}
                case RequestCheck(pattern=pattern):
                    re.compile(pattern)
                case ValueCheck():
                    artifacts = {(*route, "artifacts", number): text for number, text in enumerate(check.artifacts)}
        except (ValueError, re.error) as error:
            yield LintFinding(route, "MZ3023", f"invalid pattern: {error}")
        for at, artifact in artifacts.items():
            if _producer(artifact, pipeline.phases) is None:
                yield _unknown_artifact(at, artifact, pipeline)


def _unknown_artifact(route: KeyPath, artifact: str, pipeline: Pipeline) -> LintFinding:
    names = dict.fromkeys(name for phase in pipeline.phases for _, name in _artifacts(phase))
    return LintFinding(route, "MZ3003", f"no phase produces `{artifact[:80]}`", did_you_mean(artifact, names))


def _check_routes(pipeline: Pipeline, phase: Phase, reached: list[str]) -> Iterator[LintFinding]:
    """Yield MZ3012 for routes of blocks to `reached` phases only, one for each cause."""
    for number, route in enumerate(phase.on_block):
        at = ("on_block", number)
        target = next((other for other in pipeline.phases if other.phase == route.to), None)
        if route.to == PERSON:
            if route.scope != "phase" or route.max_times is not None:
                message = "a route to a person has neither `scope` nor `max_times`"
                yield LintFinding(at, "MZ3012", message)
        elif route.to not in reached and any(other.phase == route.to for other in pipeline.phases):
            message = f"`on_block` of `{phase.phase}` cannot go to the later phase `{route.to}`"
            yield LintFinding((*at, "to"), "MZ3012", message)
        elif route.to not in reached:
            message = f"there is no phase `{route.to[:80]}`"
            yield LintFinding((*at, "to"), "MZ3012", message, did_you_mean(route.to, reached))
        elif route.scope == "unit" and not (target and target.for_each):
            message = f"`scope: unit` is only valid to a phase with `for_each`, not to `{route.to}`"
            yield LintFinding((*at, "scope"), "MZ3012", message)
        if route.cause in [other.cause for other in phase.on_block[:number]]:
            yield LintFinding((*at, "cause"), "MZ3012", f"the cause `{route.cause[:80]}` has two routes")


# writes ---------------------------------------------------------------------------------------------------------------
def _check_placeholders(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3016 unknown placeholders."""
    names = {"feature", "unit"} if phase.for_each else {"feature"}
    in_patterns, context = names | (FILES_OF_UNITS if phase.for_each else set[str]()), phase.context
    texts: list[tuple[KeyPath, str, set[str]]] = [
        *((route, path, names) for route, path in _entries(phase, "outputs", "path")),
        *((("context", "include", number), pattern, in_patterns) for number, pattern in enumerate(context.include)),
        *((("context", "exclude", number), pattern, in_patterns) for number, pattern in enumerate(context.exclude)),
        *((("writable", number), pattern, in_patterns) for number, pattern in enumerate(phase.writable)),
        (("commit",), phase.commit or "", names | {"title", "phase"}),
    ]
    for route, text, allowed in texts:
        yield from _check_braces(route, text, allowed)


def _check_braces(route: KeyPath, text: str, allowed: set[str]) -> Iterator[LintFinding]:
    hint = "known here: " + ", ".join(f"{{{pattern}}}" for pattern in sorted(allowed))
    for name in PLACEHOLDER.findall(text):
        if name not in allowed:
            yield LintFinding(route, "MZ3016", f"unknown placeholder `{{{name[:40]}}}`", hint)
        elif name in FILES_OF_UNITS and text.removeprefix("!") != f"{{{name}}}":
            message = f"`{{{name}}}` must be a whole entry: each of the files becomes a pattern"
            yield LintFinding(route, "MZ3016", message)
    if {"{", "}"} & set(PLACEHOLDER.sub("", text)):
        yield LintFinding(route, "MZ3016", "unbalanced brace", hint)


def _check_outputs(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3010 a unit or phase that overwrites another's outputs, MZ2013 bad paths."""
    used_paths = {_sample_path(output) for other in earlier for output in other.outputs if output.path}
    for number, output in enumerate(phase.outputs):
        if output.path is None:
            continue
        route, path = ("outputs", number, "path"), _sample_path(output)
        try:
            path = str(parse_path(path))
        except InvalidName as error:
            yield LintFinding(route, "MZ2013", str(error))
        if path in used_paths:
            yield LintFinding(route, "MZ3010", f"another output has the path `{output.path}` too")
        if phase.for_each and "{unit}" not in output.path:
            message = f"every unit would overwrite `{output.path}`"
            yield LintFinding(route, "MZ3010", message, "add `{unit}` to the path")
        used_paths.add(path)


def _check_block_file(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ2013 a bad path, MZ3010 the path of an output, MZ3002 an artifact with the name of the block, MZ3016."""
    route, path = ("block_file",), _fill_samples(pipeline.block_file or "")
    if pipeline.block_file is None:
        return
    yield from _check_braces(route, pipeline.block_file, {"feature", "phase", "unit"})
    try:
        parse_path(path)
    except InvalidName as error:
        yield LintFinding(route, "MZ2013", str(error))
    for position, phase in enumerate(pipeline.phases):
        path = _fill_samples(pipeline.block_file.replace("{phase}", phase.phase))
        if path in [_sample_path(output) for output in phase.outputs if output.path]:
            yield LintFinding(route, "MZ3010", f"an output of `{phase.phase}` has the path `{pipeline.block_file}` too")
        for at, name in _artifacts(phase):
            if name == BLOCK:
                message = f"duplicate name `{BLOCK}`; with `block_file` it is what an agent writes to block a phase"
                yield LintFinding(("phases", position, *at), "MZ3002", message)


def _check_writable(pipeline: Pipeline, phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3010 a phase that may write another's outputs."""
    single = (pattern for pattern in phase.writable if not FILES_OF_UNITS.intersection(PLACEHOLDER.findall(pattern)))
    patterns = tuple(map(_fill_samples, single))
    others = [(other, output) for other in pipeline.phases for output in other.outputs if other.phase != phase.phase]
    try:
        covered = [pair for pair in others if pair[1].path and matches(patterns, _sample_path(pair[1]))]
    except ValueError as error:
        yield LintFinding(("writable",), "MZ2013", f"invalid .gitignore pattern: {error}")
        return
    for other, output in covered:
        message = f"`{phase.phase}` may change `{output.path}`, which `{other.phase}` produces"
        hint = f'exclude it with a last pattern "!{output.path}" or one for its folder'
        yield LintFinding(("writable",), "MZ3010", message, hint)


def _sample_path(output: PhaseOutput) -> str:
    return _fill_samples(output.path or "")


def _fill_samples(text: str) -> str:
    """Replace placeholders by sample values."""
    return PLACEHOLDER.sub(lambda match: SAMPLE_VALUES.get(match[1], match[0]), text)


# inside a phase -------------------------------------------------------------------------------------------------------
def _check_names(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3002 duplicate names, MZ2013 illegal ones."""
    yield from _check_new([(("phase",), phase.phase)], {other.phase for other in earlier}, "phase")
    if phase.phase == PERSON:
        yield LintFinding(("phase",), "MZ3002", f"the name `{PERSON}` is taken: a route `to: {PERSON}` asks a person")
    yield from _check_new(_artifacts(phase), {name for other in earlier for _, name in _artifacts(other)}, "artifact")
    if phase.agent_review:
        yield from _check_new([(("agent_review", "role"), phase.agent_review.role)], set(), "role")
    yield from _check_new(_entries(phase, "prepare", "result"), set(), "result of a prepared command")
    for number, gate in enumerate(phase.gates):
        if gate.name and gate.name in [other.name for other in phase.gates[:number]]:
            yield LintFinding(("gates", number), "MZ3002", f"duplicate gate `{gate.name[:80]}`")


def _check_new(names: References, used_names: set[str], kind: str) -> Iterator[LintFinding]:
    for route, name in names:
        try:
            parse_name(name)
        except InvalidName as error:
            yield LintFinding(route, "MZ2013", str(error))
        if name in used_names:
            yield LintFinding(route, "MZ3002", f"duplicate name `{name[:80]}`; each {kind} needs its own name")
        used_names.add(name)


def _check_numbers(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3014 for numbers below their minimum."""
    numbers: list[tuple[KeyPath, int, int]] = [(("attempts",), phase.attempts, 1), (("retries",), phase.retries, 0)]
    numbers.append((("context", "token_budget"), phase.context.token_budget, 0))
    numbers += [(route, times, 1) for route, times in _entries(phase, "on_block", "max_times")]
    counts = [((*route, "rolled_back"), entry.rolled_back) for route, entry in _conditions(phase)]
    numbers += [(route, count, 1) for route, count in counts if count is not None]
    return _too_small(numbers)


def _too_small(numbers: Iterable[tuple[KeyPath, int, int]]) -> Iterator[LintFinding]:
    for route, number, minimum in numbers:
        if number < minimum:
            yield LintFinding(route, "MZ3014", f"`{route[-1]}` is {number}; it must be at least {minimum}")


def _check_completeness(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3015 for what a phase has without the key that it needs."""
    if phase.agent and not phase.prompt:
        yield LintFinding(("agent",), "MZ3015", f"`{phase.phase}` has an agent but no `prompt`")
    if phase.prompt and not phase.agent:
        yield LintFinding(("prompt",), "MZ3015", f"`{phase.phase}` has a prompt but no `agent` to send it to")
    if not phase.agent and (phase.outputs or phase.agent_review):
        key = "outputs" if phase.outputs else "agent_review"
        yield LintFinding((key,), "MZ3015", f"`{phase.phase}` has `{key}` but no `agent` to produce it")
    has_work = phase.agent or phase.prompt or phase.outputs or phase.agent_review or phase.deliver
    if not (has_work or phase.prepare or phase.gates or phase.ask_person):
        yield LintFinding((), "MZ3015", f"`{phase.phase}` does nothing")


def _check_delivery(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3015 for the order of delivery steps, MZ3012 for a merge whose conflicts have no route."""
    for number, step in enumerate(phase.deliver):
        route, done, needed = ("deliver", number), phase.deliver[:number], DELIVERY_STEP_NEEDS.get(step)
        if step in done:
            yield LintFinding(route, "MZ3015", f"duplicate step `{step}`")
        if needed and needed not in done:
            yield LintFinding(route, "MZ3015", f"`{step}` needs `{needed}` before it")
        if step == "merge_base" and "push" in done:
            yield LintFinding(route, "MZ3015", "`merge_base` must come before `push`, so that the merge is pushed")
        if step == "merge_base" and not any(block.cause == "base" for block in phase.on_block):
            hint = "add `on_block: [{cause: base, to: PHASE, scope: tree, max_times: 1}]`"
            yield LintFinding(route, "MZ3012", "a conflict of `merge_base` has no `on_block` route", hint)


def _check_references(phase: Phase, known_names: KnownNames, own_rules: Collection[str]) -> Iterator[LintFinding]:
    """Yield MZ3007 unknown rules, MZ3008 unknown templates, MZ3017 missing blocks."""
    rule_sets, templates = _entries(phase, "outputs", "rules"), References([(("prompt",), phase.prompt or "")])
    if review := phase.agent_review:
        rule_sets.append((("agent_review", "rules"), review.rules))
        templates.append((("agent_review", "prompt"), review.prompt))
    rules = [*_entries(phase, "gates", "rule"), *(((*at, "rule"), entry.rule) for at, entry in _conditions(phase))]
    for kind, code, references, valid_names in (
        ("rule set", "MZ3007", rule_sets, known_names.rule_sets),
        ("template", "MZ3008", templates, known_names.templates),
        ("rule", "MZ3007", rules, known_names.rules.union(own_rules)),
    ):
        for route, name in references:
            if name and name not in valid_names:
                hint = did_you_mean(name, sorted(valid_names))
                yield LintFinding(route, code, f"there is no {kind} `{name[:80]}`", hint)
    for route, name in templates:
        for block, required_by in known_names.missing_blocks.get(name, ()):
            message = f"the template `{name}` does not define the block `{block[:80]}`, which {required_by} requires"
            hint = f"write {{% block {block[:80]} %}}...{{% endblock %}} in pipelines/templates/{name}"
            yield LintFinding(route, "MZ3017", message, hint)


def _check_commands(phase: Phase, known_names: KnownNames, built_in: bool) -> Iterator[LintFinding]:
    for route, command in _commands(phase):
        if command and command not in known_names.commands:
            hint = f"write `{command}: COMMAND LINE` under `commands:` in mz.yaml"
            message = f"mz.yaml has no command `{command[:80]}`" + ", so this step is skipped" * built_in
            yield LintFinding(route, MISSING_COMMAND_CODE, message, hint, "warning" if built_in else "error")


def _check_choices(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3013 for gates that contradict themselves, MZ3011 for reviewers that do not review."""
    for number, gate in enumerate(phase.gates):
        if bool(gate.run) == bool(gate.rule):
            keys = "both `run` and `rule`" if gate.run else "neither `run` nor `rule`"
            yield LintFinding(("gates", number), "MZ3013", f"this gate has {keys}; it needs exactly one")
    if (review := phase.agent_review) and review.role == BUILDER:
        message = f"the reviewer has the role of the builder, `{review.role}`"
        yield LintFinding(("agent_review", "role"), "MZ3011", message)


def _check_independence(
    phase: Phase, earlier: tuple[Phase, ...], agents: tuple[str, ...] | None
) -> Iterator[LintFinding]:
    """Yield MZ3024 for calls that cannot be independent of the phase that `not_as` names."""
    for key, use, others in (("agent", phase.agent, earlier), ("agent_review", phase.agent_review, (*earlier, phase))):
        if use is None or use.not_as is None:
            continue
        names = [other.phase for other in others if other.agent]
        if use.not_as not in names:
            hint, message = did_you_mean(use.not_as, names), f"no earlier phase `{use.not_as[:80]}` has an agent"
            yield LintFinding((key, "not_as"), "MZ3024", message, hint)
        elif agents is not None and len(agents) < 2:
            message = f"`independence: agent` needs another agent than {agents[0]}"
            yield LintFinding((key, "not_as"), "MZ3024", message, "name one under `failover:` in mz.yaml")
    if phase.agent and phase.agent.not_as and phase.agent.session == "continue":
        message = "a call with `not_as` never continues the feature's session"
        yield LintFinding(("agent", "session"), "MZ3024", message)
