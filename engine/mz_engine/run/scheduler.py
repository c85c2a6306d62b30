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
from mz_projections.run.fold import RunMessage

from mz_engine.decide.run import AwaitEvents, FinishRun, ForgePoll, IdleRun
from mz_engine.effects.steps import ClaimPaths, ReserveCall, SettleCall
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop, RequestResult, RunSide
from mz_engine.run.watch import ForgeChange

POLLS_MAX = 4
"""Forge polls at the same time."""
INBOX_POLL_SECONDS = 0.5
"""Interval at which the inbox is read while features work."""


class CoordinatorRequest(msgspec.Struct, frozen=True):
    feature: FeatureId
    version: int
    step: ReserveCall | SettleCall | ClaimPaths
    result: Future[RequestResult]


class WorkerStopped(msgspec.Struct, frozen=True):
    feature_loop: FeatureLoop


class WorkerFailed(msgspec.Struct, frozen=True):
    feature: FeatureId | None
    """None: the thread of a forge poll."""
    error: BaseException


class StopRequested(msgspec.Struct, frozen=True):
    pass


class PauseRequested(msgspec.Struct, frozen=True):
    paused: bool


class WatchResult(msgspec.Struct, frozen=True):
    poll: ForgePoll
    change: ForgeChange | None


class WorkerAborted(Exception):
    """Another thread failed; this one ends at once."""


class CoordinatorProxy:
    """The coordinator, as feature threads see it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def messages(self, feature: FeatureId, after: int) -> tuple[tuple[int, RunMessage], ...]:
        return self.scheduler.coordinator.messages(feature, after)

    def started_event(self, feature: FeatureId, version: int, message: FeatureAdmitted) -> FeatureStarted:
        return self.scheduler.coordinator.started_event(feature, version, message)

    def request(self, feature: FeatureId, version: int, step: ReserveCall | SettleCall | ClaimPaths) -> RequestResult:
        result: Future[RequestResult] = Future()
        self.scheduler.messages.put(CoordinatorRequest(feature, version, step, result))
        return result.result()

    def feature_ids(self) -> tuple[FeatureId, ...]:
        return self.scheduler.coordinator.feature_ids()

    def base_branch(self) -> str:
        return self.scheduler.coordinator.base_branch()

    def is_stopping(self) -> bool:
        scheduler = self.scheduler
        return scheduler.failure is not None or scheduler.stop_requested or scheduler.coordinator.is_stopping()


class Scheduler:
    """Drives a run until it is idle, finished, interrupted or halted."""

    def __init__(
        self,
        coordinator: Coordinator,
        start_loop: Callable[[FeatureId, RunSide], FeatureLoop],
        poll_forge: Callable[[ForgePoll], ForgeChange | None],
    ) -> None:
        self.coordinator, self.start_loop, self.poll_forge = coordinator, start_loop, poll_forge
        self.messages: SimpleQueue[
            CoordinatorRequest | WorkerStopped | WorkerFailed | StopRequested | PauseRequested | WatchResult
        ] = SimpleQueue()
        self.polls_in_progress: set[ForgePoll] = set()
        self.next_poll_us: dict[ForgePoll, int] = {}
        """When each poll is due again."""
        self.threads: dict[FeatureId, Thread] = {}
        self.failure: BaseException | None = None
        self.stop_requested = False

    def stop(self) -> None:
        """Stop after the current actions. May be called from a signal handler or another thread."""
        self.stop_requested = True
        self.messages.put(StopRequested())

    def pause(self, paused: bool) -> None:
        """Pause after the current actions, or continue. May be called from a signal handler or another thread."""
        self.messages.put(PauseRequested(paused))

    def run(self) -> None:
        """Drive the run to its end. Raises the exception of a thread that failed."""
        action: AwaitEvents | IdleRun | FinishRun = IdleRun()
        while True:
            try:
                action = self._decide()
            except Exception as error:
                self.failure = self.failure or error
            if not self.threads and self._is_over(action):
                break
            try:
                self._handle_message(action)
            except Exception as error:
                self.failure = self.failure or error
        if self.failure is not None:
            raise self.failure
        if not isinstance(action, AwaitEvents):
            self.coordinator.record_end(action)

    def _decide(self) -> AwaitEvents | IdleRun | FinishRun:
        if self.failure is not None:
            return IdleRun()
        if self.stop_requested:
            self.coordinator.stop()
        action = self.coordinator.decide()
        for feature in self.coordinator.runnable_features(frozenset(self.threads)):
            self._start_worker(feature)
        for poll in self.coordinator.forge_polls():
            self._poll_if_due(poll)
        return action

    def _is_over(self, action: AwaitEvents | IdleRun | FinishRun) -> bool:
        if self.failure is not None or self.coordinator.is_over():
            return True
        return not isinstance(action, AwaitEvents) and not self.polls_in_progress

    def _poll_if_due(self, poll: ForgePoll) -> None:
        """Start the poll if it is due; a poll that never ran is, so that a resumed run catches up."""
        now_us = self.coordinator.clock.now_us()
        due = now_us >= self.next_poll_us.get(poll, 0)
        if due and poll not in self.polls_in_progress and len(self.polls_in_progress) < POLLS_MAX:
            self.polls_in_progress.add(poll)
            Thread(target=self._run_poll, args=(poll,), name=f"look-{poll.feature}", daemon=True).start()

    def _run_poll(self, poll: ForgePoll) -> None:
        change = None
        try:
            change = self.poll_forge(poll)
        except Exception as error:
            self.messages.put(WorkerFailed(None, error))
        finally:
            self.messages.put(WatchResult(poll, change))

    def _start_worker(self, feature: FeatureId) -> None:
        thread = Thread(target=self._run_worker, args=(feature,), name=f"feature-{feature}", daemon=True)
        self.threads[feature] = thread
        thread.start()

    def _run_worker(self, feature: FeatureId) -> None:
        try:
            feature_loop = self.start_loop(feature, CoordinatorProxy(self))
            while feature_loop.step():
                pass
        except BaseException as error:
            self.messages.put(WorkerFailed(feature, error))
        else:
            self.messages.put(WorkerStopped(feature_loop))

    def _handle_message(self, action: AwaitEvents | IdleRun | FinishRun) -> None:
        try:
            message = self.messages.get(timeout=self._wait_seconds(action))
        except Empty:
            return
        match message:
            case CoordinatorRequest():
                self._handle_request(message)
            case WorkerStopped(feature_loop=feature_loop):
                del self.threads[feature_loop.feature]
                if self.failure is None:
                    if self.stop_requested:
                        self.coordinator.stop()
                    self.coordinator.worker_stopped(feature_loop)
                    self._schedule_poll(ForgePoll("checks", feature_loop.feature))
            case WatchResult(poll=poll, change=change):
                self.polls_in_progress.discard(poll)
                self._schedule_poll(poll)
                if change is not None and self.failure is None:
                    self.coordinator.record_change(change)
            case PauseRequested(paused=paused):
                if self.failure is None:
                    self.coordinator.pause() if paused else self.coordinator.unpause()
            case WorkerFailed(feature=feature, error=error):
                if feature is not None:
                    del self.threads[feature]
                if self.failure is None and not isinstance(error, WorkerAborted):
                    self.failure = error
            case StopRequested():
                pass  # It only wakes the loop, which checks the flag.

    def _schedule_poll(self, poll: ForgePoll) -> None:
        interval_us = self.coordinator.pins.config.pull_requests.checks_poll * 1_000_000
        self.next_poll_us[poll] = self.coordinator.clock.now_us() + interval_us

    def _handle_request(self, request: CoordinatorRequest) -> None:
        if self.failure is not None:
            request.result.set_exception(WorkerAborted())
            return
        try:
            request.result.set_result(self.coordinator.request(request.feature, request.version, request.step))
        except Exception as error:
            self.failure = error
            request.result.set_exception(WorkerAborted())

    def _wait_seconds(self, action: AwaitEvents | IdleRun | FinishRun) -> float:
        until_us = action.until_us if isinstance(action, AwaitEvents) else None
        if until_us is None:
            return INBOX_POLL_SECONDS
        remaining_seconds = (until_us - self.coordinator.clock.now_us()) / 1_000_000
        return min(INBOX_POLL_SECONDS, max(0.01, remaining_seconds))
