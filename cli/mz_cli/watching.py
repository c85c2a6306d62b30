"""Watch a run that another process drives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from mz_engine.home import HOME, SPOOL
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, run_stream
from mz_projections.overview import Overview

from mz_cli.context import Reading, is_held
from mz_cli.render.progress import progress
from mz_cli.render.spool import Spools
from mz_cli.viewing import wished

FOOTER = "Ctrl-C: stop watching; the run continues"
POLL_SECONDS = 0.2


def watch(log: Reading, run: str) -> None:
    """Show the run on stderr until it stops, no process drives it any more, or Ctrl-C is pressed."""
    said = Spools(log.home / HOME / SPOOL).last_words
    with suppress(KeyboardInterrupt), progress(log.words, log.events, said, footer=FOOTER, wish=wished()) as shown:
        events = coming(log, run)
        if is_held(log.home):
            shown.begin(run)
        for recorded in events:
            shown.on_event(recorded)


def coming(log: Reading, run: str) -> Iterator[Recorded[Event]]:
    """Yield events recorded after this call; end when the run stops or no process drives it."""
    after, fold = log.store.head(), Overview(run)
    for recorded in log.events(run):
        fold.apply(recorded)
        after = max(after, recorded.position)
    return _polled(log, run, after, fold)


def _polled(log: Reading, run: str, after: int, fold: Overview) -> Iterator[Recorded[Event]]:
    own, theirs = run_stream(run), feature_stream(run, "")
    while True:
        # Checked before reading, so that the last events of a process that ends meanwhile are read.
        held = is_held(log.home)
        for recorded in log.store.read_all(after):
            after = recorded.position
            if recorded.stream == own or recorded.stream.startswith(theirs):
                fold.apply(recorded)
                yield recorded
        if not held or fold.run.at_rest:
            return
        time.sleep(POLL_SECONDS)
