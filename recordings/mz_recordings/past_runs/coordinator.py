"""Replay of a run's stream through the current code: admissions, releases, holds, reservations and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mz_engine.decide.run import AwaitEvents, EndEvent, claim_files, decide_run, reserve_money
from mz_engine.model.pins import Pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallOverBudget, CallRef, CallReserved, CallSettled
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
)
from mz_events.envelope import Recorded
from mz_events.names import Commit, Digest, feature_stream
from mz_projections.run.fold import RunState, evolve_run

from mz_recordings.past_runs.comparison import LOOKAHEAD_EVENTS, StreamComparison, identity_fields
from mz_recordings.past_runs.model import INTENDED_CHANGES, IntendedChange, StreamReplay

RecordedEvents = Sequence[Recorded[Event]]
DECIDED_EVENTS = (FeatureAdmitted, FeatureReleased, ItemHeld, ClaimCompared, RunHalted)
"""Events that only `decide_run` produces."""
RunReply = CallReserved | CallOverBudget | CallSettled | FilesClaimed | ClaimRejected
RUN_REPLIES = (CallReserved, CallOverBudget, CallSettled, FilesClaimed, ClaimRejected)
"""Replies to requests of features; also in the features' own streams."""
REQUESTS_AND_REPLIES = (AgentRequested, *RUN_REPLIES)


def replay_run_stream(
    events: RecordedEvents,
    pins: Pins,
    features: Mapping[str, RecordedEvents],
    changes: tuple[IntendedChange, ...] = INTENDED_CHANGES,
) -> StreamReplay:
    """Replay the run's own stream. The features' streams, by name, contain their requests. Everything is decided
    twice to detect nondeterminism."""
    comparison: StreamComparison[RunState] = StreamComparison(
        events[0].stream,
        events,
        RunState(),
        evolve_run,
        lambda state: _type(_decided_event(state, pins)),
        _no_text,
        changes,
    )
    requests = {feature: FeatureRequests(feature_events) for feature, feature_events in features.items()}
    while comparison.index < len(events):
        moves_before = comparison.steps
        _check_stream_length(comparison, events[comparison.index].event, features)
        try:
            _compare_event(comparison, events[comparison.index].event, pins, requests)
        except Exception as error:  # Any error of the current code is a finding with an event reference.
            comparison.note_failure(error)
        if comparison.steps == moves_before:
            comparison.note_nothing_produced()
    return comparison.result({})


def feature_stops(events: RecordedEvents) -> Mapping[str, Mapping[int, Recorded[Event]]]:
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


def _check_stream_length(
    comparison: StreamComparison[RunState], event: Event, features: Mapping[str, RecordedEvents]
) -> None:
    """Check that a feature's stream is at least as long as it was when the feature stopped."""
    if not isinstance(event, FeatureStopped):
        return
    stream, end = (
        feature_stream(comparison.stream.removeprefix("run/"), event.feature),
        len(features.get(event.feature, ())),
    )
    if end < event.version:
        comparison.note_truncated(f"{stream} ends at event {end}, but the feature stopped at {event.version}")


def _compare_event(
    comparison: StreamComparison[RunState],
    event: Event,
    pins: Pins,
    requests: Mapping[str, FeatureRequests],
) -> None:
    decided = _decided_event(comparison.state, pins)
    if decided != (second := _decided_event(comparison.state, pins)):
        comparison.note_nondeterminism(comparison.index, decided, second)
    if isinstance(event, DECIDED_EVENTS):
        comparison.compare([] if decided is None else [decided])
    elif isinstance(event, RUN_REPLIES):
        replies = [_reply(reply, comparison.state, pins, requests) for reply in _requests_until(event, requests)]
        comparison.compare([reply for reply in (decided, *replies) if reply is not None])
    elif isinstance(event, RunIdle | RunFinished):
        comparison.compare(_idle_events(comparison.state, pins) if decided is None else [decided])
    elif _waits_for_decisions(event):
        replies = [_reply(reply, comparison.state, pins, requests) for reply in _pending_requests(event, requests)]
        comparison.compare([reply for reply in (decided, *replies, event) if reply is not None])
    else:
        comparison.apply_recorded()


class FeatureRequests:
    """Requests of one feature to the run, in order; its own stream has the replies too."""

    def __init__(self, events: RecordedEvents) -> None:
        requested = [
            recorded
            for recorded in events
            if isinstance(recorded.event, REQUESTS_AND_REPLIES) and not recorded.is_forked_copy
        ]
        self.requests = {
            recorded.event.ref.key: recorded.event
            for recorded in requested
            if isinstance(recorded.event, AgentRequested)
        }
        self.pending = [
            (recorded.version, recorded.event) for recorded in requested if isinstance(recorded.event, RUN_REPLIES)
        ]
        """With the versions of the feature's stream."""

    def take(self, number: int) -> list[RunReply]:
        replies = [event for _, event in self.pending[:number]]
        del self.pending[:number]
        return replies


def _requests_until(event: RunReply, requests: Mapping[str, FeatureRequests]) -> list[RunReply]:
    """Return the feature's requests up to this event's, in order; empty if it did not make this one."""
    feature_requests = requests.get(event.feature)
    for index, (_, reply) in enumerate(
        feature_requests.pending[:LOOKAHEAD_EVENTS] if feature_requests is not None else ()
    ):
        if feature_requests is not None and (
            reply == event or (type(reply) is type(event) and identity_fields(reply) == identity_fields(event))
        ):
            return feature_requests.take(index + 1)
    return []


def _pending_requests(event: Event, requests: Mapping[str, FeatureRequests]) -> list[RunReply]:
    """Return the requests of a stopped feature that the run's stream lacks."""
    if not isinstance(event, FeatureStopped) or event.feature not in requests:
        return []
    feature_requests = requests[event.feature]
    return feature_requests.take(sum(version <= event.version for version, _ in feature_requests.pending))


def _decided_event(state: RunState, pins: Pins) -> Event | None:
    """Return the event that the current code appends in this state; None: it waits, or is done."""
    action = decide_run(state, pins)
    return None if isinstance(action, AwaitEvents | EndEvent) else action


def _idle_events(state: RunState, pins: Pins) -> list[Event]:
    match decide_run(state, pins):
        case RunFinished() as end if not state.finished:
            return [end]
        case RunIdle() as end if not state.idle:
            return [end]
    return []


def _waits_for_decisions(event: Event) -> bool:
    """Return True for events of a feature's worker or of a poll, before which all decisions are made; people, timers
    and a starting process do not wait for decisions."""
    if isinstance(event, FeatureStopped):
        return event.version > 0
    return isinstance(event, ChecksChanged | FeatureMerged)


def _reply(event: RunReply, state: RunState, pins: Pins, requests: Mapping[str, FeatureRequests]) -> Event | None:
    """Return the current code's reply to the feature's request; None: the run has no such feature."""
    if event.feature not in state.tracks:
        return None
    match event:
        case CallReserved(feature=feature, key=key) | CallOverBudget(feature=feature, key=key):
            return reserve_money(state, feature, requests[feature].requests.get(key) or _request(event), pins)
        case FilesClaimed(feature=feature) | ClaimRejected(feature=feature):
            return claim_files(state, feature, event.phase, event.paths)
        case CallSettled():
            return event


def _request(event: CallReserved | CallOverBudget) -> AgentRequested:
    """Return the part of a request that a reservation needs: a rejected request is not in the feature's stream."""
    role = event.role if isinstance(event, CallOverBudget) else ""
    no_digest = Digest("")
    return AgentRequested(
        ref=CallRef(key=event.key, phase="", unit="", iteration=0, attempt=0, role=role),
        agent="",
        model="",
        prompt=no_digest,
        template="",
        full_prompt=True,
        session=None,
        resumes=False,
        tree=Commit(""),
        refs=no_digest,
        estimated_tokens=0,
        estimated_nanousd=event.nanousd,
    )


def _type(event: Event | None) -> type[Event] | None:
    return None if event is None else type(event)


def _no_text(digest: str) -> str | None:
    """Return None: no event of this stream refers to a text that the current code writes."""
    return None
