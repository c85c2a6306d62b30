"""Whole logs as this version writes them, kept with what they mean, for every later version to read.

`python -m tests.support.old_log` makes the log of a run of the workshop where there is none of that name. `--renew`
writes anew what the stored logs mean, and leaves the logs alone: right only where a projection was wrong before.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.adapters.transfer import StoredEvent
from mz_events.catalog.base import Event
from mz_events.catalog.run import RunStarted
from mz_events.codec import CODEC
from mz_events.store import Recorded
from mz_qa.layers.formats import project_events, read_log

from tests.support.tree import ROOT
from tests.support.workshop import Workshop

LOGS = ROOT / "qa/mz_qa/fixtures/logs"
NAME = "notes"


def write_log(events: Iterable[Recorded[Event]]) -> bytes:
    """A line of JSON an event."""
    return b"".join(msgspec.json.encode(_line(recorded)) + b"\n" for recorded in events)


def _line(recorded: Recorded[Event]) -> StoredEvent:
    name, schema, payload = CODEC.encode(recorded.event)
    return StoredEvent(
        stream=recorded.stream, version=recorded.version, position=recorded.position, type=name, schema=schema,
        recorded_at_us=recorded.recorded_at_us, observed_at_us=recorded.observed_at_us, causation=recorded.causation,
        payload=msgspec.Raw(payload),
    )  # fmt: skip


def make(folder: Path) -> None:
    """A run with a rework, a failed call, a rollback by a person and a dependency."""
    with tempfile.TemporaryDirectory() as scratch:
        workshop = Workshop(Path(scratch))
        workshop.run()
        with SqliteStore(workshop.root / MZ_FOLDER / LOG_FILE, read_only=True) as store:
            events = tuple(store.read_all())
        (started,) = (recorded.event for recorded in events if isinstance(recorded.event, RunStarted))
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_bytes(write_log(events))
        (folder / "pins.json").write_bytes(
            FileBlobs(workshop.root / MZ_FOLDER / BLOBS_FOLDER).get(started.pins) + b"\n"
        )


def keep_meaning(folder: Path) -> None:
    """Writes down what the log means to this version."""
    meaning = msgspec.json.encode(project_events(read_log((folder / "log.jsonl").read_bytes())))
    (folder / "projections.json").write_bytes(msgspec.json.format(meaning, indent=1) + b"\n")


def main(renew: bool) -> None:
    if not (LOGS / NAME).exists():
        make(LOGS / NAME)
        keep_meaning(LOGS / NAME)
    for folder in LOGS.iterdir() if renew else ():
        keep_meaning(folder)


if __name__ == "__main__":
    main(renew="--renew" in sys.argv[1:])
