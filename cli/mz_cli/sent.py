"""Adapter: says what became of a message that a command left for a run."""

from __future__ import annotations

from mz_events.catalog.run import Verdict
from mz_projections.queue import Kind

from mz_cli.inbox import Left
from mz_cli.render.console import answer
from mz_cli.render.document import show_document
from mz_cli.shapes.people import MessageResult


def show_sent(
    command: str, left: Left, kind: Kind, what: str, as_json: bool, *,
    feature: str | None = None, verdict: Verdict | None = None, phase: str | None = None,
) -> None:  # fmt: skip
    """`what`: what was asked for, in words."""
    if not as_json:
        answer(f"{what}; {became(left)}" if left.places else what)
        return
    result = MessageResult(
        run=left.run, feature=feature, kind=kind, verdict=verdict.value if verdict else None, phase=phase,
        place=next(iter(left.places), None), held=left.held, taken=left.taken, resume=left.resume,
    )  # fmt: skip
    show_document(command, result)


def became(left: Left) -> str:
    """Who takes it, and when."""
    if left.taken:
        return f"the process that works on run {left.run} has taken it"
    if left.held:
        return f"the process that works on run {left.run} takes it as soon as it can"
    return f"no process works on run {left.run}, so this waits for\n  {left.resume}"
