"""Adapter: `mz status`."""

from __future__ import annotations

import sys

import click
from mz_projections.views import RunView

from mz_cli.context import reading
from mz_cli.help import command
from mz_cli.render.console import answer, is_terminal
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.text import line, moment
from mz_cli.summary import Words, run_status, status_table, waits


@command(
    "status",
    examples=(
        ("mz status", "the newest run"),
        ("mz status 20260301", "the run whose id begins so"),
        ("mz status --json | jq '.features[] | select(.waiting)'", "what waits for a person"),
    ),
    following="`mz show FEATURE` explains one feature; `mz resume` goes on.",
)
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.status/1.")
def status(run: str | None, as_json: bool) -> None:
    """Show a run, what it took, and what waits for you.

    RUN is a run's id or the beginning of one; without it, the newest run is shown.
    """
    with reading() as log:
        view = log.view(log.find_run(run))
        if as_json:
            show_document("status", run_status(view, str(log.home), log.words))
        else:
            show_status(view, log.words)


def show_status(view: RunView, words: Words) -> None:
    """A pipe gets the table alone; a terminal gets the run above it and the open questions below."""
    terminal = is_terminal(sys.stdout)
    if terminal:
        code = f" ({view.code})" if view.code else ""
        since = f", since {moment(view.started_us)}" if view.started_us is not None else ""
        answer(f"run {view.run}: {view.status}{code}, {view.pipeline} on {view.base}{since}\n")
    show(status_table(view, words, whole=not terminal))
    if terminal:
        for text in waits(view, words):
            answer(f"\n{line(text[0])}\n  {text[1]}")
