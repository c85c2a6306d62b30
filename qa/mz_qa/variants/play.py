"""Plays every variant of every call of a cassette through the real parser, effects and decisions, in memory.

The cassette is played unaltered once. Then each call is replaced by each of its variants, starting just before the
call; without processes, thousands of variants take seconds. Commands are answered from the record, and succeed where it
has no result: a variant may leave any tree.

For any end of an agent's output the end state is named, and no failure counts as success. Success of a reply is judged
by the second opinion in the agent's folder, independently of the parser, which is under test."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.agents.catalog import agent_package
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec, CommandResult, FeatureWorktree, Interrupted, ParsedReply
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop
from mz_events.adapters.memory import MemoryBlobs, MemoryStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallReserved
from mz_events.catalog.run import AnswerAccepted, CancelAccepted, RetryAccepted
from mz_events.codec import comparable_payload
from mz_events.names import Commit, FeatureId, feature_stream
from mz_events.store import Recorded
from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, RecordedDecision
from mz_recordings.cassette.repository import FixtureUnavailable
from mz_recordings.cassette.trace import EventJson, call_of_event, trace_events
from mz_recordings.faults.faults import Variant, as_recorded, derive_variants
from mz_recordings.replay.driver import ReplayCoordinator, ReplayFeature, next_in_order, start_run
from mz_recordings.replay.memory import MemoryAgents, MemoryExecutor, MemoryPorts
from mz_recordings.replay.memory_objects import NotInMemory
from mz_recordings.replay.ports import ReplayFolders
from mz_recordings.replay.project import current_project

REPLY_USES = frozenset({"changes.checked", "artifact.parsed", "artifact.validated", "gate.checked", "commit.requested",
                  "commit.made", "unit.completed", "phase.completed", "feature.delivered"})  # fmt: skip
"""Events that only follow an accepted reply."""
FINAL_STATES = {"feature.delivered": "delivered", "feature.merged": "merged", "feature.cancelled": "cancelled"}
STATES_WITH_CODE = {"human.requested": "waiting", "feature.failed": "failed"}


class VariantOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a feature when one of its calls is replaced by a variant."""

    feature: str
    call: str = ""
    """The recording's name, such as `code.a2`; none if the cassette was played as recorded."""
    variant: str
    mode: str
    """`memory`, or `crash`: mz was killed during the call and recovered its output."""
    end: str = ""
    """Such as `delivered`, `waiting (no-terminal)`, `halted (auth-failure)`; none if it has no name."""
    violations: tuple[str, ...] = ()
    """Violated invariants, for people; empty if none."""

    @property
    def name(self) -> str:
        call_name = f"{self.feature}/{self.call}" if self.call else self.feature
        return f"{call_name}: {self.variant} ({self.mode})"


def end_state(trace: Sequence[EventJson]) -> str:
    """Return the name of the state that a feature's events end in; empty if it has none."""
    last = trace[-1] if trace else {}
    kind, code = last.get("type", ""), last.get("code")
    if kind in FINAL_STATES:
        return FINAL_STATES[kind]
    if kind in STATES_WITH_CODE and code:
        return f"{STATES_WITH_CODE[kind]} ({code})"
    if kind == "feature.held" and last["hold"] == "fatal":
        return f"halted ({code})" if code else ""
    if kind == "feature.held":
        return f"held ({code or last['hold']})"
    return ""


def violations(variant: Variant, success: bool, trace: Sequence[EventJson], usual: str) -> tuple[str, ...]:
    """Return the violated invariants of a feature's events from the altered call on. `success`: the output reports
    success and mz did not end the call; `usual`: the end state without the variant."""
    end, violations = end_state(trace), []
    if not end:
        last = trace[-1]["type"] if trace else "nothing"
        violations.append(f"it ended in a state without a name (after {last})")
    effect = _first_use(trace, variant)
    if effect and not success:
        violations.append(f"a failure passed as success: it led to {effect}")
    if success and variant.keeps_changes and end != usual:
        violations.append(f"a success ended in another state: {end or 'none'} instead of {usual}")
    if (unread_call := _find_unread_call(trace)) is not None:
        violations.append(f"the output of call {unread_call} was never parsed")
    return tuple(violations)


def _first_use(trace: Sequence[EventJson], variant: Variant) -> str:
    """Return the first event that used the altered reply, before the next request or the end of a phase that may be
    left out; empty if none."""
    is_requested = False
    for event in trace:
        if is_requested and event["type"] in ("agent.requested", "phase.skipped"):
            return ""
        if event["type"] == "agent.requested":
            is_requested = call_of_event(event, variant.identity.pipeline, variant.identity.feature) == variant.identity
        elif is_requested and event["type"] in REPLY_USES:
            return str(event["type"])
    return ""


def _find_unread_call(trace: Sequence[EventJson]) -> str | None:
    """Return the key of a requested call that was never read; None if there is none."""
    read = {event["ref"]["key"] for event in trace if event["type"] == "reply.parsed"}
    requested = [event["ref"]["key"] for event in trace if event["type"] == "agent.requested"]
    return next((key for key in requested if key not in read), None)


# independent check of success -----------------------------------------------------------------------------------------
def succeeds(agent: str, stdout: bytes, stderr: bytes = b"") -> bool | None:
    """Return True if the output's last terminal event reports success; None for agents without a second opinion."""
    check = agent_package(agent).success_check
    return None if check is None else check(stdout, stderr)


STEPS_MAX, STEPS_MAX_CALL = 10_000, 3_000
"""Limit of steps of a run: `STEPS_MAX`, plus `STEPS_MAX_CALL` per recorded call. A call takes about 300."""
Violations = tuple[str, ...]


# a replay that can be forked ------------------------------------------------------------------------------------------
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
    return CallResult(
        stdout=variant.stdout, stderr=variant.stderr, exit=variant.exit, duration_ms=1, problem=variant.ended_by_mz
    )


# variants -------------------------------------------------------------------------------------------------------------
def play_variants(cassette: Cassette, project: Path, environment: Mapping[str, str]) -> tuple[VariantOutcome, ...]:
    """Play each variant of each recording through the project's current pipeline. Raises
    FixtureUnavailable and MzError like a replay."""
    parallel = max(1, len(cassette.manifest.fixture.items))
    pins = current_project(project, environment, cassette.manifest, parallel).pins
    try:
        folders = ReplayFolders(Path("/mz-variants"), environment, True, project)
        world = CassetteWorld(cassette, pins, folders)
        items, workspace = cassette.manifest.fixture.items, world.workspace
        start_run(cassette, items, pins, world.store, world, workspace.base, workspace.heads)
        outcomes = [*_check_unaltered(world, _run_safely(world))]
        for recorded_call in cassette.calls:
            if recorded_call.identity in world.states_before:
                outcomes += _play_variants_of(world, recorded_call)
    except NotInMemory as obstacle:
        raise FixtureUnavailable(f"its variants cannot be played: {obstacle}") from obstacle
    return tuple(outcomes)


def _run_safely(world: CassetteWorld, only: str | None = None) -> Violations:
    """Run until idle; return the reasons why that failed, empty if none."""
    try:
        return () if _run_until_idle(world, only) else ("it does not stop",)
    except NotInMemory:
        raise
    except Exception as error:
        return (f"internal error: {type(error).__name__}: {error}",)


def _run_until_idle(world: CassetteWorld, only: str | None) -> bool:
    """Run until idle, one feature after the other, or in the order in which they merged; with `only`, until that
    feature stops. Return False if that takes too many steps."""
    fixture = world.cassette.manifest.fixture
    order = list(fixture.order) if only is None else []
    run, remaining = fixture.run, replace(fixture, decisions=_remaining_decisions(world))
    coordinator = StrictReplayCoordinator(remaining, world.pins, world.store, world)
    active, decided_version = dict[FeatureId, ReplayFeature](), -1
    for _ in range(STEPS_MAX + STEPS_MAX_CALL * len(world.cassette.calls)):
        if coordinator.state.version != decided_version:
            coordinator.decide()
            decided_version = coordinator.state.version
        for feature in coordinator.runnable_features(frozenset(active)):
            if only in (None, feature):
                ports = world.for_feature(feature, fixture)
                feature_loop = ReplayFeature(
                    run, feature, world.pins, world.store, ports, coordinator, coordinator.observe
                )
                feature_loop.order, active[feature] = order, feature_loop
        if not active:
            closes = only is None and coordinator.close_if_recorded()
            if not closes and not coordinator.resume_if_recorded(world.cassette):
                return True
            continue
        feature = next_in_order(active, order)
        if not active[feature].step():
            coordinator.worker_stopped(active.pop(feature))
            decided_version = -1
    return False


class StrictReplayCoordinator(ReplayCoordinator):
    """Repeats recorded decisions only at their recorded positions; other questions stay open."""

    def worker_stopped(self, feature_run: FeatureLoop) -> None:
        remaining = self._decisions.get(feature_run.feature)
        if remaining and self._trace_length(feature_run.feature) == remaining[0].after:
            super().worker_stopped(feature_run)
        else:
            Coordinator.worker_stopped(self, feature_run)

    def resume_if_recorded(self, cassette: Cassette) -> bool:
        """Resume a halted run if it was resumed at this point in the recording."""
        halted = self.state.halt
        if halted is None:
            return False
        trace, at = tuple(trace_events(cassette.traces.get(halted.feature, b""))), self._trace_length(halted.feature)
        was_halted = 0 < at < len(trace) and trace[at - 1].get("hold") == "fatal"
        if is_resumed := was_halted and trace[at]["type"] == "feature.hold-released":
            self.resume()
        return is_resumed


def _remaining_decisions(world: CassetteWorld) -> tuple[RecordedDecision, ...]:
    """Return the recorded decisions that are not in the log yet."""
    accepted_counts: Counter[str] = Counter(
        recorded.event.feature
        for recorded in world.store.log
        if isinstance(recorded.event, AnswerAccepted | RetryAccepted | CancelAccepted)
    )
    remaining: list[RecordedDecision] = []
    for decision in world.cassette.manifest.fixture.decisions:
        if accepted_counts[decision.feature] > 0:
            accepted_counts[decision.feature] -= 1
        else:
            remaining.append(decision)
    return tuple(remaining)


def events_of(world: CassetteWorld, feature: str, after: int = 0) -> list[EventJson]:
    """Return the feature's events after a version, in comparable form."""
    stream = feature_stream(world.cassette.manifest.fixture.run, feature)
    return [comparable_payload(recorded.event) for recorded in world.store.read(stream, after)]


def _check_unaltered(world: CassetteWorld, broken: Violations) -> Iterator[VariantOutcome]:
    """Check the unaltered run: every end state is named, and every recording was used."""
    for item in world.cassette.manifest.fixture.items:
        end = end_state(events_of(world, item.feature))
        violated = broken or (() if end else ("it ended in a state without a name",))
        yield VariantOutcome(
            feature=item.feature, call="", variant="as-recorded", mode="memory", end=end, violations=violated
        )
    for recorded_call in world.cassette.calls:
        identity = recorded_call.recording.identity
        if identity not in world.states_before:
            unused = ("the recording is unused, so its variants cannot be played: see mz replay",)
            yield VariantOutcome(
                feature=identity.feature, call=identity.name, variant="as-recorded", mode="memory", end="not played",
                violations=unused,
            )  # fmt: skip


def _play_variants_of(world: CassetteWorld, recorded_call: RecordedCall) -> Iterator[VariantOutcome]:
    """Play all variants of one recording. Variants whose parsed replies are equivalent are played once and judged
    each."""
    agent, feature = world.cassette.manifest.agent, recorded_call.identity.feature
    stream = feature_stream(world.cassette.manifest.fixture.run, feature)
    runs_by_key: dict[object, tuple[list[EventJson], Violations]] = {}
    unaltered = world.fork(as_recorded(recorded_call), crashes=recorded_call.recording.outcome == "lost")
    _run_safely(unaltered, only=feature)
    usual = end_state(events_of(unaltered, feature))
    for variant in derive_variants(recorded_call):
        reports_success = succeeds(agent, variant.stdout, variant.stderr)
        for crashes in (False, True):
            result = variant_result(variant)
            reading = world.adapters[agent].parse_output(
                replace(result, exit=None, problem=None) if crashes else result
            )
            key = _equivalence_key(reading, variant, crashes)
            if key not in runs_by_key:
                fork = world.fork(variant, crashes)
                version_before = sum(1 for _ in fork.store.read(stream))
                broken = _run_safely(fork, only=feature)
                runs_by_key[key] = events_of(fork, feature, version_before), broken
            events, broken = runs_by_key[key]
            success = (reading.ending == "success" if reports_success is None else reports_success) and (
                crashes or variant.ended_by_mz is None
            )
            yield VariantOutcome(
                feature=feature, call=variant.identity.name, variant=variant.name,
                mode="crash" if crashes else "memory", end=end_state(events),
                violations=broken or violations(variant, success, events, usual),
            )  # fmt: skip


def _equivalence_key(reading: ParsedReply, variant: Variant, crashes: bool) -> object:
    """Return a key that is equal for variants with the same decisions; tokens and error texts do not matter."""
    problem = reading.problem
    effect = (problem.kind, problem.code, problem.retry_after_seconds) if problem else reading.text
    return crashes, variant.keeps_changes, variant.ended_by_mz is None, reading.ending, bool(reading.usage), effect
