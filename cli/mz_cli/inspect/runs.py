"""Command `mz runs`."""

from __future__ import annotations

import sys
from collections import Counter

from mz_engine.paths import MZ_FOLDER, READ_MODELS_FILE
from mz_projections.read_models.store import ReadModelStore
from mz_projections.run.runs import RUNS, RunRow

from mz_cli.app.context import is_process_running, open_log
from mz_cli.app.help import command, format_options
from mz_cli.common.json import RunLine, RunList
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import Table, columns, print_table, prints_tsv
from mz_cli.terminal.text import format_time, iso_time

ACTIVE_STATUSES = ("started", "paused")


@command(
    "runs",
    examples=(
        ("mz runs", "every run of this repository, the newest first"),
        (
            "mz runs --json | jq -r '.runs[] | select(.status == \"idle\") | .run'",
            "the idle runs",
        ),
    ),
    next_command="`mz status RUN` shows one; `mz diff RUN RUN` compares two.",
)
@format_options("Print one object with the schema mz.runs/1.")
def runs(as_json: bool) -> None:
    """List the runs of this repository, the newest first."""
    with open_log() as log:
        with ReadModelStore(log.home / MZ_FOLDER / READ_MODELS_FILE, log.store, (RUNS,)) as views:
            views.refresh()
            rows = sorted(views.rows(RUNS), key=lambda row: row.started_at_us, reverse=True)
        process_running, home = is_process_running(log.home), str(log.home)
    lines = tuple(run_line(row, process_running) for row in rows)
    if as_json:
        print_document("runs", RunList(repository=home, runs=lines))
    else:
        starts = [format_time(row.started_at_us) for row in rows]
        print_table(table(lines, starts, exact=prints_tsv(sys.stdout)))


def run_line(row: RunRow, process_running: bool) -> RunLine:
    return RunLine(
        run=row.id,
        status="interrupted" if row.status in ACTIVE_STATUSES and not process_running else row.status,
        pipeline=row.pipeline,
        base=row.base,
        started=str(iso_time(row.started_at_us)),
        features=dict(row.features),
        fork_of=row.fork_of or None,
    )


def table(lines: tuple[RunLine, ...], starts: list[str], exact: bool) -> Table:
    """Return the table; with `exact`, ISO 8601 times for a pipe."""
    rows = tuple(
        (
            line.run,
            line.started if exact else start,
            line.status,
            line.pipeline,
            line.fork_of or line.base,
            status_counts(line.features),
        )
        for line, start in zip(lines, starts, strict=True)
    )
    return Table(columns=columns("run", "started", "status", "pipeline", "base", "features"), rows=rows, empty="")


def status_counts(features: dict[str, str]) -> str:
    """Return counts by status, in order of first appearance: `2 delivered, 1 waiting`."""
    return ", ".join(f"{count} {status}" for status, count in Counter(features.values()).items())
