"""A cassette's world in memory: its repository, agent replies, command results and clock.

A call returns its recorded reply and file changes, provided that its worktree is the recorded one. A `CassetteWorld`
can be forked just before any call, to replace its reply by many variants."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import all_adapters
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec, CommandResult, FeatureWorktree, Interrupted, Price
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallReserved, Usage
from mz_events.envelope import Recorded
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets
from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, parse_time
from mz_recordings.cassette.trace import counted_tokens
from mz_recordings.faults.variants import Variant
from mz_recordings.replay.agents import calls_with_dropped_session, identity_of_key, rejected_result

from mz_qa.simulation.store import MemoryBlobs
from mz_qa.simulation.world import Files, ScriptedReply, SimulatedPorts, Tree, World

STEPS_MAX = 1_000
STEPS_MAX_CALL = 300
"""Limit of side effects of a run: `STEPS_MAX`, plus `STEPS_MAX_CALL` per recorded call. A call takes about 20."""
PatchApplier = Callable[[Files, bytes], Files | None]
"""Applies a patch to files; None if it does not apply."""


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
        fork.store, fork.blobs = self.store.copy(fork.tick, state.event_count), MemoryBlobs()
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
