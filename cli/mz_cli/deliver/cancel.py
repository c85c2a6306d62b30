"""Command `mz cancel`."""

from __future__ import annotations

import click
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import CancelPosted
from mz_events.names import FeatureId
from mz_projections.run.fold import ENDED_OUTCOMES
from mz_projections.views.model import RunView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, message_option
from mz_cli.app.input import read_text_option
from mz_cli.common.json import CancelResult
from mz_cli.people.inbox import PostedMessage, delivery_text, post_message, store_text, store_user_name
from mz_cli.people.questions import unfinished_runs
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import print_document

ENDED_STATUSES = frozenset({"skipped", *(outcome.value for outcome in ENDED_OUTCOMES)})
"""Statuses of ended features; skipped ones were never part of the run."""


@command(
    "cancel",
    examples=(
        ("mz cancel --feature login", "cancel one feature of the newest run"),
        ("mz cancel r4f1a2b3c -m 'wrong base'", "cancel the rest of a run"),
    ),
    next_command="`mz status` shows whether the run has read the message.",
)
@click.argument("run", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only this feature; repeatable.")
@message_option("why", "Reason, kept in the log; - reads it from stdin.", "--why")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.cancel/1.")
@click.pass_context
def cancel(context: click.Context, run: str | None, features: tuple[str, ...], why: str | None, as_json: bool) -> None:
    """Cancel features, or the rest of a run.

    Posts a message to the run. The process that runs it reads the message within a second, otherwise the next
    `mz resume` does. Branches and worktrees are kept, and `mz retry` resumes a feature. Name a run or at least one
    feature.
    """
    if run is None and not features:
        raise click.UsageError("name a run or a feature to cancel", context)
    reason = read_text_option(why, "the reason")
    with open_log() as log:
        run_id = log.find_run(run) if run is not None else find_run_to_cancel(log, features)
        for feature in features:
            log.check_feature(run_id, feature)

        def write() -> tuple[Event, ...]:
            check_open(log.view(run_id), features, context)
            return cancel_messages(log, features, reason)

        posted = post_message(log, run_id, write)
    result = CancelResult(
        run=run_id,
        features=features,
        event_refs=posted.event_refs,
        process_running=posted.process_running,
        messages_read=posted.is_read,
        resume=posted.resume,
    )
    print_document("cancel", result) if as_json else print_result(posted, features)


def find_run_to_cancel(log: ProjectLog, features: tuple[str, ...]) -> str:
    """Return the newest unfinished run with the first feature, else the newest run. Raises MzError (MZ5001)."""
    return next(
        (run_id for run_id in unfinished_runs(log) if features[0] in log.features(run_id)), None
    ) or log.find_run(None)


def cancel_messages(log: ProjectLog, features: tuple[str, ...], reason: str | None) -> tuple[CancelPosted, ...]:
    targets: list[FeatureId | None] = [FeatureId(feature) for feature in features] or [None]
    return tuple(
        CancelPosted(feature=feature, note=store_text(log, reason), actor=store_user_name(log)) for feature in targets
    )


def check_open(view: RunView, features: tuple[str, ...], context: click.Context) -> None:
    """Raise UsageError if there is nothing left to cancel."""
    selected = [feature for feature in view.features if not features or feature.feature in features]
    ended_features = [feature for feature in selected if feature.status in ENDED_STATUSES]
    if features and ended_features:
        raise click.UsageError(f"{ended_features[0].feature} is already {ended_features[0].status}", context)
    if len(ended_features) == len(selected):
        raise click.UsageError(f"all features of run {view.run} have ended", context)


def print_result(posted: PostedMessage, features: tuple[str, ...]) -> None:
    subject = ", ".join(features) or f"the rest of run {posted.run}"
    print_line(f"cancellation of {subject} requested; {delivery_text(posted)}")
