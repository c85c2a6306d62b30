"""Replay of one feature's stream through the current code.

`decide_feature` decides the action, the real effect carries it out with ports that return recorded results, and every
produced event is compared with the recorded one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from mz_engine.decide.actions import Action, ClaimFiles, Work
from mz_engine.decide.feature import decide_feature
from mz_engine.decide.run import call_amount
from mz_engine.effects.dispatch import effect_of
from mz_engine.effects.prompt import hold_for_broken_template
from mz_engine.effects.steps import Do, Emit, ReserveCall, RunStep, SettleCall, Step, StepContext
from mz_engine.model.pins import Pins
from mz_engine.ports import Interrupted, RemoteError, RepositoryUnusable
from mz_engine.prompts.render import TemplateError
from mz_engine.run.feature_loop import BEFORE_MESSAGES
from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import AgentRequested, CallOverBudget, CallReserved, CallSettled, ContextComposed
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import ClaimRejected, FilesClaimed, Hold
from mz_events.names import FeatureId
from mz_events.store import Recorded
from mz_projections.feature.fold import apply_strict
from mz_projections.feature.state import NotStarted, State
from mz_projections.run.spending import Amount

from mz_recordings.past_runs.comparison import NOT_ALLOWED, StreamComparison, error_text
from mz_recordings.past_runs.model import INTENDED_CHANGES, IntendedChange, StreamReplay
from mz_recordings.past_runs.ports import RecordedPorts, ReplayInputs
from mz_recordings.past_runs.workspace import NotInRecord, RecordedDataMissing, RecordedStream

RecordedEvents = Sequence[Recorded[Event]]
Stops = Mapping[int, Recorded[Event]]
"""Events of the run's stream that say that the feature stopped, by the version of its own stream."""


class FeatureReplay:
    """Replay of one feature's stream, from version 1.

    Everything that follows from the stream and its texts is computed with `inputs`. `base` is the run's base branch.
    Where the feature stopped by itself (`stops`), the current code must have nothing to do. From the first event that
    needs recorded data which is gone, the stream is not comparable. `corrected`: later pins, each with the position in
    the log from which on they hold.
    """

    def __init__(
        self,
        events: RecordedEvents,
        pins: Pins,
        inputs: ReplayInputs,
        base: str,
        changes: tuple[IntendedChange, ...] = INTENDED_CHANGES,
        stops: Stops | None = None,
        corrected: tuple[tuple[int, Pins], ...] = (),
    ) -> None:
        self.events, self.pins, self.inputs, self.base, self.stops = events, pins, inputs, base, stops or {}
        self.corrected = corrected
        self.stream = RecordedStream(events)
        self.ports = RecordedPorts(self.stream, inputs, base)
        self.not_recomputed: Counter[str] = Counter()
        _, self.run_id, self.feature = events[0].stream.split("/", 2)
        start: State = NotStarted()
        self.comparison: StreamComparison[State] = StreamComparison(
            events, start, apply_strict, self._next_type, changes, lambda digest: self.ports.blobs.text(digest)
        )

    def run(self) -> StreamReplay:
        comparison = self.comparison
        while comparison.next_recorded is not None and comparison.next_recorded.is_forked_copy:
            comparison.apply_recorded()  # It was decided in another run, with other keys.
        try:
            while comparison.next_recorded is not None:
                earlier = [pins for position, pins in self.corrected if position < comparison.next_recorded.position]
                self.pins = earlier[-1] if earlier else self.pins
                self._step(comparison.next_recorded.event)
                self._check_stop()
        except RecordedDataMissing as error:
            return comparison.result(self.not_recomputed, missing_data=str(error))
        except Exception as error:  # Any error of the current code is a finding with an event reference.
            comparison.end("failure", note=error_text(error))
        return comparison.result(self.not_recomputed)

    def _check_stop(self) -> None:
        """Check that the current code has nothing to do where the feature stopped."""
        comparison = self.comparison
        last = self.events[comparison.index - 1]
        stop = self.stops.get(last.version)
        if stop is None or comparison.has_ended:
            return
        location = replace(stop, stream=last.stream, version=last.version)
        try:
            action = decide_feature(comparison.state, self.pins)
        except Exception as error:
            comparison.note("failure", location, note=error_text(error))
            return
        if action is not None:
            note = f"the feature stopped here, and the current code continues with: {action_text(action)}"
            comparison.note("decision", location, note=note)

    def _step(self, event: Event) -> None:
        """Compare the next action, or apply an external event, which comes between actions and never before a pending
        outcome."""
        comparison = self.comparison
        action = decide_feature(comparison.state, self.pins)
        if event.KIND is EventKind.EXTERNAL:
            if isinstance(action, BEFORE_MESSAGES):
                comparison.end(
                    "order", note="a pending outcome comes first: the end of an intent, or the parsing of a reply"
                )
                return
            if comparison.apply_recorded():
                return
            if action is None:
                comparison.end("order", note=NOT_ALLOWED)
                return
        produced = [] if action is None else self._compute(action, comparison.state, comparison.index)
        self.not_recomputed.update(self.ports.not_recomputed)
        if action is not None and not produced and not self._matches_after_next(action):
            comparison.end("decision", note=f"the current code continues with: {action_text(action)}")
        else:
            comparison.compare(produced)

    def _matches_after_next(self, action: Action) -> bool:
        """Return True if the next recorded event is only between the action and its first event."""
        index = self.comparison.index + 1
        produced = self._compute(action, self.comparison.state, index)
        return index == len(self.events) or bool(produced and type(produced[0]) is type(self.events[index].event))

    def _compute(self, action: Action, state: State, index: int) -> list[Event]:
        """Return the events that the action produces. Raises RecordedDataMissing."""
        self.stream.position = index
        self.ports = RecordedPorts(self.stream, self.inputs, self.base)
        context = StepContext(run=self.run_id, feature=self.feature, state=state, pins=self.pins, base_branch=self.base)
        return run_effect(action, context, self.stream, self.ports)

    def _next_type(self, state: State) -> type[Event] | None:
        """Return the type of the first event that the current code would produce in this state; None: nothing, or
        recorded data that it needs is gone."""
        action = decide_feature(state, self.pins)
        try:
            produced = [] if action is None else self._compute(action, state, self.comparison.index)
        except RecordedDataMissing:
            produced = []
        return type(produced[0]) if produced else None


def run_effect(action: Action, context: StepContext, stream: RecordedStream, ports: RecordedPorts) -> list[Event]:
    """Return the events that the action's effect produces, as far as the log has its results. Raises
    RecordedDataMissing."""
    steps, produced = effect_of(action, context), list[Event]()
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step: Step = steps.send(answer) if error is None else steps.throw(error)
            answer, error = None, None
            if isinstance(step, Do):
                try:
                    answer = step.call(ports)
                except (RepositoryUnusable, RemoteError) as rejection:
                    error = rejection
                continue
        except RepositoryUnusable as unusable:
            return [*produced, FeatureHeld(hold=Hold.FATAL, code=unusable.code)]
        except TemplateError as broken:
            answer, error, steps = None, None, hold_for_broken_template(broken)
            continue
        except (StopIteration, Interrupted, NotInRecord):
            return produced
        events, answer = _append_step(step, context, stream)
        produced += events
        stream.skip_produced(events)


def _append_step(step: Emit | RunStep, context: StepContext, stream: RecordedStream) -> tuple[tuple[Event, ...], bool]:
    """Return the events that the step appends to the feature's stream, and True if it was granted. The run's decision
    is the recorded one: it is compared in the run's own stream."""
    feature = FeatureId(context.feature)
    match step:
        case Emit(events=events):
            return events, True
        case ReserveCall(composed=composed, request=request):
            key, role = request.ref.key, request.ref.role
            refused, granted = stream.find_near(CallOverBudget), stream.find_near(CallReserved)
            if refused is not None and stream.first_of(CallReserved, CallOverBudget) is CallOverBudget:
                return (replace(refused, feature=feature, key=key, role=role),), False
            granted = granted or CallReserved(feature=feature, key=key, nanousd=request.estimated_nanousd)
            events = replace(granted, feature=feature, key=key), request
            is_older = stream.find_near(AgentRequested) and not stream.find_near(ContextComposed)
            return (events if is_older else (composed, *events)), True  # An older mz did not record the composition.
        case SettleCall(key=key, events=events):
            charged = step.charge(reserved := _reserved(stream, key))
            tokens = charged.tokens if reserved.tokens else 0  # An older mz reserved and charged none.
            return (*events, CallSettled(feature=feature, key=key, nanousd=charged.nanousd, tokens=tokens)), True
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


def _reserved(stream: RecordedStream, key: str) -> Amount:
    past = (event.event for event in reversed(stream.events[: stream.position]))
    return next(
        (call_amount(event) for event in past if isinstance(event, CallReserved) and event.key == key), Amount()
    )
