"""Print the state of a message that a command posted to a run."""

from __future__ import annotations

from mz_events.catalog.run import Verdict
from mz_projections.queue import Kind

from mz_cli.inbox import PostedMessage
from mz_cli.render.console import print_line
from mz_cli.render.document import print_document
from mz_cli.shapes.people import MessageResult


def print_delivery(
    command: str, posted: PostedMessage, kind: Kind, action_text: str, as_json: bool, *,
    feature: str | None = None, verdict: Verdict | None = None, phase: str | None = None,
) -> None:  # fmt: skip
    """Print the delivery state. `action_text`: the requested action."""
    if not as_json:
        print_line(f"{action_text}; {delivery_text(posted)}" if posted.event_refs else action_text)
        return
    result = MessageResult(
        run=posted.run, feature=feature, kind=kind, verdict=verdict.value if verdict else None, phase=phase,
        event_ref=next(iter(posted.event_refs), None), process_running=posted.process_running, message_read=posted.is_read, resume=posted.resume,
    )  # fmt: skip
    print_document(command, result)


def delivery_text(posted: PostedMessage) -> str:
    if posted.is_read:
        return f"the process of run {posted.run} has read it"
    if posted.process_running:
        return f"the process of run {posted.run} will read it soon"
    return f"no process is running run {posted.run}; continue it with\n  {posted.resume}"
