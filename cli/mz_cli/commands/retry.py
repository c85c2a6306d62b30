"""Command `mz retry`."""

from __future__ import annotations

import click
from mz_engine.errors import MzError
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import RetryLeft
from mz_events.names import FeatureId
from mz_projections.run import RETRIABLE
from mz_projections.state import book_of
from mz_projections.views import FeatureView

from mz_cli.cases import Desk, desk, pipeline_of, said, state_of
from mz_cli.context import Reading, reading
from mz_cli.help import command, did_you_mean
from mz_cli.inbox import keep, leave, who
from mz_cli.sent import show_sent
from mz_cli.wording import given

RESTS = frozenset(status.value for status in RETRIABLE)
"""Statuses of features that can be retried."""
NOT = {
    "queued": ("has not started", "see the reason with `mz status`"),
    "working": ("is in progress", "cancel it with `mz cancel --feature {}`"),
    "stopped": ("was interrupted and continues with its run", "mz resume {run}"),
    "paused": ("is paused and continues with its run", "mz resume {run}"),
}
DONE = ("is already {}", "use `mz fork` to try again from an earlier event")


@command(
    "retry",
    examples=(
        ("mz retry login", "retry from the current phase"),
        ("mz retry login --from techspec --note 'use SQLite'", "from an earlier phase, with a note for the agent"),
    ),
    following="`mz resume` continues the run if no process is running it.",
)
@click.argument("feature")
@click.option("--from", "phase", metavar="PHASE", help="First phase to repeat. [default: the current one]")
@click.option("--note", metavar="TEXT", help="Note for the next prompt; - reads it from stdin.")
@click.option("--run", metavar="RUN", help="The run. [default: the newest with the feature]")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.retry/1.")
def retry(feature: str, phase: str | None, note: str | None, run: str | None, as_json: bool) -> None:
    """Retry a failed, cancelled, waiting or held feature.

    Restores the tree from before the phase in a new commit on the branch, discards later results, and resets the
    attempt counters. After the merge of a moved base, the tree is not restored, because that would undo the work of
    others.
    """
    words = given(note, "the note")
    with reading() as log:
        chosen = log.find_feature(run, feature)[0].run

        def write() -> tuple[Event, ...]:
            check(log, desk(log, chosen), feature, phase)
            return (RetryLeft(feature=FeatureId(feature), phase=phase, note=keep(log, words), who=who(log)),)

        left = leave(log, chosen, write)
        what = f"retry of {feature} requested" + (f", from {phase}" if phase else "")
        show_sent("retry", left, "retry", what, as_json, feature=feature, phase=phase)


def check(log: Reading, found: Desk, feature: str, phase: str | None) -> None:
    """Raise MzError (MZ5006) if the feature cannot be retried, or not from that phase."""
    view = found.run.find(feature) or FeatureView(feature=feature)
    if view.status not in RESTS:
        state, hint = NOT.get(view.status, DONE)
        hint = hint.format(feature, run=found.run.run)
        raise MzError("MZ5006", f"{feature} {state.format(view.status)}", hint=hint)
    if view.status == "held" and view.because and view.started_us is None:
        raise MzError("MZ5006", f"{feature} waits for {view.because}", hint=f"mz retry {view.because}")
    letter = found.pending(feature)
    if letter is not None:
        hint = f"continue the run with: mz resume {found.run.run}"
        raise MzError("MZ5006", f"{feature} has a pending message: {said(log, letter)}", hint=hint)
    if phase is not None:
        check_phase(log, found, feature, phase)


def check_phase(log: Reading, found: Desk, feature: str, phase: str) -> None:
    book, pipeline = book_of(state_of(log, found.run.run, feature)), pipeline_of(log, found.run)
    begun = list(book.starts) if book is not None else []
    known = [each.phase for each in pipeline.phases] if pipeline is not None else begun
    if phase in begun:
        return
    names = f"phases started by {feature}: {', '.join(begun) or 'none'}"
    if phase not in known:
        problem = f"the pipeline of run {found.run.run} has no phase {phase!r}{did_you_mean(phase, known)}"
        raise MzError("MZ5006", problem, hint=names)
    raise MzError("MZ5006", f"{feature} has not started {phase}", hint=names)
