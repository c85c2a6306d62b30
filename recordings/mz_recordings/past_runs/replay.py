"""Replay of one past run through the current code: the run's own stream, with its admissions, releases, holds,
reservations and claims, and the stream of every feature."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import msgspec
from mz_engine.decide.run import AwaitEvents, EndEvent, claim_files, decide_run, reserve_money
from mz_engine.model.pins import Pins, decode_pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallReserved, CallSettled
from mz_events.catalog.run import (
    ChecksChanged,
    ClaimCompared,
    ClaimRejected,
    FeatureAdmitted,
    FeatureMerged,
    FeatureOutcome,
    FeatureReleased,
    FeatureStopped,
    FilesClaimed,
    ItemHeld,
    RunFinished,
    RunHalted,
    RunIdle,
    RunStarted,
)
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, run_stream
from mz_events.store import BlobMissing, Blobs, Store
from mz_projections.failure_hints import failure_histories, prompt_hint
from mz_projections.run.fold import RunState, evolve_run

from mz_recordings.past_runs.comparison import StreamComparison, error_text, identity_fields
from mz_recordings.past_runs.feature import FeatureReplay, RecordedEvents, Stops
from mz_recordings.past_runs.model import INTENDED_CHANGES, IntendedChange, RunReplay, StreamReplay
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.record.recorder import UnknownRun

DECIDED_EVENTS = (FeatureAdmitted, FeatureReleased, ItemHeld, ClaimCompared, RunHalted)
"""Events that only `decide_run` produces."""
RunReply = CallReserved | CallOverBudget | CallSettled | FilesClaimed | ClaimRejected
"""Replies to requests of features; also in the features' own streams."""


class PinsUnreadable(Exception):
    """The run's pins are gone, or this version of mz cannot read them."""


def replay_run(
    log: Store, run: str, inputs: ReplayInputs, changes: tuple[IntendedChange, ...] = INTENDED_CHANGES
) -> RunReplay:
    """Replay every stream of the run. Raises RunUnknown, PinsUnreadable, and what the log raises."""
    started = run_started(log, run)
    run_events = tuple(log.read(run_stream(run)))
    pins = load_pins(inputs.blobs, started)
    prefix = feature_stream(run, "")
    streams = {name.removeprefix(prefix): tuple(log.read(name)) for name, _ in log.streams(prefix)}
    stops = feature_stops(run_events)
    replayed = (
        FeatureReplay(events, pins, inputs, started.base, changes, stops.get(feature)).run()
        for feature, events in streams.items()
    )
    own = replay_run_stream(run_events, pins, streams, changes)
    return RunReplay(run=run, mz_version=started.mz_version, streams=(own, *replayed))


def run_started(log: Store, run: str) -> RunStarted:
    """Return the run's start event. Raises RunUnknown."""
    for recorded in log.read(run_stream(run)):
        if isinstance(recorded.event, RunStarted):
            return recorded.event
    raise UnknownRun(f"there is no run {run!r}")


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
        before = log.read_all(0, position - 1) if position > 1 else ()
        return prompt_hint(failure_histories(before).get(signature))

    return hint


def feature_stops(events: RecordedEvents) -> Mapping[str, Stops]:
    """Return the events where features stopped by themselves, by feature and version of its stream. An interrupted
    feature, or one with a lost call, had something to do."""
    stops: dict[str, dict[int, Recorded[Event]]] = {}
    for recorded in events:
        match recorded.event:
            case FeatureStopped(feature=feature, version=version, status=status) if (
                version and status != FeatureOutcome.INTERRUPTED
            ):
                stops.setdefault(feature, {})[version] = recorded
    return stops


# the run's own stream -------------------------------------------------------------------------------------------------
def replay_run_stream(
    events: RecordedEvents,
    pins: Pins,
    features: Mapping[str, RecordedEvents],
    changes: tuple[IntendedChange, ...] = INTENDED_CHANGES,
) -> StreamReplay:
    """Replay the run's own stream. The features' streams, by name, contain their requests."""
    replay = RunStreamReplay(pins, features)
    comparison: StreamComparison[RunState] = StreamComparison(events, RunState(), evolve_run, replay.next_type, changes)
    while (recorded := comparison.next_recorded) is not None:
        try:
            replay.compare(comparison, recorded.event)
        except Exception as error:  # Any error of the current code is a finding with an event reference.
            comparison.end("failure", note=error_text(error))
    return comparison.result({})


class RunStreamReplay:
    def __init__(self, pins: Pins, features: Mapping[str, RecordedEvents]) -> None:
        self.pins, self.features = pins, features
        self.pending = {
            feature: deque(
                (recorded.version, recorded.event)
                for recorded in events
                if isinstance(recorded.event, RunReply) and not recorded.is_forked_copy
            )
            for feature, events in features.items()
        }
        """Replies in the feature's own stream, with their versions, that were not compared yet."""

    def compare(self, comparison: StreamComparison[RunState], event: Event) -> None:
        """Compare the next recorded event with what the current code decides and replies here."""
        state = comparison.state
        decided = self.decided_event(state)
        if isinstance(event, DECIDED_EVENTS):
            comparison.compare([] if decided is None else [decided])
        elif isinstance(event, RunIdle | RunFinished):
            comparison.compare(self._end_events(state) if decided is None else [decided])
        elif isinstance(event, RunReply):
            comparison.compare([produced for produced in (decided, self._reply(state, event)) if produced is not None])
        elif isinstance(event, ChecksChanged | FeatureMerged) or (isinstance(event, FeatureStopped) and event.version):
            # All decisions are made before events of a feature's worker or of a poll.
            missing = self._unrecorded_reply(event)
            if isinstance(event, FeatureStopped) and len(self.features.get(event.feature, ())) < event.version:
                self._note_truncated(comparison, event)
            comparison.compare([produced for produced in (decided, missing, event) if produced is not None])
        else:
            comparison.apply_recorded()  # People, timers and a starting process do not wait for decisions.

    def decided_event(self, state: RunState) -> Event | None:
        """Return the event that the current code appends in this state; None: it waits, or is done."""
        action = decide_run(state, self.pins)
        return None if isinstance(action, AwaitEvents | EndEvent) else action

    def next_type(self, state: RunState) -> type[Event] | None:
        decided = self.decided_event(state)
        return None if decided is None else type(decided)

    def _end_events(self, state: RunState) -> list[Event]:
        match decide_run(state, self.pins):
            case RunFinished() as end if not state.finished:
                return [end]
            case RunIdle() as end if not state.idle:
                return [end]
        return []

    def _reply(self, state: RunState, recorded: RunReply) -> Event | None:
        """Return the current code's reply to the feature's next request; None: there is no such request or feature."""
        pending = self.pending.get(recorded.feature)
        if not pending or recorded.feature not in state.tracks:
            return None
        _, event = pending.popleft()
        if type(event) is not type(recorded) or identity_fields(event) != identity_fields(recorded):
            return event
        match event:
            case CallReserved(feature=feature, key=key) | CallOverBudget(feature=feature, key=key):
                return reserve_money(state, feature, key, getattr(event, "role", ""), event.nanousd, self.pins)
            case FilesClaimed(feature=feature) | ClaimRejected(feature=feature):
                return claim_files(state, feature, event.phase, event.paths)
        return event

    def _unrecorded_reply(self, event: Event) -> Event | None:
        """Return a reply in the stopped feature's stream that the run's stream lacks."""
        if not isinstance(event, FeatureStopped):
            return None
        return next((reply for version, reply in self.pending.get(event.feature, ()) if version <= event.version), None)

    def _note_truncated(self, comparison: StreamComparison[RunState], stopped: FeatureStopped) -> None:
        stream, length = f"{comparison.events[0].stream}/{stopped.feature}", len(self.features.get(stopped.feature, ()))
        note = f"{stream} ends at event {length}, but the feature stopped at {stopped.version}"
        comparison.note("missing", comparison.events[comparison.index], note=note)
