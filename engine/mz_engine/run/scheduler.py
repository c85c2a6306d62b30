"""Driver with threads: one per feature, and the caller's for the coordinator, which alone appends to the run's stream.

Other threads leave in a queue what they want done there; a feature waits for the reply to its request. Scheduling
itself is in `decide_run` and `runnable_features`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from mz_events.catalog.run import RunIdle
from mz_events.names import FeatureId
from mz_projections.run.fold import RunState

from mz_engine.decide.run import AwaitEvents, EndEvent, ForgePoll
from mz_engine.effects.steps import RunStep
from mz_engine.run.coordinator import Coordinator, ForgeChange
from mz_engine.run.feature_loop import FeatureLoop, RequestResult, RunSide

T = TypeVar("T")
POLLS_MAX = 4
"""Forge polls at the same time."""
INBOX_POLL_SECONDS = 0.5
"""Interval at which the inbox is read while features work."""


class WorkerAborted(Exception):
    """Another thread failed; this one ends at once."""


class Scheduler:
    """Drives a run until it is idle, finished, interrupted or halted. To feature threads it is the run's side."""

    def __init__(
        self,
        coordinator: Coordinator,
        start_loop: Callable[[FeatureId, RunSide], FeatureLoop],
        poll_forge: Callable[[ForgePoll], ForgeChange | None],
    ) -> None:
        self.coordinator, self.start_loop, self.poll_forge = coordinator, start_loop, poll_forge
        self.messages: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """What other threads want done in the coordinator's thread."""
        self.polls_in_progress: set[ForgePoll] = set()
        self.next_poll_us: dict[ForgePoll, int] = {}
        """When each poll is due again."""
        self.threads: dict[FeatureId, Thread] = {}
        self.failure: BaseException | None = None
        self.stop_requested = False

    # called from feature threads --------------------------------------------------------------------------------------
    @property
    def state(self) -> RunState:
        return self.coordinator.state

    def is_stopping(self) -> bool:
        return self.failure is not None or self.stop_requested or self.coordinator.is_stopping()

    def request(self, feature: FeatureId, version: int, step: RunStep) -> RequestResult:
        result: Future[RequestResult] = Future()
        self.messages.put(partial(self._handle_request, feature, version, step, result))
        return result.result()

    # called from a signal handler or any thread -----------------------------------------------------------------------
    def stop(self) -> None:
        """Stop after the current actions."""
        self.stop_requested = True
        self.messages.put(lambda: None)  # It only wakes the loop, which checks the flag.

    def pause(self, paused: bool) -> None:
        """Pause after the current actions, or continue."""
        self.messages.put(partial(self._set_paused, paused))

    # the coordinator's thread -----------------------------------------------------------------------------------------
    def run(self) -> None:
        """Drive the run to its end. Raises the exception of a thread that failed."""
        action: AwaitEvents | EndEvent = RunIdle()
        while True:
            try:
                action = self._decide()
            except Exception as error:
                self.failure = self.failure or error
            if not self.threads and self._is_over(action):
                break
            try:
                self.messages.get(timeout=self._wait_seconds(action))()
            except Empty:
                continue
            except Exception as error:
                self.failure = self.failure or error
        if self.failure is not None:
            raise self.failure
        if not isinstance(action, AwaitEvents):
            self.coordinator.record_end(action)

    def _decide(self) -> AwaitEvents | EndEvent:
        if self.failure is not None:
            return RunIdle()
        if self.stop_requested:
            self.coordinator.stop()
        action = self.coordinator.decide()
        for feature in self.coordinator.runnable_features(frozenset(self.threads)):
            self.threads[feature] = self._start_thread(self._run_worker, feature, f"feature-{feature}")
        for poll in self.coordinator.forge_polls():
            # A poll that never ran is due, so that a resumed run catches up.
            due = self.coordinator.clock.now_us() >= self.next_poll_us.get(poll, 0)
            if due and poll not in self.polls_in_progress and len(self.polls_in_progress) < POLLS_MAX:
                self.polls_in_progress.add(poll)
                self._start_thread(self._run_poll, poll, f"poll-{poll.feature}")
        return action

    def _start_thread(self, target: Callable[[T], None], argument: T, name: str) -> Thread:
        thread = Thread(target=target, args=(argument,), name=name, daemon=True)
        thread.start()
        return thread

    def _is_over(self, action: AwaitEvents | EndEvent) -> bool:
        if self.failure is not None or self.coordinator.is_over():
            return True
        return not isinstance(action, AwaitEvents) and not self.polls_in_progress

    def _run_poll(self, poll: ForgePoll) -> None:
        try:
            self.messages.put(partial(self._end_poll, poll, self.poll_forge(poll)))
        except Exception as error:
            self.messages.put(partial(self._end_poll, poll, None, error))

    def _end_poll(self, poll: ForgePoll, change: ForgeChange | None, error: Exception | None = None) -> None:
        self.polls_in_progress.discard(poll)
        self._schedule_poll(poll)
        if error is not None:
            raise error
        if change is not None and self.failure is None:
            self.coordinator.record_change(change)

    def _run_worker(self, feature: FeatureId) -> None:
        try:
            feature_loop = self.start_loop(feature, self)
            while feature_loop.step():
                pass
        except BaseException as error:
            self.messages.put(partial(self._end_worker, feature, error))
        else:
            self.messages.put(partial(self._end_worker, feature, None, feature_loop))

    def _end_worker(
        self, feature: FeatureId, error: BaseException | None, feature_loop: FeatureLoop | None = None
    ) -> None:
        del self.threads[feature]
        if self.failure is not None:
            return
        if feature_loop is None:
            self.failure = error
            return
        if self.stop_requested:
            self.coordinator.stop()
        self.coordinator.worker_stopped(feature_loop)
        self._schedule_poll(ForgePoll("checks", feature))

    def _set_paused(self, paused: bool) -> None:
        if self.failure is None:
            self.coordinator.pause() if paused else self.coordinator.unpause()

    def _schedule_poll(self, poll: ForgePoll) -> None:
        interval_us = self.coordinator.pins.config.pull_requests.checks_poll * 1_000_000
        self.next_poll_us[poll] = self.coordinator.clock.now_us() + interval_us

    def _handle_request(self, feature: FeatureId, version: int, step: RunStep, result: Future[RequestResult]) -> None:
        try:
            if self.failure is None:
                result.set_result(self.coordinator.request(feature, version, step))
        finally:
            if not result.done():
                result.set_exception(WorkerAborted())

    def _wait_seconds(self, action: AwaitEvents | EndEvent) -> float:
        until_us = action.until_us if isinstance(action, AwaitEvents) else None
        if until_us is None:
            return INBOX_POLL_SECONDS
        remaining_seconds = (until_us - self.coordinator.clock.now_us()) / 1_000_000
        return min(INBOX_POLL_SECONDS, max(0.01, remaining_seconds))
