"""A cassette's world in memory: its repository, agent replies, command results and clock.

A call returns its recorded reply and file changes, provided that its worktree is the recorded one. A `CassetteWorld`
can be forked just before any call, to replace its reply by many variants."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import all_adapters
from mz_engine.git.process import NO_USER_CONFIG, run_git, safe_environment
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec, CommandResult, FeatureWorktree, Interrupted, Price
from mz_events.adapters.memory import MemoryBlobs
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallReserved, Usage
from mz_events.envelope import Recorded
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets
from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, parse_time
from mz_recordings.cassette.repository import ScratchGit, unpack
from mz_recordings.cassette.trace import counted_tokens
from mz_recordings.faults.faults import Variant
from mz_recordings.replay.agents import calls_with_dropped_session, identity_of_key, rejected_result

from mz_qa.simulation.world import Files, ScriptedReply, SimulatedPorts, Tree, World

STEPS_MAX = 1_000
STEPS_MAX_CALL = 300
"""Limit of side effects of a run: `STEPS_MAX`, plus `STEPS_MAX_CALL` per recorded call. A call takes about 20."""
LINK, PROGRAM = b"120000", b"100755"
PatchApplier = Callable[[Files, bytes], Files | None]
"""Applies a patch to files; None if it does not apply."""


class Trees:
    """Real git: reads files of a cassette's repository, unpacked below an empty folder, and applies patches. Raises
    WorldMissing."""

    def __init__(self, cassette: Cassette, folder: Path, environment: Mapping[str, str]) -> None:
        self._root, self._environment = folder / "repository", {**safe_environment(environment), **NO_USER_CONFIG}
        self.delivered = unpack(cassette, self._root, environment)
        """Heads of dependencies delivered by an earlier run, by feature."""
        self.head = Commit(ScratchGit(self._root, environment)("rev-parse", "HEAD"))
        self._modes: dict[str, bytes] = {}
        self._folder = folder

    def files(self, commit: Commit) -> Files:
        """Return a commit's files; the content of a symlink is its target."""
        files: Files = {}
        for entry in self._git(self._root, "ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
            fields, _, path = entry.partition(b"\t")
            mode, kind, blob = fields.split()
            if kind == b"blob":
                self._modes[os.fsdecode(path)] = mode
                files[os.fsdecode(path)] = self._git(self._root, "cat-file", "blob", blob.decode())
        return files

    def apply_patch(self, files: Files, patch: bytes) -> Files | None:
        """Return the files with the patch applied; None if it does not apply."""
        if not patch:
            return dict(files)
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            work = Path(name)
            self._git(work, "init", "--quiet")
            try:
                stats = self._git(work, "apply", "--numstat", "-z", "-", stdin=patch)
                paths = [os.fsdecode(entry.split(b"\t", 2)[2]) for entry in stats.split(b"\0")[:-1]]
                for path in paths:
                    if path in files:
                        self._write(work / path, files[path], self._modes.get(path))
                self._git(work, "apply", "--binary", "--whitespace=nowarn", "-", stdin=patch)
            except subprocess.CalledProcessError:
                return None
            untouched = {path: data for path, data in files.items() if path not in paths}
            return untouched | {path: self._read(work / path, path) for path in paths if os.path.lexists(work / path)}

    def _write(self, target: Path, data: bytes, mode: bytes | None) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            target.symlink_to(os.fsdecode(data))
        else:
            target.write_bytes(data)
            target.chmod(0o755 if mode == PROGRAM else 0o644)

    def _read(self, target: Path, path: str) -> bytes:
        if target.is_symlink():
            self._modes[path] = LINK
            return os.fsencode(target.readlink())
        self._modes[path] = PROGRAM if os.access(target, os.X_OK) else b"100644"
        return target.read_bytes()

    def _git(self, cwd: Path, *arguments: str, stdin: bytes = b"") -> bytes:
        result = run_git(arguments, cwd, self._environment, stdin)
        if result.exit_code:
            raise subprocess.CalledProcessError(result.exit_code, arguments, stderr=result.stderr)
        return result.stdout


class CallLoopError(Exception):
    """The run does not stop."""


class PlayedCall(NamedTuple):
    """Files before and after a recorded call, in the unaltered run."""

    before: Files
    after: Files


class BeforeCall(NamedTuple):
    """State just before a call is requested."""

    event_count: int
    """Number of events so far."""
    refs: Mapping[str, Commit]
    now_us: int


class CassetteWorld(World):
    """State that outlives a process. Playing it unaltered fills `played_calls` and `states_before`."""

    def __init__(self, cassette: Cassette, pins: Pins, files: Files, apply_patch: PatchApplier) -> None:
        super().__init__({}, lambda spec, files: ScriptedReply(), lambda command, files: (0, ""))
        self.cassette, self.pins, self.apply_patch = cassette, pins, apply_patch
        self.adapters = all_adapters(pins.config.agents)
        self.recorded_calls = {call.recording.identity: call for call in cassette.calls}
        self.now_us = int(parse_time(cassette.manifest.fixture.clock_start).timestamp()) * 1_000_000
        self.base = self.write(Tree(files, None))
        self.refs = {f"refs/heads/{cassette.manifest.fixture.base}": self.base}
        self.played_calls: dict[Identity, PlayedCall] = {}
        self.states_before: dict[Identity, BeforeCall] = {}
        self.remaining_commands: dict[str, list[tuple[str, int | None]]] = {}
        """Names and exits of the remaining recorded commands, by feature."""
        self.command_exits: dict[tuple[str, Commit], int | None] = {}
        """Exit codes by command and content of the tree."""
        self.variant: Variant | None = None
        self.crashes = False
        """`mz` is killed during the altered call and recovers its output afterwards."""
        self.steps_max = STEPS_MAX + STEPS_MAX_CALL * len(cassette.calls)

    @cached_property
    def token_counts(self) -> Mapping[str, int]:
        return counted_tokens(self.cassette)

    def tick(self, name: str) -> None:
        """Count a side effect. Raises CallLoopError."""
        super().tick(name)
        if self.steps > self.steps_max:
            raise CallLoopError(name)

    def fork(self, variant: Variant, crashes: bool) -> CassetteWorld:
        """Return a separate world as it was before the variant's call."""
        state = self.states_before[variant.identity]
        fork = CassetteWorld(self.cassette, self.pins, {}, self.apply_patch)
        fork.blobs = MemoryBlobs()
        self.store.copy_to(fork.store, state.event_count)
        fork.blobs.data_by_digest, fork.objects = ChainMap({}, self.blobs.data_by_digest), ChainMap({}, self.objects)
        fork.base, fork.refs, fork.now_us = self.base, dict(state.refs), state.now_us
        fork.content_digests, fork.token_counts = self.content_digests, self.token_counts
        fork.played_calls, fork.command_exits = self.played_calls, self.command_exits
        fork.variant, fork.crashes = variant, crashes
        return fork


def recorded_commands(trace: bytes) -> list[tuple[str, int | None]]:
    """Return names and exits of the commands of a trace, in order."""
    events = (json.loads(line) for line in trace.splitlines())
    return [(event["name"], event["exit"]) for event in events if event["type"] == "command.ran"]


def resume_points(trace: bytes) -> tuple[int, ...]:
    """Return the numbers of events after which the run was halted for the feature and resumed."""
    events = [json.loads(line) for line in trace.splitlines()]
    return tuple(
        count
        for count, (event, following) in enumerate(pairwise(events), start=1)
        if event.get("hold") == "fatal" and following["type"] == "feature.hold-released"
    )


class RecordedAgents:
    """Implements `mz_engine.ports.Agents`: recorded replies, and for one call a variant."""

    def __init__(self, world: CassetteWorld) -> None:
        self._world = world

    def call(self, spec: CallSpec) -> CallResult:
        world, identity = self._world, self._identity(spec.key)
        world.tick("call.before")
        world.call_keys.append(spec.key)
        recorded_call = world.recorded_calls.get(identity)
        if recorded_call is None:
            return rejected_result("recording-missing")
        before = dict(world.worktrees[spec.worktree.feature])
        played_call = world.played_calls.get(identity)
        if played_call is None:
            played_call = self._play_first_time(spec, recorded_call, before)
        if played_call is None or played_call.before != before:
            return rejected_result("drift")
        return self._reply(spec, recorded_call, played_call)

    def _play_first_time(self, spec: CallSpec, recorded_call: RecordedCall, before: Files) -> PlayedCall | None:
        world = self._world
        after = world.apply_patch(before, recorded_call.content("patch"))
        if after is None:
            return None
        length = len(world.store.log)
        while length and _is_request(world.store.log[length - 1], spec.key):
            length -= 1
        world.states_before[recorded_call.recording.identity] = BeforeCall(length, dict(world.refs), world.now_us)
        world.played_calls[recorded_call.recording.identity] = PlayedCall(before, after)
        return world.played_calls[recorded_call.recording.identity]

    def _reply(self, spec: CallSpec, recorded_call: RecordedCall, played_call: PlayedCall) -> CallResult:
        world = self._world
        variant = world.variant
        if variant is not None and variant.identity != recorded_call.identity:
            variant = None
        if variant is None or variant.keeps_changes:
            world.worktrees[spec.worktree.feature] = dict(played_call.after)
        if world.crashes if variant else recorded_call.recording.outcome == "lost":
            raise Interrupted(spec.key)
        result = variant_result(variant) if variant else recorded_call.result()
        if recorded_call.recording.outcome == "replied":
            world.forbidden_changes[spec.worktree.feature] = recorded_call.recording.forbidden_changes
        version = self.adapter(spec.agent).parse_output(result).version or recorded_call.recording.version
        return replace(result, version=version)

    def salvage(self, key: str) -> CallResult | None:
        identity = self._identity(key)
        variant, recorded_call = self._world.variant, self._world.recorded_calls.get(identity)
        if variant is not None and variant.identity == identity:
            return replace(variant_result(variant), exit=None, problem=None)
        return None if recorded_call is None else recorded_call.result()

    def adapter(self, agent: str) -> Adapter:
        return self._world.adapters[agent]

    def count_tokens(self, spec: CallSpec) -> int | None:
        return self._world.token_counts.get(spec.key.partition("/")[2])

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        was_continued = session is None or key.partition("/")[2] not in calls_with_dropped_session(self._world.cassette)
        return was_continued and self._world.adapters[agent].capabilities().sessions

    def _identity(self, key: str) -> Identity:
        return identity_of_key(self._world.cassette.manifest.pipeline, key)


def _is_request(recorded: Recorded[Event], key: str) -> bool:
    match recorded.event:
        case AgentRequested(ref=ref):
            return ref.key == key
        case CallReserved(key=reserved_key):
            return reserved_key == key
    return False


def variant_result(variant: Variant) -> CallResult:
    """Return the result of a variant."""
    return CallResult(
        stdout=variant.stdout, stderr=variant.stderr, exit=variant.exit, duration_ms=1, problem=variant.ended_by_mz
    )


class CassettePorts(SimulatedPorts):
    """Ports of a process over a cassette's world."""

    def __init__(self, world: CassetteWorld) -> None:
        super().__init__(world)
        self.cassette_world = world
        self.agents, self.secrets = RecordedAgents(world), Secrets({})

    def run(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        """Return the recorded result of a command; success if there is none."""
        world = self.cassette_world
        world.tick("command.before")
        result_key = (command, world.write(Tree(world.worktrees[worktree.feature], None)))
        if remaining := world.remaining_commands.get(worktree.feature):
            name = key.split("/")[-1].partition(".")[2] if "/setup/" not in key else command
            recorded_command = next((candidate for candidate in remaining if candidate[0] == name), None)
            if recorded_command is not None:
                remaining.remove(recorded_command)
                world.command_exits[result_key] = recorded_command[1]
        return CommandResult(exit=world.command_exits.get(result_key, 0), output=b"", duration_ms=1)

    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        return Price(nanousd=0, unpriced=(), prices="none")

    def estimate(
        self, model: str, input_tokens: int, output_tokens: int, at_us: int, cache_read: int = 0, cache_write: int = 0
    ) -> int | None:
        return None
