"""The scratch repository of a replay, and the ports of the engine in it."""

from __future__ import annotations

import os
import pathlib
import sys
import threading
from collections.abc import Mapping

from msgspec.structs import replace
from mz_engine.adapters.environment import INHERITED
from mz_engine.adapters.executor import ProcessExecutor
from mz_engine.adapters.forge import GhForge
from mz_engine.adapters.git import GitWorkspace
from mz_engine.adapters.known_secrets import known_secrets, secret_values
from mz_engine.adapters.machine import warm_up
from mz_engine.adapters.prices import GenaiPrices
from mz_engine.agents.contract import Adapter
from mz_engine.agents.generic_form import AgentDescription
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentDoor, adapters
from mz_engine.config import Config
from mz_engine.home import HOME
from mz_engine.ports import CallSpec, Capture, Place
from mz_events.catalog.call import Offence
from mz_events.names import Commit
from mz_events.redact import Secrets
from mz_events.store import Blobs

from mz_recordings.cassette import Cassette, Hint
from mz_recordings.files.library import CassetteUnusable
from mz_recordings.playing.clock import WorldClock
from mz_recordings.playing.crew import Crew
from mz_recordings.playing.standin import install
from mz_recordings.recording.record import invocation_of

NOWHERE = "http://127.0.0.1:9"
"""An address without a proxy: port 9 is reserved for the discard protocol."""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class Scratch:
    """Folders and environments of one replay, below `folder`, which is empty. If processes cannot run `offline`, the
    proxy variables block the network."""

    def __init__(
        self, place: pathlib.Path, outside: Mapping[str, str], offline: bool, project: pathlib.Path | None = None
    ) -> None:
        self.root = place / "repository"
        self.bin, self.home, self.journal = place / "bin", place / "home", place / "journal"
        self.home.mkdir()
        self.journal.mkdir()
        kept = {name: value for name, value in outside.items() if INHERITED.fullmatch(name)}
        path = os.pathsep.join([outside.get("PATH", os.defpath), str(pathlib.Path(sys.executable).parent)])
        cut = {} if offline else {**dict.fromkeys(PROXIES, NOWHERE), "NO_PROXY": "", "no_proxy": ""}
        self.commands = {**outside, **kept, **cut, "PATH": path}
        """Environment of the user's commands: with their own home, which holds caches."""
        self.secrets = known_secrets(project, self.commands) if project else secret_values(self.commands)
        """Values to remove from all output, including the secrets of the user's `project`."""
        self.agents = {**kept, **cut, "PATH": f"{self.bin}{os.pathsep}{path}", "HOME": str(self.home)}
        """Environment of stand-ins: with a home of their own."""

    def hire(self, cassette: Cassette, folder: pathlib.Path, config: Config) -> None:
        """Create the engine's folder, and put a stand-in first on the agents' PATH for every program in the recordings.

        Raises CassetteUnreadable.
        """
        (self.root / HOME).mkdir()
        (self.root / HOME / ".gitignore").write_text("*\n")
        install(self.bin, folder, programs_of(cassette, config.agents), INHERITED.pattern, self.journal)


def programs_of(cassette: Cassette, described: Mapping[str, AgentDescription]) -> tuple[str, ...]:
    """Return the agents' commands in the recordings. Raises CassetteUnreadable for any other command, which a stand-in
    must not replace."""
    agents = {_command(adapter) for adapter in adapters(described).values()}
    for one in cassette.taken:
        called = one.recording.argv[:1]
        if called and called[0] not in agents:
            why = f"calls {called[0]!r}, which is not an agent's command ({', '.join(sorted(agents))})"
            raise CassetteUnusable(pathlib.Path(f"{one.recording.identity.path}.json"), why)
    return tuple(sorted({one.recording.argv[0] for one in cassette.taken if one.recording.argv}))


def _command(adapter: Adapter) -> str:
    """Return the program that the adapter starts for every call."""
    spec = CallSpec(
        key="", place=Place(run="", feature="", branch=""), agent=adapter.name, model="", prompt="", session=None,
        resumes=False, tools=(), total_seconds=1, idle_seconds=1,
    )  # fmt: skip
    return invocation_of(adapter, spec).argv[0]


class Denials:
    """Counts attempts to reach the network by call key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.keys: dict[str, int] = {}

    def __call__(self, key: str, times: int) -> None:
        with self._lock:
            self.keys[key] = self.keys.get(key, 0) + times


class Memory:
    """Implements `mz_engine.ports.Learnings` for one feature with the recorded hints, in their order."""

    def __init__(self, hints: tuple[Hint, ...]) -> None:
        self._left: dict[str, list[str]] = {}
        for hint in hints:
            self._left.setdefault(hint.signature, []).append(hint.text)

    def hint(self, signature: str) -> str | None:
        left = self._left.get(signature, [])
        text = left.pop(0) if len(left) > 1 else "".join(left)
        return text or None


class ReplayedWorkspace(GitWorkspace):
    """Adds the recorded changes that no patch can hold to the capture of a call."""

    offences: dict[str, tuple[Offence, ...]]

    def capture(self, place: Place, before: Commit) -> Capture:
        capture = super().capture(place, before)
        more = [one for one in self.offences.pop(place.feature, ()) if one not in capture.offences]
        return replace(capture, offences=(*capture.offences, *more)) if more else capture


class Stage:
    """Implements `mz_engine.ports.Ports` except the learnings, which each feature has of its own. Setting `stop` ends
    all processes."""

    def __init__(self, scratch: Scratch, cassette: Cassette, config: Config, blobs: Blobs) -> None:
        warm_up()
        root, passed = scratch.root, config.pass_environment
        self.kill, self.denials = threading.Event(), Denials()
        self.clock, self.blobs = WorldClock(cassette.manifest.world.clock_start), blobs
        self.prices = GenaiPrices(config.prices)
        self.secrets = Secrets(scratch.secrets)
        self.forge = GhForge(root, config.pull_requests.remote, scratch.commands)
        self.executor = ProcessExecutor(
            root, scratch.commands, self.secrets, passed=passed, stop=self.kill, denied=self.denials
        )
        processes = AgentProcesses(root, scratch.agents, self.secrets, stop=self.kill, denied=self.denials)
        door = AgentDoor(processes, scratch.agents, adapters(config.agents))
        self.agents = Crew(cassette, root, door, scratch.journal, str(scratch.home), scratch.agents)
        self.workspace = ReplayedWorkspace(root, config.workspace, scratch.commands)
        self.workspace.offences = self.agents.offences

    def for_feature(self, hints: tuple[Hint, ...]) -> FeaturePorts:
        return FeaturePorts(self, Memory(hints))


class FeaturePorts:
    """Implements `mz_engine.ports.Ports`."""

    def __init__(self, stage: Stage, learnings: Memory) -> None:
        self.workspace, self.executor, self.agents = stage.workspace, stage.executor, stage.agents
        self.prices, self.forge, self.secrets = stage.prices, stage.forge, stage.secrets
        self.learnings, self.blobs, self.clock = learnings, stage.blobs, stage.clock
