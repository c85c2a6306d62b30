"""Driver of one replay: the current engine with a skipping clock and the recorded decisions of people.

Only time, people and crashes are replaced; coordinator, scheduler and threads are the engine's own.
"""

from __future__ import annotations

import threading
from typing import Protocol

from mz_engine.coordinator import Coordinator
from mz_engine.decide.run import Await, FinishRun, RestRun
from mz_engine.pins import Pins, encode_pins
from mz_engine.ports import Clock
from mz_engine.runner import Coordinating, FeatureRun, Observer
from mz_engine.scheduler import Scheduler
from mz_engine.version import VERSION
from mz_events.catalog.base import Event
from mz_events.catalog.run import (
    AnswerGiven,
    CancelGiven,
    ItemAdded,
    ItemSkipped,
    Rest,
    RetryGiven,
    RunStarted,
    Verdict,
)
from mz_events.envelope import Recorded
from mz_events.names import Commit, FeatureId, RunId, feature_stream, run_stream
from mz_events.store import Append, Blobs, Store

from mz_recordings.cassette import Cassette, Item, Said
from mz_recordings.playing.stage import Stage
from mz_recordings.recording.story import belongs

SOMEBODY = b"somebody"
"""Author of all decisions; names of people are not recorded."""
LEAVE_SECONDS = 3.0
VERDICTS = {"approve": Verdict.APPROVE, "retry": Verdict.RETRY, "reject": Verdict.REJECT}


class Setting(Protocol):
    """Ports that the start of a run needs."""

    @property
    def blobs(self) -> Blobs: ...
    @property
    def clock(self) -> Clock: ...


def begin(cassette: Cassette, order: tuple[Item, ...], pins: Pins, store: Store, stage: Setting, base: Commit,
          heads: dict[str, Commit]) -> None:  # fmt: skip
    """Append the start of the run, with its items in this order."""
    world, put = cassette.manifest.world, stage.blobs.put
    started = RunStarted(
        run=RunId(world.run),
        pipeline=pins.pipeline.pipeline,
        base=world.base,
        base_commit=base,
        pins=put(encode_pins(pins)),
        core=VERSION,
    )
    skipped = [
        ItemSkipped(feature=FeatureId(feature), delivered_by="", changed=False, head=head)
        for feature, head in heads.items()
    ]
    added = [
        ItemAdded(
            feature=FeatureId(item.feature),
            source=f"cassette#{item.feature}",
            priority=item.priority,
            order=at,
            depends_on=tuple(FeatureId(other) for other in item.depends_on),
            title=put(item.title.encode()),
            body=put(item.body.encode()),
        )
        for at, item in enumerate(order)
    ]
    store.append([Append(run_stream(world.run), 0, (started, *skipped, *added))], stage.clock.now_us())


def drive(cassette: Cassette, pins: Pins, store: Store, stage: Stage) -> None:
    """Run until nothing can continue. Resume after a fatal problem if the recorded run was resumed."""
    world = cassette.manifest.world
    coordinator = ReplayCoordinator(world.run, pins, store, stage, world.said)
    hints = {item.feature: tuple(one for one in world.hints if one.feature == item.feature) for item in world.items}

    def start(feature: FeatureId, door: Coordinating) -> FeatureRun:
        ports = stage.for_feature(hints[feature])
        run = ReplayFeature(world.run, feature, pins, store, ports, door, unseen)
        run.killed = stage.kill
        return run

    played = -1
    while True:
        _run(Scheduler(coordinator, start, lambda watch: None), stage)
        if coordinator.state.halted is None or len(stage.agents.played) in (played, len(cassette.taken)):
            return
        played = len(stage.agents.played)
        coordinator.resume()


def _run(scheduler: Scheduler, stage: Stage) -> None:
    """Run the scheduler. On an exception, end all processes and let the threads leave the scratch directory."""
    try:
        scheduler.run()
    except BaseException:
        stage.kill.set()
        for thread in tuple(scheduler.threads.values()):
            thread.join(LEAVE_SECONDS)
        raise


def unseen(recorded: Recorded[Event]) -> None:
    """Observe nothing."""
    del recorded


class ReplayFeature(FeatureRun):
    """Continues after a call that must be found lost, as the next process did after the crash."""

    killed: threading.Event

    def step(self) -> bool:
        under_way = self._steps is not None
        return super().step() or (under_way and not self.killed.is_set())


class Peopled(Coordinator):
    """Coordinator with recorded decisions, taken at the same point of the trace."""

    def __init__(
        self, run: str, pins: Pins, store: Store, clock: Clock, blobs: Blobs, said: tuple[Said, ...], see: Observer
    ) -> None:
        super().__init__(run, pins, store, clock, see)
        self._blobs = blobs
        self._said: dict[str, list[Said]] = {}
        for one in said:
            self._said.setdefault(one.feature, []).append(one)

    def rested(self, feature_run: FeatureRun) -> None:
        super().rested(feature_run)
        track, left = self.state.tracks[feature_run.feature], self._said.get(feature_run.feature)
        if track.active or track.rested is None or not left:
            return
        waits = track.rested.status is Rest.WAITING
        if self._so_far(feature_run.feature) == left[0].after or (waits and left[0].what in VERDICTS):
            self._append((self._given(left.pop(0)),))

    def _so_far(self, feature: str) -> int:
        return sum(belongs(recorded.event) for recorded in self.store.read(feature_stream(self.run, feature)))

    def _given(self, said: Said) -> Event:
        feature, who = FeatureId(said.feature), self._blobs.put(SOMEBODY)
        note = self._blobs.put(said.note.encode()) if said.note is not None else None
        if said.what == "again":
            return RetryGiven(feature=feature, phase=said.phase or None, note=note, who=who)
        if said.what == "cancel":
            return CancelGiven(feature=feature, note=note, who=who)
        return AnswerGiven(feature=feature, verdict=VERDICTS[said.what], note=note, who=who)


class Leaping(Clock, Protocol):
    """A clock that can skip waiting times."""

    def leap(self, until_us: int) -> None: ...


class Timed(Protocol):
    """A replay environment with a skipping clock."""

    @property
    def blobs(self) -> Blobs: ...
    @property
    def clock(self) -> Leaping: ...


class ReplayCoordinator(Peopled):
    """Skips to the next timer."""

    def __init__(self, run: str, pins: Pins, store: Store, stage: Timed, said: tuple[Said, ...]) -> None:
        super().__init__(run, pins, store, stage.clock, stage.blobs, said, unseen)
        self._world = stage.clock

    def decide(self) -> Await | RestRun | FinishRun:
        action = super().decide()
        while isinstance(action, Await) and action.until_us is not None:
            self._world.leap(action.until_us)
            action = super().decide()
        return action
