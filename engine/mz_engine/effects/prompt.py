"""Effects that compose a prompt: gather the data that a template may show, and render it.

The agent session of a call is a new one, or the feature's own, which is continued. What it has seen is known by marks,
so that a continuation prompt can leave it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import (
    ComposedLearning,
    ContextComposed,
    ContextPart,
    LearningLeftOut,
    ReplyParsed,
    SessionDropped,
    SessionDropReason,
)
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold
from mz_events.catalog.validation import Unit
from mz_events.names import BUILDER, Commit, Path
from mz_projections.feature.session import text_mark as digest_mark
from mz_projections.feature.state import AgentSession
from mz_projections.feature.unit import BLOCK, failure_of

from mz_engine.artifacts.json_schema import artifact_schema
from mz_engine.artifacts.parse import unit_record
from mz_engine.artifacts.validate import requirements
from mz_engine.decide.recovery import OUTPUT_LIMIT
from mz_engine.decide.units import input_artifacts, listed_units
from mz_engine.effects.commands import known_failures
from mz_engine.effects.items import items_text
from mz_engine.effects.records import record_texts
from mz_engine.effects.steps import (
    Effect,
    StepContext,
    Steps,
    call_port,
    emit,
    get_reports,
    get_text,
    get_texts,
    put_blob,
)
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import FILES_TOKENS_MAX, Phase, PhaseOutput, Pipeline
from mz_engine.path_patterns import select
from mz_engine.ports import TEMPLATE_BROKEN, Agents, FeatureWorktree, Memory, MemoryQuery, Secrets, Selection, Workspace
from mz_engine.prompts.ledger import (
    CHARACTERS_PER_TOKEN,
    FAILURES,
    FILE,
    LEARNING,
    bullets,
    characters_of,
    covered_tokens,
    fitting_failures,
    prompt_parts,
    tokens_of,
)
from mz_engine.prompts.render import (
    LATER_PARTIALS,
    CommandData,
    ContextFile,
    HeadText,
    OutputData,
    PromptData,
    ReworkData,
    SeenContent,
    TemplateError,
    UnitData,
    render,
    shown_form,
)

SHARED_SECTIONS: Mapping[str, str] = {"rules": "partials/rules.md.j2", "request": "partials/request.md.j2"}
"""Sections that are the same in every phase of a feature: mark -> template."""
LEFT_OUT_READ_MAX = 100
CUT_OFF = (
    "The call before this one was cut off, because its output was longer than allowed. Write long files in several "
    "steps, each with a part of the file, and do not repeat their content in your reply."
)
"""Note for the call after one that reached the output limit."""


def text_mark(*parts: str) -> str:
    """Return the mark of a text, as the log marks what an agent has written."""
    return digest_mark(sha256("\0".join(parts).encode()).hexdigest())


def unseen_data(data: PromptData, seen_marks: Collection[str]) -> PromptData:
    """Return prompt data for a session that has seen these marks: known content is only named, known notes and rejected
    texts are left out."""
    content = SeenContent(
        rules="rules" in seen_marks,
        request="request" in seen_marks,
        inputs=tuple(name for name, text in data.inputs.items() if text_mark(text) in seen_marks),
        files=tuple(file.path for file in data.context if text_mark(file.path, file.text) in seen_marks),
    )
    notes, rework = tuple(note for note in data.notes if text_mark(note) not in seen_marks), data.rework
    learnings = tuple(learning for learning in data.learnings if text_mark(learning.text) not in seen_marks)
    if rework is not None:
        unseen = {name: text for name, text in rework.artifacts.items() if text_mark(text) not in seen_marks}
        rework = replace(rework, artifacts=unseen)
    head = tuple(part for part in data.head if text_mark(part.text) not in seen_marks)
    return replace(data, known=content, notes=notes, learnings=learnings, rework=rework, head=head)


def marks_in_prompt(prompt: str, data: PromptData, templates: Mapping[str, str]) -> Iterator[str]:
    """Yield marks of the content that the prompt really holds: a project's templates may omit anything."""
    texts = {text_mark(text): text for text in (*data.inputs.values(), *data.notes)}
    texts |= {text_mark(learning.text): learning.text for learning in data.learnings if not learning.is_repeated}
    texts |= {text_mark(part.text): part.text for part in data.head}
    texts |= {text_mark(file.path, file.text): file.text for file in data.context}
    for section, template in SHARED_SECTIONS.items():
        if template in templates:
            texts[section] = render(templates, template, data)
    return (mark for mark, text in texts.items() if shown_form(prompt, text))


SCHEMA_FOLDER = ".mz/schemas"


def schema_path(output: PhaseOutput, pins: Pins) -> str:
    """Return the path of the artifact's schema in a worktree; empty for Markdown."""
    return "" if pins.rules[output.rules].form == "markdown" else f"{SCHEMA_FOLDER}/{output.rules}.json"


def provide_files(context: StepContext, role: str, worktree: FeatureWorktree, skills: Mapping[Path, bytes]) -> Effect:
    """Write skills and JSON Schemas of an agent's outputs into its worktree, in a folder that captures skip."""
    files, block = dict(skills), block_output(context, role)
    for output in (*outputs_of(context, role), *([block] if block else [])):
        if path := schema_path(output, context.pins):
            rules = context.pins.rules_of(context.phase, output)
            schema = artifact_schema(rules, context.pins.config.limits)
            files[Path(path)] = msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
    if files:
        yield from call_port(Workspace.provide, worktree, files)


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The session of one call."""

    keeps_session: bool = False
    """Later calls may continue the session."""
    continued_session: AgentSession | None = None
    """The session that the call continues; None: it starts one."""


def configured_model(config: Config, agent: str, tier: str) -> str | None:
    """Return the model that the settings name for a tier; they hold for the configured agent, not for a successor."""
    model: str | None = getattr(config.models, tier) if agent == config.agent else None
    return model


def keeps_session(phase: Phase, role: str, config: Config) -> bool:
    """Return True if calls of this role continue the feature's session. A reviewer's never do, nor do those
    with `not_as`, nor those that see only some files."""
    use = phase.agent
    if phase.context.files is not None:
        return False
    return role == BUILDER and use is not None and not use.not_as and (use.session or config.sessions) == "continue"


def plan_session(context: StepContext, role: str, agent: str, model: str, key: str) -> Steps[SessionPlan]:
    """Choose the session of a call. One that cannot be continued is dropped, with a recorded reason."""
    if not keeps_session(context.phase, role, context.pins.config):
        return SessionPlan()
    last_session = context.phase_state.progress.agent_session
    reason = None if last_session is None else drop_reason(last_session, context.run, agent, model)
    session_id = None if last_session is None or reason is not None else last_session.id
    can_continue = yield from call_port(Agents.continues, agent, session_id, key)
    if last_session is None:
        return SessionPlan(keeps_session=can_continue)
    if session_id is not None and can_continue:
        return SessionPlan(keeps_session=True, continued_session=last_session)
    yield from emit(SessionDropped(key=key, session=last_session.id, reason=reason or SessionDropReason.RECORDED))
    return SessionPlan(keeps_session=can_continue or reason is None)


def drop_reason(session: AgentSession, run: str, agent: str, model: str) -> SessionDropReason | None:
    """Return why the session cannot be continued, as far as the log knows; None if it can."""
    if session.drop_reason is not None:
        return session.drop_reason
    if session.key.partition("/")[0] != run:
        return SessionDropReason.FORK
    if session.agent != agent:
        return SessionDropReason.AGENT
    return SessionDropReason.MODEL if session.model != model else None


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The files that an agent sees, if its phase names them."""

    paths: tuple[Path, ...]
    parts: tuple[ContextPart, ...]
    hidden_files: int


def _scope(context: StepContext) -> Steps[Scope | None]:
    """Return what the phase's agents see: its files, inputs and outputs, and what was changed for the unit so far.
    None: everything."""
    unit_run, progress = context.unit_run, context.phase_state.progress
    if context.phase.context.files is None:
        return None
    all_paths = yield from call_port(Workspace.paths, unit_run.tree)
    changes = yield from call_port(Workspace.changes, unit_run.base, unit_run.tree)
    uses = (use for use in context.phase.inputs if use.artifact)
    inputs = (input_artifacts(progress, use, current_unit(context)).values() for use in uses)
    own = {change.path for change in changes} | {artifact.path for of_units in inputs for artifact in of_units}
    own |= {Path(output.path or "") for output in outputs_of(context, BUILDER)}
    several = [f"/{path}" for path in own if path and "*" in path]
    own |= {*select([*expand_patterns(context.phase.context.files, context, "/"), *several], all_paths)}
    paths, parts = tuple(path for path in all_paths if path in own), list[ContextPart]()
    for number, path in enumerate(paths):
        text = (yield from read_file(unit_run.tree, path)) if number < LEFT_OUT_READ_MAX else None
        parts.append(ContextPart(source=FILE, name=path, tokens=tokens_of(text or "")))
    return Scope(paths=paths, parts=tuple(parts), hidden_files=len(all_paths) - len(paths))


class ComposedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of one call, redacted."""

    text: str
    full_text: str
    """The prompt that a new session would get."""
    seen_marks: tuple[str, ...] = ()
    """Marks of the content that `text` shows; only if later calls may continue the session."""
    data: PromptData
    left_out: tuple[ContextPart, ...]
    scope: Scope | None
    learnings: tuple[ComposedLearning, ...]
    learnings_left_out: tuple[LearningLeftOut, ...]

    def ledger(self, key: str, prompt: str, tokens_max: int | None) -> ContextComposed:
        """Return what the prompt, as the agent gets it, consists of."""
        parts = prompt_parts(prompt, self.data, self.left_out)
        over = 0 if tokens_max is None else max(0, covered_tokens(parts) - tokens_max)
        return ContextComposed(
            key=key,
            parts=parts,
            tokens_max=tokens_max,
            over=over,
            learnings=self.learnings,
            left_out=self.learnings_left_out,
            laid_out=self.scope.parts if self.scope else (),
            hidden_files=self.scope.hidden_files if self.scope else 0,
        )


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt is made of."""

    scope: Scope | None
    data: PromptData
    tokens_max: int | None
    selection: Selection


def gather_material(context: StepContext, role: str, key: str, head: tuple[HeadText, ...] = ()) -> Steps[Material]:
    """Gather the material for the prompt of the call with this key, headed by these texts."""
    scope, data = (yield from _scope(context)), replace((yield from _gather_data(context, role)), head=head)
    guidance = context.pins.guidance.get(context.phase.phase) if role == BUILDER else None
    limits = (context.phase.context.tokens_max, guidance.tokens_max if guidance else None)
    tokens_max = min((limit for limit in limits if limit is not None), default=None)
    selection = yield from select_learnings(context, data, key, tokens_max)
    return Material(scope=scope, data=data, tokens_max=tokens_max, selection=selection)


def compose_prompt(
    context: StepContext, template: str, session_plan: SessionPlan, material: Material
) -> Steps[ComposedPrompt]:
    """Compose a prompt; in a continued session it holds only new content."""
    scope, selection, data = material.scope, material.selection, material.data
    # Learnings about the failure to fix are part of the rework.
    hints = tuple(learning.text for learning in selection.learnings if learning.is_repeated)
    rework = replace(data.rework, hints=hints) if data.rework is not None and hints else data.rework
    data = replace(data, learnings=selection.learnings, rework=rework)
    data, left_out = yield from _fit_context(context, data, material.tokens_max, scope)
    left_out += tuple(ContextPart(source=LEARNING, name=item.id, left_out=True) for item in selection.left_out)
    learnings = []
    for learning in selection.learnings:
        if learning.id:
            blob = yield from put_blob(learning.text)
            learnings.append(
                ComposedLearning(id=learning.id, kind=learning.kind, text=blob, is_repeated=learning.is_repeated)
            )
    templates, session = context.pins.templates, session_plan.continued_session
    text = full_text = head_of(data) + render(templates, template, data)
    marks: set[str] = set()
    if session_plan.keeps_session:
        phase_mark = f"phase:{context.phase_state.phase}/{context.unit_run.unit}"  # Of the phase's full prompt.
        seen_marks = session.seen_marks if session else frozenset()
        if session:
            unseen = unseen_data(data, seen_marks)
            continuation = render(templates, template, unseen, continuation=phase_mark in seen_marks)
            continuation = head_of(unseen) + continuation
            text = min(full_text, continuation, key=len)  # A project's own template can be shorter.
        marks = {*marks_in_prompt(text, data, templates)}.difference(seen_marks) | {phase_mark}
    full_text = yield from call_port(Secrets.redact, full_text)
    text = (yield from call_port(Secrets.redact, text)) if session else full_text
    return ComposedPrompt(
        text=text,
        full_text=full_text,
        seen_marks=tuple(sorted(marks)),
        data=data,
        left_out=left_out,
        scope=scope,
        learnings=tuple(learnings),
        learnings_left_out=selection.left_out,
    )


def select_learnings(context: StepContext, data: PromptData, key: str, tokens_max: int | None) -> Steps[Selection]:
    """Select what the call with this key is told of earlier work, as far as its templates show it. A reviewer is told
    only what fixed its own rejected reply: lessons are written by those whose work it judges."""
    unit, unit_run, use, config = current_unit(context), context.unit_run, context.phase.context, context.pins.config
    if not use.learnings or (data.role != BUILDER and not unit_run.reports):
        return Selection()
    tokens_left = use.learnings
    if tokens_max is not None:
        fixed = characters_of(replace(data, known_failures=())) // CHARACTERS_PER_TOKEN
        tokens_left = max(0, min(tokens_left, tokens_max - fixed))
    query = MemoryQuery(
        call=key,
        feature=context.feature,
        phase=data.phase,
        failure=failure_of(unit_run) if unit_run.reports else "",
        paths=unit.files if unit else (),
        tags=tuple(unit.fields.values()) if unit else (),
        tokens_max=tokens_left,
        rules=context.pins.memory,
        holdout=config.memory.holdout,
        without=context.pins.without,
        shared=config.memory.shared,
    )
    if data.role != BUILDER:
        query = replace(query, phase="", paths=(), tags=())
    selection = yield from call_port(Memory.select, query)
    can_show = LATER_PARTIALS["learnings"] in context.pins.templates
    shown = tuple(learning for learning in selection.learnings if can_show or learning.is_repeated)
    return Selection(shown, selection.left_out)


def head_of(data: PromptData) -> str:
    """Return what stands before the text of the template."""
    return "".join(f"{part.text}\n\n---\n\n" for part in data.head)


def hold_for_broken_template(error: TemplateError) -> Effect:
    """Hold the feature, which halts the run: its templates are pinned, so every retry would fail in the same way."""
    detail = yield from put_blob(error.reason)
    template = Path(error.template)
    yield from emit(
        FeatureHeld(hold=Hold.FATAL, code=TEMPLATE_BROKEN, template=template, line=error.line, detail=detail)
    )


def _gather_data(context: StepContext, role: str) -> Steps[PromptData]:
    phase, unit_run, started = context.phase, context.unit_run, context.phase_state.progress.started
    config, outputs = context.pins.config, outputs_of(context, role)
    uses = dict.fromkeys([*(ran.name for ran in unit_run.preparation_runs), *(gate.run or "" for gate in phase.gates)])
    failures = dict[str, None]()
    for name in uses:
        failures |= dict.fromkeys((yield from known_failures(context, name)))
    prepared = []
    for ran in unit_run.preparation_runs:
        excerpt = yield from get_text(ran.excerpt)
        command = config.commands[ran.name].run
        prepared.append(CommandData(name=ran.name, command=command, passed=ran.exit == 0, excerpt=excerpt))
    parsed = unit_run.last_event
    is_cut_off = isinstance(parsed, ReplyParsed) and parsed.problem and parsed.problem.code == OUTPUT_LIMIT
    return PromptData(
        feature=context.feature,
        title=(yield from get_text(started.title)),
        body=(yield from get_text(started.body)),
        phase=phase.phase,
        role=role,
        unit=(yield from unit_data(context)),
        inputs=(yield from input_texts(context, role)),
        outputs=tuple(_output_data(output, context) for output in outputs),
        prepared=tuple(prepared),
        gates=tuple(
            CommandData(name=gate.run, command=config.commands[gate.run].run, passed=True, excerpt="")
            for gate in phase.gates
            if gate.run is not None and gate.run in config.commands
        ),
        may_change=write_scope(context, role),
        denied=config.denied_paths,
        scope=config.scope or "",
        limits=config.limits,
        interactive=config.autonomy != "full_auto",
        rework=(yield from _rework_data(context, outputs)),
        notes=(*(yield from get_texts(unit_run.notes)), *([CUT_OFF] if is_cut_off else [])),
        context=(),
        causes=phase.raisable_causes if role == BUILDER else tuple(route.cause for route in phase.on_block),
        block=None if (block := block_output(context, role)) is None else _output_data(block, context),
        known_failures=tuple(failures),
    )


def _fit_context(
    context: StepContext, data: PromptData, tokens_max: int | None, scope: Scope | None
) -> Steps[tuple[PromptData, tuple[ContextPart, ...]]]:
    """Return the data with those known failures and files that fit into the phase's context, and what is left out."""
    use, left_out = context.phase.context, list[ContextPart]()
    if tokens_max is not None:
        fixed = characters_of(replace(data, known_failures=()))
        names = fitting_failures(data.known_failures, tokens_max * CHARACTERS_PER_TOKEN - fixed)
        others = data.known_failures[len(names) :]
        if others:
            name, tokens = f"{len(others)} tests", tokens_of(bullets(others))
            left_out.append(ContextPart(source=FAILURES, name=name, tokens=tokens, left_out=True))
        data = replace(data, known_failures=names, known_failures_left_out=len(others))
    patterns = (*use.include, *(f"!{pattern}" for pattern in use.exclude)) if use.include else ()
    characters = (FILES_TOKENS_MAX if use.token_budget is None else use.token_budget) * CHARACTERS_PER_TOKEN
    if tokens_max is not None:
        characters = tokens_max * CHARACTERS_PER_TOKEN - characters_of(data)
    files, others_by_path = yield from context_files(
        context.unit_run.tree, expand_patterns(patterns, context), characters, scope
    )
    left_out += [ContextPart(source=FILE, name=path, tokens=t, left_out=True) for path, t in others_by_path.items()]
    data = replace(data, context=files, context_left_out=tuple(others_by_path), is_scoped=scope is not None)
    return data, tuple(left_out)


def outputs_of(context: StepContext, role: str) -> tuple[PhaseOutput, ...]:
    """Return the outputs that this role must produce, with placeholders of paths filled in."""
    review = context.phase.agent_review
    if role != BUILDER and review is not None:
        return (PhaseOutput(artifact=review.output, path=None, rules=review.rules),)
    return tuple(
        replace(output, path=fill_placeholders(output.path, context)) if output.path else output
        for output in context.phase.outputs
    )


def block_output(context: StepContext, role: str) -> PhaseOutput | None:
    """Return the file with which this role may block its phase; None if it may not."""
    path = context.pins.pipeline.block_file
    if path is None or role != BUILDER or not context.phase.raisable_causes:
        return None
    return PhaseOutput(artifact=BLOCK, path=fill_placeholders(path, context), rules=BLOCK)


def fill_placeholders(pattern: str, context: StepContext) -> str:
    pattern = pattern.replace("{feature}", context.feature).replace("{phase}", context.phase.phase)
    return pattern.replace("{unit}", context.unit_run.unit)


def write_scope(context: StepContext, role: str) -> tuple[str, ...]:
    """Return the write scope of this role as patterns: its outputs and, for the builder, the phase's own patterns."""
    paths = tuple(output.path for output in outputs_of(context, role) if output.path)
    if role != BUILDER:
        return paths
    return (*expand_patterns(context.phase.writable, context), *paths)


def expand_patterns(patterns: Iterable[str], context: StepContext, top: Literal["", "/"] = "") -> list[str]:
    """Fill in placeholders; `{unit.files}` and `{dependencies.files}`, with a `!` before them too, become a pattern for
    each file of the unit, or of those that it depends on; with `top` for no file of that name in another folder."""
    units = listed_units(context.phase_state.progress, context.phase)
    unit, expanded = units.get(context.unit_run.unit), list[str]()
    needed = [units[name] for name in unit.depends_on if name in units] if unit else []
    files = {
        "{unit.files}": unit.files if unit else (),
        "{dependencies.files}": [file for other in needed for file in other.files],
    }
    for pattern in patterns:
        sign, name = pattern[: pattern.startswith("!")], pattern.removeprefix("!")
        plain = fill_placeholders(pattern, context)
        expanded += [f"{sign}{top}{file}" for file in files[name]] if name in files else [plain]
    return expanded


def _output_data(output: PhaseOutput, context: StepContext) -> OutputData:
    rules = context.pins.rules_of(context.phase, output)
    wanted, schema = requirements(rules, context.pins.config.limits), schema_path(output, context.pins)
    return OutputData(artifact=output.artifact, path=output.path, requirements=wanted, schema=schema)


def current_unit(context: StepContext) -> Unit | None:
    """Return the unit at work; None in a phase without units."""
    return listed_units(context.phase_state.progress, context.phase).get(context.unit_run.unit)


def unit_data(context: StepContext) -> Steps[UnitData | None]:
    """Return the unit at work with its entry in the artifact that lists it; None in a phase without units."""
    unit, for_each = current_unit(context), context.phase.for_each
    if unit is None or for_each is None:
        return None
    text = yield from get_text(context.phase_state.progress.artifacts[for_each.artifact].digest)
    record = unit_record(context.pins.rules[rules_of(context.pins.pipeline, for_each.artifact)], text, unit.id)
    return UnitData(id=unit.id, files=unit.files, depends_on=unit.depends_on, fields=unit.fields, record=record)


def rules_of(pipeline: Pipeline, artifact: str) -> str:
    """Return the name of the rule set of a phase's output. Raises KeyError for an unknown artifact."""
    return {output.artifact: output.rules for phase in pipeline.phases for output in phase.outputs}[artifact]


def input_texts(context: StepContext, role: str) -> Steps[dict[str, str]]:
    """Return the texts of the phase's inputs by artifact, each with the texts of its units; a reviewer also gets the
    builder's outputs."""
    texts = {}
    for use in context.phase.inputs:
        if use.items is not None:
            started = context.phase_state.progress.started
            of_units = {"": (yield from items_text(use.items, started.items))}
        elif use.record is not None:
            of_units = yield from record_texts(context, use)
        else:
            artifacts = input_artifacts(context.phase_state.progress, use, current_unit(context))
            of_units = dict(zip(artifacts, (yield from get_texts(a.digest for a in artifacts.values())), strict=True))
        if len(of_units) > 1 or use.units == "dependencies":
            of_units = {unit: f"[unit {unit}]\n\n{text}" for unit, text in of_units.items()}
        if of_units:
            texts[use.name] = "\n\n".join(of_units.values())
    for name, parsed in context.unit_run.parsed_artifacts.items() if role != BUILDER else ():
        texts[name] = yield from get_text(parsed.digest)
    return texts


def _rework_data(context: StepContext, outputs: tuple[PhaseOutput, ...]) -> Steps[ReworkData | None]:
    unit_run = context.unit_run
    if not unit_run.reports:
        return None
    artifacts = {}
    for output in outputs:
        if parsed := unit_run.parsed_artifacts.get(output.artifact):
            artifacts[output.path or output.artifact] = yield from get_text(parsed.digest)
    messages = yield from get_reports(unit_run.reports)
    return ReworkData(messages=tuple(messages), artifacts=artifacts)


def context_files(
    tree: Commit, patterns: Sequence[str], characters: int, scope: Scope | None = None
) -> Steps[tuple[tuple[ContextFile, ...], dict[str, int]]]:
    """Return the files of the scope that match the patterns, in the tree's order, and paths and tokens of those that no
    longer fit into that many characters. After many of those, no more files are read; their tokens are 0."""
    files, left_out, characters_left = list[ContextFile](), dict[str, int](), characters
    paths = scope.paths if scope else (yield from call_port(Workspace.paths, tree)) if patterns else ()
    for path in select(patterns, paths):
        text = (yield from read_file(tree, path)) if len(left_out) < LEFT_OUT_READ_MAX else None
        if text is not None and len(text) <= characters_left:
            characters_left -= len(text)
            files.append(ContextFile(path=path, text=text))
        else:
            left_out[path] = tokens_of(text or "")
    return tuple(files), left_out


def read_file(tree: Commit, path: Path) -> Steps[str | None]:
    """Return a file of a capture as text; None if it does not exist."""
    data = yield from call_port(Workspace.read, tree, path)
    return None if data is None else data.decode("utf-8", "replace")
