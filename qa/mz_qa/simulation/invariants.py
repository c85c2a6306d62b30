"""What must hold after every event and every call of a simulated run, whatever fails on the way, and at its end.

The checks know only the log and the world: they fold the streams a second time, and look at the branches themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mz_engine.model.pins import Pins
from mz_events.catalog.base import Event, IntentEvent
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested, CallReserved, CallSettled
from mz_events.catalog.delivery import (
    BranchLanded,
    Committed,
    DeliveryFailed,
    PullRequestOpened,
    Pushed,
    PushRequested,
    Tagged,
    TargetMoved,
)
from mz_events.catalog.feature import FeatureDelivered
from mz_events.catalog.run import FeatureOutcome, Hold
from mz_events.names import Commit, FeatureId, StreamId, feature_stream
from mz_events.store import Recorded
from mz_projections.feature.fold import apply_strict, fold
from mz_projections.feature.state import Ended, NotStarted, State
from mz_projections.run.fold import ENDED_OUTCOMES, FeatureTrack, RunState, evolve_run, fold_run

from mz_qa.simulation import trial
from mz_qa.simulation.world import World

RUN = StreamId(f"run/{trial.RUN}")
OUTCOMES = Committed | Pushed | PullRequestOpened | BranchLanded | TargetMoved | Tagged | DeliveryFailed
"""What ends an intent of the engine's own."""


class Violation(AssertionError):
    """An invariant does not hold."""


def require(holds: object, message: str) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(message)


class Invariants:
    """Follows one run event by event."""

    def __init__(self, world: World, pins: Pins) -> None:
        self.world, self.pins = world, pins
        self.run_state = RunState()
        self.states: dict[StreamId, State] = {}
        self.open: dict[StreamId, IntentEvent] = {}
        """By stream of a feature, its intent without an outcome."""
        self.called: set[str] = set()
        """Keys of all calls."""
        self.finished: set[str] = set()
        """Keys of the calls whose whole reply is in the spool."""
        self.ended: Counter[str] = Counter()
        """Outcomes of calls by key."""
        self.settled: set[str] = set()
        self.pushes: Counter[Commit] = Counter()
        """Requests to push, by commit."""
        self._last: dict[StreamId, tuple[int, int]] = {}
        """Version and time of each stream's last event."""

    def appended(self, events: Sequence[Recorded[Event]]) -> None:
        """Check what one transaction appended. Raises Violation."""
        for recorded in events:
            version, at_us = self._last.get(recorded.stream, (0, 0))
            require(recorded.version == version + 1, f"{recorded.event_ref} follows version {version}")
            require(recorded.recorded_at_us >= at_us, f"time fell at {recorded.event_ref}")
            self._last[recorded.stream] = (recorded.version, recorded.recorded_at_us)
            if recorded.stream == RUN:
                self.run_state = evolve_run(self.run_state, recorded)
                self._check_money(recorded.event)
            elif recorded.stream.startswith(RUN):
                self._check_feature(recorded)

    def _check_feature(self, recorded: Recorded[Event]) -> None:
        stream, event, where = recorded.stream, recorded.event, recorded.event_ref
        state = apply_strict(self.states.get(stream, NotStarted()), recorded)
        if state is None:
            raise Violation(f"{where}: {type(event).__name__} is illegal")
        self.states[stream] = state
        if isinstance(event, IntentEvent):
            require(stream not in self.open, f"{where} is an intent behind an open one")
            self.open[stream] = event
            self.pushes.update([event.commit] if isinstance(event, PushRequested) else [])
        elif isinstance(event, AgentReplied | AgentFailed | AgentLost):
            intent, key = self.open.pop(stream, None), event.ref.key
            self.ended[key] += 1
            require(isinstance(intent, AgentRequested) and intent.ref.key == key, f"{key} ended without a request")
            require(isinstance(event, AgentReplied) or key not in self.finished, f"the whole reply of {key} was lost")
        elif isinstance(event, OUTCOMES):
            self.open.pop(stream, None)
            if isinstance(event, BranchLanded):
                self._check_files(where, event.commit, event.feature)
        elif isinstance(event, FeatureDelivered):
            self._check_delivery(where, state)

    def _check_delivery(self, where: str, state: State) -> None:
        """Check the delivered commit itself: the gates pass on it, and nothing forbidden is in it."""
        assert isinstance(state, Ended)
        assert state.progress is not None
        phases, done = tuple(phase.phase for phase in self.pins.pipeline.phases), state.progress.completed_phases
        require(done == phases, f"{where}: delivered after {done}")
        self._check_files(where, state.progress.head, state.progress.started.feature)

    def _check_files(self, where: str, commit: Commit, feature: FeatureId) -> None:
        files = dict(self.world.objects[commit].files)
        require(trial.commands("check", files)[0] == 0, f"{where}: delivered without passing its gates")
        missing = {f"{feature}{number}.txt" for number in (1, 2, 3)} - files.keys()
        require(not missing, f"{where}: delivered without {', '.join(sorted(missing))}")
        require(f"blocked/{feature}.md" not in files, f"{where}: delivered with a block")
        require("stray.txt" not in files, f"{where}: delivered with a forbidden change")
        require(not any(b"SECRET" in data for data in files.values()), f"{where}: delivered with a secret")

    def _check_money(self, event: Event) -> None:
        limit = self.pins.config.budget.run_nanousd
        if isinstance(event, CallReserved) and limit is not None:
            require(self.run_state.committed_nanousd <= limit, f"{event.key} was granted over the budget")
        if isinstance(event, CallSettled):
            require(event.key not in self.settled, f"{event.key} was charged twice")
            self.settled.add(event.key)

    def calling(self, feature: str, key: str) -> None:
        """Check a call that an agent is about to answer. Raises Violation."""
        intent = self.open.get(feature_stream(trial.RUN, FeatureId(feature)))
        require(isinstance(intent, AgentRequested) and intent.ref.key == key, f"{key} was called without a request")
        require(key not in self.called, f"{key} was paid twice")
        self.called.add(key)

    def started(self) -> None:
        """Check that a new process reads what the earlier ones knew. Raises Violation."""
        store = self.world.store
        require(fold_run(store.read(RUN)) == self.run_state, "the run folds to another state")
        for stream, state in self.states.items():
            require(fold(store.read(stream)) == state, f"{stream} folds to another state")

    def at_rest(self) -> None:
        """Check a run that rests, and to which nothing happens any more. Raises Violation."""
        self.started()
        require(not self.open, f"intents without an outcome: {sorted(self.open)}")
        require(self.called <= self.ended.keys() and self.called <= self.settled, "a call has no end or no price")
        require(max(self.ended.values(), default=1) == 1, "a call ended twice")
        require(Counter(self.world.pushes) <= self.pushes, "a commit was pushed twice")
        require(len(set(self.world.landings)) == len(self.world.landings), "a branch was merged twice")
        for feature, track in self.run_state.tracks.items():
            require(not track.reservations, f"{feature} rests with money set aside")
            require(self._may_rest(track), f"{feature} rests without a reason: {track.last_stop}")

    def _may_rest(self, track: FeatureTrack) -> bool:
        """Return True if a feature has ended, waits for a person or for money, or for a feature that does."""
        tracks, stop = self.run_state.tracks, track.last_stop
        if track.active or (stop is not None and stop.status is FeatureOutcome.INTERRUPTED):
            return False
        if stop is None:
            return any(not tracks[name].is_delivered for name in track.item.depends_on)
        if stop.status is FeatureOutcome.HELD and stop.hold is Hold.CLAIM:
            return any(other is not track and other.claim and not other.has_ended for other in tracks.values())
        return stop.status in ENDED_OUTCOMES or stop.status is FeatureOutcome.WAITING or stop.hold is Hold.BUDGET
