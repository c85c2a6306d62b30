"""Effects that compose a prompt: gather the data that a template may show, and render it.

Content that a session has already seen, by marks, so that a continuation prompt can leave it out.

Effects that write JSON Schemas of an agent's outputs into its worktree, in a folder that captures skip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256

import msgspec
from msgspec.structs import replace
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold
from mz_events.catalog.validation import ArtifactParsed, CommandRan
from mz_events.names import BUILDER, Commit, Path
from mz_projections.feature.session import text_mark
from mz_projections.feature.state import UnitRun

from mz_engine.artifacts.json_schema import artifact_schema
from mz_engine.artifacts.validate import requirements
from mz_engine.effects.session import SessionPlan
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_report, get_text, put_blob
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Phase, PhaseOutput, PromptFiles
from mz_engine.path_patterns import select
from mz_engine.ports import TEMPLATE_BROKEN, Learnings, Secrets, Workspace
from mz_engine.pricing.estimate import CHARACTERS_PER_TOKEN
from mz_engine.prompts.data import (
    CommandData,
    ContextFile,
    OutputData,
    PromptData,
    ReworkData,
    SeenContent,
    UnitData,
)
from mz_engine.prompts.render import TemplateError, contains_text, render

SHARED_SECTIONS: Mapping[str, str] = {"rules": "partials/rules.md.j2", "request": "partials/request.md.j2"}
"""Sections that are the same in every phase of a feature: mark -> template."""


class TextMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of the texts in a prompt."""

    inputs: Mapping[str, str] = {}
    """Artifact -> mark."""
    notes: tuple[str, ...] = ()
    """Marks, in the order of the prompt's notes."""
    rework: Mapping[str, str] = {}
    """Path or artifact of a rejected output -> mark."""


def phase_mark(phase: str, unit_run: UnitRun) -> str:
    """Return the mark of the full prompt of this phase and unit."""
    return f"phase:{phase}/{unit_run.unit}"


def file_mark(path: str, text: str) -> str:
    return text_mark(sha256(f"{path}\0{text}".encode()).hexdigest())


def unseen_data(data: PromptData, marks: TextMarks, seen_marks: Collection[str]) -> PromptData:
    """Return prompt data for a session that has seen the marks `shown`.

    Known content is only named; notes and rejected texts that were shown or written there are left out.
    """
    known_names = SeenContent(
        rules="rules" in seen_marks,
        request="request" in seen_marks,
        inputs=tuple(name for name in data.inputs if marks.inputs.get(name) in seen_marks),
        files=tuple(file.path for file in data.context if file_mark(file.path, file.text) in seen_marks),
    )
    notes = tuple(note for note, note_mark in zip(data.notes, marks.notes, strict=True) if note_mark not in seen_marks)
    rework = data.rework
    if rework is not None:
        unseen = {name: text for name, text in rework.artifacts.items() if marks.rework.get(name) not in seen_marks}
        rework = replace(rework, artifacts=unseen)
    return replace(data, known=known_names, notes=notes, rework=rework)


def newly_seen_marks(
    prompt: str, data: PromptData, marks: TextMarks, templates: Mapping[str, str], seen_marks: Collection[str]
) -> tuple[str, ...]:
    """Return sorted marks of the content that the prompt really holds: a project's templates may omit anything."""
    return tuple(sorted({*_marks_in_prompt(prompt, data, marks, templates)}.difference(seen_marks)))


def _marks_in_prompt(prompt: str, data: PromptData, marks: TextMarks, templates: Mapping[str, str]) -> Iterator[str]:
    for name, template in SHARED_SECTIONS.items():
        if template in templates and contains_text(prompt, render(templates, template, data)):
            yield name
    for name, text in data.inputs.items():
        if name in marks.inputs and contains_text(prompt, text):
            yield marks.inputs[name]
    for file in data.context:
        if contains_text(prompt, file.text):
            yield file_mark(file.path, file.text)
    for note, note_mark in zip(data.notes, marks.notes, strict=True):
        if contains_text(prompt, note):
            yield note_mark


SCHEMA_FOLDER = ".mz/schemas"


def schema_path(output: PhaseOutput, pins: Pins) -> str:
    """Return the path of the artifact's schema in a worktree; empty if the artifact is not JSON."""
    return f"{SCHEMA_FOLDER}/{output.rules}.json" if pins.rules[output.rules].form == "json" else ""


def write_schemas(context: StepContext, outputs: tuple[PhaseOutput, ...]) -> Steps[None]:
    """Write the schemas into the worktree before a call."""
    files = schema_files(outputs, context.pins)
    if files:
        yield from call_port(Workspace.provide, context.worktree, files)


def schema_files(outputs: tuple[PhaseOutput, ...], pins: Pins) -> Mapping[Path, bytes]:
    """Return the schema files by path in the worktree."""
    rules, limits = pins.rules, pins.config.limits
    return {
        Path(path): msgspec.json.format(msgspec.json.encode(artifact_schema(rules[output.rules], limits)), indent=2)
        + b"\n"
        for output in outputs
        if (path := schema_path(output, pins))
    }


class ComposedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of one call, redacted."""

    text: str
    full_text: str
    """The prompt that a new session would get."""
    seen_marks: tuple[str, ...] = ()
    """Marks of the content that `text` shows; only if later calls may continue the session."""


def compose_prompt(context: StepContext, role: str, template: str, session_plan: SessionPlan) -> Steps[ComposedPrompt]:
    """Compose the prompt for the next call of this role; in a continued session it holds only new content."""
    data = yield from _gather_data(context, role)
    templates = context.pins.templates
    text = full_text = render(templates, template, data)
    marks: tuple[str, ...] = ()
    if session_plan.keeps_session:
        text_marks, phase = _text_marks(context, data), phase_mark(context.phase_state.phase, context.unit_run)
        if session_plan.continued_session is not None:
            seen_marks = session_plan.continued_session.seen_marks
            text = render(
                templates, template, unseen_data(data, text_marks, seen_marks), continuation=phase in seen_marks
            )
            text = min(full_text, text, key=len)  # A project's own template can be shorter than the continuation.
            marks = newly_seen_marks(text, data, text_marks, templates, seen_marks)
        else:
            marks = newly_seen_marks(text, data, text_marks, templates, ())
        marks = tuple(sorted({*marks, phase}))
    full_text = yield from call_port(Secrets.redact, full_text)
    text = full_text if session_plan.continued_session is None else (yield from _redact(text))
    return ComposedPrompt(text=text, full_text=full_text, seen_marks=marks)


def hold_for_broken_template(error: TemplateError) -> Effect:
    """Hold the feature, which halts the run: its templates are pinned, so every retry would fail in the same way."""
    detail = yield from put_blob(error.reason)
    template = Path(error.template)
    yield from emit(
        FeatureHeld(hold=Hold.FATAL, code=TEMPLATE_BROKEN, template=template, line=error.line, detail=detail)
    )


def _redact(text: str) -> Steps[str]:
    return (yield from call_port(Secrets.redact, text))


def _gather_data(context: StepContext, role: str) -> Steps[PromptData]:
    started = context.phase_state.progress.started
    outputs = outputs_of(context, role)
    inputs = yield from _input_texts(context, role)
    prepared = yield from _preparation_results(context.unit_run, context.pins)
    rework = yield from _rework_data(context, outputs)
    notes = []
    for note in context.unit_run.notes:
        notes.append((yield from get_text(note)))
    return PromptData(
        feature=context.feature,
        title=(yield from get_text(started.title)),
        body=(yield from get_text(started.body)),
        phase=context.phase_state.phase,
        role=role,
        unit=_unit_data(context),
        inputs=inputs,
        outputs=tuple(_output_data(output, context) for output in outputs),
        prepared=prepared,
        gates=tuple(_gate_commands(context.phase, context.pins)),
        may_change=write_scope(context, role),
        denied=context.pins.config.denied_paths,
        limits=context.pins.config.limits,
        interactive=context.pins.config.autonomy != "full_auto",
        rework=rework,
        notes=tuple(notes),
        context=(yield from _context_files(context, context.phase.context)),
        causes=tuple(dict.fromkeys(route.cause for route in context.phase.on_block)),
    )


def _text_marks(context: StepContext, data: PromptData) -> TextMarks:
    """Return the marks of the texts in a builder's prompt."""
    progress, unit_run = context.phase_state.progress, context.unit_run
    return TextMarks(
        inputs={name: text_mark(progress.artifacts[name].digest) for name in data.inputs},
        notes=tuple(text_mark(note) for note in unit_run.notes),
        rework={
            output.path or output.artifact: text_mark(unit_run.parsed_artifacts[output.artifact].digest)
            for output in outputs_of(context, BUILDER)
            if output.artifact in unit_run.parsed_artifacts
        },
    )


def outputs_of(context: StepContext, role: str) -> tuple[PhaseOutput, ...]:
    """Return the outputs that this role must produce, with placeholders of paths filled in."""
    review = context.phase.agent_review
    if role != BUILDER and review is not None:
        return (PhaseOutput(artifact=review.output, path=None, rules=review.rules),)
    return tuple(
        PhaseOutput(
            artifact=output.artifact,
            path=fill_placeholders(output.path, context) if output.path else None,
            rules=output.rules,
        )
        for output in context.phase.outputs
    )


def fill_placeholders(pattern: str, context: StepContext) -> str:
    return pattern.replace("{feature}", context.feature).replace("{unit}", context.unit_run.unit)


def write_scope(context: StepContext, role: str) -> tuple[str, ...]:
    """Return the write scope of this role as patterns: its outputs and, for the builder, the phase's own patterns."""
    paths = tuple(output.path for output in outputs_of(context, role) if output.path)
    if role != BUILDER:
        return paths
    patterns: list[str] = []
    for pattern in context.phase.writable:
        if pattern == "{unit.files}":
            patterns += unit_files(context) or ()
        else:
            patterns.append(fill_placeholders(pattern, context))
    return (*patterns, *paths)


def _output_data(output: PhaseOutput, context: StepContext) -> OutputData:
    rules = context.pins.rules[output.rules]
    return OutputData(
        artifact=output.artifact,
        path=output.path,
        requirements=requirements(rules, context.pins.config.limits),
        schema=schema_path(output, context.pins),
    )


def _gate_commands(phase: Phase, pins: Pins) -> list[CommandData]:
    commands = pins.config.commands
    return [
        CommandData(name=gate.run, command=commands[gate.run].run, passed=True, excerpt="")
        for gate in phase.gates
        if gate.run is not None and gate.run in commands
    ]


def _unit_data(context: StepContext) -> UnitData | None:
    files = unit_files(context)
    return None if files is None else UnitData(id=context.unit_run.unit, files=files)


def unit_files(context: StepContext) -> tuple[str, ...] | None:
    """Return the files of the current unit, as its artifact lists them; None in a phase without units."""
    for_each = context.phase.for_each
    artifact = context.phase_state.progress.artifacts.get(for_each.artifact) if for_each else None
    for unit in artifact.units if artifact else ():
        if unit.id == context.unit_run.unit:
            return unit.files
    return None


def _input_texts(context: StepContext, role: str) -> Steps[dict[str, str]]:
    """Return the texts of the phase's inputs by artifact; a reviewer also gets the builder's outputs."""
    artifacts = {
        name.artifact: context.phase_state.progress.artifacts.get(name.artifact) for name in context.phase.inputs
    }
    if role != BUILDER:
        artifacts |= context.unit_run.parsed_artifacts
    texts = {}
    for name, artifact in artifacts.items():
        if artifact is not None:
            texts[name] = yield from get_text(artifact.digest)
    return texts


def _preparation_results(unit_run: UnitRun, pins: Pins) -> Steps[tuple[CommandData, ...]]:
    results = []
    for ran in unit_run.preparation_runs:
        results.append((yield from _command_data(ran, pins)))
    return tuple(results)


def _command_data(ran: CommandRan, pins: Pins) -> Steps[CommandData]:
    command = pins.config.commands[ran.name].run
    return CommandData(name=ran.name, command=command, passed=ran.exit == 0, excerpt=(yield from get_text(ran.excerpt)))


def _rework_data(context: StepContext, outputs: tuple[PhaseOutput, ...]) -> Steps[ReworkData | None]:
    unit_run = context.unit_run
    if not unit_run.reports:
        return None
    messages: list[str] = []
    for report in unit_run.reports:
        messages += yield from get_report(report)
    artifacts = {}
    for output in outputs:
        text = yield from _rejected_text(output, unit_run.parsed_artifacts.get(output.artifact))
        if text is not None:
            artifacts[output.path or output.artifact] = text
    hint = None
    if unit_run.signature:
        hint = yield from call_port(Learnings.hint, unit_run.signature)
    return ReworkData(messages=tuple(messages), artifacts=artifacts, hints=(hint,) if hint else ())


def _rejected_text(output: PhaseOutput, parsed: ArtifactParsed | None) -> Steps[str | None]:
    return (yield from get_text(parsed.digest)) if parsed is not None else None


def _context_files(context: StepContext, selection: PromptFiles) -> Steps[tuple[ContextFile, ...]]:
    """Return files that match the patterns, in the tree's order, until the token budget is used up."""
    if not selection.include:
        return ()
    tree, characters_left, files = context.unit_run.tree, selection.token_budget * CHARACTERS_PER_TOKEN, []
    patterns = (*selection.include, *(f"!{pattern}" for pattern in selection.exclude))
    paths = yield from call_port(Workspace.paths, tree)
    for path in select([fill_placeholders(pattern, context) for pattern in patterns], paths):
        text = yield from read_file(tree, path)
        if text is None or len(text) > characters_left:
            break
        characters_left -= len(text)
        files.append(ContextFile(path=path, text=text))
    return tuple(files)


def read_file(tree: Commit, path: Path) -> Steps[str | None]:
    """Return a file of a capture as text; None if it does not exist."""
    data = yield from call_port(Workspace.read, tree, path)
    return None if data is None else data.decode("utf-8", "replace")
