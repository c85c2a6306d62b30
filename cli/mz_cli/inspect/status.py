"""Command `mz status`."""

from __future__ import annotations

import click
from msgspec.structs import replace

from mz_cli.app.context import open_log
from mz_cli.app.help import command, format_options, view_options
from mz_cli.app.selectors import select_part
from mz_cli.common.advice import run_context
from mz_cli.common.run_text import print_run, run_status
from mz_cli.terminal.json import print_document


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
        if watched:
            from mz_cli.live.watch import watch_run

            watch_run(log, selected.run)
        view, context = log.view(selected.run), run_context(log, selected.run)
        if selected.feature is not None:
            view = replace(view, features=tuple(f for f in view.features if f.feature == selected.feature))
        if as_json:
            print_document("status", run_status(view, context))
        else:
            print_run(view, context)
