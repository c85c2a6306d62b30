"""Command `mz cancel`."""

from __future__ import annotations

import click
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import CancelPosted
from mz_events.names import FeatureId
from mz_projections.run.fold import ENDED_OUTCOMES
from mz_projections.views.model import RunView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, message_option
from mz_cli.app.input import read_text_option
from mz_cli.app.selectors import select, select_one_run
from mz_cli.people.inbox import delivery_text, post_message, store_text, store_user_name
from mz_cli.people.questions import unfinished_runs
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import Shape, print_document, shape_of

ENDED_STATUSES = frozenset({"skipped", *(outcome.value for outcome in ENDED_OUTCOMES)})
"""Statuses of ended features; skipped ones were never part of the run."""


class CancelResult(Shape, frozen=True, kw_only=True):
    """`mz cancel --json`."""

    run: str
    features: tuple[str, ...]
    """Empty: all features of the run."""
    event_refs: tuple[str, ...]
    """Addresses of the messages, `inbox/<run>@version`."""
    process_running: bool
    """A process is running the run; otherwise the message waits for `mz resume`."""
    messages_read: bool
    """That process has read the messages."""
    resume: str


@command(
    "cancel",
    examples=(
        ("mz cancel login export", "cancel two features of the newest run"),
        ("mz cancel r4f1a2b3c -m 'wrong base'", "cancel the rest of a run"),
    ),
    next_command="`mz status` shows whether the run has read the message.",
)
@click.argument("selectors", metavar="FEATURE... | RUN", nargs=-1)
@message_option("why", "Reason, kept in the log; - reads it from stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.cancel/1.")
@click.pass_context
def cancel(context: click.Context, selectors: tuple[str, ...], why: str | None, as_json: bool) -> None:
    """Cancel features, or the rest of a run.

    Posts a message to the run. The process that runs it reads the message within a second, otherwise the next
    `mz resume` does. Branches and worktrees are kept, and `mz retry` resumes a feature. FEATURE is a
    feature or RUN/FEATURE (default: the newest unfinished run with the feature); RUN alone cancels the rest of the run.
    """
    if not selectors:
        raise click.UsageError("name a run or a feature to cancel", context)
    reason = read_text_option(why, "the reason")
    with open_log() as log:
        run_id, features = find_features(log, selectors)

        def write() -> tuple[Event, ...]:
            check_open(log.view(run_id), features, context)
            return cancel_messages(log, features, reason)

        posted = post_message(log, run_id, write)
    if as_json:
        print_document("cancel", shape_of(CancelResult, posted, features=features, messages_read=posted.is_read))
    else:
        subject = ", ".join(features) or f"the rest of run {posted.run}"
        print_line(f"cancellation of {subject} requested; {delivery_text(posted)}")


def find_features(log: ProjectLog, selectors: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the run and its features to cancel; none: all that remains. Raises MzError (MZ1002, MZ4010, MZ5001)."""
    chosen = [select(log, text) for text in selectors]
    if not any(selector.names_run for selector in chosen):
        features = {selector.feature for selector in chosen}
        unfinished = next((run for run in unfinished_runs(log) if features <= set(log.features(run))), None)
        chosen = [replace(selector, run=unfinished or selector.run) for selector in chosen]
    run_id, features_to_cancel = select_one_run(chosen), tuple(filter(None, (selector.feature for selector in chosen)))
    if any(selector.phase or selector.version for selector in chosen):
        raise MzError("MZ1002", "a phase or an event cannot be cancelled", hint="name a feature or a run")
    if features_to_cancel and len(features_to_cancel) < len(chosen):
        raise MzError("MZ1002", f"{run_id} is a run", hint="name either a run, or only features: RUN/FEATURE")
    return run_id, tuple(dict.fromkeys(features_to_cancel))


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
