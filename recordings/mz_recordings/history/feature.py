"""Replay of one feature's stream through the current code.

`decide_feature` decides the action, the real effect carries it out with ports that return recorded results, and every
produced event is compared with the recorded one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace
from mz_engine.decide.actions import Action
from mz_engine.decide.phase import decide
from mz_engine.effects.dispatch import effect
from mz_engine.effects.prompt import unmakeable
from mz_engine.effects.steps import ClaimPaths, Do, Emit, ReserveCall, Scene, SettleCall, Step
from mz_engine.pins import Pins
from mz_engine.ports import Interrupted, RemoteRefused, RepositoryUnusable
from mz_engine.prompts.render import TemplateBroken
from mz_engine.runner import OWED
from mz_events.catalog.base import Event, Role
from mz_events.catalog.call import CallHeld, CallReserved, CallSettled
from mz_events.catalog.delivery import PullRequestRequested
from mz_events.catalog.feature import FeatureHeld, FeatureStarted
from mz_events.catalog.run import FilesClaimed, FilesContended, Hold
from mz_events.envelope import Recorded
from mz_events.names import FeatureId, StreamId
from mz_projections.feature import follow
from mz_projections.state import State, Unborn

from mz_recordings.history.answers import Answers, Means, ReadOnce
from mz_recordings.history.changes import CHANGES, Change
from mz_recordings.history.contrast import differences
from mz_recordings.history.divergence import Replayed
from mz_recordings.history.sketch import sketch
from mz_recordings.history.tape import Lost, Tape, Unanswered
from mz_recordings.history.walk import Walk, said

Stream = Sequence[Recorded[Event]]
Rests = Mapping[int, Recorded[Event]]
"""Events of the run's stream that say that the feature stopped, by the version of its own stream."""
NEVER: Rests = MappingProxyType({})


def replay_stream(
    events: Stream,
    pins: Pins,
    answered: bool = True,
    means: Means | None = None,
    base: str | None = None,
    changes: tuple[Change, ...] = CHANGES,
    rests: Rests = NEVER,
) -> Replayed:
    """Replay one feature's stream, from version 1.

    `decisions_only`: prompts and verdicts are the recorded ones; decisions, keys, orders and arguments are computed.
    Otherwise everything that follows from the stream and its texts is computed with `inputs`, and once more if it
    differs, which shows nondeterminism. `base` is the run's base branch; None: derived from the stream. Where the
    feature stopped by itself (`stops`), the current code must have nothing to do.
    """
    if not events:
        return Replayed(stream=StreamId(""), events=0, compared=0)
    made = FeatureReplay(events, pins, None if answered else means, base, changes, rests)
    made.run()
    return made.walk.result(made.left)


class FeatureReplay:
    def __init__(
        self,
        events: Stream,
        pins: Pins,
        means: Means | None,
        base: str | None,
        changes: tuple[Change, ...],
        rests: Rests,
    ) -> None:
        self.events, self.pins = events, pins
        self.means = None if means is None else replace(means, blobs=ReadOnce(means.blobs))
        self.tape = Tape(events)
        self.base = base if base is not None else _base_of(events)
        self.left: dict[str, int] = {}
        self._rests = dict(rests)
        self._answers: Answers | None = None
        _, self.run_id, self.feature = events[0].stream.split("/", 2)
        start: State = Unborn()
        self.walk: Walk[State] = Walk(events[0].stream, events, start, follow, self._next_of, self._text, changes)

    def run(self) -> None:
        walk, events = self.walk, self.events
        while walk.at < len(events) and events[walk.at].copied:
            walk.take()  # It was decided in another run, with other keys.
        self._rest()
        while walk.at < len(events):
            try:
                self._step(events[walk.at].event)
            except Exception as error:  # Any error of the current code is a finding with an event reference.
                walk.failed(error)
            self._rest()

    def _rest(self) -> None:
        """Check that the current code has nothing to do where the feature stopped."""
        walk = self.walk
        rested = self._rests.pop(self.events[walk.at - 1].version, None) if walk.at else None
        if rested is None:
            return
        try:
            action = decide(walk.state, self.pins)
        except Exception as error:
            walk.not_at_rest(rested, "failure", said(error))
            return
        if action is not None:
            note = f"the feature stopped here, and the current code continues with: {words_of(action)}"
            walk.not_at_rest(rested, "decision", note)

    def _step(self, event: Event) -> None:
        action = decide(self.walk.state, self.pins)
        if event.ROLE is Role.FACT:
            self._fact(action)
        elif action is None:
            self.walk.nothing_produced()
        else:
            self._act(action)

    def _fact(self, action: Action | None) -> None:
        """Apply an external event, which comes between actions and never before a pending outcome."""
        walk = self.walk
        if isinstance(action, OWED):
            walk.out_of_place("a pending outcome comes first: the end of an intent, or the parsing of a reply")
        elif follow(walk.state, self.events[walk.at]) is not None:
            walk.take()
        elif action is not None:
            self._act(action)  # The event that this one responds to is missing, or recorded elsewhere.
        else:
            walk.out_of_place("the current code does not allow this event in this state")

    def _act(self, action: Action) -> None:
        walk = self.walk
        before = walk.moves
        walk.hold(self._produced(action, walk.state, walk.at))
        if walk.moves == before:
            walk.nothing_produced("" if self._goes_on_behind(action) else words_of(action))

    def _goes_on_behind(self, action: Action) -> bool:
        """Return True if the next recorded event is only between the action and its first event."""
        at, state = self.walk.at, self.walk.state
        produced = self._produced(action, state, at + 1)
        after = self.events[at + 1].event if at + 1 < len(self.events) else None
        return after is None or (bool(produced) and type(produced[0]) is type(after))

    # produced events --------------------------------------------------------------------------------------------------
    def _produced(self, action: Action, state: State, at: int) -> Sequence[Event]:
        scene = self._scene(state)
        self.tape.at = at
        if self.means is None:
            return sketch(action, scene, self.tape)
        first, again = self._computed(action, scene, at, count=True), decide(state, self.pins)
        if again == action and self._as_recorded(first, at):  # The recorded events are a first result.
            return first
        second = self._computed(again, scene, at, count=False) if again is not None else []
        if first != second:
            self._by_chance(first, second, at)
        return first

    def _computed(self, action: Action, scene: Scene, at: int, count: bool) -> Sequence[Event]:
        assert self.means is not None
        self.tape.at = at
        self._answers = answers = Answers(self.tape, self.means, self.base)
        try:
            produced: Sequence[Event] = carried_out(action, scene, self.tape, answers)
        except Lost as error:
            answers.leave(str(error))
            self.tape.at = at
            produced = sketch(action, scene, self.tape)
        for what, number in answers.left.items() if count else ():
            self.left[what] = self.left.get(what, 0) + number
        return produced

    def _as_recorded(self, produced: Sequence[Event], at: int) -> bool:
        recorded = self.events[at : at + len(produced)]
        return 0 < len(produced) == len(recorded) and not any(
            type(one.event) is not type(event) or differences(one.event, event, self._text)
            for one, event in zip(recorded, produced, strict=True)
        )

    def _by_chance(self, first: Sequence[Event], second: Sequence[Event], at: int) -> None:
        """Note nondeterminism at the first event that differs."""
        place = next((n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
        one = first[place] if place < len(first) else None
        other = second[place] if place < len(second) else None
        self.walk.by_chance(min(at + place, len(self.events) - 1), one, other)

    def _next_of(self, state: State) -> type[Event] | None:
        """Return the type of the first event that the current code would produce in this state; None: nothing."""
        action = decide(state, self.pins)
        if action is None:
            return None
        here = self.tape.at
        self.tape.at = self.walk.at
        produced = sketch(action, self._scene(state), self.tape)
        self.tape.at = here
        return type(produced[0]) if produced else None

    def _scene(self, state: State) -> Scene:
        return Scene(
            run=self.run_id, feature=self.feature, state=state, pins=self.pins, branches=frozenset(), base=self.base
        )

    def _text(self, digest: str) -> str | None:
        return self._answers.blobs.text(digest) if self._answers is not None else None


def carried_out(action: Action, scene: Scene, tape: Tape, ports: Answers) -> list[Event]:
    """Return the events that the action's effect produces, as far as the log has its results. Raises
    RecordedDataMissing."""
    steps, produced = effect(action, scene), list[Event]()
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step: Step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration:
            return produced
        except RepositoryUnusable as unusable:
            return [*produced, FeatureHeld(hold=Hold.FATAL, code=unusable.code)]
        except TemplateBroken as broken:
            answer, error, steps = None, None, unmakeable(broken)
            continue
        except (Interrupted, Unanswered):
            return produced
        answer, error = None, None
        if isinstance(step, Do):
            try:
                answer = step.call(ports)
            except (RepositoryUnusable, RemoteRefused) as refused:
                error = refused
            except (Interrupted, Unanswered):
                steps.close()
                return produced
            continue
        events, answer = _appended(step, scene, tape)
        produced += events
        tape.take(events)


def _appended(
    step: Emit | ReserveCall | SettleCall | ClaimPaths, scene: Scene, tape: Tape
) -> tuple[tuple[Event, ...], bool]:
    """Return the events that the step appends to the feature's stream, and True if it was granted. The run's decision
    is the recorded one: it is compared in the run's own stream."""
    feature = FeatureId(scene.feature)
    match step:
        case Emit(events=events):
            return events, True
        case ReserveCall(request=request):
            key, amount = request.ref.key, request.estimated_nanousd
            if tape.first_of(tape.at, CallReserved, CallHeld) is CallHeld:
                return (CallHeld(feature=feature, key=key, role=request.ref.role, nanousd=amount),), False
            return (CallReserved(feature=feature, key=key, nanousd=amount), request), True
        case SettleCall(key=key, events=events):
            spent = step.settled(_reserved(tape, key))
            return (*events, CallSettled(feature=feature, key=key, nanousd=spent)), True
        case ClaimPaths(phase=phase, paths=paths):
            refused = tape.ahead(FilesContended)
            if refused is not None and tape.first_of(tape.at, FilesClaimed, FilesContended) is FilesContended:
                return (FilesContended(feature=feature, phase=phase, paths=paths, holder=refused.holder),), False
            return (FilesClaimed(feature=feature, phase=phase, paths=paths),), True


def words_of(action: Action) -> str:
    """Return `run gate` for a RunGate."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(action).__name__).lower()


def _reserved(tape: Tape, key: str) -> int:
    past = (one.event for one in reversed(tape.events[: tape.at]))
    return next((one.nanousd or 0 for one in past if isinstance(one, CallReserved) and one.key == key), 0)


def _base_of(events: Stream) -> str:
    """Return the last target of the feature's pull request."""
    base = ""
    for one in events:
        if isinstance(one.event, FeatureStarted | PullRequestRequested):
            base = one.event.target
    return base
