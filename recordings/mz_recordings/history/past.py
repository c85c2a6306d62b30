"""Pure: replays one past run of a log through today's core: its own stream, and every feature's."""

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
    """What the run was started with is gone, or in a form that this `mz` cannot read; says which."""


def replay_run(
    log: Store, run: str, means: Means, answered: bool = False, changes: tuple[Change, ...] = CHANGES
) -> History:
    """Every stream of the run, against today's code. Raises RunUnknown, PinsUnreadable, and what the log raises."""
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
    """How the run was started. Raises RunUnknown."""
    found = next((one.event for one in log.read(run_stream(run)) if isinstance(one.event, RunStarted)), None)
    if found is None:
        raise RunUnknown(f"there is no run {run!r}")
    return found


def pins_of(blobs: Blobs, started: RunStarted) -> Pins:
    """What the run was started with. Raises PinsUnreadable."""
    try:
        return decode_pins(blobs.get(started.pins))
    except BlobMissing:
        raise PinsUnreadable(f"what run {started.run} was started with was erased or lost") from None
    except msgspec.MsgspecError as error:
        why = f"mz {started.core} started run {started.run} with what this mz cannot read: {error}"
        raise PinsUnreadable(why) from error


def hints_of(log: Store) -> Callable[[str, int], str | None]:
    """What the memory knew of a failure when the event at a position was appended."""

    def hint(signature: str, position: int) -> str | None:
        known = learn(_before(log, position))
        return hint_of(known.get(signature))

    return hint


def _before(log: Store, position: int) -> tuple[Recorded[Event], ...]:
    return tuple(log.read_all(0, position - 1)) if position > 1 else ()
