"""Adapter: `mz pause`."""

from __future__ import annotations

import click
from mz_engine.errors import MzError
from mz_events.catalog.inbox import PauseLeft
from mz_events.names import run_stream
from mz_projections.run import fold_run

from mz_cli.context import reading
from mz_cli.help import command
from mz_cli.inbox import Left, holder, leave, who
from mz_cli.sent import show_sent


@command(
    "pause",
    examples=(("mz pause", "the run that a process works on now"),),
    following="`mz resume` goes on.",
)
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pause/1.")
def pause(run: str | None, as_json: bool) -> None:
    """Have a run wait, without ending its process.

    Agents and commands that are at work end what they do; nothing more is begun until `mz resume`. The process can be
    told so by signals too: SIGUSR1 pauses it, SIGUSR2 has it go on.
    """
    with reading() as log:
        chosen, at_work = log.find_run(run), holder(log)
        if at_work is None or (run is not None and chosen != at_work):
            named = run is not None or at_work is None
            problem = f"no process works on run {chosen}" if named else "no process works here"
            hint = f"it stands still; to go on: mz resume {chosen}"
            if fold_run(log.store.read(run_stream(chosen))).finished:
                hint = "it is finished; `mz run` begins another"
            raise MzError("MZ5005", problem, hint=hint)
        if fold_run(log.store.read(run_stream(at_work))).paused:
            left, what = Left(run=at_work, places=(), held=True, taken=True), f"run {at_work} is paused already"
        else:
            left = leave(log, at_work, lambda: (PauseLeft(who=who(log)),))
            what = f"run {at_work} comes to rest after what is under way, and goes on with: mz resume"
        show_sent("pause", left, "pause", what, as_json)
