"""Commands `mz status` and `mz runs`."""

from __future__ import annotations

import os
from collections import Counter
from typing import Literal

import click
from msgspec.structs import replace
from mz_events.names import feature_stream
from mz_projections.imported.runs import imported_runs
from mz_projections.views.model import RunView
from mz_projections.views.run import RUNS

from mz_cli.app.context import is_process_running, open_log
from mz_cli.app.help import command, format_options, view_options
from mz_cli.app.selectors import select_part
from mz_cli.common.advice import run_context
from mz_cli.common.run_text import live_status, print_run, run_status
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import Shape, print_document, shape_of
from mz_cli.terminal.table import Cell, Table, columns, print_output, time_cell


@command(
    "status",
    examples=(
        ("mz status", "the newest run"),
        ("mz status r4f1", "the run whose id begins with r4f1"),
        ("mz status login", "one feature, in the newest run that has it"),
        ("mz status --watch", "a live view from another terminal, until the run stops"),
        ("mz status --json | jq '.features[] | select(.waiting)'", "features that wait for a person"),
    ),
    next_command="`mz show FEATURE` shows one feature; `mz resume` continues the run.",
)
@click.argument("selector", required=False)
@click.option("--watch", "-w", "watched", is_flag=True, help="Watch the run until it stops, then print its status.")
@view_options
@format_options("Print one object with the schema mz.status/1.")
def status(selector: str | None, watched: bool, as_json: bool) -> None:
    """Show a run: progress, cost and open questions.

    SELECTOR is a run's id or its beginning, or [RUN/]FEATURE (default: the newest run). Watching does not affect the
    run; Ctrl-C only ends the watching.
    """
    from mz_engine.run.plan import waiting_items  # Other commands start faster without it.

    with open_log() as log:
        selected = select_part(log, selector)
        if watched:
            from mz_cli.live.watch import watch_run

            watch_run(log, selected.run)
        view, context = log.view(selected.run), run_context(log, selected.run)
        if selected.feature is not None:
            view = replace(view, features=tuple(f for f in view.features if f.feature == selected.feature))
        waiting = waiting_items(log.root, os.environ, (f.feature for f in view.features)) if selector is None else {}
        if as_json:
            print_document("status", replace(run_status(view, context), waiting_items=waiting))
        else:
            print_run(view, context)
            print_note(*waiting.values())


class RunLine(Shape, frozen=True, kw_only=True):
    run: str
    status: Literal["started", "interrupted", "paused", "halted", "stopped", "idle", "finished", "imported"]
    """`interrupted`: the run was active, and its process is gone. `imported`: another system made it."""
    pipeline: str
    """Of an imported run the system, and how the run ended there, as far as known."""
    base: str
    integration: str | None
    """Branch into which its items are merged."""
    cycle: int
    """The latest cycle; 0: none."""
    started_us: int | None
    """null: an imported run whose begin is unknown."""
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
        process_running, root = is_process_running(log.root), str(log.root)
        own = tuple(run_line(row, process_running) for row in log.rows(RUNS))
        imported = tuple(
            RunLine(
                run=run.run, status="imported", pipeline=f"{run.system} {run.status}".strip(), base="",
                integration=None, cycle=0, started_us=run.started_us, fork_of=None,
                features={name: status or "unknown" for name, status in run.items.items()},
            )
            for run in imported_runs(log.store)
        )  # fmt: skip
    lines = tuple(sorted((*own, *imported), key=lambda line: line.started_us or 0, reverse=True))
    cells = tuple(
        (line.run, time_cell(line.started_us), line.status, line.pipeline, base_cell(line),
         ", ".join(f"{count} {status}" for status, count in Counter(line.features.values()).items()),
         line.integration or "", str(line.cycle))
        for line in lines
    )  # fmt: skip
    heads = columns("run", "started", "status", "pipeline", "base", ",features", "|integration", "|cycle")
    print_output(as_json, "runs", RunList(repository=root, runs=lines), Table(columns=heads, rows=cells))


def base_cell(line: RunLine) -> Cell:
    """Return where it started; on a terminal also its integration branch and cycle, such as `main (next, cycle 2)`."""
    base, cycle = line.fork_of or line.base, f"cycle {line.cycle}" if line.cycle else None
    notes = ", ".join(filter(None, (line.integration, cycle)))
    return Cell(f"{base} ({notes})" if notes else base, base)


def run_line(row: RunView, process_running: bool) -> RunLine:
    status, fork = live_status(row.status, process_running), row.fork
    return shape_of(
        RunLine,
        row,
        status="started" if status == "running" else status,
        started_us=row.started_us or 0,
        features={feature.feature: feature.status for feature in row.features},
        fork_of=f"{feature_stream(fork.source, fork.feature)}@{fork.version}" if fork else None,
    )
