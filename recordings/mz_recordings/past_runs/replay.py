"""Replay of one past run through the current code: the run's own stream, and every feature's."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from mz_engine.model.pins import Pins, decode_pins
from mz_events.catalog.base import Event
from mz_events.catalog.run import RunStarted
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, run_stream
from mz_events.store import BlobMissing, Blobs, Store
from mz_projections.failure_hints import failure_histories, prompt_hint

from mz_recordings.past_runs.coordinator import feature_stops, replay_run_stream
from mz_recordings.past_runs.feature import replay_feature_stream
from mz_recordings.past_runs.model import INTENDED_CHANGES, IntendedChange, RunReplay, StreamReplay
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.record.recorder import UnknownRun


class PinsUnreadable(Exception):
    """The run's pins are gone, or this version of mz cannot read them."""


def replay_run(
    log: Store,
    run: str,
    inputs: ReplayInputs,
    changes: tuple[IntendedChange, ...] = INTENDED_CHANGES,
) -> RunReplay:
    """Replay every stream of the run. Raises RunUnknown, PinsUnreadable, and what the log raises."""
    started = run_started(log, run)
    run_events = tuple(log.read(run_stream(run)))
    pins = load_pins(inputs.blobs, started)
    prefix = feature_stream(run, "")
    streams = {name.removeprefix(prefix): tuple(log.read(name)) for name, _ in log.streams(prefix)}
    replayed: list[StreamReplay] = [replay_run_stream(run_events, pins, streams, changes)]
    stops = feature_stops(run_events)
    for feature, events in streams.items():
        replayed.append(replay_feature_stream(events, pins, inputs, started.base, changes, stops.get(feature, {})))
    return RunReplay(run=run, mz_version=started.mz_version, streams=tuple(replayed))


def run_started(log: Store, run: str) -> RunStarted:
    """Return the run's start event. Raises RunUnknown."""
    started = next(
        (recorded.event for recorded in log.read(run_stream(run)) if isinstance(recorded.event, RunStarted)), None
    )
    if started is None:
        raise UnknownRun(f"there is no run {run!r}")
    return started


def load_pins(blobs: Blobs, started: RunStarted) -> Pins:
    """Return the run's pins. Raises PinsUnreadable."""
    try:
        return decode_pins(blobs.get(started.pins))
    except BlobMissing:
        raise PinsUnreadable(f"run {started.run} has no readable settings: they were erased or lost") from None
    except msgspec.MsgspecError as error:
        message = f"this mz cannot read the settings that mz {started.mz_version} stored for run {started.run}: {error}"
        raise PinsUnreadable(message) from error


def hint_lookup(log: Store) -> Callable[[str, int], str | None]:
    """Return a function for the hint about a failure that was known when the event at a position was appended."""

    def hint(signature: str, position: int) -> str | None:
        histories = failure_histories(_before(log, position))
        return prompt_hint(histories.get(signature))

    return hint


def _before(log: Store, position: int) -> tuple[Recorded[Event], ...]:
    return tuple(log.read_all(0, position - 1)) if position > 1 else ()
