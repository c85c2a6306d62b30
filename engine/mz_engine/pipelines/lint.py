"""Check the meaning of a pipeline. All findings are reported at once, each with its location."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from mz_events.names import BadName, parse_name

from mz_engine.errors import Diagnostic
from mz_engine.pipelines.definition import Gate, HumanGate, Phase, Pipeline, Review
from mz_engine.pipelines.finding import Finding
from mz_engine.pipelines.flow import check_flow
from mz_engine.pipelines.writes import check_writes
from mz_engine.shape import Route, did_you_mean
from mz_engine.yamlfile import Document

BUILDER = "builder"
"""The role of the phase's own agent, regardless of its name in the pipeline."""

NEEDS = {"open_pr": "push", "await_checks": "open_pr"}
"""Delivery steps that need another one before them."""

NO_COMMAND = "MZ3009"


class Unfilled(NamedTuple):
    """A block that a template has to define."""

    block: str
    asked_by: str
    """`TEMPLATE:LINE` that declares it as required."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Valid names in a pipeline."""

    rule_sets: frozenset[str]
    """For `rules`."""
    rules: frozenset[str]
    """For `rule`."""
    templates: frozenset[str]
    unfilled: Mapping[str, tuple[Unfilled, ...]] = {}
    """Missing required blocks by template, of templates that cannot be rendered without them."""
    commands: frozenset[str]
    """Of mz.yaml."""


def lint(pipeline: Pipeline, known: Known, document: Document, built_in: bool = False) -> tuple[Diagnostic, ...]:
    """Return all errors and warnings (MZ3002 to MZ3017) in the order of the text. `document` is what the pipeline was
    parsed from. In a built-in pipeline an unknown command is a warning."""
    findings = [*_names(pipeline), *_numbers(pipeline), *_complete(pipeline), *check_flow(pipeline)]
    findings += check_writes(pipeline)
    for position, phase in enumerate(pipeline.phases):
        findings += _phase(phase, ("phases", position), known, built_in)
    diagnostics = [finding.located(document) for finding in findings]
    return tuple(sorted(diagnostics, key=lambda item: (item.place.line, item.place.column) if item.place else (0, 0)))


def in_short(found: Iterable[Diagnostic], pipeline: Pipeline, commands: Collection[str]) -> tuple[Diagnostic, ...]:
    """Return the warnings of a run's pipeline, each once and without a location; steps left out for missing commands
    are merged into one. `commands` are those of mz.yaml."""
    plain = dict.fromkeys(replace(each, place=None) for each in found)
    others = tuple(each for each in plain if (each.code, each.severity) != (NO_COMMAND, "warning"))
    if len(others) == len(plain):
        return others
    missing = ", ".join(f"`{name}`" for name in missing_commands(pipeline, commands))
    said = f"pipeline steps are skipped: mz.yaml has no command {missing}"
    hint = "write `NAME: COMMAND LINE` under `commands:` in mz.yaml"
    return (*others, Diagnostic(code=NO_COMMAND, message=said, hint=hint, severity="warning"))


def missing_commands(pipeline: Pipeline, commands: Collection[str]) -> tuple[str, ...]:
    """Return the commands that the pipeline runs and that are not among these, in the order of the text."""
    named = dict.fromkeys(name for phase in pipeline.phases for name in _commands(phase))
    return tuple(name for name in named if name not in commands)


def _commands(phase: Phase) -> Iterator[str]:
    yield from (step.run for step in phase.prepare)
    yield from (gate.run for gate in phase.gates if gate.run)


def _phase(phase: Phase, at: Route, known: Known, built_in: bool) -> Iterator[Finding]:
    yield from _references(phase, at, known, built_in)
    for position, gate in enumerate(phase.gates):
        yield from _gate(gate, (*at, "gates", position))
    for position, human in enumerate(phase.human):
        yield from _human(human, (*at, "human", position))
    if phase.review:
        yield from _review(phase, phase.review, (*at, "review"))


def _names(pipeline: Pipeline) -> Iterator[Finding]:
    phases: set[str] = set()
    artifacts: set[str] = set()
    for position, phase in enumerate(pipeline.phases):
        at: Route = ("phases", position)
        yield from _name(phase.phase, (*at, "phase"), phases, "phase")
        for number, output in enumerate(phase.outputs):
            yield from _name(output.artifact, (*at, "outputs", number, "artifact"), artifacts, "artifact")
        if phase.review:
            yield from _name(phase.review.output, (*at, "review", "output"), artifacts, "artifact")
            yield from _name(phase.review.role, (*at, "review", "role"), set(), "role")
        gates: set[str] = set()
        for number, gate in enumerate(phase.gates):
            if gate.name in gates:
                yield Finding((*at, "gates", number), "MZ3002", f"duplicate gate `{gate.name[:80]}`")
            gates |= {gate.name} if gate.name else set()
        prepared: set[str] = set()
        for number, step in enumerate(phase.prepare):
            yield from _name(step.output, (*at, "prepare", number, "output"), prepared, "result of a prepared command")


def _name(name: str, at: Route, seen: set[str], what: str) -> Iterator[Finding]:
    try:
        parse_name(name)
    except BadName as error:
        yield Finding(at, "MZ2013", str(error))
    if name in seen:
        yield Finding(at, "MZ3002", f"duplicate name `{name[:80]}`; each {what} needs its own name")
    seen.add(name)


def _numbers(pipeline: Pipeline) -> Iterator[Finding]:
    numbers: list[tuple[Route, int, int]] = [
        (("version",), pipeline.version, 1),
        (("rollbacks_max",), pipeline.rollbacks_max, 0),
    ]
    for position, phase in enumerate(pipeline.phases):
        at: Route = ("phases", position)
        numbers += [((*at, "attempts"), phase.attempts, 1), ((*at, "retries"), phase.retries, 0)]
        numbers += [((*at, "context", "token_budget"), phase.context.token_budget, 0)]
    for route, number, least in numbers:
        if number < least:
            yield Finding(route, "MZ3014", f"`{route[-1]}` is {number}; it must be at least {least}")


def _complete(pipeline: Pipeline) -> Iterator[Finding]:
    if not pipeline.phases:
        yield Finding(("phases",), "MZ3015", "the pipeline has no phases")
    for position, phase in enumerate(pipeline.phases):
        at: Route = ("phases", position)
        if phase.agent and not phase.prompt:
            yield Finding((*at, "agent"), "MZ3015", f"`{phase.phase}` has an agent but no `prompt`")
        if phase.prompt and not phase.agent:
            yield Finding((*at, "prompt"), "MZ3015", f"`{phase.phase}` has a prompt but no `agent` to send it to")
        if not phase.agent and (phase.outputs or phase.review):
            key = "outputs" if phase.outputs else "review"
            yield Finding((*at, key), "MZ3015", f"`{phase.phase}` has `{key}` but no `agent` to produce it")
        works = phase.agent or phase.prompt or phase.outputs or phase.review or phase.deliver
        if not (works or phase.prepare or phase.gates or phase.human):
            yield Finding(at, "MZ3015", f"`{phase.phase}` does nothing")
        yield from _deliver(phase, (*at, "deliver"))


def _deliver(phase: Phase, at: Route) -> Iterator[Finding]:
    steps = phase.deliver
    for position, step in enumerate(steps):
        if step in steps[:position]:
            yield Finding((*at, position), "MZ3015", f"duplicate step `{step}`")
        needed = NEEDS.get(step)
        if needed and needed not in steps[:position]:
            yield Finding((*at, position), "MZ3015", f"`{step}` needs `{needed}` before it")
        if step == "merge_base" and "push" in steps[:position]:
            said = "`merge_base` must come before `push`, so that the merge is pushed"
            yield Finding((*at, position), "MZ3015", said)
        if step == "merge_base" and not any(route.cause == "base" for route in phase.on_block):
            hint = "add `on_block: [{cause: base, to: PHASE, scope: tree, times: 1}]`"
            yield Finding((*at, position), "MZ3012", "a conflict of `merge_base` has no `on_block` route", hint)


def _references(phase: Phase, at: Route, known: Known, built_in: bool) -> Iterator[Finding]:
    for number, output in enumerate(phase.outputs):
        yield from _known(output.rules, (*at, "outputs", number, "rules"), known.rule_sets, "MZ3007", "rule set")
    if phase.prompt:
        yield from _template(phase.prompt, (*at, "prompt"), known)
    if phase.review:
        yield from _known(phase.review.rules, (*at, "review", "rules"), known.rule_sets, "MZ3007", "rule set")
        yield from _template(phase.review.prompt, (*at, "review", "prompt"), known)
    rules = [(("gates", number), gate.rule) for number, gate in enumerate(phase.gates)]
    rules += [(("human", number), human.rule) for number, human in enumerate(phase.human)]
    for route, rule in rules:
        if rule:
            yield from _known(rule, (*at, *route, "rule"), known.rules, "MZ3007", "rule")
    commands = [(("gates", number), gate.run) for number, gate in enumerate(phase.gates)]
    commands += [(("prepare", number), step.run) for number, step in enumerate(phase.prepare)]
    for route, command in commands:
        if command and command not in known.commands:
            yield _unknown_command(command, (*at, *route, "run"), built_in)


def _template(name: str, at: Route, known: Known) -> Iterator[Finding]:
    yield from _known(name, at, known.templates, "MZ3008", "template")
    for block, asked_by in known.unfilled.get(name, ()):
        said = f"the template `{name[:80]}` does not define the block `{block[:80]}`, which {asked_by} requires"
        hint = f"write {{% block {block[:80]} %}}...{{% endblock %}} in pipelines/templates/{name[:80]}"
        yield Finding(at, "MZ3017", said, hint)


def _known(name: str, at: Route, words: frozenset[str], code: str, what: str) -> Iterator[Finding]:
    if name not in words:
        yield Finding(at, code, f"there is no {what} `{name[:80]}`", did_you_mean(name, sorted(words)))


def _unknown_command(name: str, at: Route, built_in: bool) -> Finding:
    hint = f"write `{name}: COMMAND LINE` under `commands:` in mz.yaml"
    if built_in:
        said = f"mz.yaml has no command `{name}`, so this step is skipped"
        return Finding(at, NO_COMMAND, said, hint, severity="warning")
    return Finding(at, NO_COMMAND, f"mz.yaml has no command `{name[:80]}`", hint)


def _gate(gate: Gate, at: Route) -> Iterator[Finding]:
    if bool(gate.run) == bool(gate.rule):
        which = "both `run` and `rule`" if gate.run else "neither `run` nor `rule`"
        yield Finding(at, "MZ3013", f"this gate has {which}; it needs exactly one")


def _human(human: HumanGate, at: Route) -> Iterator[Finding]:
    named = [human.artifact is not None, human.field is not None, bool(human.values)]
    if any(named) and not all(named):
        yield Finding(at, "MZ3013", "a question about an artifact needs all of `artifact`, `field` and `in`")
    if human.rule and any(named):
        yield Finding(at, "MZ3013", "a question is about an artifact or a rule, not both; split it in two")
    if not human.autonomy:
        yield Finding((*at, "autonomy"), "MZ3013", "without a level of autonomy this question is never asked")


def _review(phase: Phase, review: Review, at: Route) -> Iterator[Finding]:
    builder = phase.agent.role if phase.agent else BUILDER
    if not review.independent:
        yield Finding((*at, "independent"), "MZ3011", "a reviewer must not share the builder's session or context")
    if review.role in (builder, BUILDER):
        yield Finding((*at, "role"), "MZ3011", f"the reviewer has the role of the builder, `{review.role}`")
