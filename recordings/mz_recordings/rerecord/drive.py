"""Run in which recordings serve matching calls, and the real agent replies to the rest, within a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.config import Budget
from mz_engine.coordinator import Coordinator
from mz_engine.decide.run import Await, FinishRun, RestRun, timed
from mz_engine.effects.steps import ClaimPaths, ReserveCall, SettleCall
from mz_engine.pins import Pins
from mz_engine.runner import Appended, Coordinating, FeatureRun, Observer
from mz_engine.scheduler import Scheduler
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested, CallPriced, ReplyRead
from mz_events.catalog.run import Hold, TimerFired
from mz_events.envelope import Recorded
from mz_events.names import FeatureId
from mz_events.store import Store
from mz_projections.run import held_for

from mz_recordings.cassette import Cassette, identity_of
from mz_recordings.playing.drive import LEAVE_SECONDS, Peopled, ReplayFeature
from mz_recordings.rerecord.stage import Live


class Told(NamedTuple):
    """Progress of one call, during the run."""

    call: str
    """Feature and call name, such as `login/code.a2`."""
    what: str
    """`asked`, then `answered` or `failed`; `served` if a recording was used."""
    seconds: float = 0.0
    tokens: int | None = None
    nanousd: int | None = None
    """The higher of reported and computed cost; None: unknown."""
    why: str = ""
    """Problem code of a failed call."""


Tell = Callable[[Told], None]


class Reins:
    """Stops a run from another thread. After a stop no run starts."""

    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None
        self._kill: threading.Event | None = None
        self.stopped = False

    def take(self, scheduler: Scheduler, kill: threading.Event) -> None:
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


class Ended(NamedTuple):
    """End of a run."""

    stopped: str
    """Empty: every feature stopped by itself; `interrupted`, `budget`, or the code of a fatal problem."""
    spent_nanousd: int
    """Cost of the real agent: the higher of reported and computed cost."""


def drive(
    cassette: Cassette, pins: Pins, store: Store, live: Live, budget_nanousd: int | None, tell: Tell, reins: Reins
) -> Ended:
    """Run until no feature can continue. A fatal problem that was recorded is continued after, as in the recorded run;
    a new one ends the run. Raises any error of a thread."""
    world = cassette.manifest.world
    news = News(cassette.manifest.pipeline, live, tell)
    coordinator = LiveCoordinator(world.run, pins, store, live, cassette, news.see, budget_nanousd)
    coordinator.set_budget(Budget(run_nanousd=budget_nanousd))

    def start(feature: FeatureId, door: Coordinating) -> FeatureRun:
        hints = tuple(one for one in world.hints if one.feature == feature)
        run = ReplayFeature(world.run, feature, pins, store, live.for_feature(hints), door, news.see)
        run.killed = live.kill
        return run

    decided = -1
    while True:
        scheduler = Scheduler(coordinator, start, lambda watch: None)
        reins.take(scheduler, live.kill)
        try:
            scheduler.run()
        except BaseException:
            live.kill.set()
            for thread in tuple(scheduler.threads.values()):
                thread.join(LEAVE_SECONDS)
            raise
        halted = coordinator.state.halted
        if halted is None or not live.agents.last.get(halted.feature) or len(live.agents.sources) == decided:
            return Ended(_why(coordinator, reins), _spent(coordinator))
        decided = len(live.agents.sources)
        coordinator.resume()


def _why(coordinator: Coordinator, reins: Reins) -> str:
    state = coordinator.state
    if state.halted is not None:
        return state.halted.code
    if any(held_for(track, Hold.BUDGET) for track in state.tracks.values()):
        return "budget"
    return "interrupted" if reins.stopped and not state.all_ended else ""


def held_up(estimated_nanousd: int | None, committed_nanousd: int, budget_nanousd: int | None) -> bool:
    """Return True if a budget forbids a call at any cost: it has no price, or nothing is left."""
    return budget_nanousd is not None and (estimated_nanousd is None or committed_nanousd >= budget_nanousd)


def _spent(coordinator: Coordinator) -> int:
    """Return the committed cost; a reply that is not parsed yet counts with its reservation."""
    return coordinator.state.committed_nanousd


class LiveCoordinator(Peopled):
    """Coordinator for which recordings are free, and recorded waits are skipped."""

    def __init__(
        self, run: str, pins: Pins, store: Store, live: Live, cassette: Cassette, see: Observer,
        budget_nanousd: int | None,
    ) -> None:  # fmt: skip
        super().__init__(run, pins, store, live.clock, live.blobs, cassette.manifest.world.said, see)
        self._live, self._budget_nanousd = live, budget_nanousd

    def ask(self, feature: FeatureId, version: int, step: ReserveCall | SettleCall | ClaimPaths) -> Appended:
        match step:
            case ReserveCall(request=request) if self._live.decide(feature, request):
                step = ReserveCall(replace(request, estimated_nanousd=0))
            case ReserveCall(request=request) if held_up(
                request.estimated_nanousd, self.state.committed_nanousd, self._budget_nanousd
            ):
                # Exceeds the budget, so that the engine holds the feature as for any such call.
                step = ReserveCall(replace(request, estimated_nanousd=(self._budget_nanousd or 0) + 1))
            case SettleCall(key=key) if self._live.agents.costs_nothing(key):
                step = SettleCall(key, 0, step.events)
        return super().ask(feature, version, step)

    def decide(self) -> Await | RestRun | FinishRun:
        for feature, track in self.state.tracks.items():
            if timed(track) and self._live.agents.last.get(feature) and not self.over():
                self._append((TimerFired(feature=FeatureId(feature)),))
        return super().decide()


class News:
    """Reports the progress of calls, from all events of the run; called by several threads."""

    def __init__(self, pipeline: str, live: Live, tell: Tell) -> None:
        self._pipeline, self._live, self._tell = pipeline, live, tell
        self._open: dict[str, Told] = {}

    def see(self, recorded: Recorded[Event]) -> None:
        feature = recorded.stream.rpartition("/")[2]
        match recorded.event:
            case AgentRequested(ref=ref):
                told = Told(identity_of(self._pipeline, feature, ref).path, "asked")
                self._open[ref.key] = told
                if not self._live.agents.costs_nothing(ref.key):
                    self._tell(told)
            case AgentReplied(ref=ref, duration_ms=took):
                self._open[ref.key] = self._open[ref.key]._replace(what="answered", seconds=took / 1000)
            case AgentFailed(ref=ref, duration_ms=took, problem=problem):
                self._open[ref.key] = self._open[ref.key]._replace(what="failed", seconds=took / 1000, why=problem.code)
            case AgentLost(ref=ref):
                self._open[ref.key] = self._open[ref.key]._replace(what="failed", why="lost")
            case ReplyRead(ref=ref, usage=usage, problem=problem, reported_nanousd=nanousd):
                tokens = sum(each.input + each.output for each in usage) if usage else None
                told = self._open[ref.key]._replace(tokens=tokens, nanousd=nanousd)
                self._open[ref.key] = told._replace(what="failed", why=problem.code) if problem else told
            case CallPriced(key=key, computed_nanousd=nanousd):
                told = self._open.pop(key)
                known = [amount for amount in (told.nanousd, nanousd) if amount is not None]
                told = told._replace(nanousd=max(known, default=None))
                self._tell(told._replace(what="served") if self._live.agents.costs_nothing(key) else told)
