"""Driver: threads. One thread a feature, and the caller's thread for the coordinator, which alone appends to the run.

Features hand what concerns the run to the coordinator through a queue and wait. Scheduling itself is pure
(`decide_run`, `runnable`); this module only starts threads and carries messages.
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
"""At the same time: each asks the forge."""
POLL_SECONDS = 0.5
"""How often the inbox is looked at while features work."""


class Asked(msgspec.Struct, frozen=True):
    feature: FeatureId
    version: int
    step: ReserveCall | SettleCall | ClaimPaths
    answer: Future[Appended]


class Rested(msgspec.Struct, frozen=True):
    feature_run: FeatureRun


class Died(msgspec.Struct, frozen=True):
    feature: FeatureId | None
    """None: it was no feature's thread."""
    error: BaseException


class StopAsked(msgspec.Struct, frozen=True):
    pass


class PauseAsked(msgspec.Struct, frozen=True):
    wanted: bool


class Looked(msgspec.Struct, frozen=True):
    watch: Watch
    found: Noticed | None


class Aborted(Exception):
    """Another thread died; this one ends where it stands."""


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
    """Drives a run until it rests, is finished, stopped or halted. Raises what a thread died of."""

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
        """When what was looked at is due again."""
        self.threads: dict[FeatureId, Thread] = {}
        self.died: BaseException | None = None
        self.stop_asked = False

    def stop(self) -> None:
        """From a signal handler or another thread: come to rest after the actions that are under way."""
        self.stop_asked = True
        self.mail.put(StopAsked())

    def pause(self, wanted: bool) -> None:
        """From a signal handler or another thread: come to rest, but stay; or go on."""
        self.mail.put(PauseAsked(wanted))

    def run(self) -> None:
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
        """What was never looked at is looked at now, so that a resumed run hears what happened meanwhile."""
        now_us = self.coordinator.clock.now_us()
        due = now_us >= self.look_again_us.get(watch, 0)
        if due and watch not in self.looking and len(self.looking) < LOOKS_MAX:
            self.looking.add(watch)
            Thread(target=self._look, args=(watch,), name=f"look-{watch.feature}", daemon=True).start()

    def _look(self, watch: Watch) -> None:
        found = None
        try:
            found = self.look(watch)
        except Exception as error:
            self.mail.put(Died(None, error))
        finally:
            self.mail.put(Looked(watch, found))

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
            case Looked(watch=watch, found=found):
                self.looking.discard(watch)
                self._look_later(watch)
                if found is not None and self.died is None:
                    self.coordinator.noticed(found)
            case PauseAsked(wanted=wanted):
                if self.died is None:
                    self.coordinator.pause() if wanted else self.coordinator.unpause()
            case Died(feature=feature, error=error):
                if feature is not None:
                    del self.threads[feature]
                if self.died is None and not isinstance(error, Aborted):
                    self.died = error
            case StopAsked():
                pass  # It only wakes the loop, which looks at `stop_asked`.

    def _look_later(self, watch: Watch) -> None:
        pause_us = self.coordinator.pins.config.pull_requests.checks_poll_seconds * 1_000_000
        self.look_again_us[watch] = self.coordinator.clock.now_us() + pause_us

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
        until = action.until_us if isinstance(action, Await) else None
        if until is None:
            return POLL_SECONDS
        left = (until - self.coordinator.clock.now_us()) / 1_000_000
        return min(POLL_SECONDS, max(0.01, left))
