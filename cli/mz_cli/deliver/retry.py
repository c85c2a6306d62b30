"""Command `mz retry`."""

from __future__ import annotations

import click
from mz_engine.errors.diagnostics import MzError
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import RetryPosted
from mz_events.names import FeatureId
from mz_projections.feature.state import progress_of
from mz_projections.run.fold import RETRIABLE_OUTCOMES
from mz_projections.views.model import FeatureView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, did_you_mean, message_option
from mz_cli.app.input import read_text_option
from mz_cli.app.selectors import select
from mz_cli.people.inbox import post_message, print_delivery, store_text, store_user_name
from mz_cli.people.questions import ReviewQueue, action_text, pipeline_of, review_queue, state_of

RETRIABLE_STATUSES = frozenset(status.value for status in RETRIABLE_OUTCOMES)
"""Statuses of features that can be retried."""
NOT_RETRIABLE = {
    "queued": ("has not started", "see the reason with `mz status`"),
    "working": ("is in progress", "cancel it with `mz cancel {}`"),
    "interrupted": ("was interrupted and continues with its run", "mz resume {run}"),
    "paused": ("is paused and continues with its run", "mz resume {run}"),
}
DELIVERED = ("is already {}", "use `mz fork` to try again from an earlier event")


@command(
    "retry",
    examples=(
        ("mz retry login", "retry from the current phase"),
        ("mz retry login/techspec -m 'use SQLite'", "from an earlier phase, with a note for the agent"),
    ),
    next_command="`mz resume` continues the run if no process is running it.",
)
@click.argument("feature", metavar="FEATURE[/PHASE]")
@message_option("note", "Note for the next prompt; - reads it from stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.retry/1.")
def retry(feature: str, note: str | None, as_json: bool) -> None:
    """Retry a failed, cancelled, waiting or held feature.

    FEATURE is a feature or RUN/FEATURE (default: the newest run with the feature); PHASE is the first phase to repeat
    (default: the current one).

    Restores the tree from before the phase in a new commit on the branch, discards later results, and resets the
    attempt counters. After the merge of a moved base, the tree is not restored, because that would undo the work of
    others.
    """
    note_text = read_text_option(note, "the note")
    with open_log() as log:
        selector = select(log, feature, feature_only=True)
        run_id, feature, phase = selector.run, str(selector.feature), selector.phase

        def write() -> tuple[Event, ...]:
            check_retriable(log, review_queue(log, run_id), feature, phase)
            return (
                RetryPosted(
                    feature=FeatureId(feature), phase=phase, note=store_text(log, note_text), actor=store_user_name(log)
                ),
            )

        posted = post_message(log, run_id, write)
        summary = f"retry of {feature} requested" + (f", from {phase}" if phase else "")
        print_delivery("retry", posted, "retry", summary, as_json, feature=feature, phase=phase)


def check_retriable(log: ProjectLog, queue: ReviewQueue, feature: str, phase: str | None) -> None:
    """Raise MzError (MZ5006) if the feature cannot be retried, or not from that phase."""
    view = queue.run.find_feature(feature) or FeatureView(feature=feature)
    if view.status not in RETRIABLE_STATUSES:
        state, hint = NOT_RETRIABLE.get(view.status, DELIVERED)
        hint = hint.format(feature, run=queue.run.run)
        raise MzError("MZ5006", f"{feature} {state.format(view.status)}", hint=hint)
    if view.status == "held" and view.blocked_by and view.started_us is None:
        raise MzError("MZ5006", f"{feature} waits for {view.blocked_by}", hint=f"mz retry {view.blocked_by}")
    message = queue.context.pending_message(view)
    if message is not None:
        hint = f"continue the run with: mz resume {queue.run.run}"
        raise MzError("MZ5006", f"{feature} has a pending message: {action_text(log, message)}", hint=hint)
    if phase is not None:
        check_phase(log, queue, feature, phase)


def check_phase(log: ProjectLog, queue: ReviewQueue, feature: str, phase: str) -> None:
    progress, pipeline = progress_of(state_of(log, queue.run.run, feature)), pipeline_of(log, queue.run)
    started_phases = list(progress.start_trees) if progress is not None else []
    phases = [phase_spec.phase for phase_spec in pipeline.phases] if pipeline is not None else started_phases
    if phase in started_phases:
        return
    hint = f"phases started by {feature}: {', '.join(started_phases) or 'none'}"
    if phase not in phases:
        problem = f"the pipeline of run {queue.run.run} has no phase {phase!r}{did_you_mean(phase, phases)}"
        raise MzError("MZ5006", problem, hint=hint)
    raise MzError("MZ5006", f"{feature} has not started {phase}", hint=hint)
