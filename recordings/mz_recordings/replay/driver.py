"""Driver of one replay: the current engine with a skipping clock and the recorded decisions of people.

Only time, people and crashes are replaced; coordinator, scheduler and threads are the engine's own.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec
from mz_engine.decide.items import own_texts
from mz_engine.decide.run import AwaitEvents, EndEvent
from mz_engine.effects.steps import Emit, Step
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.ports import Ports
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop, Observer, RunSide
from mz_engine.run.scheduler import Scheduler
from mz_engine.version import VERSION
from mz_events.catalog.base import Event
from mz_events.catalog.run import (
    AnswerAccepted,
    BaseTested,
    CancelAccepted,
    CyclesAllowed,
    FeatureOutcome,
    ItemAdded,
    ItemSkipped,
    RetryAccepted,
    RunClosing,
    RunStarted,
)
from mz_events.names import Commit, FeatureId, RunId, feature_stream, run_stream
from mz_events.store import Append, Store

from mz_recordings.cassette.model import VERDICTS, Cassette, Fixture, Item, RecordedDecision
from mz_recordings.cassette.trace import is_in_trace, is_ordered
from mz_recordings.replay.memory_objects import NotInMemory
from mz_recordings.replay.ports import ReplayClock, ReplayPorts

ANONYMOUS = b"somebody"
"""Author of all decisions; names of people are not recorded."""
JOIN_SECONDS = 3.0


def start_run(
    cassette: Cassette,
    order: tuple[Item, ...],
    pins: Pins,
    store: Store,
    ports: Ports,
    base: Commit,
    heads: dict[str, Commit],
) -> None:
    """Append the start of the run, with its items in this order."""
    fixture, put = cassette.manifest.fixture, ports.blobs.put
    started = RunStarted(
        run=RunId(fixture.run),
        pipeline=pins.pipeline.pipeline,
        base=fixture.base,
        base_commit=base,
        pins=put(encode_pins(pins)),
        mz_version=VERSION,
        integration=fixture.integration,
    )
    for text in own_texts(pins):
        put(text.encode())
    skipped = [
        ItemSkipped(feature=FeatureId(feature), delivered_by="", changed=False, head=head)
        for feature, head in heads.items()
    ]
    added = [
        ItemAdded(
            feature=FeatureId(item.feature),
            source=item.source or f"cassette#{item.feature}",
            priority=item.priority,
            order=position,
            depends_on=tuple(FeatureId(dependency) for dependency in item.depends_on),
            title=put(item.title.encode()),
            body=put(item.body.encode()),
            kind=item.kind,
        )
        for position, item in enumerate(order)
        if not item.is_own
    ]
    allowed = [CyclesAllowed(until=fixture.cycles)] if fixture.cycles else []
    tested = []
    if fixture.known_failures or fixture.base_results:
        values = fixture.known_failures, fixture.base_results
        known_failures, results = (put(msgspec.json.encode(value)) if value else None for value in values)
        tested = [BaseTested(red=tuple(fixture.known_failures), known_failures=known_failures, results=results)]
    store.append(
        [Append(run_stream(fixture.run), 0, (started, *skipped, *added, *tested, *allowed))], ports.clock.now_us()
    )


def drive(
    coordinator: ScriptedPeople,
    ports: ReplayPorts,
    fixture: Fixture,
    calls_made: Callable[[], int],
    was_resumed: Callable[[str], bool],
    on_start: Callable[[Scheduler], None] = lambda scheduler: None,
    threads: bool = True,
) -> None:
    """Run until nothing can continue, with a thread for each feature or, without `threads`, one after the other.

    After a fatal problem of a feature from which the recorded run was resumed, continue as long as calls are made.
    Raises any error of a thread, after ending all processes.
    """

    def start(feature: FeatureId, run_side: RunSide) -> ReplayFeature:
        run, pins, store = coordinator.run, coordinator.pins, coordinator.store
        feature_ports = ports.for_feature(feature, fixture)
        loop = ReplayFeature(run, feature, pins, store, feature_ports, run_side, coordinator.observe)
        loop.killed, loop.order = ports.stop, order
        return loop

    calls_before, order = -1, list(fixture.order)
    while True:
        if threads and not fixture.order:
            scheduler = Scheduler(coordinator, start, lambda watch: None)
            on_start(scheduler)
            _run_threads(scheduler, ports)
        else:
            _run_in_turn(coordinator, start, order)
        if coordinator.close_if_recorded():
            continue
        halt = coordinator.state.halt
        if halt is None or calls_made() == calls_before or not was_resumed(halt.feature):
            return
        calls_before = calls_made()
        coordinator.resume()


def _run_threads(scheduler: Scheduler, ports: ReplayPorts) -> None:
    try:
        scheduler.run()
    except BaseException:
        ports.stop.set()
        for thread in tuple(scheduler.threads.values()):
            thread.join(JOIN_SECONDS)  # It still works in the scratch directory.
        raise


def _run_in_turn(
    coordinator: Coordinator, start: Callable[[FeatureId, RunSide], ReplayFeature], order: list[str]
) -> None:
    """Run each feature until it stops, until none can run. In a given order, the feature that is next in it is run
    until it merges or stops. Raises NotInMemory if the run waits for something."""
    action, loops, in_order = coordinator.decide(), dict[FeatureId, ReplayFeature](), bool(order)
    while features := coordinator.runnable_features(frozenset()):
        feature = next_in_order(features, order)
        loop = loops[feature] = loops.get(feature) or start(feature, coordinator)
        merges, is_running = loop.merges, loop.step()
        while is_running and not (in_order and loop.merges > merges):
            is_running = loop.step()
        if not is_running:
            coordinator.worker_stopped(loops.pop(feature))
        action = coordinator.decide()
    if not isinstance(action, AwaitEvents):
        coordinator.record_end(action)
    elif not coordinator.state.is_ending:
        raise NotInMemory("the run waits for something outside")


def next_in_order(features: Iterable[FeatureId], order: list[str]) -> FeatureId:
    """Return the feature that comes first in an order, else the first one."""
    return min(features, key=lambda name: order.index(name) if name in order else len(order))


class ReplayFeature(FeatureLoop):
    """Continues after a call that must be found lost, as the next process did after the crash."""

    killed = threading.Event()
    order: list[str]
    """The features in the order in which they merge and stop; each is removed once when it does."""
    merges = 0

    def _execute(self, step: Step) -> None:
        super()._execute(step)
        self.merges += sum(map(is_ordered, step.events if isinstance(step, Emit) else (step,)))

    def step(self) -> bool:
        merges, was_running = self.merges, self._steps is not None
        is_running = super().step() or (was_running and not self.killed.is_set())
        if self.feature in self.order and (self.merges > merges or not is_running):
            self.order.remove(self.feature)
        return is_running


class ScriptedPeople(Coordinator):
    """Coordinator with recorded decisions, taken at the same point of the trace."""

    def __init__(
        self, fixture: Fixture, pins: Pins, store: Store, ports: Ports, observe: Observer = lambda recorded: None
    ) -> None:
        super().__init__(fixture.run, pins, store, ports.clock, observe)
        self._blobs, self._decisions = ports.blobs, defaultdict[str, list[RecordedDecision]](list)
        self._closing = fixture.closing
        for decision in fixture.decisions:
            self._decisions[decision.feature].append(decision)

    def worker_stopped(self, feature_run: FeatureLoop) -> None:
        super().worker_stopped(feature_run)
        track, pending = self.state.tracks[feature_run.feature], self._decisions[feature_run.feature]
        if track.active or track.last_stop is None or not pending:
            return
        decision, is_waiting = pending[0], track.last_stop.status is FeatureOutcome.WAITING
        if self._trace_length(feature_run.feature) == decision.after or (is_waiting and decision.action in VERDICTS):
            self.append((self._decision_event(pending.pop(0)),))

    def close_if_recorded(self) -> bool:
        """End the run as a person did. Return False if nobody did, the run ends already, or it was halted."""
        if not self._closing or self.state.halt or self.state.closing:
            return False
        self.append((RunClosing(how=self._closing, actor=self._blobs.put(ANONYMOUS)),))
        return True

    def _trace_length(self, feature: str) -> int:
        return sum(is_in_trace(recorded.event) for recorded in self.store.read(feature_stream(self.run, feature)))

    def _decision_event(self, decision: RecordedDecision) -> Event:
        feature, actor = FeatureId(decision.feature), self._blobs.put(ANONYMOUS)
        note = self._blobs.put(decision.note.encode()) if decision.note is not None else None
        if decision.action == "retry-phase" or decision.action == "revise":
            phase, is_revision = decision.phase or None, decision.action == "revise"
            return RetryAccepted(feature=feature, phase=phase, note=note, actor=actor, keeps_tree=is_revision)
        if decision.action == "cancel":
            return CancelAccepted(feature=feature, note=note, actor=actor)
        return AnswerAccepted(feature=feature, verdict=VERDICTS[decision.action], note=note, actor=actor)


class ReplayCoordinator(ScriptedPeople):
    """Skips to the next timer."""

    clock: ReplayClock

    def decide(self) -> AwaitEvents | EndEvent:
        action = super().decide()
        while isinstance(action, AwaitEvents) and action.until_us is not None:
            self.clock.skip_to(action.until_us)
            action = super().decide()
        return action
