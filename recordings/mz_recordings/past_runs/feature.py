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
from mz_engine.decide.actions import Action, ClaimFiles, Work
from mz_engine.decide.feature import decide_feature
from mz_engine.effects.dispatch import effect_of
from mz_engine.effects.prompt import hold_for_broken_template
from mz_engine.effects.steps import Do, Emit, ReserveCall, RunStep, SettleCall, Step, StepContext
from mz_engine.model.pins import Pins
from mz_engine.ports import Interrupted, RemoteError, RepositoryUnusable
from mz_engine.prompts.render import TemplateError
from mz_engine.run.feature_loop import BEFORE_MESSAGES
from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import CallOverBudget, CallReserved, CallSettled
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import ClaimRejected, FilesClaimed, Hold
from mz_events.envelope import Recorded
from mz_events.names import FeatureId, StreamId
from mz_projections.feature.fold import apply_strict
from mz_projections.feature.state import NotStarted, State

from mz_recordings.past_runs.comparison import StreamComparison, error_text
from mz_recordings.past_runs.field_diff import differences
from mz_recordings.past_runs.model import INTENDED_CHANGES, IntendedChange, StreamReplay
from mz_recordings.past_runs.ports import CachedBlobs, RecordedPorts, ReplayInputs
from mz_recordings.past_runs.recorded_stream import NotInRecord, RecordedDataMissing, RecordedStream

RecordedEvents = Sequence[Recorded[Event]]
Stops = Mapping[int, Recorded[Event]]
"""Events of the run's stream that say that the feature stopped, by the version of its own stream."""
NO_STOPS: Stops = MappingProxyType({})


def replay_feature_stream(
    events: RecordedEvents,
    pins: Pins,
    inputs: ReplayInputs,
    base: str,
    changes: tuple[IntendedChange, ...] = INTENDED_CHANGES,
    stops: Stops = NO_STOPS,
) -> StreamReplay:
    """Replay one feature's stream, from version 1.

    Everything that follows from the stream and its texts is computed with `inputs`, and once more if it differs, which
    shows nondeterminism. `base` is the run's base branch. Where the feature stopped by itself (`stops`), the current
    code must have nothing to do. From the first event that needs recorded data which is gone, the stream is not
    comparable.
    """
    if not events:
        return StreamReplay(stream=StreamId(""), events=0, compared=0)
    return FeatureReplay(events, pins, inputs, base, changes, stops).run()


class FeatureReplay:
    def __init__(
        self,
        events: RecordedEvents,
        pins: Pins,
        inputs: ReplayInputs,
        base: str,
        changes: tuple[IntendedChange, ...],
        stops: Stops,
    ) -> None:
        self.events, self.pins, self.base = events, pins, base
        self.inputs = replace(inputs, blobs=CachedBlobs(inputs.blobs))
        self.stream = RecordedStream(events)
        self.not_recomputed: dict[str, int] = {}
        self._stops = dict(stops)
        self._ports: RecordedPorts | None = None
        _, self.run_id, self.feature = events[0].stream.split("/", 2)
        start: State = NotStarted()
        self.comparison: StreamComparison[State] = StreamComparison(
            events[0].stream, events, start, apply_strict, self._next_type, self._text, changes
        )

    def run(self) -> StreamReplay:
        comparison, events = self.comparison, self.events
        while comparison.index < len(events) and events[comparison.index].is_forked_copy:
            comparison.apply_recorded()  # It was decided in another run, with other keys.
        self._check_stop()
        while comparison.index < len(events):
            try:
                self._step(events[comparison.index].event)
            except RecordedDataMissing as error:
                return comparison.result(self.not_recomputed, missing_data=str(error))
            except Exception as error:  # Any error of the current code is a finding with an event reference.
                comparison.note_failure(error)
            self._check_stop()
        return comparison.result(self.not_recomputed)

    def _check_stop(self) -> None:
        """Check that the current code has nothing to do where the feature stopped."""
        comparison = self.comparison
        stop = self._stops.pop(self.events[comparison.index - 1].version, None) if comparison.index else None
        if stop is None:
            return
        try:
            action = decide_feature(comparison.state, self.pins)
        except Exception as error:
            comparison.note_not_stopped(stop, "failure", error_text(error))
            return
        if action is not None:
            note = f"the feature stopped here, and the current code continues with: {action_text(action)}"
            comparison.note_not_stopped(stop, "decision", note)

    def _step(self, event: Event) -> None:
        action = decide_feature(self.comparison.state, self.pins)
        if event.KIND is EventKind.EXTERNAL:
            self._apply_external(action)
        elif action is None:
            self.comparison.note_nothing_produced()
        else:
            self._compare_action(action)

    def _apply_external(self, action: Action | None) -> None:
        """Apply an external event, which comes between actions and never before a pending outcome."""
        comparison = self.comparison
        if isinstance(action, BEFORE_MESSAGES):
            comparison.note_misplaced("a pending outcome comes first: the end of an intent, or the parsing of a reply")
        elif apply_strict(comparison.state, self.events[comparison.index]) is not None:
            comparison.apply_recorded()
        elif action is not None:
            self._compare_action(action)  # The event that this one responds to is missing, or recorded elsewhere.
        else:
            comparison.note_misplaced("the current code does not allow this event in this state")

    def _compare_action(self, action: Action) -> None:
        comparison = self.comparison
        moves_before = comparison.steps
        comparison.compare(self._produce(action, comparison.state, comparison.index))
        if comparison.steps == moves_before:
            comparison.note_nothing_produced("" if self._matches_after_next(action) else action_text(action))

    def _matches_after_next(self, action: Action) -> bool:
        """Return True if the next recorded event is only between the action and its first event."""
        index, state = self.comparison.index, self.comparison.state
        produced = self._produce(action, state, index + 1)
        after = self.events[index + 1].event if index + 1 < len(self.events) else None
        return after is None or (bool(produced) and type(produced[0]) is type(after))

    # produced events --------------------------------------------------------------------------------------------------
    def _produce(self, action: Action, state: State, index: int) -> Sequence[Event]:
        first, self._ports = self._compute(action, state, index)
        for description, number in self._ports.not_recomputed.items():
            self.not_recomputed[description] = self.not_recomputed.get(description, 0) + number
        second_action = decide_feature(state, self.pins)
        if second_action == action and self._matches_recorded(first, index):  # The recorded events are a first result.
            return first
        second = self._compute(second_action, state, index)[0] if second_action is not None else []
        if first != second:
            self._note_nondeterminism(first, second, index)
        return first

    def _compute(self, action: Action, state: State, index: int) -> tuple[list[Event], RecordedPorts]:
        """Return the events that the action produces, and the ports that it used. Raises RecordedDataMissing."""
        self.stream.position = index
        ports = RecordedPorts(self.stream, self.inputs, self.base)
        scene = StepContext(
            run=self.run_id,
            feature=self.feature,
            state=state,
            pins=self.pins,
            branches=frozenset(),
            base_branch=self.base,
        )
        return run_effect(action, scene, self.stream, ports), ports

    def _matches_recorded(self, produced: Sequence[Event], index: int) -> bool:
        recorded = self.events[index : index + len(produced)]
        return 0 < len(produced) == len(recorded) and not any(
            type(recorded_event.event) is not type(event) or differences(recorded_event.event, event, self._text)
            for recorded_event, event in zip(recorded, produced, strict=True)
        )

    def _note_nondeterminism(self, first: Sequence[Event], second: Sequence[Event], index: int) -> None:
        """Note nondeterminism at the first event that differs."""
        offset = next((n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
        first_event = first[offset] if offset < len(first) else None
        second_event = second[offset] if offset < len(second) else None
        self.comparison.note_nondeterminism(min(index + offset, len(self.events) - 1), first_event, second_event)

    def _next_type(self, state: State) -> type[Event] | None:
        """Return the type of the first event that the current code would produce in this state; None: nothing, or
        recorded data that it needs is gone."""
        action = decide_feature(state, self.pins)
        if action is None:
            return None
        position = self.stream.position
        try:
            produced, _ = self._compute(action, state, self.comparison.index)
        except RecordedDataMissing:
            return None
        finally:
            self.stream.position = position
        return type(produced[0]) if produced else None

    def _text(self, digest: str) -> str | None:
        return self._ports.blobs.text(digest) if self._ports is not None else None


def run_effect(action: Action, scene: StepContext, stream: RecordedStream, ports: RecordedPorts) -> list[Event]:
    """Return the events that the action's effect produces, as far as the log has its results. Raises
    RecordedDataMissing."""
    steps, produced = effect_of(action, scene), list[Event]()
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step: Step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration:
            return produced
        except RepositoryUnusable as unusable:
            return [*produced, FeatureHeld(hold=Hold.FATAL, code=unusable.code)]
        except TemplateError as broken:
            answer, error, steps = None, None, hold_for_broken_template(broken)
            continue
        except (Interrupted, NotInRecord):
            return produced
        answer, error = None, None
        if isinstance(step, Do):
            try:
                answer = step.call(ports)
            except (RepositoryUnusable, RemoteError) as rejection:
                error = rejection
            except (Interrupted, NotInRecord):
                steps.close()
                return produced
            continue
        events, answer = _append_step(step, scene, stream)
        produced += events
        stream.skip_produced(events)


def _append_step(step: Emit | RunStep, scene: StepContext, stream: RecordedStream) -> tuple[tuple[Event, ...], bool]:
    """Return the events that the step appends to the feature's stream, and True if it was granted. The run's decision
    is the recorded one: it is compared in the run's own stream."""
    feature = FeatureId(scene.feature)
    match step:
        case Emit(events=events):
            return events, True
        case ReserveCall(request=request):
            key, amount = request.ref.key, request.estimated_nanousd
            if stream.first_of(CallReserved, CallOverBudget) is CallOverBudget:
                return (CallOverBudget(feature=feature, key=key, role=request.ref.role, nanousd=amount),), False
            return (CallReserved(feature=feature, key=key, nanousd=amount), request), True
        case SettleCall(key=key, events=events):
            settled_nanousd = step.charged_nanousd(_reserved_nanousd(stream, key))
            return (*events, CallSettled(feature=feature, key=key, nanousd=settled_nanousd)), True
        case ClaimFiles(phase=phase, paths=paths):
            rejection = stream.find_near(ClaimRejected)
            if rejection is not None and stream.first_of(FilesClaimed, ClaimRejected) is ClaimRejected:
                return (ClaimRejected(feature=feature, phase=phase, paths=paths, holder=rejection.holder),), False
            return (FilesClaimed(feature=feature, phase=phase, paths=paths),), True


def action_text(action: Action) -> str:
    """Return `run gate` for a RunGate."""
    if isinstance(action, Work):
        return action.value
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(action).__name__).lower()


def _reserved_nanousd(stream: RecordedStream, key: str) -> int:
    past = (event.event for event in reversed(stream.events[: stream.position]))
    return next((event.nanousd or 0 for event in past if isinstance(event, CallReserved) and event.key == key), 0)
