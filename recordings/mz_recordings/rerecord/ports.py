"""Ports of a run in which the real agent replies to some calls, and recordings serve the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, Processes
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree
from mz_engine.run.ports import SystemClock
from mz_events.catalog.call import AgentRequested, Problem, ProblemClass
from mz_events.names import Commit
from mz_events.store import Blobs
from mz_projections.feature.unit import SESSION_MISSING

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, identity_of
from mz_recordings.findings.model import CallMismatch
from mz_recordings.record.recorder import requested_spec
from mz_recordings.replay.agents import ReplayAgents, empty_spec, recorded_argv
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
        cached: Mapping[str, CachedAgents],
        live_calls_path: Path,
        processes: Processes,
        environment: Mapping[str, str],
        adapters: Mapping[str, Adapter] | None = None,
    ) -> None:
        super().__init__(processes, environment, adapters)
        self._cached, self._live_calls_path = cached, live_calls_path
        self._lock = threading.Lock()
        self._source_by_key: dict[str, str] = {}
        self._identities: dict[str, Identity] = {}
        self.sources: dict[Identity, str] = {}
        """Name of the chosen source by call; empty: the real agent."""
        self.last_sources: dict[str, str] = {}
        """The same for the last call of each feature."""
        self._live_sessions: set[str] = set()
        """Sessions that the real agent has with all their calls."""
        self.live_calls: set[Identity] = set()
        """Calls that the real agent got."""

    def choose_source(self, identity: Identity, spec: CallSpec, tree_id: Callable[[], str]) -> bool:
        """Choose the source of the call; return True if the call is free."""
        source = next((name for name, cached in self._cached.items() if cached.matches(identity, spec, tree_id)), "")
        with self._lock:
            self._identities[spec.key] = identity
            self._source_by_key[spec.key] = self.sources[identity] = self.last_sources[identity.feature] = source
        return bool(source)

    def is_free(self, key: str) -> bool:
        """Return True for a call whose chosen source is a recording."""
        return bool(self._source_by_key.get(key))

    def call(self, spec: CallSpec) -> CallResult:
        if source := self._source_by_key[spec.key]:
            with self._lock:
                self._live_sessions.discard(spec.session or "")
            return self._cached[source].call(spec)
        if spec.resumes and spec.session not in self._live_sessions:
            return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0, problem=SESSION_NOT_HELD)
        with self._lock, open(self._live_calls_path, "a", encoding="utf-8") as file:
            file.write(f"{spec.key}\n")
            self.live_calls.add(self._identities[spec.key])
        result = super().call(spec)
        with self._lock:
            self._live_sessions |= {spec.session or "", self.adapter(spec.agent).parse_output(result).session or ""}
        return result

    def salvage(self, key: str) -> CallResult | None:
        source = self._source_by_key.get(key, "")
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
        processes = AgentProcesses(
            folders.root,
            environment,
            self.secrets,
            passed=config.pass_environment,
            stop=self.stop,
            enclosing_repository=project,
        )
        cached = {name: self.agents_of(cassette, folder, CachedAgents) for name, (cassette, folder) in sources.items()}
        live_calls_path = folders.root.parent / LIVE_CALLS_FILE
        self.agents = HybridAgents(cached, live_calls_path, processes, environment, self.adapters)

    def choose_source(self, feature: str, request: AgentRequested) -> bool:
        """Choose the source of the call that requests its reservation; return True if the call is free."""
        phase = self.pins.pipeline.find_phase(request.ref.phase)
        worktree = FeatureWorktree(run=request.ref.key.partition("/")[0], feature=feature, branch="")
        spec = requested_spec(request, worktree, phase, self.blobs)
        identity = identity_of(self.pins.pipeline.pipeline, feature, request.ref)
        return self.agents.choose_source(identity, spec, lambda: self._tree_id(request.tree))
