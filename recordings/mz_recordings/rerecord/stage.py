"""Ports of a run in which the real agent replies to some calls, and recordings serve the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.adapters.environment import INHERITED
from mz_engine.adapters.executor import ProcessExecutor
from mz_engine.adapters.forge import GhForge
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.adapters.machine import SystemClock, warm_up
from mz_engine.adapters.prices import GenaiPrices
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentDoor, adapters
from mz_engine.pins import Pins
from mz_engine.ports import CallResult, CallSpec, Place, Reading
from mz_events.catalog.call import AgentRequested, Problem, ProblemClass
from mz_events.names import Commit
from mz_events.redact import Secrets
from mz_events.store import Blobs
from mz_projections.cell import SESSION_MISSING

from mz_recordings.cassette import BUILDER, Cassette, Hint, Identity, Taken, identity_of
from mz_recordings.playing.crew import Crew, called_with
from mz_recordings.playing.stage import Denials, Memory, ReplayedWorkspace, Scratch, programs_of
from mz_recordings.playing.standin import SESSION, install

ASKED = "asked"
"""File of a run with the keys of the calls that the real agent got, one per line, written before the call starts."""
NOT_HELD = Problem(kind=ProblemClass.PHASE, code=SESSION_MISSING)
"""Problem of a call that would continue a session whose calls recordings served: the engine sends the full prompt."""


class Shelf(NamedTuple):
    """Recordings that may be served."""

    name: str
    cassette: Cassette
    folder: Path
    """Folder of the cassette."""
    never: frozenset[Identity]
    """Calls that must not be served from here."""


def resuming(adapter: Adapter) -> frozenset[str]:
    """Return the arguments with which a call of this agent continues a session."""
    spec = CallSpec(
        key="", place=Place(run="", feature="", branch=""), agent=adapter.name, model="", prompt="", session=SESSION,
        resumes=False, tools=(), total_seconds=1, idle_seconds=1,
    )  # fmt: skip
    return frozenset(called_with(replace(spec, resumes=True), adapter)).difference(called_with(spec, adapter))


class Stock(Crew):
    """Serves the recordings of one source, and tests beforehand whether one matches."""

    never: frozenset[Identity]
    tree_id: Callable[[Commit], str]

    def fits(self, identity: Identity, spec: CallSpec, tree: Commit) -> bool:
        """Return True if arguments, prompt and tree of the call equal the recorded ones."""
        taken = self._alike(identity, spec)
        return taken is not None and self.tree_id(tree) == taken.recording.tree_before

    def tells(self, spec: CallSpec) -> bool:
        """Return True if arguments and prompt equal the recorded ones, and the feature has a trace."""
        identity = self._identity(spec.key)
        return identity.feature in self._cassette.stories and self._alike(identity, spec) is not None

    def _alike(self, identity: Identity, spec: CallSpec) -> Taken | None:
        taken = None if identity in self.never else self._taken.get(identity)
        if taken is None or called_with(spec, self._door.adapter(spec.agent)) != taken.recording.argv:
            return None
        return taken if self._other_prompt(taken, spec, self._places(spec)) is None else None

    def goes_on(self, agent: str, key: str) -> bool:
        """Return True if there is a usable recording of the call that continued a session."""
        identity = self._identity(key)
        taken = None if identity in self.never else self._taken.get(identity)
        return taken is not None and resuming(self._door.adapter(agent)) <= set(taken.recording.argv)

    def was_lost(self, key: str) -> bool:
        taken = self._taken.get(self._identity(key))
        return taken is not None and taken.recording.outcome == "lost"


class Team:
    """Implements `mz_engine.ports.Agents`: the first source with a matching recording serves a call, else the real
    agent. The source is chosen when the call requests its reservation. Thread-safe."""

    def __init__(
        self, stocks: Mapping[str, Stock], doors: Mapping[str, AgentDoor], real: AgentDoor, asked: Path
    ) -> None:
        self._stocks, self._doors, self._real, self._asked = stocks, doors, real, asked
        self._lock = threading.Lock()
        self._by_key: dict[str, str] = {}
        self._identities: dict[str, Identity] = {}
        self.sources: dict[Identity, str] = {}
        """Name of the chosen source by call; empty: the real agent."""
        self.last: dict[str, str] = {}
        """The same for the last call of each feature."""
        self._held: set[str] = set()
        """Sessions that the real agent has with all their calls."""
        self.called: set[Identity] = set()
        """Calls that the real agent got."""

    def decide(self, identity: Identity, spec: CallSpec, tree: Commit) -> bool:
        """Choose the source of the call; return True if the call is free."""
        fitting = (name for name, stock in self._stocks.items() if stock.fits(identity, spec, tree))
        source = next(fitting, "")
        with self._lock:
            self._identities[spec.key] = identity
            self._by_key[spec.key] = self.sources[identity] = self.last[identity.feature] = source
        return bool(source)

    def costs_nothing(self, key: str) -> bool:
        """Return True for a call whose chosen source is a recording."""
        return bool(self._by_key.get(key))

    # the port -----------------------------------------------------------------------------------------------------
    def call(self, spec: CallSpec) -> CallResult:
        if source := self._by_key[spec.key]:
            with self._lock:
                self._held.discard(spec.session or "")
            return self._stocks[source].call(spec)
        if spec.resumes and spec.session not in self._held:
            return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0, problem=NOT_HELD)
        with self._lock, open(self._asked, "a", encoding="utf-8") as file:
            file.write(f"{spec.key}\n")
            self.called.add(self._identities[spec.key])
        result = self._real.call(spec)
        with self._lock:
            self._held |= {spec.session or "", self._real.read(spec.agent, result).session or ""}
        return result

    def salvage(self, key: str) -> CallResult | None:
        source = self._by_key.get(key, "")
        if source and self._stocks[source].was_lost(key):
            return self._stocks[source].salvage(key)
        return (self._doors[source] if source else self._real).salvage(key)

    def read(self, agent: str, result: CallResult) -> Reading:
        return self._real.read(agent, result)

    def estimate_tokens(self, agent: str, prompt: str) -> int:
        return self._real.estimate_tokens(agent, prompt)

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the recorded count if the call equals the recorded one, else ask the real agent."""
        known = next((stock for stock in self._stocks.values() if stock.tells(spec)), None)
        return self._real.count_tokens(spec) if known is None else known.count_tokens(spec)

    def format_prompt(self, agent: str, prompt: str) -> str:
        return self._real.format_prompt(agent, prompt)

    def model(self, agent: str, tier: str) -> str:
        return self._real.model(agent, tier)

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return True if the call can continue the session. The real agent lacks a session whose last call a recording
        served: such a session can continue only in another recording."""
        if not self._real.continues(agent, session, key):
            return False
        if session is None or session in self._held:
            return True
        return any(stock.goes_on(agent, key) for stock in self._stocks.values())


class Live:
    """Implements `mz_engine.ports.Ports` except for the memory. Commands have no network, as in a replay, because their
    results must be repeatable. The real agent has the caller's environment, home and network, and may not write to the
    `project` around it. Setting `kill` ends every process."""

    def __init__(
        self, scratch: Scratch, shelves: tuple[Shelf, ...], pins: Pins, blobs: Blobs, outside: Mapping[str, str],
        project: Path, tree_id: Callable[[Commit], str],
    ) -> None:  # fmt: skip
        warm_up()
        root, config = scratch.root, pins.config
        self.kill, self.denials, self.pins = threading.Event(), Denials(), pins
        self.clock, self.prices, self.blobs = SystemClock(), GenaiPrices(config.prices), blobs
        self.secrets = Secrets(known_secrets(project, outside))
        self.forge = GhForge(root, config.pull_requests.remote, scratch.commands)
        passed = config.pass_environment
        self.executor = ProcessExecutor(
            root, scratch.commands, self.secrets, passed=passed, stop=self.kill, denied=self.denials
        )
        self.workspace = ReplayedWorkspace(root, config.workspace, scratch.commands)
        self.workspace.offences = {}
        real = AgentProcesses(root, outside, self.secrets, passed=passed, stop=self.kill, around=project)
        stocks, doors = {}, {}
        for shelf in shelves:
            stocks[shelf.name], doors[shelf.name] = self._stock(scratch, shelf, tree_id)
        door = AgentDoor(real, outside, adapters(config.agents))
        self.agents = Team(stocks, doors, door, scratch.root.parent / ASKED)

    def _stock(self, scratch: Scratch, shelf: Shelf, tree_id: Callable[[Commit], str]) -> tuple[Stock, AgentDoor]:
        """Install stand-ins in a folder of their own."""
        place = scratch.root.parent / f"bin-{shelf.name}"
        journal = scratch.journal / shelf.name
        install(place, shelf.folder, programs_of(shelf.cassette, self.pins.config.agents), INHERITED.pattern, journal)
        found = {**scratch.agents, "PATH": f"{place}{os.pathsep}{scratch.agents['PATH']}"}
        processes = AgentProcesses(scratch.root, found, self.secrets, stop=self.kill, denied=self.denials)
        door = AgentDoor(processes, found, adapters(self.pins.config.agents))
        stock = Stock(shelf.cassette, scratch.root, door, journal, str(scratch.home), found)
        stock.never, stock.tree_id = shelf.never, tree_id
        stock.offences = self.workspace.offences
        return stock, door

    def decide(self, feature: str, request: AgentRequested) -> bool:
        """Choose the source of the call that requests its reservation; return True if the call is free."""
        phase = self.pins.pipeline.find(request.ref.phase)
        use = phase.agent if request.ref.role == BUILDER else phase.review
        spec = CallSpec(
            key=request.ref.key,
            place=Place(run=request.ref.key.partition("/")[0], feature=feature, branch=""),
            agent=request.agent,
            model=request.model,
            prompt=self.blobs.get(request.prompt).decode("utf-8", "replace"),
            session=request.session,
            resumes=request.resumes,
            tools=use.tools if use is not None else (),
            total_seconds=phase.timeout.total_seconds,
            idle_seconds=phase.timeout.idle_seconds,
        )
        identity = identity_of(self.pins.pipeline.pipeline, feature, request.ref)
        return self.agents.decide(identity, spec, request.tree)

    def for_feature(self, hints: tuple[Hint, ...]) -> LivePorts:
        return LivePorts(self, Memory(hints))


class LivePorts:
    """Implements `mz_engine.ports.Ports`."""

    def __init__(self, live: Live, learnings: Memory) -> None:
        self.workspace, self.executor, self.agents = live.workspace, live.executor, live.agents
        self.prices, self.forge, self.secrets = live.prices, live.forge, live.secrets
        self.learnings, self.blobs, self.clock = learnings, live.blobs, live.clock
