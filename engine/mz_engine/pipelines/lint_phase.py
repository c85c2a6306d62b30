"""Checks of a pipeline's phases, each for itself: names, numbers, completeness, delivery, and what it may write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from mz_events.names import BUILDER, InvalidName, parse_name, parse_path
from mz_projections.feature.unit import BLOCK
from mz_projections.rewards.reward import Rewards

from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.decoding.structs import KeyPath, did_you_mean
from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.model.card import CardFile, SkillFile
from mz_engine.model.pipeline import PERSON, STEPS, Condition, Phase, PhaseOutput, Pipeline, TagStep, kind_of, label_of
from mz_engine.model.rules import RuleSet
from mz_engine.path_patterns import matches
from mz_engine.ref_names import INTEGRATION, PLACEHOLDER, TAG_PLACEHOLDERS

References = list[tuple[KeyPath, Any]]
"""Names or numbers in a phase, with their locations in it."""
MISSING_COMMAND_CODE = "MZ3009"
SAMPLE_VALUES = {"feature": "feature-id", "unit": "unit-id", "title": "Title", "phase": "phase"}
FILES_OF_UNITS = frozenset({"unit.files", "dependencies.files"})
"""Placeholders that stand for several patterns."""


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


class PipelineFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Templates, rule sets and rewards by name. Files of the repository override those of mz with the same name."""

    templates: dict[str, str]
    rules: dict[str, RuleSet]
    rewards: dict[str, Rewards] = {}
    files: tuple[str, ...]
    """Files of the repository, relative to it."""
    cards: dict[str, CardFile] = {}
    skills: dict[str, SkillFile] = {}
    diagnostics: tuple[Diagnostic, ...] = ()
    """Problems of these files; files with errors are left out."""


def entries_of(phase: Phase, key: str, field: str) -> References:
    """Return what the entries of one of the phase's lists have in a field."""
    values = ((number, getattr(entry, field)) for number, entry in enumerate(getattr(phase, key)))
    return [((key, number, field), value) for number, value in values if value is not None]


def commands_of(phase: Phase) -> References:
    return [*entries_of(phase, "prepare", "run"), *entries_of(phase, "gates", "run")]


def artifacts_of(phase: Phase) -> References:
    """Return the artifacts that the phase produces, with results of its commands."""
    results = [*entries_of(phase, "prepare", "output"), *entries_of(phase, "gates", "output")]
    verdict: References = [(("agent_review", "output"), phase.agent_review.output)] if phase.agent_review else []
    return entries_of(phase, "outputs", "artifact") + verdict + results


def needs_of(phase: Phase) -> References:
    """Return the artifacts that must exist before the phase begins."""
    uses = (("claim", phase.claim), ("for_each", phase.for_each))
    return entries_of(phase, "inputs", "artifact") + [((key, "artifact"), use.artifact) for key, use in uses if use]


def producer_of(artifact: str, phases: Iterable[Phase]) -> str | None:
    """Return the first phase that produces the artifact."""
    return next((phase.phase for phase in phases for _, name in artifacts_of(phase) if name == artifact), None)


def conditions_of(phase: Phase) -> list[tuple[KeyPath, Condition]]:
    """Return the conditions of a phase with their locations in it."""
    review = phase.agent_review
    lists: list[tuple[KeyPath, Iterable[Condition]]] = [(("when",), phase.when), (("ask_person",), phase.ask_person)]
    lists += [(("agent", "escalate"), phase.agent.escalate)] if phase.agent else []
    lists += (
        [(("agent_review", "when"), review.when), (("agent_review", "escalate"), review.escalate)] if review else []
    )
    return [((*route, number), entry) for route, entries in lists for number, entry in enumerate(entries)]


# inside a phase -------------------------------------------------------------------------------------------------------
def check_names(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3002 duplicate names, MZ2013 illegal ones."""
    yield from _check_new([(("phase",), phase.phase)], {other.phase for other in earlier}, "phase")
    if phase.phase == PERSON:
        yield LintFinding(("phase",), "MZ3002", f"the name `{PERSON}` is taken: a route `to: {PERSON}` asks a person")
    yield from _check_new(
        artifacts_of(phase), {name for other in earlier for _, name in artifacts_of(other)}, "artifact"
    )
    if phase.agent_review:
        yield from _check_new([(("agent_review", "role"), phase.agent_review.role)], set(), "role")
    yield from _check_new(entries_of(phase, "prepare", "result"), set(), "result of a prepared command")
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


def check_numbers(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3014 for numbers below their minimum, and MZ2005 for a limit that only pins may have."""
    numbers: list[tuple[KeyPath, int, int]] = [(("attempts",), phase.attempts, 1), (("retries",), phase.retries, 0)]
    if phase.context.token_budget is not None:
        hint = "use `tokens_max`: it limits request, inputs and notes too, and files give way"
        yield LintFinding(("context", "token_budget"), "MZ2005", "unknown key `token_budget` in `context`", hint)
    if phase.context.tokens_max is not None:
        numbers.append((("context", "tokens_max"), phase.context.tokens_max, 1))
    numbers += [(route, times, 1) for route, times in entries_of(phase, "on_block", "max_times")]
    counts = [((*route, "rolled_back"), entry.rolled_back) for route, entry in conditions_of(phase)]
    numbers += [(route, count, 1) for route, count in counts if count is not None]
    yield from too_small(numbers)


def too_small(numbers: Iterable[tuple[KeyPath, int, int]]) -> Iterator[LintFinding]:
    for route, number, minimum in numbers:
        if number < minimum:
            yield LintFinding(route, "MZ3014", f"`{route[-1]}` is {number}; it must be at least {minimum}")


def check_completeness(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3015 for what a phase has without the key that it needs."""
    if phase.agent and not phase.prompt:
        yield LintFinding(("agent",), "MZ3015", f"`{phase.phase}` has an agent but no `prompt`")
    if phase.prompt and not phase.agent:
        yield LintFinding(("prompt",), "MZ3015", f"`{phase.phase}` has a prompt but no `agent` to send it to")
    if not phase.agent and (phase.outputs or phase.agent_review):
        key = "outputs" if phase.outputs else "agent_review"
        yield LintFinding((key,), "MZ3015", f"`{phase.phase}` has `{key}` but no `agent` to produce it")
    has_work = phase.agent or phase.prompt or phase.outputs or phase.agent_review or phase.deliver or phase.edit
    if not (has_work or phase.prepare or phase.gates or phase.ask_person):
        yield LintFinding((), "MZ3015", f"`{phase.phase}` does nothing")


def check_delivery(pipeline: Pipeline, phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
    """Yield MZ3015 for the order of delivery steps, MZ3016 for placeholders in tags, MZ3012 for a merge whose conflicts
    have no route."""
    before = {kind_of(step): f" of `{other.phase}`" for other in earlier for step in other.deliver}
    for number, step in enumerate(phase.deliver):
        route, kind, done = ("deliver", number), kind_of(step), [kind_of(other) for other in phase.deliver[:number]]
        name, rule = label_of(step)[:80], STEPS[kind]
        barrier = next((other for other in rule.not_after if other in done or other in before), None)
        if step in phase.deliver[:number]:
            yield LintFinding(route, "MZ3015", f"duplicate step `{name}`")
        elif barrier is not None:
            message = f"`{name}` cannot follow `{barrier}`{'' if barrier in done else before[barrier]}"
            yield LintFinding(route, "MZ3015", message)
        if rule.needs and rule.needs not in done:
            yield LintFinding(route, "MZ3015", f"`{name}` needs `{rule.needs}` before it")
        if isinstance(step, TagStep):
            if step.at == "merge" and "merge" not in done and "merge" not in before:
                yield LintFinding((*route, "at"), "MZ3015", "`at: merge` needs `merge` before it")
            allowed = TAG_PLACEHOLDERS | ({INTEGRATION} if pipeline.integration else set())
            yield from check_braces((*route, "tag"), step.tag, allowed)
        if kind == "merge_base" and not any(block.cause == "base" for block in phase.on_block):
            hint = "add `on_block: [{cause: base, to: PHASE, scope: tree, max_times: 1}]`"
            yield LintFinding(route, "MZ3012", "a conflict of `merge_base` has no `on_block` route", hint)


def check_references(
    phase: Phase, files: PipelineFiles, missing: Mapping[str, Iterable[MissingBlock]], own_rules: Collection[str]
) -> Iterator[LintFinding]:
    """Yield MZ3007 unknown rules, MZ3008 unknown templates, MZ3016 several files of JSON or YAML, MZ3017 missing
    blocks."""
    for number, output in enumerate(phase.outputs):
        rules = files.rules.get(output.rules)
        if "*" in (output.path or "") and rules is not None and rules.form != "markdown":
            message = f"only Markdown may be several files; `{output.rules}` is of the form {rules.form}"
            yield LintFinding(("outputs", number, "path"), "MZ3016", message)
    rule_sets, templates = entries_of(phase, "outputs", "rules"), References([(("prompt",), phase.prompt or "")])
    if review := phase.agent_review:
        rule_sets.append((("agent_review", "rules"), review.rules))
        templates.append((("agent_review", "prompt"), review.prompt))
    used_rules = [
        *entries_of(phase, "gates", "rule"),
        *(((*at, "rule"), entry.rule) for at, entry in conditions_of(phase)),
    ]
    for kind, code, references, valid_names in (
        ("rule set", "MZ3007", rule_sets, files.rules),
        ("template", "MZ3008", templates, files.templates),
        ("rule", "MZ3007", used_rules, {*FEATURE_RULES, *own_rules}),
    ):
        for route, name in references:
            if name and name not in valid_names:
                hint = did_you_mean(name, sorted(valid_names))
                yield LintFinding(route, code, f"there is no {kind} `{name[:80]}`", hint)
    judged = [
        (number, rule.id)
        for number, output in enumerate(phase.outputs)
        if output.rules in files.rules
        for rule in files.rules[output.rules].judged_rules
    ]
    verdict = files.rules.get(review.rules) if review and not review.when else None
    if judged and (verdict is None or verdict.form == "markdown"):
        message = f"only a reviewer can judge `{judged[0][1]}`"
        hint = f"give `{phase.phase}` an `agent_review` without `when`, whose verdict is JSON or YAML"
        yield LintFinding(("outputs", judged[0][0], "rules"), "MZ3021", message, hint)
    for route, name in templates:
        for block, required_by in missing.get(name, ()):
            message = f"the template `{name}` does not define the block `{block[:80]}`, which {required_by} requires"
            hint = f"write {{% block {block[:80]} %}}...{{% endblock %}} in pipelines/templates/{name}"
            yield LintFinding(route, "MZ3017", message, hint)


def check_commands(
    phase: Phase, commands: Collection[str], edits: Collection[str], built_in: bool
) -> Iterator[LintFinding]:
    """Yield MZ3009 for commands that mz.yaml lacks, and edits that the pipeline lacks too."""
    uses = [(route, "command", name) for route, name in commands_of(phase)]
    uses += [(("edit",), "edit", phase.edit)] if phase.edit is not None else []
    for route, kind, name in uses:
        if name and name not in (commands if kind == "command" else edits):
            value = "COMMAND LINE" if kind == "command" else "{delete: [PATTERN], write: {FILE: TEMPLATE}}"
            hint = f"write `{name}: {value}` under `{kind}s:` in mz.yaml"
            message = f"mz.yaml has no {kind} `{name[:80]}`" + ", so this step is skipped" * built_in
            yield LintFinding(route, MISSING_COMMAND_CODE, message, hint, "warning" if built_in else "error")


def check_choices(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3013 for gates, edits and preparations that contradict themselves, MZ3026 for files of a phase that
    continues a session, MZ3011 for reviewers that do not review."""
    if phase.context.files is not None and phase.agent and phase.agent.session == "continue":
        message = "a phase with `files` never continues a session, which saw other files"
        yield LintFinding(("agent", "session"), "MZ3026", message)
    if phase.edit is not None and phase.for_each is not None:
        message = "every unit would undo what those before it changed in the files of the edit; use a phase before"
        yield LintFinding(("edit",), "MZ3013", message)
    for number, preparation in enumerate(phase.prepare):
        if preparation.cause and not preparation.must_pass:
            message = "without `must_pass` a failure blocks nothing, so it has no `cause`"
            yield LintFinding(("prepare", number, "cause"), "MZ3013", message)
    for number, gate in enumerate(phase.gates):
        if bool(gate.run) == bool(gate.rule):
            keys = "both `run` and `rule`" if gate.run else "neither `run` nor `rule`"
            yield LintFinding(("gates", number), "MZ3013", f"this gate has {keys}; it needs exactly one")
        elif gate.rule and gate.output:
            message = "only a command has a result, so a rule has no `output`"
            yield LintFinding(("gates", number, "output"), "MZ3013", message)
    if (review := phase.agent_review) and review.role == BUILDER:
        message = f"the reviewer has the role of the builder, `{review.role}`"
        yield LintFinding(("agent_review", "role"), "MZ3011", message)


# writes ---------------------------------------------------------------------------------------------------------------
def check_placeholders(phase: Phase) -> Iterator[LintFinding]:
    """Yield MZ3016 unknown placeholders."""
    names = {"feature", "unit"} if phase.for_each else {"feature"}
    in_patterns, context = names | (FILES_OF_UNITS if phase.for_each else set[str]()), phase.context
    texts: list[tuple[KeyPath, str, set[str]]] = [
        *((route, path, names) for route, path in entries_of(phase, "outputs", "path")),
        *((("context", "files", number), pattern, in_patterns) for number, pattern in enumerate(context.files or ())),
        *((("context", "include", number), pattern, in_patterns) for number, pattern in enumerate(context.include)),
        *((("context", "exclude", number), pattern, in_patterns) for number, pattern in enumerate(context.exclude)),
        *((("writable", number), pattern, in_patterns) for number, pattern in enumerate(phase.writable)),
        (("commit",), phase.commit or "", names | {"title", "phase"}),
    ]
    for route, text, allowed in texts:
        yield from check_braces(route, text, allowed)


def check_braces(route: KeyPath, text: str, allowed: Collection[str]) -> Iterator[LintFinding]:
    hint = "known here: " + ", ".join(f"{{{pattern}}}" for pattern in sorted(allowed))
    for name in PLACEHOLDER.findall(text):
        if name not in allowed:
            yield LintFinding(route, "MZ3016", f"unknown placeholder `{{{name[:40]}}}`", hint)
        elif name in FILES_OF_UNITS and text.removeprefix("!") != f"{{{name}}}":
            message = f"`{{{name}}}` must be a whole entry: each of the files becomes a pattern"
            yield LintFinding(route, "MZ3016", message)
    if {"{", "}"} & set(PLACEHOLDER.sub("", text)):
        yield LintFinding(route, "MZ3016", "unbalanced brace", hint)


def check_outputs(phase: Phase, earlier: tuple[Phase, ...]) -> Iterator[LintFinding]:
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


def check_block_file(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield MZ2013 a bad path, MZ3010 the path of an output, MZ3002 an artifact with the name of the block, MZ3016."""
    route, path = ("block_file",), _fill_samples(pipeline.block_file or "")
    if pipeline.block_file is None:
        return
    yield from check_braces(route, pipeline.block_file, {"feature", "phase", "unit"})
    try:
        parse_path(path)
    except InvalidName as error:
        yield LintFinding(route, "MZ2013", str(error))
    for position, phase in enumerate(pipeline.phases):
        path = _fill_samples(pipeline.block_file.replace("{phase}", phase.phase))
        if path in [_sample_path(output) for output in phase.outputs if output.path]:
            yield LintFinding(route, "MZ3010", f"an output of `{phase.phase}` has the path `{pipeline.block_file}` too")
        for at, name in artifacts_of(phase):
            if name == BLOCK:
                message = f"duplicate name `{BLOCK}`; with `block_file` it is what an agent writes to block a phase"
                yield LintFinding(("phases", position, *at), "MZ3002", message)


def check_writable(pipeline: Pipeline, phase: Phase) -> Iterator[LintFinding]:
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
