"""Adapter: makes the bundled recordings again from nothing: `python -m tests.support.rerecord`.

The real CLI is driven by a run against the scripted model endpoint, in a fresh HOME and a fresh copy of the sample
project; the run is then recorded. It fails, and changes nothing, when the script was surprised or a feature was not
delivered.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import mz_recordings
from mz_engine.session import Session
from mz_events.catalog.base import Event
from mz_events.catalog.feature import PhaseCompleted
from mz_events.catalog.run import Rest
from mz_events.envelope import Recorded
from mz_projections.run import RunState
from mz_recordings.cassette import Cassette
from mz_recordings.library import save
from mz_recordings.record import record_run
from mz_recordings.sample import TEMPLATE, make_sample
from mz_recordings.sources import sources_of

from tests.support.claude_cli import environment, installed
from tests.support.endpoint import Endpoint
from tests.support.script_demo import demo

NAME = "monozukuri-claude-code"
BUNDLED = Path(str(mz_recordings.__path__[0])) / "bundled" / NAME


class NotRecorded(Exception):
    """The run did not go as the script wants it; says how."""


def record_demo(directory: Path) -> Cassette:
    """Drives the whole backlog of the sample project in `directory`, which is empty, and records it."""
    home, root = directory / "home", directory / "tally"
    home.mkdir()
    make_sample(root, os.environ)
    with ExitStack() as stack:
        endpoint = stack.enter_context(Endpoint(demo))
        outside = environment(home, endpoint.url)
        session = stack.enter_context(Session(root, outside, _tell))
        session.begin({}, ())
        state = session.drive()
        _check(state, endpoint)
        sources = sources_of(root, outside, session.store, session.blobs)
        assert state.started is not None
        run = state.started.run
        return record_run(sources, run, name=NAME, provenance="scripted-model", template=TEMPLATE).cassette


def _check(state: RunState, endpoint: Endpoint) -> None:
    if endpoint.complaints:
        raise NotRecorded("\n".join(endpoint.complaints))
    for feature, track in state.tracks.items():
        if track.rested is None or track.rested.status is not Rest.DELIVERED:
            raise NotRecorded(f"{feature} was not delivered: {track.rested}")


def _tell(recorded: Recorded[Event]) -> None:
    if isinstance(recorded.event, PhaseCompleted):
        sys.stderr.write(f"{recorded.stream.rpartition('/')[2]}: {recorded.event.phase}\n")


def main() -> None:
    if not installed():
        sys.exit("the claude CLI is not installed: make clis")
    with tempfile.TemporaryDirectory(prefix="mz-") as directory:
        made = record_demo(Path(directory))
        save(made, BUNDLED, replace=True)
    sys.stderr.write(f"{len(made.taken)} calls recorded in {BUNDLED}\n")


if __name__ == "__main__":
    main()
