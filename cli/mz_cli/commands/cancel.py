"""Adapter: `mz cancel`."""

from __future__ import annotations

import click
from mz_events.catalog.inbox import CancelLeft
from mz_events.names import FeatureId
from mz_projections.views import RunView

from mz_cli.context import Reading, is_held, reading
from mz_cli.help import command
from mz_cli.inbox import keep, leave, who
from mz_cli.render.console import answer
from mz_cli.render.document import show_document
from mz_cli.shapes import CancelResult

OVER = ("delivered", "merged", "tagged", "failed", "cancelled", "skipped")


@command(
    "cancel",
    examples=(
        ("mz cancel --feature login", "give one feature of the newest run up"),
        ("mz cancel r4f1a2b3c --why 'wrong base'", "give up all that is left of a run"),
    ),
    following="`mz status` shows when the run has taken it.",
)
@click.argument("run", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only this feature; repeatable.")
@click.option("--why", metavar="TEXT", help="A reason, kept in the log.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.cancel/1.")
@click.pass_context
def cancel(context: click.Context, run: str | None, features: tuple[str, ...], why: str | None, as_json: bool) -> None:
    """Give up features, or all that is left of a run.

    Leaves a message for the run. The process that works on it takes the message within a second; where there is
    none, the next `mz resume` does. Branches and worktrees stay. Name a run, or at least one feature.
    """
    if run is None and not features:
        raise click.UsageError("name a run or a feature to give up", context)
    with reading() as log:
        chosen = log.find_run(run)
        for feature in features:
            log.check_feature(chosen, feature)
        check_open(log.view(chosen), features, context)
        places = leave(log, chosen, messages(log, features, why))
        result = CancelResult(
            run=chosen, features=features, places=places, held=is_held(log.home), resume=f"mz resume {chosen}"
        )
    show_document("cancel", result) if as_json else tell(result)


def messages(log: Reading, features: tuple[str, ...], why: str | None) -> tuple[CancelLeft, ...]:
    chosen: list[FeatureId | None] = [FeatureId(feature) for feature in features] or [None]
    return tuple(CancelLeft(feature=feature, note=keep(log, why), who=who(log)) for feature in chosen)


def check_open(view: RunView, features: tuple[str, ...], context: click.Context) -> None:
    """What is over cannot be given up."""
    chosen = [feature for feature in view.features if not features or feature.feature in features]
    over = [feature for feature in chosen if feature.status in OVER]
    if features and over:
        raise click.UsageError(f"{over[0].feature} is {over[0].status} already", context)
    if len(over) == len(chosen):
        raise click.UsageError(f"nothing is left of run {view.run}", context)


def tell(result: CancelResult) -> None:
    what = ", ".join(result.features) or f"all that is left of run {result.run}"
    if result.held:
        answer(f"asked to give up {what}; the process that works on run {result.run} takes it now")
    else:
        answer(f"asked to give up {what}; no process works on it, so the message waits for\n  {result.resume}")
