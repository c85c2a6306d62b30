"""Run in which recordings serve matching calls, and the real agent replies to the rest, within a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, Processes, all_adapters
from mz_engine.decide.run import AwaitEvents, EndEvent, timer_us
from mz_engine.decoding.quantity import Usd
from mz_engine.effects.steps import ReserveCall, RunStep, SettleCall
from mz_engine.model.config import Budget
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec
from mz_engine.processes.container import container_of
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import Observer, RequestResult
from mz_engine.run.ports import SystemClock
from mz_engine.run.scheduler import Scheduler
from mz_engine.run.spending_record import NOT_RECORDED, open_record
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    Problem,
    ProblemClass,
    ReplyParsed,
)
from mz_events.catalog.run import Hold, TimerFired
from mz_events.names import Commit, FeatureId
from mz_events.store import Blobs, Recorded, Store
from mz_projections.feature.unit import SESSION_MISSING
from mz_projections.run.fold import is_held_for

from mz_recordings.cassette.model import Cassette, Fixture, Identity, RecordedCall, identity_of
from mz_recordings.findings.model import CallMismatch
from mz_recordings.record.recorder import requested_spec
from mz_recordings.replay.agents import ReplayAgents, empty_spec, identity_of_key, recorded_argv
from mz_recordings.replay.driver import ScriptedPeople, drive
from mz_recordings.replay.ports import ReplayFolders, ScratchPorts
from mz_recordings.replay.stand_in import SESSION

LIVE_CALLS_FILE = "asked"
"""File of a run with the keys of the calls that the real agent got, one per line, written before the call starts."""
SESSION_NOT_HELD = Problem(kind=ProblemClass.PHASE, code=SESSION_MISSING)
"""Problem of a call that would continue a session whose calls recordings served: the engine sends the full prompt."""


def session_arguments(adapter: Adapter) -> frozenset[str]:
    """Return the arguments with which a call of this agent continues a session."""
    spec = replace(empty_spec(adapter.name), session=SESSION)
    return frozenset(recorded_argv(replace(spec, resumes=True), adapter)).difference(recorded_argv(spec, adapter))


class CachedAgents(ReplayAgents):
    """Serves the recordings of one source, and tests beforehand whether one matches."""

    def matches(self, identity: Identity, spec: CallSpec, tree_id: Callable[[], str]) -> bool:
        """Return True if arguments, prompt and tree of the call equal the recorded ones."""
        recorded = self._find_matching(identity, spec)
        return recorded is not None and tree_id() == recorded.recording.tree_before

    def has_recorded_count(self, spec: CallSpec) -> bool:
        """Return True if arguments and prompt equal the recorded ones, and the feature has a trace."""
        identity = self._identity(spec.key)
        return identity.feature in self._cassette.traces and self._find_matching(identity, spec) is not None

    def _find_matching(self, identity: Identity, spec: CallSpec) -> RecordedCall | None:
        recorded = self._recorded_calls.get(identity)
        if recorded is None or self._compare(recorded, spec, self._machine_values(spec)) != CallMismatch():
            return None
        return recorded

    def can_continue(self, agent: str, key: str) -> bool:
        """Return True if there is a usable recording of the call that continued a session."""
        recorded = self._recorded_calls.get(self._identity(key))
        return recorded is not None and session_arguments(self.adapter(agent)) <= set(recorded.recording.argv)


class HybridAgents(AgentRegistry):
    """The real agents, behind cached ones: the first source with a matching recording serves a call. The source is
    chosen when the call requests its reservation. Thread-safe."""

    def __init__(
        self,
        pipeline: str,
        cached: Mapping[str, CachedAgents],
        live_calls_path: Path,
        processes: Processes,
        environment: Mapping[str, str],
        adapters: Mapping[str, Adapter] | None = None,
    ) -> None:
        super().__init__(processes, environment, adapters)
        self._pipeline, self._cached, self._live_calls_path = pipeline, cached, live_calls_path
        self._lock = threading.Lock()
        self.sources: dict[Identity, str] = {}
        """Name of the chosen source by call, in order; empty: the real agent."""
        self._live_sessions: set[str] = set()
        """Sessions that the real agent has with all their calls."""
        self.live_calls: set[Identity] = set()
        """Calls that the real agent got."""

    def choose_source(self, spec: CallSpec, tree_id: Callable[[], str]) -> bool:
        """Choose the source of the call; return True if the call is free."""
        identity = self._identity(spec.key)
        source = next((name for name, cached in self._cached.items() if cached.matches(identity, spec, tree_id)), "")
        with self._lock:
            self.sources[identity] = source
        return bool(source)

    def is_free(self, key: str) -> bool:
        """Return True for a call whose chosen source is a recording."""
        return bool(self.sources.get(self._identity(key)))

    def served_last(self, feature: str) -> bool:
        """Return True if a recording served the feature's last call."""
        with self._lock:
            return next(
                (bool(source) for call, source in reversed(self.sources.items()) if call.feature == feature), False
            )

    def _identity(self, key: str) -> Identity:
        return identity_of_key(self._pipeline, key)

    def call(self, spec: CallSpec) -> CallResult:
        identity = self._identity(spec.key)
        if source := self.sources[identity]:
            with self._lock:
                self._live_sessions.discard(spec.session or "")
            return self._cached[source].call(spec)
        if spec.resumes and spec.session not in self._live_sessions:
            return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0, problem=SESSION_NOT_HELD)
        with self._lock, open(self._live_calls_path, "a", encoding="utf-8") as file:
            file.write(f"{spec.key}\n")
            self.live_calls.add(identity)
        result = super().call(spec)
        with self._lock:
            self._live_sessions |= {spec.session or "", self.adapter(spec.agent).parse_output(result).session or ""}
        return result

    def salvage(self, key: str) -> CallResult | None:
        source = self.sources.get(self._identity(key), "")
        return self._cached[source].salvage(key) if source else super().salvage(key)

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the recorded count if the call equals the recorded one, else ask the real agent."""
        cached = next((cached for cached in self._cached.values() if cached.has_recorded_count(spec)), None)
        return super().count_tokens(spec) if cached is None else cached.count_tokens(spec)

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return True if the call can continue the session. The real agent lacks a session whose last call a recording
        served: such a session can continue only in another recording."""
        if not super().continues(agent, session, key):
            return False
        if session is None or session in self._live_sessions:
            return True
        return any(cached.can_continue(agent, key) for cached in self._cached.values())


class LiveEnvironment(ScratchPorts):
    """The ports of a re-recording. The real agent has the caller's environment, home and network, and may not write to
    the `project` around it. `sources` has, by name, each cassette that may be served, and the folder of its files."""

    agents: HybridAgents

    def __init__(
        self,
        folders: ReplayFolders,
        sources: Mapping[str, tuple[Cassette, Path]],
        pins: Pins,
        blobs: Blobs,
        environment: Mapping[str, str],
        project: Path,
        tree_id: Callable[[Commit], str],
    ) -> None:
        config = pins.config
        super().__init__(folders, config, blobs)
        self.pins, self.clock, self._tree_id = pins, SystemClock(), tree_id
        # A call of the recording may be made several times a day, under the same key.
        self.spending = open_record(environment, f"{project} re-recorded at {self.clock.now_us()}", Budget())
        processes = AgentProcesses(
            folders.root,
            environment,
            self.secrets,
            passed=config.pass_environment,
            stop=self.stop,
            enclosing_repository=project,
            sandbox=config.sandbox,
        )
        processes.container = container_of(config, environment)
        cached = {name: self.agents_of(cassette, folder, CachedAgents) for name, (cassette, folder) in sources.items()}
        live_calls_path = folders.root.parent / LIVE_CALLS_FILE
        adapters = all_adapters(config.agents, processes.container)
        self.agents = HybridAgents(pins.pipeline.pipeline, cached, live_calls_path, processes, environment, adapters)

    def choose_source(self, feature: str, request: AgentRequested) -> bool:
        """Choose the source of the call that requests its reservation; return True if the call is free."""
        spec = requested_spec(request, feature, self.pins, self.blobs)
        return self.agents.choose_source(spec, lambda: self._tree_id(request.laid_out or request.tree))


# the run --------------------------------------------------------------------------------------------------------------
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


class RunControl:
    """The budget that remains, who sees the progress, and stops from another thread. After a stop no run starts."""

    def __init__(self, budget_nanousd: int | None, on_progress: OnCallProgress) -> None:
        self.budget_nanousd, self.on_progress = budget_nanousd, on_progress
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
    stop_reason: str
    """Empty: every feature stopped by itself; `interrupted`, `budget`, or the code of a fatal problem."""
    charged_nanousd: int
    """Cost of the real agent: the higher of reported and computed cost."""


def drive_run(cassette: Cassette, pins: Pins, store: Store, live: LiveEnvironment, control: RunControl) -> RunEnd:
    """Run until no feature can continue. A fatal problem that was recorded is continued after, as in the recorded run;
    a new one ends the run. Raises any error of a thread."""
    fixture, agents, budget_nanousd = cassette.manifest.fixture, live.agents, control.budget_nanousd
    reporter = CallProgressReporter(cassette.manifest.pipeline, agents, control.on_progress)
    coordinator = LiveCoordinator(fixture, pins, store, live, reporter.see, budget_nanousd)
    coordinator.set_budget(Budget(run_nanousd=None if budget_nanousd is None else Usd(budget_nanousd)))
    drive(
        coordinator,
        live,
        fixture,
        calls_made=lambda: len(agents.sources),
        was_resumed=agents.served_last,
        on_start=lambda scheduler: control.attach(scheduler, live.stop),
    )
    # A reply that is not parsed yet counts with its reservation.
    return RunEnd(_stop_reason(coordinator, control), coordinator.state.committed_nanousd)


def _stop_reason(coordinator: Coordinator, control: RunControl) -> str:
    state = coordinator.state
    if state.halt is not None:
        return state.halt.code
    if any(is_held_for(track, Hold.BUDGET) for track in state.tracks.values()):
        return "budget"
    return "interrupted" if control.stopped and not state.all_ended else ""


def exceeds_budget(estimated_nanousd: int | None, committed_nanousd: int, budget_nanousd: int | None) -> bool:
    """Return True if a budget forbids a call at any cost: it has no price, or nothing is left."""
    return budget_nanousd is not None and (estimated_nanousd is None or committed_nanousd >= budget_nanousd)


class LiveCoordinator(ScriptedPeople):
    """Coordinator for which recordings are free, and recorded waits are skipped."""

    def __init__(
        self, fixture: Fixture, pins: Pins, store: Store, live: LiveEnvironment, observe: Observer, budget: int | None
    ) -> None:
        super().__init__(fixture, pins, store, live, observe)
        self._live, self._budget_nanousd = live, budget

    def request(self, feature: FeatureId, version: int, step: RunStep) -> RequestResult:
        self.spending = self._live.spending
        match step:
            case ReserveCall(request=request) if self._live.choose_source(feature, request):
                step = replace(step, request=replace(request, estimated_nanousd=0))
                self.spending = NOT_RECORDED
            case ReserveCall(request=request) if exceeds_budget(
                request.estimated_nanousd, self.state.committed_nanousd, self._budget_nanousd
            ):
                # Exceeds the budget, so that the engine holds the feature as for any such call.
                too_much = (self._budget_nanousd or 0) + 1
                step = replace(step, request=replace(request, estimated_nanousd=too_much))
            case SettleCall(key=key) if self._live.agents.is_free(key):
                step, self.spending = SettleCall(key, 0, step.events), NOT_RECORDED
        return super().request(feature, version, step)

    def decide(self) -> AwaitEvents | EndEvent:
        for feature, track in self.state.tracks.items():
            if timer_us(track) is not None and self._live.agents.served_last(feature) and not self.state.is_ending:
                self.append((TimerFired(feature=FeatureId(feature)),))
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
                self._update(ref.key, status="answered", seconds=duration_ms / 1000)
            case AgentFailed(ref=ref, duration_ms=duration_ms, problem=problem):
                self._update(ref.key, status="failed", seconds=duration_ms / 1000, problem_code=problem.code)
            case AgentLost(ref=ref):
                self._update(ref.key, status="failed", problem_code="lost")
            case ReplyParsed(ref=ref, usage=usage, problem=reply_problem, reported_nanousd=nanousd):
                tokens = sum(entry.input + entry.output for entry in usage) if usage else None
                self._update(ref.key, tokens=tokens, nanousd=nanousd)
                if reply_problem:
                    self._update(ref.key, status="failed", problem_code=reply_problem.code)
            case CallPriced(key=key, computed_nanousd=nanousd):
                progress = self._open_calls.pop(key)
                known_amounts = [amount for amount in (progress.nanousd, nanousd) if amount is not None]
                progress = progress._replace(nanousd=max(known_amounts, default=None))
                self._on_progress(progress._replace(status="served") if self._agents.is_free(key) else progress)

    def _update(self, key: str, **changes: Any) -> None:
        self._open_calls[key] = self._open_calls[key]._replace(**changes)
