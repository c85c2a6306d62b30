"""The scratch repository of a replay, and the ports of the engine in it."""

from __future__ import annotations

import os
import pathlib
import sys
import threading
import time
from collections.abc import Mapping

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, all_adapters
from mz_engine.forge.github import GhForge
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import Config
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import CallSpec, Capture, FeatureWorktree
from mz_engine.pricing.table import GenaiPrices
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_engine.run.ports import load_shared_tables
from mz_engine.secrets import environment_secrets, project_secrets
from mz_events.catalog.call import ForbiddenChange
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets
from mz_events.store import Blobs

from mz_recordings.cassette.files import CassetteUnreadable
from mz_recordings.cassette.model import Cassette, Hint, parse_time
from mz_recordings.record.recorder import invocation_of
from mz_recordings.replay.agents import ReplayAgents
from mz_recordings.replay.stand_in import install

CLOSED_PROXY = "http://127.0.0.1:9"
"""An address without a proxy: port 9 is reserved for the discard protocol."""
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class ReplayFolders:
    """Folders and environments of one replay, below `folder`, which is empty. If processes cannot run `offline`, the
    proxy variables block the network."""

    def __init__(
        self, folder: pathlib.Path, environment: Mapping[str, str], offline: bool, project: pathlib.Path | None = None
    ) -> None:
        self.root = folder / "repository"
        self.bin, self.home, self.journal = folder / "bin", folder / "home", folder / "journal"
        self.home.mkdir()
        self.journal.mkdir()
        inherited = {name: value for name, value in environment.items() if INHERITED_VARIABLES.fullmatch(name)}
        path = os.pathsep.join([environment.get("PATH", os.defpath), str(pathlib.Path(sys.executable).parent)])
        proxy_variables = (
            {} if offline else {**dict.fromkeys(PROXY_VARIABLES, CLOSED_PROXY), "NO_PROXY": "", "no_proxy": ""}
        )
        self.command_environment = {**environment, **inherited, **proxy_variables, "PATH": path}
        """Environment of the user's commands: with their own home, which holds caches."""
        self.secrets = (
            project_secrets(project, self.command_environment)
            if project
            else environment_secrets(self.command_environment)
        )
        """Values to remove from all output, including the secrets of the user's `project`."""
        self.agent_environment = {
            **inherited,
            **proxy_variables,
            "PATH": f"{self.bin}{os.pathsep}{path}",
            "HOME": str(self.home),
        }
        """Environment of stand-ins: with a home of their own."""

    def install_stand_ins(self, cassette: Cassette, folder: pathlib.Path, config: Config) -> None:
        """Create the engine's folder, and put a stand-in first on the agents' PATH for every program in the recordings.

        Raises CassetteUnreadable.
        """
        (self.root / MZ_FOLDER).mkdir()
        (self.root / MZ_FOLDER / ".gitignore").write_text("*\n")
        install(self.bin, folder, recorded_programs(cassette, config.agents), INHERITED_VARIABLES.pattern, self.journal)


def recorded_programs(cassette: Cassette, described: Mapping[str, AgentDescription]) -> tuple[str, ...]:
    """Return the agents' commands in the recordings. Raises CassetteUnreadable for any other command, which a stand-in
    must not replace."""
    agents = {_program(adapter) for adapter in all_adapters(described).values()}
    for call in cassette.calls:
        program = call.recording.argv[:1]
        if program and program[0] not in agents:
            reason = f"calls {program[0]!r}, which is not an agent's command ({', '.join(sorted(agents))})"
            raise CassetteUnreadable(pathlib.Path(f"{call.recording.identity.path}.json"), reason)
    return tuple(sorted({call.recording.argv[0] for call in cassette.calls if call.recording.argv}))


def _program(adapter: Adapter) -> str:
    """Return the program that the adapter starts for every call."""
    spec = CallSpec(
        key="",
        worktree=FeatureWorktree(run="", feature="", branch=""),
        agent=adapter.name,
        model="",
        prompt="",
        session=None,
        resumes=False,
        tools=(),
        total_seconds=1,
        idle_seconds=1,
    )
    return invocation_of(adapter, spec).argv[0]


class NetworkAttempts:
    """Counts attempts to reach the network by call key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts_by_key: dict[str, int] = {}

    def __call__(self, key: str, times: int) -> None:
        with self._lock:
            self.counts_by_key[key] = self.counts_by_key.get(key, 0) + times


class RecordedHints:
    """Implements `mz_engine.ports.Learnings` for one feature with the recorded hints, in their order."""

    def __init__(self, hints: tuple[Hint, ...]) -> None:
        self._texts_by_signature: dict[str, list[str]] = {}
        for hint in hints:
            self._texts_by_signature.setdefault(hint.signature, []).append(hint.text)

    def hint(self, signature: str) -> str | None:
        texts = self._texts_by_signature.get(signature, [])
        text = texts.pop(0) if len(texts) > 1 else "".join(texts)
        return text or None


class ReplayWorkspace(GitWorkspace):
    """Adds the recorded changes that no patch can hold to the capture of a call."""

    forbidden_changes: dict[str, tuple[ForbiddenChange, ...]]

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        capture = super().capture(worktree, before)
        recorded_changes = [
            change
            for change in self.forbidden_changes.pop(worktree.feature, ())
            if change not in capture.forbidden_changes
        ]
        return (
            replace(capture, forbidden_changes=(*capture.forbidden_changes, *recorded_changes))
            if recorded_changes
            else capture
        )


class ReplayEnvironment:
    """Implements `mz_engine.ports.Ports` except the learnings, which each feature has of its own. Setting `stop` ends
    all processes."""

    def __init__(self, folders: ReplayFolders, cassette: Cassette, config: Config, blobs: Blobs) -> None:
        load_shared_tables()
        root, passed = folders.root, config.pass_environment
        self.stop, self.network_attempts = threading.Event(), NetworkAttempts()
        self.clock, self.blobs = ReplayClock(cassette.manifest.fixture.clock_start), blobs
        self.prices = GenaiPrices(config.prices)
        self.secrets = Secrets(folders.secrets)
        self.forge = GhForge(root, config.pull_requests.remote, folders.command_environment)
        self.executor = ProcessExecutor(
            root, folders.command_environment, self.secrets, passed=passed, stop=self.stop, denied=self.network_attempts
        )
        processes = AgentProcesses(
            root, folders.agent_environment, self.secrets, stop=self.stop, on_denied=self.network_attempts
        )
        registry = AgentRegistry(processes, folders.agent_environment, all_adapters(config.agents))
        self.agents = ReplayAgents(
            cassette, root, registry, folders.journal, str(folders.home), folders.agent_environment
        )
        self.workspace = ReplayWorkspace(root, config.workspace, folders.command_environment)
        self.workspace.forbidden_changes = self.agents.forbidden_changes

    def for_feature(self, hints: tuple[Hint, ...]) -> FeaturePorts:
        return FeaturePorts(self, RecordedHints(hints))


class FeaturePorts:
    """Implements `mz_engine.ports.Ports`."""

    def __init__(self, environment: ReplayEnvironment, learnings: RecordedHints) -> None:
        self.workspace, self.executor, self.agents = environment.workspace, environment.executor, environment.agents
        self.prices, self.forge, self.secrets = environment.prices, environment.forge, environment.secrets
        self.learnings, self.blobs, self.clock = learnings, environment.blobs, environment.clock


# time -----------------------------------------------------------------------------------------------------------------
class ReplayClock:
    """Implements `mz_engine.ports.Clock`. Thread-safe, monotonic."""

    def __init__(self, start: str) -> None:
        """`start`: UTC, `2026-11-21T10:28:00Z`. Raises ValueError."""
        self._start_us = int(parse_time(start).timestamp()) * 1_000_000
        self._created_ns = time.monotonic_ns()
        self._lock = threading.Lock()

    def now_us(self) -> int:
        with self._lock:
            return self._now_us()

    def skip_to(self, until_us: int) -> None:
        """Advance the clock to at least this time."""
        with self._lock:
            self._start_us += max(0, until_us - self._now_us())

    def _now_us(self) -> int:
        return self._start_us + (time.monotonic_ns() - self._created_ns) // 1_000
