"""Command `mz pause`."""

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
    examples=(("mz pause", "pause the running run"),),
    following="`mz resume` continues.",
)
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pause/1.")
def pause(run: str | None, as_json: bool) -> None:
    """Pause a run; its process stays alive.

    Current agent calls and commands finish; nothing new is started until `mz resume`. Signals to the process do the
    same: SIGUSR1 pauses, SIGUSR2 continues.
    """
    with reading() as log:
        chosen, at_work = log.find_run(run), holder(log)
        if at_work is None or (run is not None and chosen != at_work):
            problem = f"no process is running run {chosen}"
            hint = f"continue it with: mz resume {chosen}"
            if fold_run(log.store.read(run_stream(chosen))).finished:
                hint = "it is finished; start another with `mz run`"
            raise MzError("MZ5005", problem, hint=hint)
        if fold_run(log.store.read(run_stream(at_work))).paused:
            left, what = Left(run=at_work, places=(), held=True, taken=True), f"run {at_work} is already paused"
        else:
            left = leave(log, at_work, lambda: (PauseLeft(who=who(log)),))
            what = f"run {at_work} is pausing after its current calls; continue with `mz resume`"
        show_sent("pause", left, "pause", what, as_json)
