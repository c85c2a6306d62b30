"""Command `mz status`."""

from __future__ import annotations

import sys

import click
from msgspec.structs import replace
from mz_projections.views.model import RunView

from mz_cli.app.context import is_process_running, open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.selectors import select_part
from mz_cli.common.advice import (
    RunContext,
    TextLoader,
    features_to_list,
    limit_lines,
    pending_actions,
    review_hint,
    run_context,
    work_locations,
)
from mz_cli.common.run_text import heading, run_status, status_table
from mz_cli.live.progress import view_options
from mz_cli.live.watch import watch_run
from mz_cli.people.inbox import messages_of_run
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import print_table, prints_tsv
from mz_cli.terminal.text import single_line


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
    with open_log() as log:
        selected = select_part(log, selector)
        run_id = selected.run
        if watched:
            watch_run(log, run_id)
        process_running, run_info = is_process_running(log.home), run_context(log.home, messages_of_run(log, run_id))
        view = log.view(run_id)
        if selected.feature is not None:
            view = replace(view, features=tuple(f for f in view.features if f.feature == selected.feature))
        if as_json:
            print_document("status", run_status(view, str(log.home), process_running, log.load_text, run_info))
        else:
            print_status(view, process_running, log.load_text, run_info)


def print_status(view: RunView, process_running: bool, load_text: TextLoader, run_info: RunContext) -> None:
    """Print the table; on a terminal with the run above and open questions below."""
    terminal = not prints_tsv(sys.stdout)
    if terminal:
        print_line(heading(view, process_running) + "\n")
    print_table(status_table(view, process_running, load_text, run_info, exact=not terminal))
    if terminal:
        if remaining := features_to_list(view.features)[1]:
            print_line(remaining)
        if paths := work_locations(view, run_info):
            print_line("\n" + "\n".join(map(single_line, limit_lines(paths))))
        for reason, fix in pending_actions(view, process_running, load_text, run_info):
            print_line(f"\n{reason}\n  {fix}")
        if next_command := review_hint(view, run_info):
            print_line(f"\n{next_command}")
