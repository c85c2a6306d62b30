"""Sample prompt data for every situation that a pipeline's templates must handle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.artifacts.validate import requirements
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Phase, PhaseOutput
from mz_engine.prompts.data import CommandData, ContextFile, OutputData, PromptData, ReworkData, SeenContent, UnitData
from mz_events.names import BUILDER

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
    rework = ReworkData(
        messages=("sample.md:3: the section is empty [sample.rule]", FAILURE_EXCERPT),
        artifacts={output.path or output.artifact: HOSTILE for output in data.outputs},
        hints=("it was mended by a change of src/sample.py",),
    )
    rework_data = replace(data, rework=rework)
    yield SamplePrompt(phase.phase, template, "as the first prompt", data)
    yield SamplePrompt(phase.phase, template, "with notes", replace(data, notes=("please be\nfriendlier", HOSTILE)))
    yield SamplePrompt(phase.phase, template, "when nobody can be asked", replace(data, interactive=False))
    yield SamplePrompt(phase.phase, template, "as a rework", rework_data)
    if role != BUILDER:
        return
    yield SamplePrompt(phase.phase, template, "as a rework in a session", rework_data, continuation=True)
    session_parts = SeenContent(
        rules=True, request=True, inputs=tuple(data.inputs), files=tuple(file.path for file in data.context)
    )
    yield SamplePrompt(phase.phase, template, "as the next phase in a session", replace(data, known=session_parts))


def _prompt_data(pins: Pins, phase: Phase, role: str, outputs: tuple[PhaseOutput, ...]) -> PromptData:
    limits, commands = pins.config.limits, pins.config.commands
    output_data = tuple(
        OutputData(
            artifact=output.artifact,
            path=_fill_placeholders(output.path) if output.path else None,
            requirements=requirements(pins.rules[output.rules], limits),
        )
        for output in outputs
    )
    inputs = {entry.artifact: HOSTILE for entry in phase.inputs}
    if role != BUILDER:
        inputs |= {output.artifact: HOSTILE for output in phase.outputs}
    paths = tuple(output.path for output in output_data if output.path)
    return PromptData(
        feature=FEATURE,
        title="Show one month only",
        body=HOSTILE,
        phase=phase.phase,
        role=role,
        unit=UnitData(id=UNIT, files=UNIT_FILES) if phase.for_each else None,
        inputs=inputs,
        outputs=output_data,
        prepared=tuple(
            CommandData(name=entry.run, command=commands[entry.run].run, passed=at > 0, excerpt=FAILURE_EXCERPT)
            for at, entry in enumerate(phase.prepare)
            if entry.run in commands
        ),
        gates=tuple(
            CommandData(name=gate.run, command=commands[gate.run].run, passed=True, excerpt="")
            for gate in phase.gates
            if gate.run in commands
        ),
        may_change=(*_writable_patterns(phase), *paths) if role == BUILDER else paths,
        denied=pins.config.denied_paths,
        limits=limits,
        interactive=True,
        rework=None,
        notes=(),
        context=(ContextFile(path="README.md", text=HOSTILE),) if phase.context.include else (),
        causes=tuple(dict.fromkeys(route.cause for route in phase.on_block)),
    )


def _writable_patterns(phase: Phase) -> Iterator[str]:
    for pattern in phase.writable:
        yield from UNIT_FILES if pattern == "{unit.files}" else (_fill_placeholders(pattern),)


def _fill_placeholders(pattern: str) -> str:
    return pattern.replace("{feature}", FEATURE).replace("{unit}", UNIT)


def unstated_requirements(sample: SamplePrompt, prompt: str) -> tuple[str, ...]:
    """Return the requirements of the sample's outputs that its prompt does not state."""
    text = " ".join(prompt.split())
    all_requirements = (requirement for output in sample.data.outputs for requirement in output.requirements)
    return tuple(requirement for requirement in all_requirements if " ".join(requirement.split()) not in text)
