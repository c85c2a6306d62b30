"""Pure: replays the stream of a run through today's core: what is admitted, released, held, granted and claimed."""

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
"""What `decide_run` alone leads to."""
Granted = CallReserved | CallHeld | CallSettled | FilesClaimed | FilesContended
GRANTED = (CallReserved, CallHeld, CallSettled, FilesClaimed, FilesContended)
"""Answers to what features ask for; also in their own streams."""
ASKED = (AgentRequested, *GRANTED)


def replay_run_stream(
    events: Stream,
    pins: Pins,
    features: Mapping[str, Stream],
    changes: tuple[Change, ...] = CHANGES,
    answered: bool = False,
) -> Replayed:
    """The run's own stream, all of it, with those of its features by name: what they asked for stands there.

    Unless `answered`, all is decided twice.
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
        except Exception as error:  # Whatever today's code does wrong is a finding, with its place.
            walk.failed(error)
        if walk.moves == before:
            walk.nothing_produced()
    return walk.result({})


def rests_of(events: Stream) -> Mapping[str, Mapping[int, Recorded[Event]]]:
    """By feature and version of its stream: where it came to rest by itself. Where the run was stopped or a call lost,
    it had something to do."""
    found: dict[str, dict[int, Recorded[Event]]] = {}
    for one in events:
        match one.event:
            case FeatureRested(feature=feature, version=version, status=status) if version and status != Rest.STOPPED:
                found.setdefault(feature, {})[version] = one
    return found


def _reached(walk: Walk[RunState], event: Event, features: Mapping[str, Stream]) -> None:
    """A feature's stream is at least as long as it was when the feature came to rest."""
    if not isinstance(event, FeatureRested):
        return
    stream, end = feature_stream(walk.stream.removeprefix("run/"), event.feature), len(features.get(event.feature, ()))
    if end < event.version:
        walk.cut_off(f"{stream} ends at its event {end}, and came to rest at {event.version}")


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
    """What one feature asked of the run, in order: in its own stream stands the answer too."""

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
    """What the feature must have asked for by then, this event's included; nothing where it did not ask for it."""
    known = asked.get(event.feature)
    for at, (_, one) in enumerate(known.left[:AHEAD] if known is not None else ()):
        if known is not None and (one == event or (type(one) is type(event) and whose(one) == whose(event))):
            return known.take(at + 1)
    return []


def _due_by(event: Event, asked: Mapping[str, Asked]) -> list[Granted]:
    """What a feature that came to rest had asked for, and the run's stream does not hold."""
    if not isinstance(event, FeatureRested) or event.feature not in asked:
        return []
    known = asked[event.feature]
    return known.take(sum(version <= event.version for version, _ in known.left))


def _decided(state: RunState, pins: Pins) -> Event | None:
    """What today's code appends at once in this state; None: it waits, or is done."""
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
    """What comes by a feature's thread or a look outside finds everything decided that could be; people, timers and a
    process that begins do not."""
    if isinstance(event, FeatureRested):
        return event.version > 0
    return isinstance(event, ChecksChanged | FeatureMerged)


def _answer(event: Granted, state: RunState, pins: Pins, asked: Mapping[str, Asked]) -> Event | None:
    """Today's answer to what the feature asked for; None: the run has no such feature."""
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
    """As much of a request as a reservation needs: one that was refused is not in the feature's stream."""
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
    """Nothing in this stream cites a text that today's code writes."""
    return None
