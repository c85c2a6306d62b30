"""Replay of one past run through the current code: the run's own stream, with its admissions, releases, holds,
reservations and claims, and the stream of every feature.

`decide_feature` decides a feature's action, the real effect carries it out with ports that return recorded results, and
every produced event is compared with the recorded one.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_engine.decide.actions import Action, ClaimFiles, Work
from mz_engine.decide.feature import decide_feature
from mz_engine.decide.run import AwaitEvents, EndEvent, call_amount, claim_files, decide_run, reserve_money
from mz_engine.effects.dispatch import effect_of
from mz_engine.effects.prompt import hold_for_broken_template
from mz_engine.effects.steps import AddItems, Do, Emit, ReserveCall, RunStep, SettleCall, Step, StepContext
from mz_engine.model.pins import Pins, decode_commands, decode_pins
from mz_engine.model.pipeline import FEATURE
from mz_engine.ports import Interrupted, RemoteError, RepositoryUnusable
from mz_engine.prompts.render import TemplateError
from mz_engine.run.feature_loop import BEFORE_MESSAGES
from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import AgentRequested, CallOverBudget, CallReserved, CallSettled, ContextComposed
from mz_events.catalog.delivery import BranchLanded
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import (
    ChecksChanged,
    ClaimCompared,
    ClaimRejected,
    CommandsChanged,
    CreatedItem,
    CycleEnded,
    CycleStarted,
    FeatureAdmitted,
    FeatureMerged,
    FeatureOutcome,
    FeatureReleased,
    FeatureStopped,
    FilesClaimed,
    Hold,
    ItemAdded,
    ItemHeld,
    ItemRequeued,
    ItemsAdded,
    RunFinished,
    RunHalted,
    RunIdle,
    RunStarted,
)
from mz_events.names import FeatureId, feature_stream, run_stream
from mz_events.store import BlobMissing, Blobs, Recorded, Store
from mz_projections.feature.fold import apply_strict
from mz_projections.feature.state import NotStarted, State
from mz_projections.run.fold import RunState, evolve_run
from mz_projections.run.spending import Amount

from mz_recordings.past_runs.comparison import NOT_ALLOWED, StreamComparison, error_text, identity_fields
from mz_recordings.past_runs.model import INTENDED_CHANGES, IntendedChange, RunReplay, StreamReplay
from mz_recordings.past_runs.ports import RecordedPorts, ReplayInputs
from mz_recordings.past_runs.workspace import NotInRecord, RecordedDataMissing, RecordedStream
from mz_recordings.record.recorder import UnknownRun

RecordedEvents = Sequence[Recorded[Event]]
Stops = Mapping[int, Recorded[Event]]
"""Events of the run's stream that say that the feature stopped, by the version of its own stream."""


class FeatureReplay:
    """Replay of one feature's stream, from version 1.

    Everything that follows from the stream and its texts is computed with `inputs`. `base` is the run's base branch,
    `integration` its integration branch. Where the feature stopped by itself (`stops`), the current code must have
    nothing to do. From the first event that needs recorded data which is gone, the stream is not comparable.
    `corrected`: later pins, each with the position in the log from which on they hold.
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
        integration: str = "",
    ) -> None:
        self.events, self.pins, self.inputs, self.base, self.stops = events, pins, inputs, base, stops or {}
        self.corrected, self.integration = corrected, integration
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
        context = StepContext(
            run=self.run_id,
            feature=self.feature,
            state=state,
            pins=self.pins,
            base_branch=self.base,
            integration=self.integration,
        )
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
        case BranchLanded():
            return (step,), True
        case AddItems(items=items, duplicates=duplicates):
            past = stream.find_near(ItemsAdded)
            ids = {entry.id: entry.feature for entry in past.added} if past else {}
            added = tuple(CreatedItem(id=item.feature, feature=ids.get(item.feature, item.feature)) for item in items)
            return (ItemsAdded(feature=feature, added=added, duplicates=tuple(duplicates)),), True


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


DECIDED_EVENTS = (
    FeatureAdmitted, FeatureReleased, ItemHeld, ClaimCompared, RunHalted, ItemRequeued, CycleStarted, CycleEnded,
)  # fmt: skip
"""Events that only `decide_run` produces."""
RunReply = CallReserved | CallOverBudget | CallSettled | FilesClaimed | ClaimRejected | ItemsAdded
"""Replies to requests of features; also in the features' own streams."""


class PinsUnreadable(Exception):
    """The run's pins are gone, or this version of mz cannot read them."""


def replay_run(log: Store, run: str, inputs: ReplayInputs) -> RunReplay:
    """Replay every stream of the run. Raises RunUnknown, PinsUnreadable, and what the log raises."""
    started = run_started(log, run)
    run_events = tuple(log.read(run_stream(run)))
    pins = load_pins(inputs.blobs, started)
    kinds = {str(event.feature): event.kind for r in run_events if isinstance(event := r.event, ItemAdded)}
    prefix = feature_stream(run, "")
    streams = {name.removeprefix(prefix): tuple(log.read(name)) for name, _ in log.streams(prefix)}
    stops = feature_stops(run_events)
    corrected = corrected_pins(inputs.blobs, run_events, pins)

    def replay_feature(feature: str, events: RecordedEvents) -> StreamReplay:
        kind = kinds.get(feature, FEATURE.kind)
        of_kind = tuple((position, changed.of_kind(kind)) for position, changed in corrected)
        own_pins = pins.of_kind(kind)
        return FeatureReplay(
            events, own_pins, inputs, started.base,
            stops=stops.get(feature), corrected=of_kind, integration=started.integration,
        ).run()  # fmt: skip

    replayed = (replay_feature(feature, events) for feature, events in streams.items())
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
            case CallReserved() | CallOverBudget() | CallSettled() | FilesClaimed() | ClaimRejected() | ItemsAdded():
                others = (self._reply(state, event),)
            case ChecksChanged() | FeatureMerged():
                others = (event,)
            case FeatureStopped(feature=feature, version=version) if version:
                length, replies = len(self.features.get(feature, ())), self.pending.get(feature, ())
                if length < version:
                    note = f"{recorded.stream}/{feature} ends at event {length}, but the feature stopped at {version}"
                    self.comparison.note("missing", recorded, note=note)
                others = (next((reply for at, reply in replies if at <= version), None), event)
            case ItemAdded(made_by=None, source=source) if state.started and source.startswith(f"{state.started.run}#"):
                pass  # The run decided to add it.
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
