"""Ports of a run in which the real agent replies to some calls, and recordings serve the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, all_adapters
from mz_engine.forge.github import GhForge
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree
from mz_engine.pricing.table import GenaiPrices
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_engine.run.ports import SystemClock, load_shared_tables
from mz_engine.secrets import project_secrets
from mz_events.catalog.call import AgentRequested, Problem, ProblemClass
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets
from mz_events.store import Blobs
from mz_projections.feature.unit import SESSION_MISSING

from mz_recordings.cassette.model import Cassette, Hint, Identity, RecordedCall, identity_of
from mz_recordings.record.recorder import requested_spec
from mz_recordings.replay.agents import ReplayAgents, recorded_argv
from mz_recordings.replay.ports import (
    NetworkAttempts,
    RecordedHints,
    ReplayFolders,
    ReplayWorkspace,
    recorded_programs,
)
from mz_recordings.replay.stand_in import SESSION, install

LIVE_CALLS_FILE = "asked"
"""File of a run with the keys of the calls that the real agent got, one per line, written before the call starts."""
SESSION_NOT_HELD = Problem(kind=ProblemClass.PHASE, code=SESSION_MISSING)
"""Problem of a call that would continue a session whose calls recordings served: the engine sends the full prompt."""


class RecordingSource(NamedTuple):
    """Recordings that may be served."""

    name: str
    cassette: Cassette
    folder: Path
    """Folder of the cassette."""
    excluded_calls: frozenset[Identity]
    """Calls that must not be served from here."""


def session_arguments(adapter: Adapter) -> frozenset[str]:
    """Return the arguments with which a call of this agent continues a session."""
    spec = CallSpec(
        key="",
        worktree=FeatureWorktree(run="", feature="", branch=""),
        agent=adapter.name,
        model="",
        prompt="",
        session=SESSION,
        resumes=False,
        tools=(),
        total_seconds=1,
        idle_seconds=1,
    )
    return frozenset(recorded_argv(replace(spec, resumes=True), adapter)).difference(recorded_argv(spec, adapter))


class CachedAgents(ReplayAgents):
    """Serves the recordings of one source, and tests beforehand whether one matches."""

    excluded_calls: frozenset[Identity]
    tree_id: Callable[[Commit], str]

    def matches(self, identity: Identity, spec: CallSpec, tree: Commit) -> bool:
        """Return True if arguments, prompt and tree of the call equal the recorded ones."""
        recorded = self._find_matching(identity, spec)
        return recorded is not None and self.tree_id(tree) == recorded.recording.tree_before

    def has_recorded_count(self, spec: CallSpec) -> bool:
        """Return True if arguments and prompt equal the recorded ones, and the feature has a trace."""
        identity = self._identity(spec.key)
        return identity.feature in self._cassette.traces and self._find_matching(identity, spec) is not None

    def _find_matching(self, identity: Identity, spec: CallSpec) -> RecordedCall | None:
        recorded = None if identity in self.excluded_calls else self._recorded_calls.get(identity)
        if recorded is None or recorded_argv(spec, self._registry.adapter(spec.agent)) != recorded.recording.argv:
            return None
        return recorded if self._differing_prompt(recorded, spec, self._machine_values(spec)) is None else None

    def can_continue(self, agent: str, key: str) -> bool:
        """Return True if there is a usable recording of the call that continued a session."""
        identity = self._identity(key)
        recorded = None if identity in self.excluded_calls else self._recorded_calls.get(identity)
        return recorded is not None and session_arguments(self._registry.adapter(agent)) <= set(recorded.recording.argv)

    def was_lost(self, key: str) -> bool:
        recorded = self._recorded_calls.get(self._identity(key))
        return recorded is not None and recorded.recording.outcome == "lost"


class HybridAgents:
    """Implements `mz_engine.ports.Agents`: the first source with a matching recording serves a call, else the real
    agent. The source is chosen when the call requests its reservation. Thread-safe."""

    def __init__(
        self,
        cached: Mapping[str, CachedAgents],
        registries: Mapping[str, AgentRegistry],
        real: AgentRegistry,
        live_calls_path: Path,
    ) -> None:
        self._cached, self._registries, self._real, self._live_calls_path = cached, registries, real, live_calls_path
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

    def choose_source(self, identity: Identity, spec: CallSpec, tree: Commit) -> bool:
        """Choose the source of the call; return True if the call is free."""
        matching = (name for name, stock in self._cached.items() if stock.matches(identity, spec, tree))
        source = next(matching, "")
        with self._lock:
            self._identities[spec.key] = identity
            self._source_by_key[spec.key] = self.sources[identity] = self.last_sources[identity.feature] = source
        return bool(source)

    def is_free(self, key: str) -> bool:
        """Return True for a call whose chosen source is a recording."""
        return bool(self._source_by_key.get(key))

    # the port -----------------------------------------------------------------------------------------------------
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
        result = self._real.call(spec)
        with self._lock:
            self._live_sessions |= {
                spec.session or "",
                self._real.adapter(spec.agent).parse_output(result).session or "",
            }
        return result

    def salvage(self, key: str) -> CallResult | None:
        source = self._source_by_key.get(key, "")
        if source and self._cached[source].was_lost(key):
            return self._cached[source].salvage(key)
        return (self._registries[source] if source else self._real).salvage(key)

    def adapter(self, agent: str) -> Adapter:
        return self._real.adapter(agent)

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the recorded count if the call equals the recorded one, else ask the real agent."""
        recorded_agents = next((stock for stock in self._cached.values() if stock.has_recorded_count(spec)), None)
        return self._real.count_tokens(spec) if recorded_agents is None else recorded_agents.count_tokens(spec)

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return True if the call can continue the session. The real agent lacks a session whose last call a recording
        served: such a session can continue only in another recording."""
        if not self._real.continues(agent, session, key):
            return False
        if session is None or session in self._live_sessions:
            return True
        return any(stock.can_continue(agent, key) for stock in self._cached.values())


class LiveEnvironment:
    """Implements `mz_engine.ports.Ports` except for the memory. Commands have no network, as in a replay, because their
    results must be repeatable. The real agent has the caller's environment, home and network, and may not write to the
    `project` around it. Setting `kill` ends every process."""

    def __init__(
        self,
        scratch: ReplayFolders,
        sources: tuple[RecordingSource, ...],
        pins: Pins,
        blobs: Blobs,
        environment: Mapping[str, str],
        project: Path,
        tree_id: Callable[[Commit], str],
    ) -> None:
        load_shared_tables()
        root, config = scratch.root, pins.config
        self.kill, self.denials, self.pins = threading.Event(), NetworkAttempts(), pins
        self.clock, self.prices, self.blobs = SystemClock(), GenaiPrices(config.prices), blobs
        self.secrets = Secrets(project_secrets(project, environment))
        self.forge = GhForge(root, config.pull_requests.remote, scratch.command_environment)
        passed = config.pass_environment
        self.executor = ProcessExecutor(
            root, scratch.command_environment, self.secrets, passed=passed, stop=self.kill, denied=self.denials
        )
        self.workspace = ReplayWorkspace(root, config.workspace, scratch.command_environment)
        self.workspace.forbidden_changes = {}
        real = AgentProcesses(
            root, environment, self.secrets, passed=passed, stop=self.kill, enclosing_repository=project
        )
        cached, registries = {}, {}
        for source in sources:
            cached[source.name], registries[source.name] = self._cached_agents(scratch, source, tree_id)
        registry = AgentRegistry(real, environment, all_adapters(config.agents))
        self.agents = HybridAgents(cached, registries, registry, scratch.root.parent / LIVE_CALLS_FILE)

    def _cached_agents(
        self, scratch: ReplayFolders, source: RecordingSource, tree_id: Callable[[Commit], str]
    ) -> tuple[CachedAgents, AgentRegistry]:
        """Install stand-ins in a folder of their own."""
        programs = scratch.root.parent / f"bin-{source.name}"
        journal = scratch.journal / source.name
        install(
            programs,
            source.folder,
            recorded_programs(source.cassette, self.pins.config.agents),
            INHERITED_VARIABLES.pattern,
            journal,
        )
        environment = {
            **scratch.agent_environment,
            "PATH": f"{programs}{os.pathsep}{scratch.agent_environment['PATH']}",
        }
        processes = AgentProcesses(scratch.root, environment, self.secrets, stop=self.kill, on_denied=self.denials)
        registry = AgentRegistry(processes, environment, all_adapters(self.pins.config.agents))
        agents = CachedAgents(source.cassette, scratch.root, registry, journal, str(scratch.home), environment)
        agents.excluded_calls, agents.tree_id = source.excluded_calls, tree_id
        agents.forbidden_changes = self.workspace.forbidden_changes
        return agents, registry

    def choose_source(self, feature: str, request: AgentRequested) -> bool:
        """Choose the source of the call that requests its reservation; return True if the call is free."""
        phase = self.pins.pipeline.find_phase(request.ref.phase)
        worktree = FeatureWorktree(run=request.ref.key.partition("/")[0], feature=feature, branch="")
        spec = requested_spec(request, worktree, phase, self.blobs)
        identity = identity_of(self.pins.pipeline.pipeline, feature, request.ref)
        return self.agents.choose_source(identity, spec, request.tree)

    def for_feature(self, hints: tuple[Hint, ...]) -> LivePorts:
        return LivePorts(self, RecordedHints(hints))


class LivePorts:
    """Implements `mz_engine.ports.Ports`."""

    def __init__(self, live: LiveEnvironment, learnings: RecordedHints) -> None:
        self.workspace, self.executor, self.agents = live.workspace, live.executor, live.agents
        self.prices, self.forge, self.secrets = live.prices, live.forge, live.secrets
        self.learnings, self.blobs, self.clock = learnings, live.blobs, live.clock
