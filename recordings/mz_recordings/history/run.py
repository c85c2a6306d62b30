"""Replay of a run's stream through the current code: admissions, releases, holds, reservations and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mz_engine.coordinator import event_of
from mz_engine.decide.run import Await, FinishRun, RestRun, claim, decide_run, reserve
from mz_engine.pins import Pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallHeld, CallRef, CallReserved, CallSettled
from mz_events.catalog.run import (
    ChecksChanged,
    ClaimCompared,
    FeatureAdmitted,
    FeatureMerged,
    FeatureReleased,
    FeatureRested,
    FilesClaimed,
    FilesContended,
    ItemHeld,
    Rest,
    RunFinished,
    RunHalted,
    RunRested,
)
from mz_events.envelope import Recorded
from mz_events.names import Commit, Digest, feature_stream
from mz_projections.run import RunState, evolve_run

from mz_recordings.history.changes import CHANGES, Change
from mz_recordings.history.divergence import Replayed
from mz_recordings.history.walk import AHEAD, Walk, whose

Stream = Sequence[Recorded[Event]]
DECIDED = (FeatureAdmitted, FeatureReleased, ItemHeld, ClaimCompared, RunHalted)
"""Events that only `decide_run` produces."""
Granted = CallReserved | CallHeld | CallSettled | FilesClaimed | FilesContended
GRANTED = (CallReserved, CallHeld, CallSettled, FilesClaimed, FilesContended)
"""Replies to requests of features; also in the features' own streams."""
ASKED = (AgentRequested, *GRANTED)


def replay_run_stream(
    events: Stream,
    pins: Pins,
    features: Mapping[str, Stream],
    changes: tuple[Change, ...] = CHANGES,
    answered: bool = False,
) -> Replayed:
    """Replay the run's own stream. The features' streams, by name, contain their requests.

    Unless `decisions_only`, everything is decided twice to detect nondeterminism.
    """
    walk: Walk[RunState] = Walk(
        events[0].stream, events, RunState(), evolve_run, lambda state: _type(_decided(state, pins)), _no_text, changes
    )
    asked = {feature: Asked(feature_events) for feature, feature_events in features.items()}
    while walk.at < len(events):
        before = walk.moves
        _reached(walk, events[walk.at].event, features)
        try:
            _step(walk, events[walk.at].event, pins, asked, answered)
        except Exception as error:  # Any error of the current code is a finding with an event reference.
            walk.failed(error)
        if walk.moves == before:
            walk.nothing_produced()
    return walk.result({})


def rests_of(events: Stream) -> Mapping[str, Mapping[int, Recorded[Event]]]:
    """Return the events where features stopped by themselves, by feature and version of its stream. An interrupted
    feature, or one with a lost call, had something to do."""
    found: dict[str, dict[int, Recorded[Event]]] = {}
    for one in events:
        match one.event:
            case FeatureRested(feature=feature, version=version, status=status) if version and status != Rest.STOPPED:
                found.setdefault(feature, {})[version] = one
    return found


def _reached(walk: Walk[RunState], event: Event, features: Mapping[str, Stream]) -> None:
    """Check that a feature's stream is at least as long as it was when the feature stopped."""
    if not isinstance(event, FeatureRested):
        return
    stream, end = feature_stream(walk.stream.removeprefix("run/"), event.feature), len(features.get(event.feature, ()))
    if end < event.version:
        walk.cut_off(f"{stream} ends at event {end}, but the feature stopped at {event.version}")


def _step(walk: Walk[RunState], event: Event, pins: Pins, asked: Mapping[str, Asked], answered: bool) -> None:
    decided = _decided(walk.state, pins)
    if not answered and decided != (again := _decided(walk.state, pins)):
        walk.by_chance(walk.at, decided, again)
    if isinstance(event, DECIDED):
        walk.hold([] if decided is None else [decided])
    elif isinstance(event, GRANTED):
        answers = [_answer(one, walk.state, pins, asked) for one in _asked_for(event, asked)]
        walk.hold([one for one in (decided, *answers) if one is not None])
    elif isinstance(event, RunRested | RunFinished):
        walk.hold(_at_rest(walk.state, pins) if decided is None else [decided])
    elif _waits_for_decisions(event):
        answers = [_answer(one, walk.state, pins, asked) for one in _due_by(event, asked)]
        walk.hold([one for one in (decided, *answers, event) if one is not None])
    else:
        walk.take()


class Asked:
    """Requests of one feature to the run, in order; its own stream has the replies too."""

    def __init__(self, events: Stream) -> None:
        asked = [one for one in events if isinstance(one.event, ASKED) and not one.copied]
        self.requests = {one.event.ref.key: one.event for one in asked if isinstance(one.event, AgentRequested)}
        self.left = [(one.version, one.event) for one in asked if isinstance(one.event, GRANTED)]
        """With the versions of the feature's stream."""

    def take(self, number: int) -> list[Granted]:
        taken = [event for _, event in self.left[:number]]
        del self.left[:number]
        return taken


def _asked_for(event: Granted, asked: Mapping[str, Asked]) -> list[Granted]:
    """Return the feature's requests up to this event's, in order; empty if it did not make this one."""
    known = asked.get(event.feature)
    for at, (_, one) in enumerate(known.left[:AHEAD] if known is not None else ()):
        if known is not None and (one == event or (type(one) is type(event) and whose(one) == whose(event))):
            return known.take(at + 1)
    return []


def _due_by(event: Event, asked: Mapping[str, Asked]) -> list[Granted]:
    """Return the requests of a stopped feature that the run's stream lacks."""
    if not isinstance(event, FeatureRested) or event.feature not in asked:
        return []
    known = asked[event.feature]
    return known.take(sum(version <= event.version for version, _ in known.left))


def _decided(state: RunState, pins: Pins) -> Event | None:
    """Return the event that the current code appends in this state; None: it waits, or is done."""
    action = decide_run(state, pins)
    return None if isinstance(action, Await | RestRun | FinishRun) else event_of(action)


def _at_rest(state: RunState, pins: Pins) -> list[Event]:
    match decide_run(state, pins):
        case FinishRun() if not state.finished:
            return [RunFinished()]
        case RestRun() if not state.resting:
            return [RunRested()]
    return []


def _waits_for_decisions(event: Event) -> bool:
    """Return True for events of a feature's worker or of a poll, before which all decisions are made; people, timers
    and a starting process do not wait for decisions."""
    if isinstance(event, FeatureRested):
        return event.version > 0
    return isinstance(event, ChecksChanged | FeatureMerged)


def _answer(event: Granted, state: RunState, pins: Pins, asked: Mapping[str, Asked]) -> Event | None:
    """Return the current code's reply to the feature's request; None: the run has no such feature."""
    if event.feature not in state.tracks:
        return None
    match event:
        case CallReserved(feature=feature, key=key) | CallHeld(feature=feature, key=key):
            return reserve(state, feature, asked[feature].requests.get(key) or _request(event), pins)
        case FilesClaimed(feature=feature) | FilesContended(feature=feature):
            return claim(state, feature, event.phase, event.paths)
        case CallSettled():
            return event


def _request(event: CallReserved | CallHeld) -> AgentRequested:
    """Return the part of a request that a reservation needs: a rejected request is not in the feature's stream."""
    role = event.role if isinstance(event, CallHeld) else ""
    nothing = Digest("")
    return AgentRequested(
        ref=CallRef(key=event.key, phase="", unit="", iteration=0, attempt=0, role=role),
        agent="", model="", prompt=nothing, template="", whole=True, session=None, resumes=False, tree=Commit(""),
        refs=nothing, estimated_tokens=0, estimated_nanousd=event.nanousd,
    )  # fmt: skip


def _type(event: Event | None) -> type[Event] | None:
    return None if event is None else type(event)


def _no_text(digest: str) -> str | None:
    """Return None: no event of this stream refers to a text that the current code writes."""
    return None
