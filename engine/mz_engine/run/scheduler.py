"""Driver with threads: one per feature, and the caller's, which decides for the run. They use the coordinator in turn.

Scheduling itself is in `decide_run` and `runnable_features`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Condition, Thread

from mz_events.catalog.run import RunIdle
from mz_events.names import FeatureId
from mz_projections.run.fold import RunState

from mz_engine.decide.run import AwaitEvents, EndEvent, ForgePoll
from mz_engine.effects.steps import RunStep
from mz_engine.run.coordinator import Coordinator, ForgeChange
from mz_engine.run.feature_loop import FeatureLoop, RequestResult, RunSide

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
        self.turn = Condition()
        """Held by the thread that uses the coordinator, and notified when it has."""
        self.has_ended = False
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
        with self.turn:
            self.turn.notify()
            if self.failure is not None:
                raise WorkerAborted
            try:
                return self.coordinator.request(feature, version, step)
            except Exception as error:
                self.failure = error  # Before another thread has the turn, and fails because of it.
                raise

    # called from any thread -------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Stop after the current actions. Waits for no other thread."""
        self.stop_requested = True

    def pause(self, paused: bool) -> None:
        """Pause after the current actions, or continue."""
        self.take_turn(self.coordinator.pause if paused else self.coordinator.unpause)

    def take_turn(self, act: Callable[[], object]) -> None:
        """Use the coordinator, unless a thread has failed or the run has ended."""
        with self.turn:
            self.turn.notify()
            try:
                if self.failure is None and not self.has_ended:
                    act()
            except Exception as error:
                self.failure = error

    # the caller's thread ----------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Drive the run to its end. Raises the exception of a thread that failed."""
        with self.turn:
            try:
                action = self._decide()
                while self.threads or not self._may_return(action):
                    self.turn.wait(self._wait_seconds(action))
                    action = self._decide()
            finally:
                self.has_ended = True
            if self.failure is not None:
                raise self.failure
            if not isinstance(action, AwaitEvents):
                self.coordinator.record_end(action)

    def _decide(self) -> AwaitEvents | EndEvent:
        try:
            if self.failure is None:
                return self._start_threads()
        except Exception as error:
            self.failure = error
        return RunIdle()

    def _start_threads(self) -> AwaitEvents | EndEvent:
        if self.stop_requested:
            self.coordinator.stop()
        action = self.coordinator.decide()
        for feature in self.coordinator.runnable_features(frozenset(self.threads)):
            thread = Thread(target=self._run_worker, args=(feature,), name=f"feature-{feature}", daemon=True)
            thread.start()
            self.threads[feature] = thread  # It cannot end before: this thread has the turn.
        for poll in self.coordinator.forge_polls():
            # A poll that never ran is due, so that a resumed run catches up.
            due = self.coordinator.clock.now_us() >= self.next_poll_us.get(poll, 0)
            if due and poll not in self.polls_in_progress and len(self.polls_in_progress) < POLLS_MAX:
                self.polls_in_progress.add(poll)
                Thread(target=self._run_poll, args=(poll,), name=f"poll-{poll.feature}", daemon=True).start()
        return action

    def _may_return(self, action: AwaitEvents | EndEvent) -> bool:
        if self.failure is not None or self.coordinator.state.is_ending:
            return True
        return not isinstance(action, AwaitEvents) and not self.polls_in_progress

    def _run_poll(self, poll: ForgePoll) -> None:
        end: Callable[[], None]
        try:
            end = partial(self._end_poll, poll, self.poll_forge(poll))
        except Exception as error:
            end = partial(self._fail, error)
        self.take_turn(end)

    def _end_poll(self, poll: ForgePoll, change: ForgeChange | None) -> None:
        self.polls_in_progress.discard(poll)
        self._schedule_poll(poll)
        if change is not None:
            self.coordinator.record_change(change)

    def _run_worker(self, feature: FeatureId) -> None:
        end: Callable[[], None]
        try:
            feature_loop = self.start_loop(feature, self)
            while feature_loop.step():
                pass
            end = partial(self._end_worker, feature_loop)
        except BaseException as error:
            end = partial(self._fail, error)
        with self.turn:
            del self.threads[feature]
            self.take_turn(end)

    def _end_worker(self, feature_loop: FeatureLoop) -> None:
        if self.stop_requested:
            self.coordinator.stop()
        self.coordinator.worker_stopped(feature_loop)
        self._schedule_poll(ForgePoll("checks", feature_loop.feature))

    def _fail(self, error: BaseException) -> None:
        self.failure = error

    def _schedule_poll(self, poll: ForgePoll) -> None:
        interval_us = self.coordinator.pins.config.pull_requests.checks_poll * 1_000_000
        self.next_poll_us[poll] = self.coordinator.clock.now_us() + interval_us

    def _wait_seconds(self, action: AwaitEvents | EndEvent) -> float:
        until_us = action.until_us if isinstance(action, AwaitEvents) else None
        if until_us is None:
            return INBOX_POLL_SECONDS
        remaining_seconds = (until_us - self.coordinator.clock.now_us()) / 1_000_000
        return min(INBOX_POLL_SECONDS, max(0.01, remaining_seconds))
