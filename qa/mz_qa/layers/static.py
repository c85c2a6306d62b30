"""Layer 1: settings, pipelines, rule sets, templates and backlog of a project; in the self-test, those bundled with mz.

Reads files of the repository only; `mz doctor` checks tools, logins and remotes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.validate import requirements
from mz_engine.backlog.listed import FORGE_SOURCE
from mz_engine.errors.diagnostics import Diagnostic, MzError
from mz_engine.model.config import FILE_NAME
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Gate, Phase, PhaseOutput, PreparedCommand
from mz_engine.pipelines.lint import summarise_warnings
from mz_engine.pipelines.lint_phase import MISSING_COMMAND_CODE, PipelineFiles
from mz_engine.pipelines.load import (
    TEMPLATES_FOLDER,
    PipelineSource,
    built_in_pipelines,
    find_source,
    load_pipeline_files,
    pin_files,
    project_pipelines,
)
from mz_engine.pipelines.material import check_template, find_fault
from mz_engine.prompts.render import (
    CommandData,
    ContextFile,
    OutputData,
    PromptData,
    ReworkData,
    SeenContent,
    TemplateError,
    UnitData,
    load_templates,
    render,
)
from mz_engine.run.plan import read_backlog
from mz_engine.run.settings import load_config
from mz_events.names import BUILDER
from mz_projections.feature.unit import BLOCK
from mz_recordings.findings.model import Finding

from mz_qa.results import CheckedItem, LayerOutput, Project, Remark


def check(project: Project) -> Iterator[LayerOutput]:
    """Report everything that prevents a run from starting, and prompts that cannot be rendered."""
    outputs = tuple(check_settings(project))
    yield from outputs
    # With invalid settings, missing commands of a pipeline would be false findings.
    settings_invalid = any(isinstance(output, Finding) for output in outputs)
    material = load_pipeline_files(project.root)
    yield CheckedItem("files of the project's own", len(material.files))
    yield from to_layer_output(material.diagnostics)
    for name in dict.fromkeys((project.config.pipeline, *project_pipelines(project.root))):
        for output in check_pipeline(project, name, material):
            if not (settings_invalid and isinstance(output, Finding) and output.cause == MISSING_COMMAND_CODE):
                yield output
    yield from check_backlog(project)


def check_settings(project: Project) -> Iterator[LayerOutput]:
    yield CheckedItem("settings files")
    try:
        loaded = load_config(project.root, project.environment, {})
    except MzError as error:
        yield from to_layer_output(error.diagnostics)
        return
    yield from to_layer_output(loaded.warnings)
    yield from to_layer_output(loaded.unknown_agents())


def check_bundled(project: Project) -> Iterator[LayerOutput]:
    """Check bundled templates, rules and pipelines like those of a project that has none of its own."""
    templates = load_templates()
    for name, text in templates.items():
        yield CheckedItem("templates")
        yield from to_layer_output(check_template(name, name, text, templates))
    for name, rules in load_rules().items():
        yield CheckedItem("rule sets")
        fault = find_fault(rules)
        if fault:
            yield Finding(kind="RULE", message=f"the rule set {name} is invalid: {fault}", cause=name, fix="report it")
    with tempfile.TemporaryDirectory(prefix="mz-self-test-") as folder:
        empty_project = replace(project, root=Path(folder), config=replace(project.config, pipeline=""))
        for name in built_in_pipelines():
            yield from check_pipeline(empty_project, name, load_pipeline_files(empty_project.root))


def check_pipeline(project: Project, name: str, material: PipelineFiles) -> Iterator[LayerOutput]:
    """Check a pipeline: syntax, lint rules, and all its prompts."""
    yield CheckedItem("pipelines")
    try:
        source = find_source(name, project.root)
    except MzError as error:
        yield from to_layer_output(error.diagnostics)
        return
    diagnostics = source.check(material, project.config)
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    if errors:
        yield from to_layer_output(errors)
        return
    definition = source.parse()[0]
    if name == project.config.pipeline or not source.built_in:
        yield from to_layer_output(summarise_warnings(diagnostics, definition, project.config))
    try:
        pins = pin_files(definition, material, project.config)
    except MzError as error:
        yield from to_layer_output(error.diagnostics)
        return
    yield from check_prompts(pins, source)


def check_prompts(pins: Pins, source: PipelineSource) -> Iterator[LayerOutput]:
    """Check that all prompts render; a finding points at the project's template, else at the pipeline. Bundled
    templates must state every rule; for the project's it is a remark."""
    bundled = load_templates()
    project_templates = {name for name, text in pins.templates.items() if bundled.get(name) != text}
    broken: set[str] = set()
    unstated_lines: dict[tuple[str, str], set[str]] = {}
    for sample in sample_prompts(pins):
        yield CheckedItem("prompts")
        try:
            text = render(pins.templates, sample.template, sample.data, sample.continuation)
        except TemplateError as error:
            if str(error) not in broken:
                is_own = error.template in project_templates
                yield Finding(
                    kind="PIPELINE",
                    message=f"the prompt of phase {sample.phase} cannot be rendered {sample.situation}: {error.reason}",
                    cause=error.template,
                    fix=f"mz pipelines lint {source.name}" if is_own else "mz help MZ3017",
                    file=f"{TEMPLATES_FOLDER}/{error.template}" if is_own else source.name,
                    line=error.line if is_own else None,
                )
            broken.add(str(error))
            continue
        if not sample.continuation and (missing := unstated_requirements(sample, text)):
            unstated_lines.setdefault((sample.phase, sample.template), set()).update(missing)
    for (phase, template), lines in unstated_lines.items():
        message = f"{template} does not state all rules to the agent of phase {phase}; missing: {len(lines)}"
        if template in project_templates:
            yield Remark(f"{source.name}: {message}")
        else:
            detail = tuple(f"  {line}" for line in sorted(lines))
            yield Finding(kind="PIPELINE", message=message, cause=template, detail=detail, file=source.name)


def check_backlog(project: Project) -> Iterator[LayerOutput]:
    """Check the backlog if it exists; it may be written for each run. Issues of a forge are not read."""
    name = project.config.backlog
    if FORGE_SOURCE.fullmatch(name):
        yield Remark(f"{name} is not read here")
        return
    if not os.path.lexists(project.root / name):
        yield Remark(f"{name} does not exist")
        return
    try:
        yield CheckedItem("backlog items", len(read_backlog(project.root, project.config, {})))
    except MzError as error:
        yield from to_layer_output(error.diagnostics)


def to_layer_output(diagnostics: Iterable[Diagnostic]) -> Iterator[LayerOutput]:
    """Convert errors to findings and warnings to remarks."""
    for diagnostic in diagnostics:
        location = diagnostic.location
        if diagnostic.severity == "warning":
            prefix = f"{location}: " if location else ""
            yield Remark(f"{prefix}{diagnostic.message} [{diagnostic.code}]")
            continue
        yield Finding(
            kind="PIPELINE",
            message=f"{diagnostic.message} [{diagnostic.code}]",
            cause=diagnostic.code,
            detail=tuple(f"  {line}" for line in diagnostic.hint.splitlines()),
            fix=f"mz help {diagnostic.code}",
            file=location.file if location else FILE_NAME,
            line=location.line if location else None,
        )


# sample data of prompts -----------------------------------------------------------------------------------------------
FEATURE, UNIT = "sample-feature", "U1"
UNIT_FILES = ("src/sample.py", "tests/test_sample.py")
HOSTILE = "# A heading\n```\n{{ nothing }} {% raw %}\n```\n> quoted & <b>bold</b>\n"
"""Untrusted text that a template must insert unchanged."""
FAILURE_EXCERPT = "the command `test` failed with exit 1; it printed:\nFAIL: test_x\nAssertionError: 1 != 2\n"


class SamplePrompt(NamedTuple):
    """Data of one prompt, as the engine would render it."""

    phase: str
    template: str
    situation: str
    """Situation of the prompt, for people."""
    data: PromptData
    continuation: bool = False


def sample_prompts(pins: Pins) -> Iterator[SamplePrompt]:
    """Yield for every agent call of the pipeline: the first prompt, a rework, one with notes, one without people to
    ask; for calls that may continue a session, also both prompts in a session. Skip phases with missing templates or
    rules."""
    for phase in pins.pipeline.phases:
        if phase.prompt and phase.agent:
            yield from _samples_of_role(pins, phase, BUILDER, phase.prompt, phase.outputs)
        if phase.agent_review:
            verdict_output = PhaseOutput(artifact=phase.agent_review.output, path=None, rules=phase.agent_review.rules)
            yield from _samples_of_role(
                pins, phase, phase.agent_review.role, phase.agent_review.prompt, (verdict_output,)
            )


def _samples_of_role(
    pins: Pins, phase: Phase, role: str, template: str, outputs: tuple[PhaseOutput, ...]
) -> Iterator[SamplePrompt]:
    if template not in pins.templates or any(output.rules not in pins.rules for output in outputs):
        return
    data = _prompt_data(pins, phase, role, outputs)
    messages = ("sample.md:3: the section is empty [sample.rule]", FAILURE_EXCERPT)
    rejected = {output.path or output.artifact: HOSTILE for output in data.outputs}
    hints = ("it was mended by a change of src/sample.py",)
    rework_data = replace(data, rework=ReworkData(messages=messages, artifacts=rejected, hints=hints))
    situations = {
        "as the first prompt": data,
        "with notes": replace(data, notes=("please be\nfriendlier", HOSTILE)),
        "when nobody can be asked": replace(data, interactive=False),
        "as a rework": rework_data,
    }
    if role == BUILDER:
        files = tuple(file.path for file in data.context)
        content = SeenContent(rules=True, request=True, inputs=tuple(data.inputs), files=files)
        situations["as the next phase in a session"] = replace(data, known=content)
        yield SamplePrompt(phase.phase, template, "as a rework in a session", rework_data, continuation=True)
    yield from (SamplePrompt(phase.phase, template, *situation) for situation in situations.items())


def _output_data(pins: Pins, output: PhaseOutput) -> OutputData:
    path, wanted = output.path, requirements(pins.rules[output.rules], pins.config.limits)
    return OutputData(artifact=output.artifact, path=path and _fill_placeholders(path), requirements=wanted)


def _prompt_data(pins: Pins, phase: Phase, role: str, outputs: tuple[PhaseOutput, ...]) -> PromptData:
    output_data = tuple(_output_data(pins, output) for output in outputs)
    inputs = [use.name for use in phase.inputs]
    inputs += [output.artifact for output in phase.outputs if role != BUILDER]
    writable = phase.writable if role == BUILDER else ()
    patterns = (UNIT_FILES if ".files}" in pattern else (_fill_placeholders(pattern),) for pattern in writable)
    block_file = pins.pipeline.block_file if role == BUILDER and phase.raisable_causes else None
    return PromptData(
        feature=FEATURE,
        title="Show one month only",
        body=HOSTILE,
        phase=phase.phase,
        role=role,
        unit=UnitData(id=UNIT, files=UNIT_FILES) if phase.for_each else None,
        inputs=dict.fromkeys(inputs, HOSTILE),
        outputs=output_data,
        prepared=tuple(_commands(pins, phase.prepare, FAILURE_EXCERPT)),
        gates=tuple(_commands(pins, phase.gates, "")),
        may_change=(*chain.from_iterable(patterns), *(output.path for output in output_data if output.path)),
        denied=pins.config.denied_paths,
        limits=pins.config.limits,
        interactive=True,
        rework=None,
        notes=(),
        context=(ContextFile(path="README.md", text=HOSTILE),) if phase.context.include else (),
        is_scoped=phase.context.files is not None,
        causes=phase.raisable_causes if role == BUILDER else tuple(route.cause for route in phase.on_block),
        block=_output_data(pins, PhaseOutput(artifact=BLOCK, path=block_file, rules=BLOCK)) if block_file else None,
    )


def _commands(pins: Pins, uses: Sequence[PreparedCommand | Gate], excerpt: str) -> Iterator[CommandData]:
    """Yield the configured commands of these steps; the first of several has failed if it printed something."""
    for at, use in enumerate(uses):
        if use.run in pins.config.commands:
            command = pins.config.commands[use.run].run
            yield CommandData(name=use.run, command=command, passed=at > 0 or not excerpt, excerpt=excerpt)


def _fill_placeholders(pattern: str) -> str:
    return pattern.replace("{feature}", FEATURE).replace("{unit}", UNIT)


def unstated_requirements(sample: SamplePrompt, prompt: str) -> tuple[str, ...]:
    """Return the requirements of the sample's outputs that its prompt does not state."""
    text = " ".join(prompt.split())
    all_requirements = (requirement for output in sample.data.outputs for requirement in output.requirements)
    return tuple(requirement for requirement in all_requirements if " ".join(requirement.split()) not in text)
