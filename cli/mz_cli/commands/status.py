"""Command `mz status`."""

from __future__ import annotations

import sys

import click
from mz_projections.views import RunView

from mz_cli.advice import Around, Words, few, listed, next_look, places, waits
from mz_cli.context import is_held, reading
from mz_cli.help import command
from mz_cli.inbox import left
from mz_cli.render.console import answer, is_terminal
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.text import line
from mz_cli.summary import heading, run_status, status_table
from mz_cli.viewing import view_options
from mz_cli.watching import watch
from mz_cli.worktrees import around


@command(
    "status",
    examples=(
        ("mz status", "the newest run"),
        ("mz status r4f1", "the run whose id begins with r4f1"),
        ("mz status --watch", "a live view from another terminal, until the run stops"),
        ("mz status --json | jq '.features[] | select(.waiting)'", "features that wait for a person"),
    ),
    following="`mz show FEATURE` shows one feature; `mz resume` continues the run.",
)
@click.argument("run", required=False)
@click.option("--watch", "-w", "watched", is_flag=True, help="Watch the run until it stops, then print its status.")
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.status/1.")
def status(run: str | None, watched: bool, as_json: bool) -> None:
    """Show a run: progress, cost and open questions.

    RUN is a run's id or its beginning (default: the newest run). Watching does not affect the run; Ctrl-C only ends the
    watching.
    """
    with reading() as log:
        chosen = log.find_run(run)
        if watched:
            watch(log, chosen)
        held, beside = is_held(log.home), around(log.home, left(log, chosen))
        view = log.view(chosen)
        if as_json:
            show_document("status", run_status(view, str(log.home), held, log.words, beside))
        else:
            show_status(view, held, log.words, beside)


def show_status(view: RunView, held: bool, words: Words, beside: Around) -> None:
    """Print the table; on a terminal with the run above and open questions below."""
    terminal = is_terminal(sys.stdout)
    if terminal:
        answer(heading(view, held) + "\n")
    show(status_table(view, held, words, beside, whole=not terminal))
    if terminal:
        if remaining := listed(view.features)[1]:
            answer(remaining)
        if paths := places(view, beside):
            answer("\n" + "\n".join(map(line, few(paths))))
        for why, helps in waits(view, held, words, beside):
            answer(f"\n{why}\n  {helps}")
        if look := next_look(view, beside):
            answer(f"\n{look}")
