"""Effects that put a prompt together: gather what a template may show, and render it."""

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
"""For the budget of context files; the seeds' estimate."""


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of one call, without any secret."""

    text: str
    whole: str
    """The same prompt with everything in it."""
    shown: tuple[str, ...] = ()
    """Marks of what the text shows; only where a session is kept."""


def compose(scene: Scene, role: str, template: str, talk: Talk) -> Steps[Composed]:
    """The prompt for the next call of this role; in a session that goes on, only what is new there."""
    data = yield from _gather(scene, role)
    templates = scene.pins.templates
    text = whole = render(templates, template, data)
    shown: tuple[str, ...] = ()
    if talk.kept:
        sources, phase = _sources(scene, data), phase_mark(scene.work.phase, scene.cell)
        if talk.goes_on is not None:
            seen = talk.goes_on.shown
            text = render(templates, template, continued(data, sources, seen), continuation=phase in seen)
            text = min(whole, text, key=len)  # A short template of a project may say less than what is new does.
            shown = newly_shown(text, data, sources, templates, seen)
        else:
            shown = newly_shown(text, data, sources, templates, ())
        shown = tuple(sorted({*shown, phase}))
    whole = yield from do("secrets.redact", lambda ports: ports.secrets.redact(whole))
    text = whole if talk.goes_on is None else (yield from _redacted(text))
    return Composed(text=text, whole=whole, shown=shown)


def unmakeable(broken: TemplateBroken) -> Effect:
    """Halts the run where no prompt can be made: its templates are pinned, so that it could only fail again."""
    detail = yield from put(broken.why)
    place = Path(broken.template)
    yield from emit(FeatureHeld(hold=Hold.FATAL, code=TEMPLATE_BROKEN, template=place, line=broken.line, detail=detail))


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
    """Of a builder's prompt."""
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
    """What this role must hand over, with paths filled in."""
    review = scene.phase.review
    if role != "builder" and review is not None:
        return (Output(artifact=review.output, path=None, rules=review.rules),)
    return tuple(
        Output(artifact=one.artifact, path=fill(one.path, scene) if one.path else None, rules=one.rules)
        for one in scene.phase.outputs
    )


def fill(pattern: str, scene: Scene) -> str:
    return pattern.replace("{feature}", scene.feature).replace("{unit}", scene.cell.unit)


def may_change(scene: Scene, role: str) -> tuple[str, ...]:
    """Patterns of what this role may change: the outputs, and the phase's mutations with units filled in."""
    paths = tuple(output.path for output in outputs_of(scene, role) if output.path)
    if role != "builder":
        return paths
    unit = _unit(scene)
    mutations: list[str] = []
    for pattern in scene.phase.mutations:
        if pattern == "{unit.files}":
            mutations += unit.files if unit else ()
        else:
            mutations.append(fill(pattern, scene))
    return (*mutations, *paths)


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
    found = find_unit(scene)
    if found is None:
        return None
    return UnitData(id=scene.cell.unit, files=found)


def find_unit(scene: Scene) -> tuple[str, ...] | None:
    """Files of the cell's unit, as its artifact lists them; None in a phase without units."""
    for_each = scene.phase.for_each
    listed = scene.work.book.artifacts.get(for_each.artifact) if for_each else None
    for unit in listed.units if listed else ():
        if unit.id == scene.cell.unit:
            return unit.files
    return None


def _inputs(scene: Scene, role: str) -> Steps[dict[str, str]]:
    """Texts of the phase's inputs; a reviewer also gets what the builder handed over."""
    wanted = {name.artifact: scene.work.book.artifacts.get(name.artifact) for name in scene.phase.inputs}
    if role != "builder":
        wanted |= scene.cell.parsed
    texts = {}
    for name, artifact in wanted.items():
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


def _context(scene: Scene, context: Context) -> Steps[tuple[ContextFile, ...]]:
    """Files of the tree in the order of the patterns, until the token budget is used up."""
    if not context.include:
        return ()
    tree, left, files = scene.cell.tree, context.token_budget * CHARACTERS_PER_TOKEN, []
    patterns = (*context.include, *(f"!{pattern}" for pattern in context.exclude))
    paths = yield from do("workspace.paths", lambda ports: ports.workspace.paths(tree))
    for path in select([fill(pattern, scene) for pattern in patterns], paths):
        text = yield from read_file(tree, path)
        if text is None or len(text) > left:
            break
        left -= len(text)
        files.append(ContextFile(path=path, text=text))
    return tuple(files)


def read_file(tree: Commit, path: Path) -> Steps[str | None]:
    """A file of a capture as text; None when it is not there."""
    data = yield from do("workspace.read", lambda ports: ports.workspace.read(tree, path))
    return None if data is None else data.decode("utf-8", "replace")
