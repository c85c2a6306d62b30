"""Command `mz runs`."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from mz_engine.paths import MZ_FOLDER, READ_MODELS_FILE
from mz_events.names import feature_stream
from mz_projections.read_models.store import ReadModelStore
from mz_projections.views.model import RunView
from mz_projections.views.run import RUNS

from mz_cli.app.context import is_process_running, open_log
from mz_cli.app.help import command, format_options
from mz_cli.terminal.json import Shape, print_document
from mz_cli.terminal.table import Table, columns, print_table, time_cell
from mz_cli.terminal.text import iso_time

ACTIVE_STATUSES = ("started", "paused")


class RunLine(Shape, frozen=True, kw_only=True):
    run: str
    status: Literal["started", "interrupted", "paused", "halted", "stopped", "idle", "finished"]
    """`interrupted`: the run was active, and its process is gone."""
    pipeline: str
    base: str
    started: str
    features: dict[str, str]
    """Status of each feature, in backlog order."""
    fork_of: str | None
    """`stream@version` that the run was forked from; null: not a fork."""


class RunList(Shape, frozen=True, kw_only=True):
    """`mz runs --json`."""

    repository: str
    runs: tuple[RunLine, ...]
    """The newest first."""


@command(
    "runs",
    examples=(
        ("mz runs", "every run of this repository, the newest first"),
        ("mz runs --json | jq -r '.runs[] | select(.status == \"idle\") | .run'", "the idle runs"),
    ),
    next_command="`mz status RUN` shows one; `mz diff RUN RUN` compares two.",
)
@format_options("Print one object with the schema mz.runs/1.")
def runs(as_json: bool) -> None:
    """List the runs of this repository, the newest first."""
    with open_log() as log:
        with ReadModelStore(log.home / MZ_FOLDER / READ_MODELS_FILE, log.store, (RUNS,)) as views:
            views.refresh()
            rows = sorted(views.rows(RUNS), key=lambda row: row.started_us or 0, reverse=True)
        process_running, home = is_process_running(log.home), str(log.home)
    lines = tuple(run_line(row, process_running) for row in rows)
    if as_json:
        print_document("runs", RunList(repository=home, runs=lines))
        return
    cells = tuple(
        (line.run, time_cell(row.started_us or 0), line.status, line.pipeline, line.fork_of or line.base,
         ", ".join(f"{count} {status}" for status, count in Counter(line.features.values()).items()))
        for line, row in zip(lines, rows, strict=True)
    )  # fmt: skip
    print_table(Table(columns=columns("run", "started", "status", "pipeline", "base", "features"), rows=cells))


def run_line(row: RunView, process_running: bool) -> RunLine:
    status = "started" if row.status == "running" else row.status
    fork = row.fork
    return RunLine(
        run=row.run,
        status="interrupted" if status in ACTIVE_STATUSES and not process_running else status,
        pipeline=row.pipeline,
        base=row.base,
        started=str(iso_time(row.started_us or 0)),
        features={feature.feature: feature.status for feature in row.features},
        fork_of=f"{feature_stream(fork.source, fork.feature)}@{fork.version}" if fork else None,
    )
