"""Command `mz cancel`."""

from __future__ import annotations

import click
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import CancelLeft
from mz_events.names import FeatureId
from mz_projections.run import ENDED
from mz_projections.views import RunView

from mz_cli.cases import unfinished
from mz_cli.context import Reading, reading
from mz_cli.help import command
from mz_cli.inbox import Left, keep, leave, who
from mz_cli.render.console import answer
from mz_cli.render.document import show_document
from mz_cli.sent import became
from mz_cli.shapes.run import CancelResult
from mz_cli.wording import given

OVER = frozenset({"skipped", *(rest.value for rest in ENDED)})
"""Statuses of ended features; skipped ones were never part of the run."""


@command(
    "cancel",
    examples=(
        ("mz cancel --feature login", "cancel one feature of the newest run"),
        ("mz cancel r4f1a2b3c --why 'wrong base'", "cancel the rest of a run"),
    ),
    following="`mz status` shows whether the run has read the message.",
)
@click.argument("run", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only this feature; repeatable.")
@click.option("--why", metavar="TEXT", help="Reason, kept in the log; - reads it from stdin.")
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
    reason = given(why, "the reason")
    with reading() as log:
        chosen = log.find_run(run) if run is not None else the_run_of(log, features)
        for feature in features:
            log.check_feature(chosen, feature)

        def write() -> tuple[Event, ...]:
            check_open(log.view(chosen), features, context)
            return messages(log, features, reason)

        left = leave(log, chosen, write)
    result = CancelResult(
        run=chosen, features=features, places=left.places, held=left.held, taken=left.taken, resume=left.resume
    )
    show_document("cancel", result) if as_json else tell(left, features)


def the_run_of(log: Reading, features: tuple[str, ...]) -> str:
    """Return the newest unfinished run with the first feature, else the newest run. Raises MzError (MZ5001)."""
    return next((each for each in unfinished(log) if features[0] in log.features(each)), None) or log.find_run(None)


def messages(log: Reading, features: tuple[str, ...], why: str | None) -> tuple[CancelLeft, ...]:
    chosen: list[FeatureId | None] = [FeatureId(feature) for feature in features] or [None]
    return tuple(CancelLeft(feature=feature, note=keep(log, why), who=who(log)) for feature in chosen)


def check_open(view: RunView, features: tuple[str, ...], context: click.Context) -> None:
    """Raise UsageError if there is nothing left to cancel."""
    chosen = [feature for feature in view.features if not features or feature.feature in features]
    over = [feature for feature in chosen if feature.status in OVER]
    if features and over:
        raise click.UsageError(f"{over[0].feature} is already {over[0].status}", context)
    if len(over) == len(chosen):
        raise click.UsageError(f"all features of run {view.run} have ended", context)


def tell(left: Left, features: tuple[str, ...]) -> None:
    what = ", ".join(features) or f"the rest of run {left.run}"
    answer(f"cancellation of {what} requested; {became(left)}")
