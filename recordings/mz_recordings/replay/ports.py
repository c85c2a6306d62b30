"""The scratch repository of a replay, and the ports of the engine in it."""

from __future__ import annotations

import os
import pathlib
import sys
import threading
import time
from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from typing import Self, TypeVar

import msgspec
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import all_adapters
from mz_engine.artifacts.command_output import output_patterns
from mz_engine.forge.github import GhForge
from mz_engine.git.repository import run_git_as_user
from mz_engine.git.workspace import GitWorkspace
from mz_engine.git.worktree import GitWorktree
from mz_engine.model.config import Config, SandboxSettings, WorkspaceSettings
from mz_engine.path_patterns import select
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import (
    SETUP_KEY,
    Agents,
    Capture,
    Checkout,
    Clock,
    CommandResult,
    Executor,
    FeatureWorktree,
    MemoryQuery,
    SelectedLearning,
    Selection,
    Workspace,
)
from mz_engine.pricing.table import GenaiPrices
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.environment import INHERITED_VARIABLES, worktree_path
from mz_engine.secrets import project_secrets
from mz_events.catalog.call import ForbiddenChange
from mz_events.names import Commit, Path
from mz_events.redaction.redactor import Secrets
from mz_events.store import Blobs

from mz_recordings.cassette.files import CassetteUnreadable
from mz_recordings.cassette.model import Cassette, Fixture, RecordedLearning, parse_time
from mz_recordings.cassette.placeholders import expand
from mz_recordings.cassette.trace import features_with_copied_environment, kept_artifacts
from mz_recordings.record.recorder import invocation_of
from mz_recordings.replay.agents import ReplayAgents, empty_spec
from mz_recordings.replay.commands import CommandRun, is_setup, machine_values
from mz_recordings.replay.stand_in import install

CLOSED_PROXY = "http://127.0.0.1:9"
"""An address without a proxy: port 9 is reserved for the discard protocol."""
A = TypeVar("A", bound=ReplayAgents)
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class ReplayFolders:
    """Folders and environments of one replay, below `folder`, which is empty. If processes cannot run `offline`, the
    proxy variables block the network."""

    def __init__(
        self, folder: pathlib.Path, environment: Mapping[str, str], offline: bool, project: pathlib.Path
    ) -> None:
        self.root = folder / "repository"
        self.home, self.journal = folder / "home", folder / "journal"
        inherited = {name: value for name, value in environment.items() if INHERITED_VARIABLES.fullmatch(name)}
        path = os.pathsep.join([environment.get("PATH", os.defpath), str(pathlib.Path(sys.executable).parent)])
        closed_proxies = {**dict.fromkeys(PROXY_VARIABLES, CLOSED_PROXY), "NO_PROXY": "", "no_proxy": ""}
        proxy_variables = {} if offline else closed_proxies
        self.command_environment = {**environment, **inherited, **proxy_variables, "PATH": path}
        """Environment of the user's commands: with their own home, which holds caches."""
        self.secrets = _secrets_of(project, tuple(self.command_environment.items()))
        """Values to remove from all output, including the secrets of the user's `project`."""
        self.agent_environment = {**inherited, **proxy_variables, "PATH": path, "HOME": str(self.home)}
        """Environment of stand-ins, which come first on its PATH: with a home of their own."""

    def create(self) -> Self:
        self.home.parent.mkdir(mode=0o700, exist_ok=True)
        self.home.mkdir()
        self.journal.mkdir()
        return self


@lru_cache(maxsize=4)
def _secrets_of(project: pathlib.Path, environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return project_secrets(project, dict(environment))


def recorded_programs(cassette: Cassette, adapters: Mapping[str, Adapter]) -> tuple[str, ...]:
    """Return the agents' commands in the recordings. Raises CassetteUnreadable for any other command, which a stand-in
    must not replace."""
    agents = {invocation_of(adapter, empty_spec(adapter.name)).argv[0] for adapter in adapters.values()}
    programs = {call.recording.argv[0]: call for call in cassette.calls if call.recording.argv}
    for program, call in programs.items():
        if program not in agents:
            reason = f"calls {program!r}, which is not an agent's command ({', '.join(sorted(agents))})"
            raise CassetteUnreadable(pathlib.Path(f"{call.identity.path}.json"), reason)
    return tuple(sorted(programs))


class NetworkAttempts:
    """Counts attempts to reach the network by call key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts_by_key: dict[str, int] = {}

    def __call__(self, key: str, times: int) -> None:
        with self._lock:
            self.counts_by_key[key] = self.counts_by_key.get(key, 0) + times


class RecordedMemory:
    """Implements `mz_engine.ports.Memory` for one feature with the recorded learnings: by call, or as older recordings
    have them by failure, in their order; `ids` of delivered features are by artifact."""

    def __init__(self, learnings: tuple[RecordedLearning, ...], ids: Mapping[str, tuple[str, ...]]) -> None:
        self._ids = ids
        self._by_call: dict[str, list[SelectedLearning]] = {}
        self._texts_by_signature: dict[str, list[str]] = {}
        for learning in learnings:
            selected = msgspec.convert(learning, SelectedLearning, from_attributes=True)
            if learning.call:
                self._by_call.setdefault(learning.call, []).append(selected)
            else:
                self._texts_by_signature.setdefault(learning.signature, []).append(learning.text)

    def select(self, query: MemoryQuery) -> Selection:
        if selected := self._by_call.get(query.call.split("/", 2)[2]):
            return Selection(tuple(selected))
        texts = self._texts_by_signature.get(query.failure, [])
        text = texts.pop(0) if len(texts) > 1 else "".join(texts)
        return Selection((SelectedLearning(text=text, is_repeated=True),) if text else ())

    def delivered_ids(self, artifact: str) -> frozenset[str]:
        return frozenset(self._ids.get(artifact, ()))


class ReplayWorkspace(GitWorkspace):
    """Adds the recorded changes that no patch can hold to the capture of a call, and tells the content of worktrees."""

    def __init__(self, root: pathlib.Path, settings: WorkspaceSettings, environment: Mapping[str, str]) -> None:
        super().__init__(root, settings, environment)
        self.forbidden_changes: dict[str, tuple[ForbiddenChange, ...]] = {}
        self.contents: dict[str, Commit] = {}
        """By feature, a commit with the content that its worktree was last given."""
        self.starts: dict[str, Commit] = {}
        """By feature, a commit with the first content."""
        self.keeps_files = False
        """A command left ignored files that stay for later ones, so its result is not all that it does."""
        self.command_runs: list[CommandRun] = []
        self.kept_artifacts: frozenset[str] = frozenset()
        self.copied_environments: frozenset[str] = frozenset()

    def is_newest(self, head: Commit, path: Path, request: Path, inputs: tuple[Path, ...]) -> bool:
        return path in self.kept_artifacts  # The history of the files is not recorded.

    def ensure(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> bool:
        self.contents[worktree.feature] = tree
        self.starts.setdefault(worktree.feature, tree)
        return super().ensure(worktree, head, tree)

    def copy_environment(self, git_worktree: GitWorktree, tree: Commit) -> bool:
        """Copy nothing: no agent works here, and commands run in checkouts."""
        return git_worktree.identity.feature in self.copied_environments

    def checkout(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> Checkout:
        checkout = super().checkout(worktree, head, tree)
        self.contents[checkout.worktree.feature] = tree
        self.starts[checkout.worktree.feature] = self.starts.get(worktree.feature, tree)
        return checkout

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        capture = super().capture(worktree, before)
        for run in self.command_runs:
            if run.worktree == worktree and run.after is None:
                run.after = capture.tree
        return self._with_recorded_changes(worktree, capture)

    def collect(self, worktree: FeatureWorktree, tree: Commit, laid_out: Commit) -> Capture:
        return self._with_recorded_changes(worktree, super().collect(worktree, tree, laid_out))

    def _with_recorded_changes(self, worktree: FeatureWorktree, capture: Capture) -> Capture:
        self.contents[worktree.feature] = capture.tree
        recorded_changes = self.forbidden_changes.pop(worktree.feature, ())
        return replace(capture, forbidden_changes=tuple(dict.fromkeys((*capture.forbidden_changes, *recorded_changes))))


class ReplayExecutor(ProcessExecutor):
    """Notes what it executes in the workspace."""

    workspace: ReplayWorkspace
    kept_patterns: tuple[str, ...] = ()

    def run(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        workspace, feature = self.workspace, worktree.feature
        content, kept_before = workspace.contents[feature], self._kept_files(worktree)
        result = super().run(worktree, command, timeout_seconds, key)
        workspace.keeps_files |= not is_setup(key) and self._kept_files(worktree) != kept_before
        log = run_git_as_user(self._root, self._environment, "log", "--first-parent", "--format=%T %s", worktree.branch)
        run = CommandRun(
            worktree, key, command, timeout_seconds, content, workspace.starts[feature], log.stdout, result
        )
        workspace.command_runs.append(run)
        return result

    def _is_offline(self, key: str) -> bool:
        is_online = "setup" in self._sandbox.online_in_replays and SETUP_KEY.match(key) is not None
        return super()._is_offline(key) and not is_online

    def _kept_files(self, worktree: FeatureWorktree) -> frozenset[tuple[str, int]]:
        """Return path and time of change of the ignored files that stay."""
        top = worktree_path(self._root, worktree)
        paths = {path.relative_to(top).as_posix(): path for path in top.rglob("*")}
        return frozenset((name, paths[name].lstat().st_mtime_ns) for name in select(self.kept_patterns, paths))


class ReplayPorts:
    """The ports that need no repository. Setting `stop` ends all processes."""

    clock: Clock
    agents: Agents
    workspace: Workspace
    executor: Executor
    blobs: Blobs

    def __init__(self, folders: ReplayFolders, config: Config, blobs: Blobs) -> None:
        output_patterns()
        self.folders, self.blobs = folders, blobs
        self.stop, self.network_attempts = threading.Event(), NetworkAttempts()
        self.prices, self.secrets = GenaiPrices(config.prices), Secrets(folders.secrets)
        self.adapters, self.memory = all_adapters(config.agents), RecordedMemory((), {})
        self.forge = GhForge(folders.root, config.pull_requests.remote, folders.command_environment)

    def for_feature(self, feature: str, fixture: Fixture) -> Self:
        """Return the same ports with the feature's recorded learnings, which name the paths of this replay."""
        values = machine_values("", self.folders.agent_environment)._replace(repository=str(self.folders.root))
        of_feature = (learning for learning in fixture.hints if learning.feature == feature)
        ids = {key.removeprefix(f"{feature}/"): ids for key, ids in fixture.delivered_ids.items()}
        ports = copy(self)
        ports.memory = RecordedMemory(
            tuple(replace(item, text=expand(item.text.encode(), values).decode()) for item in of_feature), ids
        )
        return ports


class ScratchPorts(ReplayPorts):
    """Implements `mz_engine.ports.Ports` in a scratch repository. Commands have no network, because their results must
    be repeatable."""

    workspace: ReplayWorkspace

    def __init__(self, folders: ReplayFolders, config: Config, blobs: Blobs) -> None:
        super().__init__(folders, config, blobs)
        root = folders.root
        (root / MZ_FOLDER).mkdir()
        (root / MZ_FOLDER / ".gitignore").write_text("*\n")
        self.workspace = ReplayWorkspace(root, config.workspace, folders.command_environment)
        self.executor = executor = ReplayExecutor(
            root,
            folders.command_environment,
            self.secrets,
            passed=config.pass_environment,
            stop=self.stop,
            on_denied=self.network_attempts,
            sandbox=config.sandbox,
        )
        executor.workspace, executor.kept_patterns = self.workspace, config.workspace.keep_ignored

    def agents_of(self, cassette: Cassette, folder: pathlib.Path, agents_type: type[A]) -> A:
        """Install a stand-in for every program in the recordings; return the agents that they are. `folder` has the
        cassette. Raises CassetteUnreadable."""
        folders = self.folders
        programs, journal = folders.root.parent / f"bin-{folder.name}", folders.journal / folder.name
        install(programs, folder, recorded_programs(cassette, self.adapters), INHERITED_VARIABLES.pattern, journal)
        environment = {
            **folders.agent_environment,
            "PATH": f"{programs}{os.pathsep}{folders.agent_environment['PATH']}",
        }
        sandbox = SandboxSettings(read=(str(folder),), write=(str(folders.journal),))
        processes = AgentProcesses(
            folders.root, environment, self.secrets, stop=self.stop, on_denied=self.network_attempts, sandbox=sandbox
        )
        agents = agents_type(cassette, folders.root, processes, journal, environment, self.adapters)
        agents.forbidden_changes = self.workspace.forbidden_changes
        self.workspace.kept_artifacts |= kept_artifacts(cassette)
        self.workspace.copied_environments |= features_with_copied_environment(cassette)
        return agents


class ReplayEnvironment(ScratchPorts):
    """The ports of a replay; `folder` has a copy of the cassette."""

    clock: ReplayClock
    agents: ReplayAgents

    def __init__(
        self, folders: ReplayFolders, cassette: Cassette, folder: pathlib.Path, config: Config, blobs: Blobs
    ) -> None:
        super().__init__(folders, config, blobs)
        self.clock = ReplayClock(cassette.manifest.fixture.clock_start)
        self.agents = self.agents_of(cassette, folder, ReplayAgents)


# time -----------------------------------------------------------------------------------------------------------------
class ReplayClock:
    """Implements `mz_engine.ports.Clock`. Thread-safe, monotonic."""

    def __init__(self, start: str) -> None:
        """`start`: UTC, `2026-11-21T10:28:00Z`. Raises ValueError."""
        self._start_us = int(parse_time(start).timestamp()) * 1_000_000
        self._created_ns = time.monotonic_ns()
        self._lock = threading.RLock()

    def now_us(self) -> int:
        with self._lock:
            return self._start_us + (time.monotonic_ns() - self._created_ns) // 1_000

    def skip_to(self, until_us: int) -> None:
        """Advance the clock to at least this time."""
        with self._lock:
            self._start_us += max(0, until_us - self.now_us())
