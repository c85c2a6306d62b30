"""A pipeline as text, one line per property, and as full data with all defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from mz_engine.decoding.quantity import Quantity, format_duration
from mz_engine.model.pipeline import AgentReview, AgentUse, BlockRoute, Gate, PersonGate, Phase, Pipeline

PropertyRow = tuple[str, str]
"""Name and text of a property."""
EVERY_AUTONOMY = 3


def head_lines(pipeline: Pipeline, source: str) -> Iterator[PropertyRow]:
    """Yield the properties of the pipeline."""
    yield "pipeline", f"{pipeline.pipeline}, version {pipeline.version}, {source}"
    yield "done when", pipeline.terminal
    yield "dependencies", pipeline.dependencies
    yield "rollbacks", f"at most {pipeline.rollbacks_max} per feature, then a person decides"


def phase_lines(phase: Phase) -> Iterator[PropertyRow]:
    """Yield the properties of a phase, in the order of execution."""
    if phase.agent:
        yield "agent", _agent_text(phase.agent)
        yield "timeout", _timeout_text(phase)
        yield "prompt", phase.prompt or ""
    if phase.inputs:
        yield "needs", _joined(entry.artifact for entry in phase.inputs)
    if phase.claim:
        yield "claims", f"the files that {phase.claim.artifact} lists"
    if phase.for_each:
        yield "for each", f"{phase.for_each.item} of {phase.for_each.artifact}, order {phase.for_each.order}"
    if phase.context.include:
        yield "context", _context_text(phase)
    if phase.prepare:
        yield (
            "before",
            _joined(
                f"{entry.run} as {entry.result}" + (" (must pass)" if entry.must_pass else "") + _per_text(entry.per)
                for entry in phase.prepare
            ),
        )
    if phase.outputs:
        yield "produces", _joined(f"{entry.artifact}: {entry.path or 'the reply'}" for entry in phase.outputs)
        yield "rules", _joined(entry.rules for entry in phase.outputs)
    if phase.agent:
        yield "may change", " ".join(phase.writable) or "its artifacts only"
    if phase.gates:
        yield "gates", _joined(_gate_text(entry) for entry in phase.gates)
    yield from _closing_lines(phase)


def _closing_lines(phase: Phase) -> Iterator[PropertyRow]:
    if phase.agent_review:
        yield "agent review", _review_text(phase.agent_review)
    for human in phase.ask_person:
        yield "asks", _human_text(human)
    if phase.agent or phase.gates:
        yield "limits", f"{phase.attempts} rejected replies, {phase.retries} failed calls"
    if phase.on_block:
        yield "rolls back", _joined(_route_text(route) for route in phase.on_block)
    if phase.commit:
        yield "commit", phase.commit
    if phase.deliver:
        yield "delivers", _joined(phase.deliver)


def _agent_text(agent: AgentUse) -> str:
    session = agent.session or "as in mz.yaml"
    return f"tier {agent.tier}; tools {_joined(agent.tools) or 'none'}; session {session}"


def _timeout_text(phase: Phase) -> str:
    total, idle = phase.timeout.total, phase.timeout.idle
    return f"{format_duration(total)} in all, {format_duration(idle)} without output"


def _context_text(phase: Phase) -> str:
    without = f" without {' '.join(phase.context.exclude)}" if phase.context.exclude else ""
    return f"{' '.join(phase.context.include)}{without}, at most {phase.context.token_budget} tokens"


def _gate_text(gate: Gate) -> str:
    what = gate.name if gate.run else f"{gate.name} (rule)"
    return f"{what}{f' with cause {gate.cause}' if gate.cause else ''}{_per_text(gate.per)}"


def _review_text(review: AgentReview) -> str:
    return f"{review.role}; tier {review.tier}; prompt {review.prompt}; produces {review.output} ({review.rules})"


def _human_text(human: PersonGate) -> str:
    about = f"when {human.artifact}.{human.field} is {' or '.join(human.values)}" if human.artifact else "always"
    about = f"when the rule {human.rule} is broken" if human.rule else about
    under = "" if len(set(human.autonomy)) == EVERY_AUTONOMY else f", under {' or '.join(human.autonomy)}"
    return f"a person, {about}{under}"


def _route_text(route: BlockRoute) -> str:
    what = {"phase": "", "unit": " (that unit)", "tree": " (on the current tree)"}[route.scope]
    often = {None: "", 1: " once"}.get(route.max_times, f" at most {route.max_times} times")
    return f"{route.cause} to {route.to}{what}{often}"


def _per_text(per: str) -> str:
    return " once per phase" if per == "phase" else ""


def _joined(texts: Sequence[str] | Iterator[str]) -> str:
    return ", ".join(texts)


def full_definition(value: object) -> Any:
    """Return a definition as plain data under the keys of its file, with all defaults filled in."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: full_definition(getattr(value, field.name)) for field in fields}
    if isinstance(value, tuple):
        return [full_definition(element) for element in value]
    return int(value) if isinstance(value, Quantity) else value
