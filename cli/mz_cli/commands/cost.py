"""Adapter: `mz cost`."""

from __future__ import annotations

import sys
from typing import get_args

import click
from mz_engine.home import HOME, VIEWS
from mz_events.names import feature_stream
from mz_projections.cost import COSTS, CallCost, costs
from mz_projections.fates import COURSES, courses
from mz_projections.runner import Views
from mz_projections.spending import By, Judged, judged, spending

from mz_cli.context import Reading, reading
from mz_cli.costs import cost_report, cost_table, in_order, remarks
from mz_cli.help import command
from mz_cli.render.console import is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show


@command(
    "cost",
    examples=(
        ("mz cost", "the newest run, feature by feature"),
        ("mz cost r4f1 --by attempt", "every agent call of a run"),
        ("mz cost --all --by model --json | jq .total.computed_usd", "what all runs together cost"),
    ),
    following="`mz show FEATURE` says why an attempt was refused; `mz audit` what was bought with it.",
)
@click.argument("run", required=False)
@click.option("--by", type=click.Choice(get_args(By)), help="What to add up; by feature, or with --all by run.")
@click.option("--all", "everything", is_flag=True, help="All runs of this repository.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.cost/1.")
@click.pass_context
def cost(context: click.Context, run: str | None, by: By | None, everything: bool, as_json: bool) -> None:
    """Show what the agents cost: estimated, reported, computed.

    Estimated is from before a call, reported is what the agent says, computed is its tokens by the prices of that
    day; the difference is what was paid less what was estimated. Then what was paid for nothing: calls that failed,
    were lost or refused, or whose work was taken back. What nobody knows is not counted as zero. RUN is a run's id or
    the beginning of one; without it, the newest run is meant.
    """
    if run is not None and everything:
        raise click.UsageError("name a run, or ask for --all of them", context)
    with reading() as log:
        chosen = None if everything else log.find_run(run)
        spent = spending(of_all(log) if chosen is None else of_run(log, chosen), by or ("feature" if chosen else "run"))
        if chosen is not None:
            spent = in_order(spent, log.features(chosen))
        if as_json:
            show_document("cost", cost_report(spent, str(log.home), chosen))
            return
    show(cost_table(spent, whole=not is_terminal(sys.stdout)))
    for remark in remarks(spent):
        note(remark)


def of_run(log: Reading, run: str) -> tuple[Judged, ...]:
    """The calls of one run, from its features' streams."""
    calls: list[CallCost] = []
    followed = {}
    for stream in log.streams(run)[1:]:
        events = tuple(log.store.read(stream))
        calls += costs(events)
        followed.update(courses(events))
    return judged(calls, followed)


def of_all(log: Reading) -> tuple[Judged, ...]:
    """The calls of all runs, from read models that are kept beside the log."""
    with Views(log.home / HOME / VIEWS, log.store, (COSTS, COURSES)) as views:
        views.refresh()
        followed = {feature_stream(row.run, row.feature): row for row in views.rows(COURSES)}
        return judged(views.rows(COSTS), followed)
