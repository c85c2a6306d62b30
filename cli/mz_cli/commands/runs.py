"""Command `mz runs`."""

from __future__ import annotations

import sys
from collections import Counter

import click
from mz_engine.home import HOME, VIEWS
from mz_projections.runner import Views
from mz_projections.runs import RUNS, RunRow

from mz_cli.context import is_held, reading
from mz_cli.help import command
from mz_cli.render.console import is_terminal
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import instant, moment
from mz_cli.shapes.run import RunLine, RunList

AT_WORK = ("started", "paused")


@command(
    "runs",
    examples=(
        ("mz runs", "every run of this repository, the newest first"),
        (
            "mz runs --json | jq -r '.runs[] | select(.status == \"idle\") | .run'",
            "the idle runs",
        ),
    ),
    following="`mz status RUN` shows one; `mz diff RUN RUN` compares two.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.runs/1.")
def runs(as_json: bool) -> None:
    """List the runs of this repository, the newest first."""
    with reading() as log:
        with Views(log.home / HOME / VIEWS, log.store, (RUNS,)) as views:
            views.refresh()
            rows = sorted(views.rows(RUNS), key=lambda row: row.started_at_us, reverse=True)
        held, home = is_held(log.home), str(log.home)
    lines = tuple(line_of(row, held) for row in rows)
    if as_json:
        show_document("runs", RunList(repository=home, runs=lines))
    else:
        starts = [moment(row.started_at_us) for row in rows]
        show(table(lines, starts, whole=not is_terminal(sys.stdout)))


def line_of(row: RunRow, held: bool) -> RunLine:
    return RunLine(
        run=row.id,
        status="interrupted" if row.status in AT_WORK and not held else row.status,
        pipeline=row.pipeline,
        base=row.base,
        started=str(instant(row.started_at_us)),
        features=dict(row.features),
        fork_of=row.fork_of or None,
    )


def table(lines: tuple[RunLine, ...], starts: list[str], whole: bool) -> Table:
    """Return the table; with `exact`, ISO 8601 times for a pipe."""
    rows = tuple(
        (
            line.run,
            line.started if whole else start,
            line.status,
            line.pipeline,
            line.fork_of or line.base,
            standing(line.features),
        )
        for line, start in zip(lines, starts, strict=True)
    )
    return Table(columns=columns("run", "started", "status", "pipeline", "base", "features"), rows=rows, empty="")


def standing(features: dict[str, str]) -> str:
    """Return counts by status, in order of first appearance: `2 delivered, 1 waiting`."""
    return ", ".join(f"{count} {status}" for status, count in Counter(features.values()).items())
