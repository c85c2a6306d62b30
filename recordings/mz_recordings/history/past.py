"""Replay of one past run through the current code: the run's own stream, and every feature's."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from mz_engine.pins import Pins, decode_pins
from mz_events.catalog.base import Event
from mz_events.catalog.run import RunStarted
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, run_stream
from mz_events.store import BlobMissing, Blobs, Store
from mz_projections.memory import hint_of, learn

from mz_recordings.history.answers import Means
from mz_recordings.history.changes import CHANGES, Change
from mz_recordings.history.divergence import History, Replayed
from mz_recordings.history.feature import replay_stream
from mz_recordings.history.run import replay_run_stream, rests_of
from mz_recordings.recording.record import RunUnknown


class PinsUnreadable(Exception):
    """The run's pins are gone, or this version of mz cannot read them."""


def replay_run(
    log: Store, run: str, means: Means, answered: bool = False, changes: tuple[Change, ...] = CHANGES
) -> History:
    """Replay every stream of the run. Raises RunUnknown, PinsUnreadable, and what the log raises."""
    started = started_of(log, run)
    own = tuple(log.read(run_stream(run)))
    pins = pins_of(means.blobs, started)
    prefix = feature_stream(run, "")
    streams = {name.removeprefix(prefix): tuple(log.read(name)) for name, _ in log.streams(prefix)}
    replayed: list[Replayed] = [replay_run_stream(own, pins, streams, changes, answered)]
    rests = rests_of(own)
    for feature, events in streams.items():
        replayed.append(replay_stream(events, pins, answered, means, started.base, changes, rests.get(feature, {})))
    return History(run=run, core=started.core, streams=tuple(replayed))


def started_of(log: Store, run: str) -> RunStarted:
    """Return the run's start event. Raises RunUnknown."""
    found = next((one.event for one in log.read(run_stream(run)) if isinstance(one.event, RunStarted)), None)
    if found is None:
        raise RunUnknown(f"there is no run {run!r}")
    return found


def pins_of(blobs: Blobs, started: RunStarted) -> Pins:
    """Return the run's pins. Raises PinsUnreadable."""
    try:
        return decode_pins(blobs.get(started.pins))
    except BlobMissing:
        raise PinsUnreadable(f"run {started.run} has no readable settings: they were erased or lost") from None
    except msgspec.MsgspecError as error:
        why = f"this mz cannot read the settings that mz {started.core} stored for run {started.run}: {error}"
        raise PinsUnreadable(why) from error


def hints_of(log: Store) -> Callable[[str, int], str | None]:
    """Return a function for the hint about a failure that was known when the event at a position was appended."""

    def hint(signature: str, position: int) -> str | None:
        known = learn(_before(log, position))
        return hint_of(known.get(signature))

    return hint


def _before(log: Store, position: int) -> tuple[Recorded[Event], ...]:
    return tuple(log.read_all(0, position - 1)) if position > 1 else ()
