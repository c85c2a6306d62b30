"""A replay in memory that can be forked just before any call, to replace its reply by many variants.

Commands are answered from the record, and succeed where it has no result: a variant may leave any tree.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from copy import copy
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec, CommandResult, FeatureWorktree, Interrupted
from mz_events.adapters.memory import MemoryBlobs, MemoryStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallReserved
from mz_events.names import Commit
from mz_events.store import Recorded
from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.faults.faults import Variant
from mz_recordings.replay.memory import MemoryAgents, MemoryExecutor, MemoryPorts
from mz_recordings.replay.memory_objects import NotInMemory
from mz_recordings.replay.ports import ReplayFolders


class BeforeCall(NamedTuple):
    """State just before a call is requested."""

    event_count: int
    """Number of events so far."""
    branches: Mapping[str, Commit]
    features_set_up: frozenset[str]


class VariantAgents(MemoryAgents):
    """Recorded replies, and for one call a variant."""

    variant: Variant | None = None
    crashes = False
    """`mz` is killed during the altered call and recovers its output afterwards."""
    world: CassetteWorld

    def call(self, spec: CallSpec) -> CallResult:
        identity, variant = self._identity(spec.key), self.variant
        if variant is None:
            self.world.note_state(identity, spec.key)
        if variant is None or variant.identity != identity:
            return super().call(spec)
        if variant.keeps_changes:
            self.workspace.apply(spec.worktree.feature, self._recorded_calls[identity].content("patch"))
        if self.crashes:
            raise Interrupted(spec.key)
        recording, result = self._recorded_calls[identity].recording, variant_result(variant)
        if recording.outcome == "replied":
            self.forbidden_changes[spec.worktree.feature] = recording.forbidden_changes
        version = self.adapter(spec.agent).parse_output(result).version or recording.version
        return replace(result, version=version)

    def _apply(self, recorded_call: RecordedCall, worktree: FeatureWorktree) -> str:
        try:
            return super()._apply(recorded_call, worktree)
        except NotInMemory as obstacle:
            return str(obstacle)

    def salvage(self, key: str) -> CallResult | None:
        variant = self.variant
        if variant is not None and variant.identity == self._identity(key):
            return replace(variant_result(variant), exit=None, problem=None)
        return super().salvage(key)


class VariantExecutor(MemoryExecutor):
    def _execute(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        return CommandResult(exit=0, output=b"", duration_ms=0)


class CassetteWorld(MemoryPorts):
    """Log and ports of a replay. Playing it unaltered fills `states_before`. Raises NotInMemory."""

    agents: VariantAgents
    agents_type, executor_type = VariantAgents, VariantExecutor

    def __init__(self, cassette: Cassette, pins: Pins, folders: ReplayFolders) -> None:
        super().__init__(cassette, folders, pins.config)
        self.cassette, self.pins, self.store = cassette, pins, MemoryStore()
        self.agents.world = self
        self.states_before: dict[Identity, BeforeCall] = {}

    def note_state(self, identity: Identity, key: str) -> None:
        """Keep the state before a call that is about to be made."""
        length = len(self.store.log)
        while length and _is_request(self.store.log[length - 1], key):
            length -= 1
        branches, features_set_up = dict(self.workspace.branches), frozenset(self.workspace.features_set_up)
        self.states_before[identity] = BeforeCall(length, branches, features_set_up)

    def fork(self, variant: Variant, crashes: bool) -> CassetteWorld:
        """Return a separate world as it was before the variant's call."""
        state, fork = self.states_before[variant.identity], copy(self)
        fork.store, fork.blobs = MemoryStore(), MemoryBlobs()
        self.store.copy_to(fork.store, state.event_count)
        fork.blobs.data_by_digest = ChainMap({}, self.blobs.data_by_digest)
        fork.workspace = self.workspace.fork(state.branches, state.features_set_up)
        fork.agents, fork.executor = self.agents.fork(fork.workspace), copy(self.executor)
        fork.agents.variant, fork.agents.crashes = variant, crashes
        fork.executor.ports = fork
        return fork


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
