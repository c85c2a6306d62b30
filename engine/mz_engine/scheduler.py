"""Driver with threads: one per feature, and the caller's for the coordinator, which alone appends to the run's stream.

Features send requests to the coordinator through a queue and wait. Scheduling itself is in `decide_run` and
`runnable_features`; this module only starts threads and passes messages.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread

import msgspec
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import FeatureAdmitted
from mz_events.names import FeatureId
from mz_projections.run import Message

from mz_engine.coordinator import Coordinator
from mz_engine.decide.run import Await, FinishRun, RestRun, Watch
from mz_engine.effects.steps import ClaimPaths, ReserveCall, SettleCall
from mz_engine.runner import Appended, Coordinating, FeatureRun
from mz_engine.watch import Noticed

LOOKS_MAX = 4
"""Forge polls at the same time."""
POLL_SECONDS = 0.5
"""Interval at which the inbox is read while features work."""


class Asked(msgspec.Struct, frozen=True):
    feature: FeatureId
    version: int
    step: ReserveCall | SettleCall | ClaimPaths
    answer: Future[Appended]


class Rested(msgspec.Struct, frozen=True):
    feature_run: FeatureRun


class Died(msgspec.Struct, frozen=True):
    feature: FeatureId | None
    """None: the thread of a forge poll."""
    error: BaseException


class StopAsked(msgspec.Struct, frozen=True):
    pass


class PauseAsked(msgspec.Struct, frozen=True):
    wanted: bool


class Looked(msgspec.Struct, frozen=True):
    watch: Watch
    found: Noticed | None


class Aborted(Exception):
    """Another thread failed; this one ends at once."""


class Door:
    """The coordinator, as feature threads see it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def messages(self, feature: FeatureId, after: int) -> tuple[tuple[int, Message], ...]:
        return self.scheduler.coordinator.messages(feature, after)

    def start_of(self, feature: FeatureId, version: int, message: FeatureAdmitted) -> FeatureStarted:
        return self.scheduler.coordinator.start_of(feature, version, message)

    def ask(self, feature: FeatureId, version: int, step: ReserveCall | SettleCall | ClaimPaths) -> Appended:
        answer: Future[Appended] = Future()
        self.scheduler.mail.put(Asked(feature, version, step, answer))
        return answer.result()

    def features(self) -> tuple[FeatureId, ...]:
        return self.scheduler.coordinator.features()

    def base(self) -> str:
        return self.scheduler.coordinator.base()

    def stopping(self) -> bool:
        scheduler = self.scheduler
        return scheduler.died is not None or scheduler.stop_asked or scheduler.coordinator.stopping()


class Scheduler:
    """Drives a run until it is idle, finished, interrupted or halted."""

    def __init__(
        self,
        coordinator: Coordinator,
        begin: Callable[[FeatureId, Coordinating], FeatureRun],
        look: Callable[[Watch], Noticed | None],
    ) -> None:
        self.coordinator, self.begin, self.look = coordinator, begin, look
        self.mail: SimpleQueue[Asked | Rested | Died | StopAsked | PauseAsked | Looked] = SimpleQueue()
        self.looking: set[Watch] = set()
        self.look_again_us: dict[Watch, int] = {}
        """When each poll is due again."""
        self.threads: dict[FeatureId, Thread] = {}
        self.died: BaseException | None = None
        self.stop_asked = False

    def stop(self) -> None:
        """Stop after the current actions. May be called from a signal handler or another thread."""
        self.stop_asked = True
        self.mail.put(StopAsked())

    def pause(self, wanted: bool) -> None:
        """Pause after the current actions, or continue. May be called from a signal handler or another thread."""
        self.mail.put(PauseAsked(wanted))

    def run(self) -> None:
        """Drive the run to its end. Raises the exception of a thread that failed."""
        action: Await | RestRun | FinishRun = RestRun()
        while True:
            try:
                action = self._decide()
            except Exception as error:
                self.died = self.died or error
            if not self.threads and self._over(action):
                break
            try:
                self._receive(action)
            except Exception as error:
                self.died = self.died or error
        if self.died is not None:
            raise self.died
        if not isinstance(action, Await):
            self.coordinator.close(action)

    def _decide(self) -> Await | RestRun | FinishRun:
        if self.died is not None:
            return RestRun()
        if self.stop_asked:
            self.coordinator.stop()
        action = self.coordinator.decide()
        for feature in self.coordinator.runnable(frozenset(self.threads)):
            self._start(feature)
        for watch in self.coordinator.watched():
            self._watch(watch)
        return action

    def _over(self, action: Await | RestRun | FinishRun) -> bool:
        if self.died is not None or self.coordinator.over():
            return True
        return not isinstance(action, Await) and not self.looking

    def _watch(self, watch: Watch) -> None:
        """Start the poll if it is due; a poll that never ran is, so that a resumed run catches up."""
        now_us = self.coordinator.clock.now_us()
        due = now_us >= self.look_again_us.get(watch, 0)
        if due and watch not in self.looking and len(self.looking) < LOOKS_MAX:
            self.looking.add(watch)
            Thread(target=self._look, args=(watch,), name=f"look-{watch.feature}", daemon=True).start()

    def _look(self, watch: Watch) -> None:
        change = None
        try:
            change = self.look(watch)
        except Exception as error:
            self.mail.put(Died(None, error))
        finally:
            self.mail.put(Looked(watch, change))

    def _start(self, feature: FeatureId) -> None:
        thread = Thread(target=self._drive, args=(feature,), name=f"feature-{feature}", daemon=True)
        self.threads[feature] = thread
        thread.start()

    def _drive(self, feature: FeatureId) -> None:
        try:
            feature_run = self.begin(feature, Door(self))
            while feature_run.step():
                pass
        except BaseException as error:
            self.mail.put(Died(feature, error))
        else:
            self.mail.put(Rested(feature_run))

    def _receive(self, action: Await | RestRun | FinishRun) -> None:
        try:
            message = self.mail.get(timeout=self._patience(action))
        except Empty:
            return
        match message:
            case Asked():
                self._answer(message)
            case Rested(feature_run=feature_run):
                del self.threads[feature_run.feature]
                if self.died is None:
                    if self.stop_asked:
                        self.coordinator.stop()
                    self.coordinator.rested(feature_run)
                    self._look_later(Watch("checks", feature_run.feature))
            case Looked(watch=watch, found=change):
                self.looking.discard(watch)
                self._look_later(watch)
                if change is not None and self.died is None:
                    self.coordinator.noticed(change)
            case PauseAsked(wanted=paused):
                if self.died is None:
                    self.coordinator.pause() if paused else self.coordinator.unpause()
            case Died(feature=feature, error=error):
                if feature is not None:
                    del self.threads[feature]
                if self.died is None and not isinstance(error, Aborted):
                    self.died = error
            case StopAsked():
                pass  # It only wakes the loop, which checks the flag.

    def _look_later(self, watch: Watch) -> None:
        interval_us = self.coordinator.pins.config.pull_requests.checks_poll_seconds * 1_000_000
        self.look_again_us[watch] = self.coordinator.clock.now_us() + interval_us

    def _answer(self, asked: Asked) -> None:
        if self.died is not None:
            asked.answer.set_exception(Aborted())
            return
        try:
            asked.answer.set_result(self.coordinator.ask(asked.feature, asked.version, asked.step))
        except Exception as error:
            self.died = error
            asked.answer.set_exception(Aborted())

    def _patience(self, action: Await | RestRun | FinishRun) -> float:
        until_us = action.until_us if isinstance(action, Await) else None
        if until_us is None:
            return POLL_SECONDS
        remaining_seconds = (until_us - self.coordinator.clock.now_us()) / 1_000_000
        return min(POLL_SECONDS, max(0.01, remaining_seconds))
