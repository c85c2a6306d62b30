"""Watch a run that another process drives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from mz_events.catalog.base import Event
from mz_events.names import feature_stream, run_stream
from mz_events.store import Recorded
from mz_projections.views.run import RunProjection

from mz_cli.app.context import ProjectLog, is_process_running
from mz_cli.live.progress import make_progress

FOOTER = "Ctrl-C: stop watching; the run continues"
POLL_SECONDS = 0.2


def watch_run(log: ProjectLog, run: str) -> None:
    """Show the run on stderr until it stops, no process drives it any more, or Ctrl-C is pressed."""
    with suppress(KeyboardInterrupt), make_progress(log, FOOTER) as view:
        events = follow_events(log, run)
        if is_process_running(log.root):
            view.begin(run)
        for recorded in events:
            view.on_event(recorded)


def follow_events(log: ProjectLog, run: str, all_events: bool = False) -> Iterator[Recorded[Event]]:
    """Yield the run's events that are recorded after this call, until the run stops or no process drives it. With
    `all_events`, begin with the earlier ones, and wait for a process."""
    after, fold, earlier = log.store.head(), RunProjection(run), tuple(log.events(run))
    for recorded in earlier:
        fold.apply(recorded)
        after = max(after, recorded.position)
    return chain(earlier if all_events else (), _poll_events(log, run, after, fold, all_events))


def _poll_events(log: ProjectLog, run: str, after: int, fold: RunProjection, waits: bool) -> Iterator[Recorded[Event]]:
    run_events, feature_prefix = run_stream(run), feature_stream(run, "")
    while True:
        # Checked before reading, so that the last events of a process that ends meanwhile are read.
        process_running = is_process_running(log.root)
        for recorded in log.store.read_all(after):
            after = recorded.position
            if recorded.stream == run_events or recorded.stream.startswith(feature_prefix):
                fold.apply(recorded)
                yield recorded
        if fold.run.has_stopped or not (process_running or waits):
            return
        time.sleep(POLL_SECONDS)
