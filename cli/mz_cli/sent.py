"""Print the state of a message that a command posted to a run."""

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
    """Print the delivery state. `action_text`: the requested action."""
    if not as_json:
        answer(f"{what}; {became(left)}" if left.places else what)
        return
    result = MessageResult(
        run=left.run, feature=feature, kind=kind, verdict=verdict.value if verdict else None, phase=phase,
        place=next(iter(left.places), None), held=left.held, taken=left.taken, resume=left.resume,
    )  # fmt: skip
    show_document(command, result)


def became(left: Left) -> str:
    if left.taken:
        return f"the process of run {left.run} has read it"
    if left.held:
        return f"the process of run {left.run} will read it soon"
    return f"no process is running run {left.run}; continue it with\n  {left.resume}"
