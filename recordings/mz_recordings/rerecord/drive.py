"""Driver: a run in which recordings answer what they fit, and the real agent the rest, within a budget."""

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
    """A word on one call, while the run goes on."""

    call: str
    """Feature and name, such as `login/code.a2`."""
    what: str
    """`asked`, then `answered` or `failed`; `served` where a recording answered."""
    seconds: float = 0.0
    tokens: int | None = None
    nanousd: int | None = None
    """The higher of what was reported and what the tokens cost; None: unknown."""
    why: str = ""
    """Of a failure: the problem's code."""


Tell = Callable[[Told], None]


class Reins:
    """Stops a run that is under way, from another thread. Once stopped, no run begins any more."""

    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None
        self._kill: threading.Event | None = None
        self.stopped = False

    def take(self, scheduler: Scheduler, kill: threading.Event) -> None:
        self._scheduler, self._kill = scheduler, kill
        if self.stopped:
            scheduler.stop()

    def stop(self) -> None:
        """Come to rest after the actions that are under way."""
        self.stopped = True
        if self._scheduler is not None:
            self._scheduler.stop()

    def kill(self) -> None:
        """End every agent and command now."""
        self.stop()
        if self._kill is not None:
            self._kill.set()


class Ended(NamedTuple):
    """How a run came to an end."""

    stopped: str
    """Empty: every feature came to rest by itself; `interrupted`, `budget`, or the code of what no further call could
    mend."""
    spent_nanousd: int
    """By the real agent: the higher of what it reported and what its tokens cost."""


def drive(
    cassette: Cassette, pins: Pins, store: Store, live: Live, budget_nanousd: int | None, tell: Tell, reins: Reins
) -> Ended:
    """Until nothing can go on. A fatal problem that was recorded is gone on after, as it was then; one that is new ends
    the run. Raises what a thread died of."""
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
    """Whether a budget forbids a call whatever it may cost: it has no price, or nothing is left."""
    return budget_nanousd is not None and (estimated_nanousd is None or committed_nanousd >= budget_nanousd)


def _spent(coordinator: Coordinator) -> int:
    """An answer that nobody has read yet counts with what was set aside for it."""
    return coordinator.state.committed_nanousd


class LiveCoordinator(Peopled):
    """Recordings cost nothing, and nobody waits for what they say of a wait."""

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
                # More than there is: the engine holds the feature, as for any call that does not fit.
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
    """Makes words of events. Hears of every event of the run; called by several threads."""

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
