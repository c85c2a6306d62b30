"""Command `mz pause`."""

from __future__ import annotations

import click
from mz_engine.errors.diagnostics import MzError
from mz_events.catalog.inbox import PausePosted
from mz_events.names import run_stream
from mz_projections.run.fold import fold_run

from mz_cli.app.context import open_log
from mz_cli.app.help import command
from mz_cli.people.inbox import PostedMessage, active_run, post_message, print_delivery, store_user_name


@command("pause", examples=(("mz pause", "pause the running run"),), next_command="`mz resume` continues.")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pause/1.")
def pause(run: str | None, as_json: bool) -> None:
    """Pause a run; its process stays alive.

    Current agent calls and commands finish; nothing new is started until `mz resume`. Signals to the process do the
    same: SIGUSR1 pauses, SIGUSR2 continues.
    """
    with open_log() as log:
        run_id, running_id = log.find_run(run), active_run(log)
        if running_id is None or (run is not None and run_id != running_id):
            problem = f"no process is running run {run_id}"
            hint = f"continue it with: mz resume {run_id}"
            if fold_run(log.store.read(run_stream(run_id))).finished:
                hint = "it is finished; start another with `mz run`"
            raise MzError("MZ5005", problem, hint=hint)
        if fold_run(log.store.read(run_stream(running_id))).paused:
            posted, summary = (
                PostedMessage(run=running_id, event_refs=(), process_running=True, is_read=True),
                f"run {running_id} is already paused",
            )
        else:
            posted = post_message(log, running_id, lambda: (PausePosted(actor=store_user_name(log)),))
            summary = f"run {running_id} is pausing after its current calls; continue with `mz resume`"
        print_delivery("pause", posted, "pause", summary, as_json)
