"""Adapter: `mz status`."""

from __future__ import annotations

import sys

import click
from mz_projections.views import RunView

from mz_cli.context import is_held, reading
from mz_cli.help import command
from mz_cli.render.console import answer, is_terminal
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.text import line
from mz_cli.summary import Trees, Words, heading, places, run_status, status_table, waits
from mz_cli.viewing import view_options
from mz_cli.watching import watch
from mz_cli.worktrees import worktrees


@command(
    "status",
    examples=(
        ("mz status", "the newest run"),
        ("mz status r4f1", "the run whose id begins so"),
        ("mz status --watch", "a live view from another terminal, until the run rests"),
        ("mz status --json | jq '.features[] | select(.waiting)'", "what waits for a person"),
    ),
    following="`mz show FEATURE` explains one feature; `mz resume` goes on.",
)
@click.argument("run", required=False)
@click.option("--watch", "-w", "watched", is_flag=True, help="Show it live until it rests; then print it.")
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.status/1.")
def status(run: str | None, watched: bool, as_json: bool) -> None:
    """Show a run, what it took, and what waits for you.

    RUN is a run's id or the beginning of one; without it, the newest run is shown. Watching changes nothing: the run
    belongs to the process that works on it, and Ctrl-C ends the watching only.
    """
    with reading() as log:
        chosen, trees = log.find_run(run), worktrees(log.home)
        if watched:
            watch(log, chosen)
        view, held = log.view(chosen), is_held(log.home)
        if as_json:
            show_document("status", run_status(view, str(log.home), held, log.words, trees))
        else:
            show_status(view, held, log.words, trees)


def show_status(view: RunView, held: bool, words: Words, trees: Trees) -> None:
    """A pipe gets the table alone; a terminal gets the run above it and the open questions below."""
    terminal = is_terminal(sys.stdout)
    if terminal:
        answer(heading(view, held) + "\n")
    show(status_table(view, held, words, trees, whole=not terminal))
    if terminal:
        if found := places(view, trees):
            answer("\n" + "\n".join(map(line, found)))
        for why, helps in waits(view, held, words):
            answer(f"\n{line(why)}\n  {helps}")
