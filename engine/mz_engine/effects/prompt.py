"""Effects that compose a prompt: gather the data that a template may show, and render it."""

from __future__ import annotations

import msgspec
from mz_events.catalog.check import ArtifactParsed, CommandRan
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold
from mz_events.names import Commit, Path
from mz_projections.conversation import mark
from mz_projections.state import Cell

from mz_engine.artifacts.validate import requirements
from mz_engine.effects.schemas import schema_path
from mz_engine.effects.seen import Sources, continued, newly_shown, phase_mark
from mz_engine.effects.steps import Effect, Scene, Steps, do, emit, get, get_report, put
from mz_engine.effects.talk import Talk
from mz_engine.patterns import select
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Context, Output, Phase
from mz_engine.ports import TEMPLATE_BROKEN
from mz_engine.prompts.data import (
    CommandData,
    ContextFile,
    OutputData,
    PromptData,
    ReworkData,
    UnitData,
)
from mz_engine.prompts.render import TemplateBroken, render

CHARACTERS_PER_TOKEN = 4
"""For the token budget of context files."""


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of one call, redacted."""

    text: str
    whole: str
    """The prompt that a new session would get."""
    shown: tuple[str, ...] = ()
    """Marks of the content that `text` shows; only if later calls may continue the session."""


def compose(scene: Scene, role: str, template: str, talk: Talk) -> Steps[Composed]:
    """Compose the prompt for the next call of this role; in a continued session it holds only new content."""
    data = yield from _gather(scene, role)
    templates = scene.pins.templates
    text = whole = render(templates, template, data)
    shown: tuple[str, ...] = ()
    if talk.kept:
        sources, phase = _sources(scene, data), phase_mark(scene.work.phase, scene.cell)
        if talk.goes_on is not None:
            seen = talk.goes_on.shown
            text = render(templates, template, continued(data, sources, seen), continuation=phase in seen)
            text = min(whole, text, key=len)  # A project's own template can be shorter than the continuation.
            shown = newly_shown(text, data, sources, templates, seen)
        else:
            shown = newly_shown(text, data, sources, templates, ())
        shown = tuple(sorted({*shown, phase}))
    whole = yield from do("secrets.redact", lambda ports: ports.secrets.redact(whole))
    text = whole if talk.goes_on is None else (yield from _redacted(text))
    return Composed(text=text, whole=whole, shown=shown)


def unmakeable(broken: TemplateBroken) -> Effect:
    """Hold the feature, which halts the run: its templates are pinned, so every retry would fail in the same way."""
    detail = yield from put(broken.why)
    template = Path(broken.template)
    yield from emit(
        FeatureHeld(hold=Hold.FATAL, code=TEMPLATE_BROKEN, template=template, line=broken.line, detail=detail)
    )


def _redacted(text: str) -> Steps[str]:
    return (yield from do("secrets.redact", lambda ports: ports.secrets.redact(text)))


def _gather(scene: Scene, role: str) -> Steps[PromptData]:
    started = scene.work.book.started
    outputs = outputs_of(scene, role)
    inputs = yield from _inputs(scene, role)
    prepared = yield from _prepared(scene.cell, scene.pins)
    rework = yield from _rework(scene, outputs)
    notes = []
    for note in scene.cell.notes:
        notes.append((yield from get(note)))
    return PromptData(
        feature=scene.feature,
        title=(yield from get(started.title)),
        body=(yield from get(started.body)),
        phase=scene.work.phase,
        role=role,
        unit=_unit(scene),
        inputs=inputs,
        outputs=tuple(_output(output, scene) for output in outputs),
        prepared=prepared,
        gates=tuple(_gates(scene.phase, scene.pins)),
        may_change=may_change(scene, role),
        denied=scene.pins.config.denied_paths,
        limits=scene.pins.config.limits,
        interactive=scene.pins.config.autonomy != "full_auto",
        rework=rework,
        notes=tuple(notes),
        context=(yield from _context(scene, scene.phase.context)),
        causes=tuple(dict.fromkeys(route.cause for route in scene.phase.on_block)),
    )


def _sources(scene: Scene, data: PromptData) -> Sources:
    """Return the marks of the texts in a builder's prompt."""
    book, cell = scene.work.book, scene.cell
    return Sources(
        inputs={name: mark(book.artifacts[name].digest) for name in data.inputs},
        notes=tuple(mark(note) for note in cell.notes),
        rework={
            output.path or output.artifact: mark(cell.parsed[output.artifact].digest)
            for output in outputs_of(scene, "builder")
            if output.artifact in cell.parsed
        },
    )


def outputs_of(scene: Scene, role: str) -> tuple[Output, ...]:
    """Return the outputs that this role must produce, with placeholders of paths filled in."""
    review = scene.phase.review
    if role != "builder" and review is not None:
        return (Output(artifact=review.output, path=None, rules=review.rules),)
    return tuple(
        Output(artifact=output.artifact, path=fill(output.path, scene) if output.path else None, rules=output.rules)
        for output in scene.phase.outputs
    )


def fill(pattern: str, scene: Scene) -> str:
    return pattern.replace("{feature}", scene.feature).replace("{unit}", scene.cell.unit)


def may_change(scene: Scene, role: str) -> tuple[str, ...]:
    """Return the write scope of this role as patterns: its outputs and, for the builder, the phase's own patterns."""
    paths = tuple(output.path for output in outputs_of(scene, role) if output.path)
    if role != "builder":
        return paths
    patterns: list[str] = []
    for pattern in scene.phase.mutations:
        if pattern == "{unit.files}":
            patterns += find_unit(scene) or ()
        else:
            patterns.append(fill(pattern, scene))
    return (*patterns, *paths)


def _output(output: Output, scene: Scene) -> OutputData:
    rules = scene.pins.rules[output.rules]
    return OutputData(
        artifact=output.artifact,
        path=output.path,
        requirements=requirements(rules, scene.pins.config.limits),
        schema=schema_path(output, scene.pins),
    )


def _gates(phase: Phase, pins: Pins) -> list[CommandData]:
    commands = pins.config.commands
    return [
        CommandData(name=gate.run, command=commands[gate.run].run, passed=True, excerpt="")
        for gate in phase.gates
        if gate.run is not None and gate.run in commands
    ]


def _unit(scene: Scene) -> UnitData | None:
    files = find_unit(scene)
    return None if files is None else UnitData(id=scene.cell.unit, files=files)


def find_unit(scene: Scene) -> tuple[str, ...] | None:
    """Return the files of the current unit, as its artifact lists them; None in a phase without units."""
    for_each = scene.phase.for_each
    listed = scene.work.book.artifacts.get(for_each.artifact) if for_each else None
    for unit in listed.units if listed else ():
        if unit.id == scene.cell.unit:
            return unit.files
    return None


def _inputs(scene: Scene, role: str) -> Steps[dict[str, str]]:
    """Return the texts of the phase's inputs by artifact; a reviewer also gets the builder's outputs."""
    artifacts = {name.artifact: scene.work.book.artifacts.get(name.artifact) for name in scene.phase.inputs}
    if role != "builder":
        artifacts |= scene.cell.parsed
    texts = {}
    for name, artifact in artifacts.items():
        if artifact is not None:
            texts[name] = yield from get(artifact.digest)
    return texts


def _prepared(cell: Cell, pins: Pins) -> Steps[tuple[CommandData, ...]]:
    results = []
    for ran in cell.prepared:
        results.append((yield from _command(ran, pins)))
    return tuple(results)


def _command(ran: CommandRan, pins: Pins) -> Steps[CommandData]:
    command = pins.config.commands[ran.name].run
    return CommandData(name=ran.name, command=command, passed=ran.exit == 0, excerpt=(yield from get(ran.excerpt)))


def _rework(scene: Scene, outputs: tuple[Output, ...]) -> Steps[ReworkData | None]:
    cell = scene.cell
    if not cell.reports:
        return None
    messages: list[str] = []
    for report in cell.reports:
        messages += yield from get_report(report)
    artifacts = {}
    for output in outputs:
        text = yield from _refused_text(output, cell.parsed.get(output.artifact))
        if text is not None:
            artifacts[output.path or output.artifact] = text
    hint = None
    if cell.signature:
        hint = yield from do("learnings.hint", lambda ports: ports.learnings.hint(cell.signature))
    return ReworkData(messages=tuple(messages), artifacts=artifacts, hints=(hint,) if hint else ())


def _refused_text(output: Output, parsed: ArtifactParsed | None) -> Steps[str | None]:
    return (yield from get(parsed.digest)) if parsed is not None else None


def _context(scene: Scene, selection: Context) -> Steps[tuple[ContextFile, ...]]:
    """Return files that match the patterns, in the tree's order, until the token budget is used up."""
    if not selection.include:
        return ()
    tree, characters_left, files = scene.cell.tree, selection.token_budget * CHARACTERS_PER_TOKEN, []
    patterns = (*selection.include, *(f"!{pattern}" for pattern in selection.exclude))
    paths = yield from do("workspace.paths", lambda ports: ports.workspace.paths(tree))
    for path in select([fill(pattern, scene) for pattern in patterns], paths):
        text = yield from read_file(tree, path)
        if text is None or len(text) > characters_left:
            break
        characters_left -= len(text)
        files.append(ContextFile(path=path, text=text))
    return tuple(files)


def read_file(tree: Commit, path: Path) -> Steps[str | None]:
    """Return a file of a capture as text; None if it does not exist."""
    data = yield from do("workspace.read", lambda ports: ports.workspace.read(tree, path))
    return None if data is None else data.decode("utf-8", "replace")
