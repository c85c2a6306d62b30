"""`mz show FEATURE --context PHASE[/UNIT]`: what each prompt of a part of a feature consisted of."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec.structs import replace
from mz_events.catalog.call import AgentRequested, ContextComposed, ContextPart

from mz_cli.app.context import ProjectLog
from mz_cli.app.selectors import Selector, part_text
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.text import count_noun, format_count


class CallContext(Shape, frozen=True, kw_only=True):
    """What the prompt of one call consisted of."""

    key: str
    phase: str
    unit: str
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    tier: str = ""
    """Better tier that a condition asked for; null: the phase's own."""
    tier_cause: str = ""
    """Name of that condition."""
    tokens: int
    """Estimated tokens of the prompt."""
    tokens_max: int | None
    """Limit for all parts but the instructions; null: there is none."""
    over: int
    """Tokens above the limit."""
    parts: tuple[ContextPart, ...]
    laid_out: tuple[ContextPart, ...]
    """The files that the agent saw, if its phase names them."""
    hidden_files: int
    """Number of files that it did not see."""


class ContextDocument(Shape, frozen=True, kw_only=True):
    """`mz show FEATURE --context PHASE --json`."""

    run: str
    feature: str
    calls: tuple[CallContext, ...]
    """Without calls of an older mz, which recorded no parts."""


def read_context(log: ProjectLog, selector: Selector) -> ContextDocument:
    """Return the prompts of the selected phase, unit or attempt, of every role. Raises UsageError if there are none."""
    composed, calls = dict[str, ContextComposed](), list[CallContext]()
    selector = selector if selector.attempt else replace(selector, role=None)
    for recorded in log.store.read(selector.stream):
        event = recorded.event
        if isinstance(event, ContextComposed):
            composed[event.key] = event
        elif isinstance(event, AgentRequested) and selector.includes(recorded) and event.ref.key in composed:
            request, parts = event, composed[event.ref.key]
            tokens = sum(part.tokens for part in parts.parts if not part.left_out)
            tier = {"tier": request.escalated_to, "tier_cause": request.escalated_by}
            calls.append(shape_of(CallContext, request.ref, parts, request, tokens=tokens, **tier))
    if not calls:
        text = part_text(selector.phase, selector.unit, selector.iteration, selector.attempt, selector.role)
        reason = "it made no call there, or an older mz made it, which did not record that"
        raise click.UsageError(f"{selector.feature}{text} has no context: {reason}")
    return ContextDocument(run=selector.run, feature=str(selector.feature), calls=tuple(calls))


def context_lines(document: ContextDocument) -> Iterator[str]:
    """Yield two lines or more for each call."""
    for call in document.calls:
        again = f"iteration {call.iteration}  " if call.iteration > 1 else ""
        unit, tier = f"{call.unit}  " if call.unit else "", f" {call.tier} ({call.tier_cause})" if call.tier else ""
        yield f"{again}attempt {call.attempt}  {unit}{call.role}  {call.agent} {call.model}{tier}"
        shown = [part for part in call.parts if not part.left_out]
        rules = sum(part.tokens for part in shown if part.source == "instructions")
        limit = f" of {format_count(call.tokens_max)}" if call.tokens_max is not None else ""
        over = f", {format_count(call.over)} too many" if call.over else ""
        yield f"  {format_count(call.tokens - rules)}{limit} tokens{over}; instructions {format_count(rules)}"
        yield from (f"  {_part_text(part)}" for part in shown if part.source != "instructions")
        yield from (f"  left out: {_part_text(part)}" for part in call.parts if part.left_out)
        yield from (f"  laid out: {_part_text(part).removeprefix('file ')}" for part in call.laid_out)
        if call.hidden_files:
            yield f"  not in scope: {count_noun(call.hidden_files, 'file')}"


def _part_text(part: ContextPart) -> str:
    name = f"{part.source} {part.name}".rstrip()
    return f"{name} {format_count(part.tokens)}" if part.tokens else name
