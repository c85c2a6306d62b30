"""A cassette's world in memory: its repository, agent replies, command results and clock.

A call returns its recorded reply and file changes, provided that its worktree is the recorded one. A `CassetteWorld`
can be forked just before any call, to replace its reply by many variants."""

from __future__ import annotations

import hashlib
import json
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.agents.registry import adapters
from mz_engine.pins import Pins
from mz_engine.ports import CallResult, CallSpec, Capture, CommandResult, Interrupted, Place, Price, Reading
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallReserved, Offence, Problem, ProblemClass, Usage
from mz_events.envelope import Recorded
from mz_events.names import Commit
from mz_events.redact import Secrets
from mz_recordings.cassette import Cassette, Identity, Taken, parse_time
from mz_recordings.playing.crew import counted, elsewhere, refused
from mz_recordings.playing.standin import KEY
from mz_recordings.whatif.variants import Variant, content

from mz_qa.simulation.store import MemoryBlobs
from mz_qa.simulation.world import Answer, Files, SimulatedForge, SimulatedWorkspace, Tree, World

STEPS_MAX = 1_000
STEPS_MAX_CALL = 300
"""Limit of side effects of a run: `STEPS_MAX`, plus `STEPS_MAX_CALL` per recorded call. A call takes about 20."""
Patched = Callable[[Files, bytes], Files | None]
"""Applies a patch to files; None if it does not apply."""


class Endless(Exception):
    """The run does not stop."""


class Known(NamedTuple):
    """Files before and after a recorded call, in the unaltered run."""

    before: Files
    after: Files


class Moment(NamedTuple):
    """State just before a call is requested."""

    length: int
    """Number of events so far."""
    refs: Mapping[str, Commit]
    now_us: int


class Tape(World):
    """State that outlives a process. Playing it unaltered fills `played` and `moments`."""

    def __init__(self, cassette: Cassette, pins: Pins, files: Files, patched: Patched) -> None:
        super().__init__({}, lambda spec, files: Answer(), lambda command, files: (0, ""))
        self.cassette, self.pins, self.patched = cassette, pins, patched
        self.adapters = adapters(pins.config.agents)
        self.taken = {call.recording.identity: call for call in cassette.taken}
        self.now_us = int(parse_time(cassette.manifest.world.clock_start).timestamp()) * 1_000_000
        self._names: dict[bytes, bytes] = {}
        self.base = self.write(Tree(files, None))
        self.refs = {f"refs/heads/{cassette.manifest.world.base}": self.base}
        self.played: dict[Identity, Known] = {}
        self.moments: dict[Identity, Moment] = {}
        self.ran: dict[str, list[tuple[str, int | None]]] = {}
        """Names and exits of the remaining recorded commands, by feature."""
        self.results: dict[tuple[str, Commit], int | None] = {}
        """Exit codes by command and content of the tree."""
        self.missed: list[Identity] = []
        self.variant: Variant | None = None
        self.dies = False
        """`mz` is killed during the altered call and recovers its output afterwards."""
        self.limit = STEPS_MAX + STEPS_MAX_CALL * len(cassette.taken)

    @cached_property
    def counted(self) -> Mapping[str, int]:
        return counted(self.cassette)

    def tick(self, name: str) -> None:
        """Count a side effect. Raises CallLoopError."""
        super().tick(name)
        if self.steps > self.limit:
            raise Endless(name)

    def write(self, tree: Tree) -> Commit:
        """Store a tree; caches the digests of file contents."""
        digest = hashlib.sha1(repr((tree.parent, tree.message, tree.merged)).encode())
        for name, data in sorted(tree.files.items()):
            digest.update(b"%s\0%s" % (name.encode("utf-8", "surrogateescape"), self._name(data)))
        commit = Commit(digest.hexdigest())
        self.objects[commit] = tree
        return commit

    def _name(self, data: bytes) -> bytes:
        digest = self._names.get(data)
        if digest is None:
            digest = self._names[data] = hashlib.sha1(data).digest()
        return digest

    def content_of(self, files: Files) -> Commit:
        """Return an id that depends on the files only."""
        return self.write(Tree(files, None))

    def fork(self, variant: Variant, dies: bool) -> Tape:
        """Return a separate world as it was before the variant's call."""
        state = self.moments[variant.identity]
        fork = Tape(self.cassette, self.pins, {}, self.patched)
        fork.store, fork.blobs = self.store.copy(fork.tick, state.length), MemoryBlobs()
        fork.blobs.kept, fork.objects = ChainMap({}, self.blobs.kept), ChainMap({}, self.objects)
        fork.base, fork.refs, fork.now_us, fork._names = self.base, dict(state.refs), state.now_us, self._names
        fork.played, fork.results, fork.counted = self.played, self.results, self.counted
        fork.variant, fork.dies = variant, dies
        return fork

    def leap(self, until_us: int) -> None:
        """Advance the clock without waiting."""
        self.now_us = max(self.now_us, until_us)


def commands_of(story: bytes) -> list[tuple[str, int | None]]:
    """Return names and exits of the commands of a trace, in order."""
    events = (json.loads(line) for line in story.splitlines())
    return [(event["name"], event["exit"]) for event in events if event["type"] == "command.ran"]


def mended(story: bytes) -> tuple[int, ...]:
    """Return the numbers of events after which the run was halted for the feature and resumed."""
    events = [json.loads(line) for line in story.splitlines()]
    return tuple(
        count
        for count, (event, following) in enumerate(pairwise(events), start=1)
        if event.get("hold") == "fatal" and following["type"] == "feature.hold-released"
    )


class TapeAgents:
    """Implements `mz_engine.ports.Agents`: recorded replies, and for one call a variant."""

    def __init__(self, world: Tape, offences: dict[str, tuple[Offence, ...]]) -> None:
        self._tape, self._offences = world, offences

    def call(self, spec: CallSpec) -> CallResult:
        world, identity = self._tape, self._identity(spec.key)
        world.tick("call.before")
        world.calls.append(spec.key)
        recorded_call = world.taken.get(identity)
        if recorded_call is None:
            world.missed.append(identity)
            return refused("recording-missing")
        before = dict(world.worktrees[spec.place.feature])
        played_call = world.played.get(identity)
        if played_call is None:
            played_call = self._first_time(spec, recorded_call, before)
        if played_call is None or played_call.before != before:
            return refused("drift")
        return self._answer(spec, recorded_call, played_call)

    def _first_time(self, spec: CallSpec, recorded_call: Taken, before: Files) -> Known | None:
        world = self._tape
        after = world.patched(before, content(recorded_call, "patch"))
        if after is None:
            return None
        length = len(world.store.log)
        while length and _asks(world.store.log[length - 1], spec.key):
            length -= 1
        world.moments[recorded_call.recording.identity] = Moment(length, dict(world.refs), world.now_us)
        world.played[recorded_call.recording.identity] = Known(before, after)
        return world.played[recorded_call.recording.identity]

    def _answer(self, spec: CallSpec, recorded_call: Taken, played_call: Known) -> CallResult:
        world = self._tape
        variant = (
            world.variant if world.variant and world.variant.identity == recorded_call.recording.identity else None
        )
        if variant is None or variant.changes:
            world.worktrees[spec.place.feature] = dict(played_call.after)
        if world.dies if variant else recorded_call.recording.outcome == "lost":
            raise Interrupted(spec.key)
        result = result_of(variant) if variant else recorded(recorded_call)
        if recorded_call.recording.outcome == "replied":
            self._offences[spec.place.feature] = recorded_call.recording.offences
        version = self.read(spec.agent, result).version or recorded_call.recording.version
        return replace(result, version=version)

    def salvage(self, key: str) -> CallResult | None:
        identity = self._identity(key)
        variant, recorded_call = self._tape.variant, self._tape.taken.get(identity)
        if variant is not None and variant.identity == identity:
            return replace(result_of(variant), exit=None, problem=None)
        return None if recorded_call is None else recorded(recorded_call)

    def read(self, agent: str, result: CallResult) -> Reading:
        return self._tape.adapters[agent].parse_output(result)

    def estimate_tokens(self, agent: str, prompt: str) -> int:
        return self._tape.adapters[agent].estimate_tokens(prompt)

    def count_tokens(self, spec: CallSpec) -> int | None:
        return self._tape.counted.get(spec.key.partition("/")[2])

    def format_prompt(self, agent: str, prompt: str) -> str:
        return self._tape.adapters[agent].format_prompt(prompt)

    def model(self, agent: str, tier: str) -> str:
        return self._tape.adapters[agent].capabilities().models[tier]

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        was_continued = session is None or key.partition("/")[2] not in elsewhere(self._tape.cassette)
        return was_continued and self._tape.adapters[agent].capabilities().sessions

    def _identity(self, key: str) -> Identity:
        return identify(self._tape.cassette.manifest.pipeline, key)


def identify(pipeline: str, key: str) -> Identity:
    """Parse the identity of a call from its key."""
    parts = KEY.fullmatch(key)
    assert parts is not None, key
    _, feature, phase, unit, iteration, attempt, role = parts.groups()
    return Identity(
        pipeline=pipeline,
        feature=feature,
        phase=phase,
        unit="" if unit == "-" else unit,
        iteration=int(iteration),
        attempt=int(attempt),
        role=role,
    )


def _asks(recorded: Recorded[Event], key: str) -> bool:
    match recorded.event:
        case AgentRequested(ref=ref):
            return ref.key == key
        case CallReserved(key=reserved_key):
            return reserved_key == key
    return False


def recorded(recorded_call: Taken) -> CallResult:
    """Return the recorded result of a call."""
    recording, failure = recorded_call.recording, recorded_call.recording.failure
    return CallResult(
        stdout=content(recorded_call, "stdout"),
        stderr=content(recorded_call, "stderr"),
        exit=recording.exit,
        duration_ms=recording.duration_ms,
        problem=Problem(kind=ProblemClass(failure.kind), code=failure.code) if failure else None,
    )


def result_of(variant: Variant) -> CallResult:
    """Return the result of a variant."""
    return CallResult(
        stdout=variant.stdout, stderr=variant.stderr, exit=variant.exit, duration_ms=1, problem=variant.ours
    )


class TapeWorkspace(SimulatedWorkspace):
    """Adds the recorded forbidden changes, which no patch contains, to captures."""

    def __init__(self, world: Tape) -> None:
        super().__init__(world)
        self.offences: dict[str, tuple[Offence, ...]] = {}

    def capture(self, worktree: Place, before: Commit) -> Capture:
        return replace(super().capture(worktree, before), offences=self.offences.pop(worktree.feature, ()))


class TapePorts:
    """Implements `mz_engine.ports.Ports`."""

    def __init__(self, world: Tape) -> None:
        self.tape = world
        self.workspace = TapeWorkspace(world)
        self.agents = TapeAgents(world, self.workspace.offences)
        self.forge, self.blobs, self.secrets = SimulatedForge(world), world.blobs, Secrets({})

    @property
    def executor(self) -> TapePorts:
        return self

    prices = learnings = clock = executor

    def run(self, worktree: Place, command: str, timeout_seconds: int, key: str) -> CommandResult:
        """Return the recorded result of a command; success if there is none."""
        world = self.tape
        world.tick("command.before")
        result_key = (command, world.content_of(world.worktrees[worktree.feature]))
        if remaining := world.ran.get(worktree.feature):
            name = key.split("/")[-1].partition(".")[2] if "/setup/" not in key else command
            recorded_command = next((candidate for candidate in remaining if candidate[0] == name), None)
            if recorded_command is not None:
                remaining.remove(recorded_command)
                world.results[result_key] = recorded_command[1]
        return CommandResult(exit=world.results.get(result_key, 0), output=b"", duration_ms=1)

    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        return Price(nanousd=0, unpriced=(), prices="none")

    def estimate(
        self, model: str, input_tokens: int, output_tokens: int, at_us: int, cache_read: int = 0, cache_write: int = 0
    ) -> int | None:
        return None

    def hint(self, signature: str) -> str | None:
        return None

    def now_us(self) -> int:
        return self.tape.now_us

    def leap(self, until_us: int) -> None:
        self.tape.leap(until_us)
