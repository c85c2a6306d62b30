"""Run in which recordings serve matching calls, and the real agent replies to the rest, within a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.decide.run import AwaitEvents, EndEvent, timer_us
from mz_engine.decoding.quantity import Usd
from mz_engine.effects.steps import ReserveCall, RunStep, SettleCall
from mz_engine.model.config import Budget
from mz_engine.model.pins import Pins
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import Observer, RequestResult
from mz_engine.run.scheduler import Scheduler
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested, CallPriced, ReplyParsed
from mz_events.catalog.run import Hold, TimerFired
from mz_events.envelope import Recorded
from mz_events.names import FeatureId
from mz_events.store import Store
from mz_projections.run.fold import is_held_for

from mz_recordings.cassette.model import Cassette, RecordedDecision, identity_of
from mz_recordings.replay.driver import ScriptedPeople, drive
from mz_recordings.rerecord.ports import HybridAgents, LiveEnvironment


class CallProgress(NamedTuple):
    """Progress of one call, during the run."""

    call: str
    """Feature and call name, such as `login/code.a2`."""
    status: str
    """`asked`, then `answered` or `failed`; `served` if a recording was used."""
    seconds: float = 0.0
    tokens: int | None = None
    nanousd: int | None = None
    """The higher of reported and computed cost; None: unknown."""
    problem_code: str = ""
    """Problem code of a failed call."""


OnCallProgress = Callable[[CallProgress], None]


class StopControl:
    """Stops a run from another thread. After a stop no run starts."""

    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None
        self._kill: threading.Event | None = None
        self.stopped = False

    def attach(self, scheduler: Scheduler, kill: threading.Event) -> None:
        self._scheduler, self._kill = scheduler, kill
        if self.stopped:
            scheduler.stop()

    def stop(self) -> None:
        """Stop after the current actions."""
        self.stopped = True
        if self._scheduler is not None:
            self._scheduler.stop()

    def kill(self) -> None:
        """End every agent and command now."""
        self.stop()
        if self._kill is not None:
            self._kill.set()


class RunEnd(NamedTuple):
    """End of a run."""

    stop_reason: str
    """Empty: every feature stopped by itself; `interrupted`, `budget`, or the code of a fatal problem."""
    spent_nanousd: int
    """Cost of the real agent: the higher of reported and computed cost."""


def drive_run(
    cassette: Cassette,
    pins: Pins,
    store: Store,
    live: LiveEnvironment,
    budget_nanousd: int | None,
    on_progress: OnCallProgress,
    stop_control: StopControl,
) -> RunEnd:
    """Run until no feature can continue. A fatal problem that was recorded is continued after, as in the recorded run;
    a new one ends the run. Raises any error of a thread."""
    fixture, agents = cassette.manifest.fixture, live.agents
    reporter = CallProgressReporter(cassette.manifest.pipeline, agents, on_progress)
    coordinator = LiveCoordinator(fixture.run, pins, store, live, fixture.decisions, reporter.see, budget_nanousd)
    coordinator.set_budget(Budget(run_nanousd=None if budget_nanousd is None else Usd(budget_nanousd)))
    drive(
        coordinator,
        live,
        fixture.hints,
        calls_made=lambda: len(agents.sources),
        was_resumed=lambda feature: bool(agents.last_sources.get(feature)),
        on_start=lambda scheduler: stop_control.attach(scheduler, live.stop),
    )
    # A reply that is not parsed yet counts with its reservation.
    return RunEnd(_stop_reason(coordinator, stop_control), coordinator.state.committed_nanousd)


def _stop_reason(coordinator: Coordinator, stop_control: StopControl) -> str:
    state = coordinator.state
    if state.halt is not None:
        return state.halt.code
    if any(is_held_for(track, Hold.BUDGET) for track in state.tracks.values()):
        return "budget"
    return "interrupted" if stop_control.stopped and not state.all_ended else ""


def exceeds_budget(estimated_nanousd: int | None, committed_nanousd: int, budget_nanousd: int | None) -> bool:
    """Return True if a budget forbids a call at any cost: it has no price, or nothing is left."""
    return budget_nanousd is not None and (estimated_nanousd is None or committed_nanousd >= budget_nanousd)


class LiveCoordinator(ScriptedPeople):
    """Coordinator for which recordings are free, and recorded waits are skipped."""

    def __init__(
        self,
        run: str,
        pins: Pins,
        store: Store,
        live: LiveEnvironment,
        decisions: tuple[RecordedDecision, ...],
        observe: Observer,
        budget_nanousd: int | None,
    ) -> None:
        super().__init__(run, pins, store, live.clock, live.blobs, decisions, observe)
        self._live, self._budget_nanousd = live, budget_nanousd

    def request(self, feature: FeatureId, version: int, step: RunStep) -> RequestResult:
        match step:
            case ReserveCall(request=request) if self._live.choose_source(feature, request):
                step = ReserveCall(replace(request, estimated_nanousd=0))
            case ReserveCall(request=request) if exceeds_budget(
                request.estimated_nanousd, self.state.committed_nanousd, self._budget_nanousd
            ):
                # Exceeds the budget, so that the engine holds the feature as for any such call.
                step = ReserveCall(replace(request, estimated_nanousd=(self._budget_nanousd or 0) + 1))
            case SettleCall(key=key) if self._live.agents.is_free(key):
                step = SettleCall(key, 0, step.events)
        return super().request(feature, version, step)

    def decide(self) -> AwaitEvents | EndEvent:
        for feature, track in self.state.tracks.items():
            if timer_us(track) is not None and self._live.agents.last_sources.get(feature) and not self.is_over():
                self._append((TimerFired(feature=FeatureId(feature)),))
        return super().decide()


class CallProgressReporter:
    """Reports the progress of calls, from all events of the run; called by several threads."""

    def __init__(self, pipeline: str, agents: HybridAgents, on_progress: OnCallProgress) -> None:
        self._pipeline, self._agents, self._on_progress = pipeline, agents, on_progress
        self._open_calls: dict[str, CallProgress] = {}

    def see(self, recorded: Recorded[Event]) -> None:
        feature = recorded.stream.rpartition("/")[2]
        match recorded.event:
            case AgentRequested(ref=ref):
                progress = CallProgress(identity_of(self._pipeline, feature, ref).path, "asked")
                self._open_calls[ref.key] = progress
                if not self._agents.is_free(ref.key):
                    self._on_progress(progress)
            case AgentReplied(ref=ref, duration_ms=duration_ms):
                self._open_calls[ref.key] = self._open_calls[ref.key]._replace(
                    status="answered", seconds=duration_ms / 1000
                )
            case AgentFailed(ref=ref, duration_ms=duration_ms, problem=problem):
                self._open_calls[ref.key] = self._open_calls[ref.key]._replace(
                    status="failed", seconds=duration_ms / 1000, problem_code=problem.code
                )
            case AgentLost(ref=ref):
                self._open_calls[ref.key] = self._open_calls[ref.key]._replace(status="failed", problem_code="lost")
            case ReplyParsed(ref=ref, usage=usage, problem=problem, reported_nanousd=nanousd):
                tokens = sum(entry.input + entry.output for entry in usage) if usage else None
                progress = self._open_calls[ref.key]._replace(tokens=tokens, nanousd=nanousd)
                self._open_calls[ref.key] = (
                    progress._replace(status="failed", problem_code=problem.code) if problem else progress
                )
            case CallPriced(key=key, computed_nanousd=nanousd):
                progress = self._open_calls.pop(key)
                known_amounts = [amount for amount in (progress.nanousd, nanousd) if amount is not None]
                progress = progress._replace(nanousd=max(known_amounts, default=None))
                self._on_progress(progress._replace(status="served") if self._agents.is_free(key) else progress)
