"""Check the meaning of a pipeline. All findings are reported at once, each with its location.

Names are known and unique, needed artifacts exist, `on_block` routes are valid, and phases and units cannot write each
other's outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace
from mz_events.names import NAME
from mz_projections.feature.unit import BLOCK, DENIED_COMMANDS, JUDGED_RULES
from mz_projections.rewards.reward import Rewards

from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.cards.route import card_of_phase
from mz_engine.decoding.regex import inspect_expression
from mz_engine.decoding.structs import KeyPath, did_you_mean
from mz_engine.decoding.yaml import YamlDocument
from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.graph import find_cycles
from mz_engine.model.config import Config, Limits
from mz_engine.model.pipeline import (
    CLOSING,
    PERSON,
    RECORDS_OF_PHASES,
    RESULT_FIELDS,
    TIERS,
    AddedCheck,
    Escalation,
    FirstCheck,
    NoLearningCheck,
    PathsCheck,
    PersonGate,
    Phase,
    PhaseInput,
    Pipeline,
    RequestCheck,
    ValueCheck,
)
from mz_engine.model.rules import FieldRule, RuleSet
from mz_engine.path_patterns import matches
from mz_engine.pipelines import lint_phase
from mz_engine.pipelines.lint_phase import (
    LintFinding,
    PipelineFiles,
    artifacts_of,
    conditions_of,
    entries_of,
    producer_of,
)
from mz_engine.pipelines.material import check_edits, missing_blocks
from mz_engine.ref_names import PLACEHOLDER


def lint_pipeline(
    pipeline: Pipeline, files: PipelineFiles, config: Config, document: YamlDocument, built_in: bool = False
) -> tuple[Diagnostic, ...]:
    """Return all errors and warnings (MZ3002 to MZ3017) in the order of the text. `document` is what the pipeline was
    parsed from. In a built-in pipeline an unknown command is a warning."""
    numbers = [(("version",), pipeline.version, 1), (("rollbacks_max",), pipeline.rollbacks_max, 0)]
    findings = [*lint_phase.too_small(numbers), *lint_phase.check_block_file(pipeline)]
    findings += [*_check_rewards(pipeline, files.rewards), *_check_own_rules(pipeline, files, config)]
    findings += [*_check_first_uses(pipeline), *_check_kinds(pipeline)]
    findings += _check_phases_of_kinds(pipeline, files.rules)
    findings += check_edits(pipeline, pipeline.edits, files.templates)
    for kind in pipeline.kinds:
        part = pipeline.of_kind(kind.kind)
        positions = [pipeline.phases.index(phase) for phase in part.phases]
        for finding in _check_phases(part, files, config, built_in) if part.phases or not pipeline.items else ():
            route: KeyPath = finding.route
            if len(route) > 1:  # Of a phase.
                route = ("phases", positions[int(route[1])], *route[2:])
            findings.append(finding._replace(route=route))
    located = [(document.location(*finding.route), finding) for finding in findings]
    located.sort(key=lambda pair: pair[0].position)
    return tuple(
        Diagnostic(code=code, message=message, hint=hint, location=location, severity=severity)
        for location, (_, code, message, hint, severity) in located
    )


def _check_phases(pipeline: Pipeline, files: PipelineFiles, config: Config, built_in: bool) -> Iterator[LintFinding]:
    """Yield the findings about the phases that items of one kind go through."""
    missing = missing_blocks(files.templates) if files.files else {}
    needed_phases = {
        phase.phase: [
            producer for _, name in lint_phase.needs_of(phase) if (producer := producer_of(name, pipeline.phases))
        ]
        for phase in pipeline.phases
    }
    cycles, stuck_positions = list(find_cycles(needed_phases)), list[int]()
    for position, phase in enumerate(pipeline.phases):
        earlier = pipeline.phases[:position]
        unmet_needs = list(_check_needs(pipeline, phase, earlier, cycles))
        stuck_positions += [position] if unmet_needs else []
        for check in (
            lint_phase.check_names(phase, earlier),
            lint_phase.check_numbers(phase),
            lint_phase.check_completeness(phase),
            lint_phase.check_delivery(pipeline, phase, earlier),
            unmet_needs,
            _check_units(phase, earlier),
            _check_skipped_inputs(phase, earlier),
            _check_conditions(pipeline, phase, earlier),
            _check_fields(pipeline, phase, files.rules),
            _check_routes(pipeline, phase, [other.phase for other in (*earlier, phase)]),
            lint_phase.check_placeholders(phase),
            lint_phase.check_outputs(phase, earlier),
            lint_phase.check_writable(pipeline, phase),
            lint_phase.check_references(phase, files, missing, pipeline.checks),
            lint_phase.check_commands(phase, config.commands, {*config.edits, *pipeline.edits}, built_in),
            lint_phase.check_choices(phase),
            _check_independence(phase, earlier, config),
            _check_roles(pipeline, phase, files),
        ):
            for finding in check:
                yield finding._replace(route=("phases", position, *finding.route))
    yield from _check_flow(pipeline.phases, cycles, stuck_positions)


def _check_kinds(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ3031 for kinds of items that do not fit together or whose items share a branch, MZ3016 for unknown
    placeholders of branches, MZ3002 for names of kinds that are given twice."""
    names, sources = [kind.kind for kind in pipeline.items], set[str]()
    for position, kind in enumerate(pipeline.items):
        route: KeyPath = "items", position
        if not NAME.match(kind.kind) or kind.kind in names[:position]:
            yield LintFinding((*route, "kind"), "MZ3002", f"each kind needs a name of its own: `{kind.kind[:80]}`")
        if not pipeline.of_kind(kind.kind).phases:
            yield LintFinding(route, "MZ3031", f"no phase is `for: {kind.kind[:80]}`")
        if twice := sources.intersection(kind.sources):
            yield LintFinding((*route, "from"), "MZ3031", f"another kind is from `{min(twice)}` too")
        sources |= set(kind.sources)
        for key in ("branch", "starts", "onto"):
            placeholders = set(PLACEHOLDER.findall(getattr(kind, key)))
            if unknown := placeholders - {"prefix", "item", "base", "integration"}:
                message = f"`{{{min(unknown)[:80]}}}` is none of {{prefix}}, {{item}}, {{base}}, {{integration}}"
                yield LintFinding((*route, key), "MZ3016", message)
            elif "integration" in placeholders and not pipeline.integration:
                yield LintFinding((*route, key), "MZ3031", "the pipeline has no `integration`, which names that branch")
        for other in pipeline.items if "start" in kind.sources else ():
            if "output" in other.sources and re.fullmatch(rf"{re.escape(other.kind[:1])}\d+", kind.kind):
                message = f"`{kind.kind[:80]}` is the name of an item, as outputs create them for `{other.kind[:80]}`"
                yield LintFinding((*route, "kind"), "MZ3031", message)
        if kind.sources != ("start",) and "item" not in PLACEHOLDER.findall(kind.branch):
            yield LintFinding((*route, "branch"), "MZ3031", "two items would have the same branch: `{item}` is missing")
        yield from _check_limits(kind, route, "attempts", "parallel")
    if pipeline.cycle is not None:
        yield from _check_limits(pipeline.cycle, ("cycle",), "max", "unchanged_max")
    if unknown := set(PLACEHOLDER.findall(pipeline.integration)) - {"time"}:
        yield LintFinding(("integration",), "MZ3016", f"`{{{min(unknown)[:80]}}}` is unknown; there is {{time}}")
    if ("cycle" in sources) != (pipeline.cycle is not None):
        message = "`cycle` needs a kind of items `from: [cycle]`, and such a kind needs `cycle`"
        yield LintFinding(("cycle",) if pipeline.cycle else ("items",), "MZ3031", message)


def _check_phases_of_kinds(pipeline: Pipeline, rule_sets: Mapping[str, RuleSet]) -> Iterator[LintFinding]:
    """Yield MZ3031 for phases of no kind, and for what creates or reads items of none; MZ3002 for names of phases that
    two kinds have."""
    names = [kind.kind for kind in pipeline.items]
    for position, phase in enumerate(pipeline.phases):
        route: KeyPath = "phases", position
        if pipeline.items and phase.kind not in names:
            hint = (
                did_you_mean(phase.kind, names)
                if phase.kind
                else f"write `for:` with one of {', '.join(dict.fromkeys(names))}"
            )
            message = f"`{phase.phase}` is for no kind of items" + (f": `{phase.kind[:80]}`" if phase.kind else "")
            yield LintFinding((*route, "for") if phase.kind else route, "MZ3031", message, hint)
        elif phase.kind and not pipeline.items:
            yield LintFinding((*route, "for"), "MZ3031", "`for` needs `items`, which defines kinds")
        if phase.phase in [other.phase for other in pipeline.phases[:position] if other.kind != phase.kind]:
            message = f"duplicate name `{phase.phase[:80]}`; each phase needs its own name, of all kinds"
            yield LintFinding((*route, "phase"), "MZ3002", message)
        for path, name in entries_of(phase, "outputs", "creates"):
            if name not in names or "output" not in pipeline.find_kind(name).sources:
                yield LintFinding((*route, *path), "MZ3031", f"`{name[:80]}` is no kind of items `from: [output]`")
        for number, output in enumerate(phase.outputs):
            rule_set = rule_sets.get(output.rules)
            if output.creates is not None and rule_set is not None and rule_set.extract.units is None:
                message = f"the rule set `{output.rules}` lists nothing: `creates` needs its `extract: {{units: ...}}`"
                yield LintFinding((*route, "outputs", number, "creates"), "MZ3031", message)
        for path, name in entries_of(phase, "inputs", "items"):
            if name not in names:
                message, hint = f"`{name[:80]}` is no kind of items", did_you_mean(name, names)
                yield LintFinding((*route, *path), "MZ3031", message, hint)


def _check_limits(limits: msgspec.Struct, route: KeyPath, *keys: str) -> Iterator[LintFinding]:
    """Yield MZ3014 for a number below 1, and for a name that is not one of `limits`."""
    for key in keys:
        value = getattr(limits, key)
        if isinstance(value, str) and value not in Limits.__struct_fields__:
            hint = did_you_mean(value, Limits.__struct_fields__)
            yield LintFinding((*route, key), "MZ3014", f"`{value[:80]}` is none of `limits`", hint)
        elif isinstance(value, int) and value < 1:
            yield LintFinding((*route, key), "MZ3014", f"`{key}` is {value}; it must be at least 1")


def summarise_warnings(diagnostics: Iterable[Diagnostic], pipeline: Pipeline, config: Config) -> tuple[Diagnostic, ...]:
    """Return the warnings of a run's pipeline, each once and without a location; steps left out for missing commands
    are merged into one."""
    warnings = dict.fromkeys(replace(diagnostic, location=None) for diagnostic in diagnostics)
    skipped_step = (lint_phase.MISSING_COMMAND_CODE, "warning")
    others = tuple(warning for warning in warnings if (warning.code, warning.severity) != skipped_step)
    if len(others) == len(warnings):
        return others
    names = ", ".join(f"`{name}`" for name in missing_commands(pipeline, config))
    message = f"pipeline steps are skipped: mz.yaml has no command {names}"
    hint = "write `NAME: COMMAND LINE` under `commands:` in mz.yaml"
    return (*others, Diagnostic(code=lint_phase.MISSING_COMMAND_CODE, message=message, hint=hint, severity="warning"))


def missing_commands(pipeline: Pipeline, config: Config) -> tuple[str, ...]:
    """Return the commands that the pipeline runs and that mz.yaml lacks, in the order of the text."""
    used = dict.fromkeys(name for phase in pipeline.phases for _, name in lint_phase.commands_of(phase))
    return tuple(name for name in used if name and name not in config.commands)


def _check_rewards(pipeline: Pipeline, all_rewards: Mapping[str, Rewards]) -> Iterator[LintFinding]:
    """Yield MZ3030 for unknown rewards, and dimensions about phases, causes or artifacts that the pipeline lacks."""
    name, phases = pipeline.rewards, pipeline.phases
    if name is None:
        return
    rewards = all_rewards.get(name)
    if rewards is None:
        hint = did_you_mean(name, sorted(all_rewards))
        yield LintFinding(("rewards",), "MZ3030", f"there are no rewards `{name[:80]}`", hint)
        return
    names = {
        "phase": {phase.phase for phase in phases},
        "cause": {route.cause for phase in phases for route in phase.on_block},
        "artifact": {artifact for phase in phases for _, artifact in artifacts_of(phase)},
    }
    fields = {"phases": "phase", "sources": "phase", "causes": "cause", "of": "artifact", "within": "artifact"}
    for dimension, measure in rewards.dimensions.items():
        for field in measure.__struct_fields__:
            value, kind = getattr(measure, field), fields.get(field, "")
            for wanted in ((value.partition(".")[0],) if kind == "artifact" else value) if kind else ():
                if wanted not in names[kind]:
                    message = f"rewards {name}: `{dimension}` is about the {kind} `{wanted[:80]}`, which does not exist"
                    yield LintFinding(("rewards",), "MZ3030", message, did_you_mean(wanted, sorted(names[kind])))


# between phases -------------------------------------------------------------------------------------------------------
def _check_flow(
    phases: tuple[Phase, ...], cycles: list[list[str]], stuck_positions: list[int]
) -> Iterator[LintFinding]:
    """Yield MZ3005 cycle, MZ3006 unreachable, MZ3015 no phases."""
    names = [phase.phase for phase in phases]
    for cycle in cycles:
        route: KeyPath = ("phases", names.index(cycle[0]), "inputs")
        yield LintFinding(route, "MZ3005", f"phases need each other's artifacts: {' -> '.join([*cycle, cycle[0]])}")
    stuck_positions += [names.index(name) for cycle in cycles for name in cycle]
    first_stuck = min(stuck_positions, default=len(names))
    if unreachable := ", ".join(f"`{name}`" for name in names[first_stuck + 1 :]):
        message = f"unreachable: {unreachable}, since `{names[first_stuck]}` can never start"
        yield LintFinding(("phases", first_stuck + 1), "MZ3006", message)
    if not phases:
        yield LintFinding(("phases",), "MZ3015", "the pipeline has no phases")
    yield from _check_after_delivery(phases)


def _check_after_delivery(phases: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3015 for what a phase cannot have after the one that hands the branch over, or closes it."""
    delivering = closing = ""
    for position, phase in enumerate(phases):
        uses = {
            "writable": bool(phase.writable),
            "claim": phase.claim is not None,
            "edit": phase.edit is not None,
            "on_block": bool(phase.on_block),
            "deliver": bool(phase.agent and phase.deliver),
        }
        if closing:
            message = f"`{phase.phase}` follows `{closing}`, which closes the branch that it would work on"
            yield LintFinding(("phases", position), "MZ3015", message)
        for key in (key for key, use in uses.items() if use and delivering):
            message = f"`{phase.phase}` follows `{delivering}`, which delivers, so it cannot have `{key}`"
            hint = "give a phase without `agent` the steps" if key == "deliver" else ""
            yield LintFinding(("phases", position, key), "MZ3015", message, hint)
        delivering = delivering or phase.phase * phase.hands_over
        closing = closing or phase.phase * any(step in CLOSING for step in phase.deliver)


def _check_needs(
    pipeline: Pipeline, phase: Phase, earlier: tuple[Phase, ...], cycles: list[list[str]]
) -> Iterator[LintFinding]:
    """Yield MZ3003 unknown artifact, MZ3004 used too early, MZ3005 needed by its producer."""
    for route, artifact in lint_phase.needs_of(phase):
        producer = producer_of(artifact, pipeline.phases)
        if producer is None:
            yield _unknown_artifact(route, artifact, pipeline)
        elif producer == phase.phase:
            yield LintFinding(route, "MZ3005", f"`{phase.phase}` needs `{artifact}`, which it produces itself")
        elif not producer_of(artifact, earlier) and not any({producer, phase.phase} <= set(cycle) for cycle in cycles):
            message = f"`{phase.phase}` needs `{artifact}`, which the later phase `{producer}` produces"
            yield LintFinding(route, "MZ3004", message, f"move `{producer}` before `{phase.phase}`")


def _source(use: PhaseInput, earlier: Iterable[Phase]) -> Phase | None:
    """Return the phase that an input comes from."""
    sources = (
        other for other in earlier if use.of == other.phase or use.artifact in dict(artifacts_of(other)).values()
    )
    return next(sources, None)


def _check_units(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3020 for inputs whose texts cannot be chosen by unit, MZ3013 for those that name no one thing."""
    for number, use in enumerate(phase.inputs):
        source = _source(use, earlier)
        lacks_phase = use.record in RECORDS_OF_PHASES and use.of is None
        if sum(map(bool, (use.artifact, use.record, use.items))) != 1 or lacks_phase or (use.of and not use.record):
            message = "an input has either `artifact`, or `items`, or `record`, which for patch and results needs `of`"
            yield LintFinding(("inputs", number), "MZ3013", message)
        elif use.of is not None and source is None:
            hint = did_you_mean(use.of, [other.phase for other in earlier])
            yield LintFinding(("inputs", number, "of"), "MZ3004", f"no earlier phase is called `{use.of[:80]}`", hint)
        if source and use.units != "all" and (phase.for_each is None or phase.for_each != source.for_each):
            message = f"`units: {use.units}` needs the same `for_each` here and in `{source.phase}`, which makes it"
            yield LintFinding(("inputs", number, "units"), "MZ3020", message)


def _check_conditions(pipeline: Pipeline, phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3003 and MZ3004 for artifacts in conditions, MZ3013 for conditions that contradict themselves. All but
    `when` are looked at when the phase's own artifacts exist."""
    for route, entry in conditions_of(phase):
        if entry.artifact is not None:
            producer = producer_of(entry.artifact, pipeline.phases)
            if entry.artifact == BLOCK and pipeline.block_file and route[0] == "ask_person":
                pass
            elif producer is None:
                yield _unknown_artifact((*route, "artifact"), entry.artifact, pipeline)
            elif not producer_of(entry.artifact, earlier if route[0] == "when" else (*earlier, phase)):
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


def _check_fields(pipeline: Pipeline, phase: Phase, rule_sets: Mapping[str, RuleSet]) -> Iterator[LintFinding]:
    """Yield MZ3013 for conditions on fields that rule sets do not extract, and for tiers that are not better."""
    for route, entry in conditions_of(phase):
        use = phase.agent if route[0] == "agent" else phase.agent_review
        if isinstance(entry, Escalation) and use is not None and TIERS.index(entry.to) <= TIERS.index(use.tier):
            message = f"`{entry.to}` is no better tier than `{use.tier}`, the phase's own"
            yield LintFinding((*route, "to"), "MZ3013", message)
        fields = None if entry.artifact is None else _fields_of(pipeline, entry.artifact, rule_sets)
        if fields is not None and entry.field is not None and entry.field not in fields:
            hint = did_you_mean(entry.field, fields)
            message = f"the rule set of `{entry.artifact}` extracts no field `{entry.field[:80]}`"
            yield LintFinding((*route, "field"), "MZ3013", message, hint)


def _fields_of(pipeline: Pipeline, artifact: str, rule_sets: Mapping[str, RuleSet]) -> tuple[str, ...] | None:
    """Return the fields that are extracted from an artifact; None if that is not known."""
    commands = [(phase, key) for phase in pipeline.phases for key in ("prepare", "gates")]
    if any(artifact == name for phase, key in commands for _, name in entries_of(phase, key, "output")):
        return RESULT_FIELDS
    rule_set = _rule_set_of(pipeline, artifact, rule_sets)
    return None if rule_set is None else rule_set.extract.fields


def _rule_set_of(pipeline: Pipeline, artifact: str, rule_sets: Mapping[str, RuleSet]) -> RuleSet | None:
    rules = {BLOCK: BLOCK} if pipeline.block_file else {}
    for phase in pipeline.phases:
        rules |= {output.artifact: output.rules for output in phase.outputs}
        rules |= {phase.agent_review.output: phase.agent_review.rules} if phase.agent_review else {}
    return rule_sets.get(rules.get(artifact, ""))


def _check_skipped_inputs(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3025 for needed artifacts from phases that may be skipped."""
    optional = [use.artifact for use in phase.inputs if use.optional]
    for route, artifact in lint_phase.needs_of(phase):
        source = _source(PhaseInput(artifact=artifact), earlier)
        may_be_skipped = source is not None and (source.when or not source.required)
        if source and may_be_skipped and not (route[0] == "inputs" and artifact in optional):
            hint = "add `optional: true`" if route[0] == "inputs" else ""
            message = f"`{source.phase}`, which produces `{artifact}`, may be skipped"
            yield LintFinding(route[:2] if route[0] == "inputs" else route, "MZ3025", message, hint)


def _check_own_rules(pipeline: Pipeline, files: PipelineFiles, config: Config) -> Iterator[LintFinding]:
    """Yield MZ3023 for `checks` with wrong arguments and unused ones, MZ3003 for unknown artifacts in them."""
    used = {gate.rule for phase in pipeline.phases for gate in phase.gates}
    used |= {condition.rule for phase in pipeline.phases for _, condition in conditions_of(phase)}
    for name, check in pipeline.checks.items():
        if name not in used:
            message = f"no gate and no condition uses `{name}`"
            yield LintFinding(("checks", name), "MZ3023", message, severity="warning")
        route, artifacts = ("checks", name), dict[KeyPath, str]()
        if name in (*FEATURE_RULES, *config.commands, DENIED_COMMANDS, JUDGED_RULES):
            kind = "built-in rule" if name in FEATURE_RULES else "command or gate"
            yield LintFinding(route, "MZ3023", f"`{name}` is a {kind}; choose another name")
        patterns, expression = tuple[str, ...](), ""
        match check:
            case PathsCheck():
                patterns = check.patterns
            case AddedCheck(pattern=expression, files=patterns, unless_in=artifact):
                artifacts = {(*route, "unless_in"): artifact} if artifact else {}
            case RequestCheck(pattern=expression):
                pass
            case NoLearningCheck():
                pass
            case ValueCheck():
                artifacts = {(*route, "artifacts", number): text for number, text in enumerate(check.artifacts)}
            case FirstCheck(artifact=artifact):
                artifacts = {(*route, "artifact"): artifact}
                rule_set = _rule_set_of(pipeline, artifact, files.rules)
                if producer_of(artifact, pipeline.phases) and (rule_set is None or rule_set.extract.ids is None):
                    hint = "name the field with them in its rule set: `extract: {ids: FIELD}`"
                    message = f"no ids are extracted from `{artifact}`, so none can be new"
                    yield LintFinding((*route, "artifact"), "MZ3023", message, hint)
                elif rule_set and not _demands_names(rule_set, rule_set.extract.ids):
                    hint = "demand names in its rule set: `kind: field`, `type: name`"
                    message = f"ids of `{artifact}` that are no names would not be compared"
                    yield LintFinding((*route, "artifact"), "MZ3023", message, hint)
        try:
            matches(patterns, "a")
            problem = inspect_expression(expression).error
        except ValueError as error:
            problem = str(error)
        if problem:
            yield LintFinding(route, "MZ3023", f"invalid pattern: {problem}")
        for at, artifact in artifacts.items():
            if producer_of(artifact, pipeline.phases) is None:
                yield _unknown_artifact(at, artifact, pipeline)


def _demands_names(rule_set: RuleSet, route: str | None) -> bool:
    """Return True if the field has to have names, as which alone ids are extracted."""
    fields = (rule for rule in rule_set.rules if isinstance(rule, FieldRule) and rule.type in ("name", "names"))
    return any(route == ".".join(filter(None, (rule.within, rule.field))) for rule in fields)


def _check_first_uses(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ3004 where a check of the kind `first` is made before its artifact can exist, MZ3023 where one of the
    kind `no_learning` is not about a call that is given learnings."""
    for position, phase in enumerate(pipeline.phases):
        uses = [((*route, "rule"), entry.rule) for route, entry in conditions_of(phase)]
        for route, rule in (*entries_of(phase, "gates", "rule"), *uses):
            check, made = pipeline.checks.get(rule or ""), pipeline.phases[: position + (route[0] != "when")]
            if isinstance(check, NoLearningCheck) and (
                route[:2] != ("agent", "escalate") or not phase.context.learnings
            ):
                message = f"`{rule}` is about the learnings that the next call of the agent is given"
                hint = "use it in `agent: {escalate}` of a phase with `context: {learnings: TOKENS}`"
                yield LintFinding(("phases", position, *route), "MZ3023", message, hint)
            artifact = check.artifact if isinstance(check, FirstCheck) else ""
            producer = producer_of(artifact, pipeline.phases)
            if producer and not producer_of(artifact, made):
                message = f"`{rule}` needs `{artifact}`, which `{producer}` produces only afterwards"
                yield LintFinding(("phases", position, *route), "MZ3004", message)


def _unknown_artifact(route: KeyPath, artifact: str, pipeline: Pipeline) -> LintFinding:
    names = dict.fromkeys(name for phase in pipeline.phases for _, name in artifacts_of(phase))
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


def _check_independence(phase: Phase, earlier: tuple[Phase, ...], config: Config) -> Iterator[LintFinding]:
    """Yield MZ3024 for calls that cannot be independent of the phase that `not_as` names."""
    for key, use, others in (("agent", phase.agent, earlier), ("agent_review", phase.agent_review, (*earlier, phase))):
        if use is None or use.not_as is None:
            continue
        names = [other.phase for other in others if other.agent]
        if use.not_as not in names:
            hint, message = did_you_mean(use.not_as, names), f"no earlier phase `{use.not_as[:80]}` has an agent"
            yield LintFinding((key, "not_as"), "MZ3024", message, hint)
        elif config.independence == "agent" and len(config.called_agents) < 2:
            message = f"`independence: agent` needs another agent than {config.agent}"
            yield LintFinding((key, "not_as"), "MZ3024", message, "name one under `failover:` in mz.yaml")
    if phase.agent and phase.agent.not_as and phase.agent.session == "continue":
        message = "a call with `not_as` never continues the feature's session"
        yield LintFinding(("agent", "session"), "MZ3024", message)


def _check_roles(pipeline: Pipeline, phase: Phase, files: PipelineFiles) -> Iterator[LintFinding]:
    """Yield MZ3022 for cards and skills that do not exist, MZ3024 for the card of the phase that `not_as` names."""
    use, cards = phase.agent, files.cards
    if use is None:
        return
    for number, name in enumerate(use.skills):
        if name not in files.skills:
            hint = did_you_mean(name, sorted(files.skills))
            yield LintFinding(("agent", "skills", number), "MZ3022", f"there is no skill `{name[:80]}`", hint)
    card = card_of_phase(phase, pipeline, cards)
    if use.role is not None and use.needs:
        yield LintFinding(("agent", "needs"), "MZ3022", "`needs` chooses a card, so there can be no `role`")
    elif use.role is not None and (use.role not in cards or cards[use.role].card is None):
        has_errors = use.role in cards
        message = f"the card `{use.role[:80]}` has errors" if has_errors else f"there is no card `{use.role[:80]}`"
        hint = "`mz cards validate` prints them" if has_errors else did_you_mean(use.role, sorted(cards))
        yield LintFinding(("agent", "role"), "MZ3022", message, hint)
    elif use.needs and not card:
        message = f"no card has the capabilities {', '.join(use.needs)}"
        yield LintFinding(("agent", "needs"), "MZ3022", message, "`mz cards list` shows those of each card")
    checked = next((other for other in pipeline.phases if other.phase == use.not_as and other is not phase), None)
    if card and checked and card == card_of_phase(checked, pipeline, cards):
        message = f"the card `{card}` is that of `{checked.phase}` too, which `not_as` excludes"
        yield LintFinding(("agent", "role"), "MZ3024", message)
