"""Replay of one past run through the current code: the run's own stream, with its admissions, releases, holds,
reservations and claims, and the stream of every feature."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec
from mz_engine.decide.run import AwaitEvents, EndEvent, claim_files, decide_run, reserve_money
from mz_engine.model.pins import Pins, decode_commands, decode_pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallReserved, CallSettled
from mz_events.catalog.run import (
    ChecksChanged,
    ClaimCompared,
    ClaimRejected,
    CommandsChanged,
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
from mz_events.names import feature_stream, run_stream
from mz_events.store import BlobMissing, Blobs, Recorded, Store
from mz_projections.run.fold import RunState, evolve_run

from mz_recordings.past_runs.comparison import StreamComparison, error_text, identity_fields
from mz_recordings.past_runs.feature import FeatureReplay, RecordedEvents, Stops
from mz_recordings.past_runs.model import RunReplay, StreamReplay
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.record.recorder import UnknownRun

DECIDED_EVENTS = (FeatureAdmitted, FeatureReleased, ItemHeld, ClaimCompared, RunHalted)
"""Events that only `decide_run` produces."""
RunReply = CallReserved | CallOverBudget | CallSettled | FilesClaimed | ClaimRejected
"""Replies to requests of features; also in the features' own streams."""


class PinsUnreadable(Exception):
    """The run's pins are gone, or this version of mz cannot read them."""


def replay_run(log: Store, run: str, inputs: ReplayInputs) -> RunReplay:
    """Replay every stream of the run. Raises RunUnknown, PinsUnreadable, and what the log raises."""
    started = run_started(log, run)
    run_events = tuple(log.read(run_stream(run)))
    pins = load_pins(inputs.blobs, started)
    prefix = feature_stream(run, "")
    streams = {name.removeprefix(prefix): tuple(log.read(name)) for name, _ in log.streams(prefix)}
    stops = feature_stops(run_events)
    corrected = corrected_pins(inputs.blobs, run_events, pins)
    replayed = (
        FeatureReplay(events, pins, inputs, started.base, stops=stops.get(feature), corrected=corrected).run()
        for feature, events in streams.items()
    )
    own = RunStreamReplay(run_events, pins, streams).run()
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


def corrected_pins(blobs: Blobs, events: RecordedEvents, pins: Pins) -> tuple[tuple[int, Pins], ...]:
    """Return the pins with corrected commands, each with the position in the log from which on they hold."""
    changes = ((recorded.position, recorded.event) for recorded in events)
    return tuple(
        (position, decode_commands(blobs.get(event.commands)).apply(pins))
        for position, event in changes
        if isinstance(event, CommandsChanged)
    )


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
class RunStreamReplay:
    """Replay of the run's own stream. The features' streams, by name, contain their requests."""

    def __init__(self, events: RecordedEvents, pins: Pins, features: Mapping[str, RecordedEvents]) -> None:
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
        self.comparison: StreamComparison[RunState] = StreamComparison(events, RunState(), evolve_run, self._next_type)

    def run(self) -> StreamReplay:
        while (recorded := self.comparison.next_recorded) is not None:
            try:
                self._compare(recorded)
            except Exception as error:  # Any error of the current code is a finding with an event reference.
                self.comparison.end("failure", note=error_text(error))
        return self.comparison.result({})

    def _compare(self, recorded: Recorded[Event]) -> None:
        """Compare the next recorded event with what the current code decides and replies here. All decisions are made
        before events of a feature's worker or of a poll; people, timers and a starting process do not wait for them."""
        event, state = recorded.event, self.comparison.state
        action = decide_run(state, self.pins)
        decided = () if isinstance(action, AwaitEvents | EndEvent) else (action,)
        others: tuple[Event | None, ...] = ()
        match event:
            case RunIdle() | RunFinished():
                if isinstance(action, EndEvent):
                    others = () if (state.finished if isinstance(action, RunFinished) else state.idle) else (action,)
            case CallReserved() | CallOverBudget() | CallSettled() | FilesClaimed() | ClaimRejected():
                others = (self._reply(state, event),)
            case ChecksChanged() | FeatureMerged():
                others = (event,)
            case FeatureStopped(feature=feature, version=version) if version:
                length, replies = len(self.features.get(feature, ())), self.pending.get(feature, ())
                if length < version:
                    note = f"{recorded.stream}/{feature} ends at event {length}, but the feature stopped at {version}"
                    self.comparison.note("missing", recorded, note=note)
                others = (next((reply for at, reply in replies if at <= version), None), event)
            case _ if not isinstance(event, DECIDED_EVENTS):
                self.comparison.apply_recorded()
                return
        self.comparison.compare([produced for produced in (*decided, *others) if produced is not None])

    def _next_type(self, state: RunState) -> type[Event] | None:
        action = decide_run(state, self.pins)
        return None if isinstance(action, AwaitEvents | EndEvent) else type(action)

    def _reply(self, state: RunState, recorded: RunReply) -> Event | None:
        """Return the current code's reply to the feature's next request; None: there is no such request or feature."""
        pending = self.pending.get(recorded.feature)
        if not pending or recorded.feature not in state.tracks:
            return None
        _, event = pending.popleft()
        if type(event) is not type(recorded) or identity_fields(event) != identity_fields(recorded):
            return event
        match event:
            case CallOverBudget(budget=budget) if not budget or budget.startswith("day"):
                return event  # An older mz did not say more; what other runs spent is not in this log.
            case CallOverBudget():
                return reserve_money(state, event, self.pins, ())
            case CallReserved(feature=feature, key=key, nanousd=nanousd, tokens=tokens):
                call = CallOverBudget(feature=feature, key=key, role="", nanousd=nanousd, tokens=tokens)
                return reserve_money(state, call, self.pins, ())
            case FilesClaimed(feature=feature) | ClaimRejected(feature=feature):
                return claim_files(state, feature, event.phase, event.paths)
        return event
