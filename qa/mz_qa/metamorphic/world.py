"""Adapter: the world of a cassette in memory: its repository, its agents' answers, its gates' results, its clock.

Agents leave what they left when they were recorded; a call answers only from the tree that it was recorded in. A
`Tape` can be copied at the moment before any call, so that one call can be answered in a thousand ways.
"""

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
"""Side effects after which a run counts as endless: so many, and so many more for each recorded call. A call takes
about 20."""
Patched = Callable[[Files, bytes], Files | None]
"""The files with a patch applied; None where it does not fit."""


class Endless(Exception):
    """The run does not come to rest."""


class Known(NamedTuple):
    """A recorded call as it was played unaltered."""

    before: Files
    after: Files


class Moment(NamedTuple):
    """The moment before a call is asked for."""

    length: int
    """Events so far."""
    refs: Mapping[str, Commit]
    now_us: int


class Tape(World):
    """What outlives a process. `played` and `moments` are filled by playing it unaltered."""

    def __init__(self, cassette: Cassette, pins: Pins, files: Files, patched: Patched) -> None:
        super().__init__({}, lambda spec, files: Answer(), lambda command, files: (0, ""))
        self.cassette, self.pins, self.patched = cassette, pins, patched
        self.adapters = adapters(pins.config.agents)
        self.taken = {one.recording.identity: one for one in cassette.taken}
        self.now_us = int(parse_time(cassette.manifest.world.clock_start).timestamp()) * 1_000_000
        self._names: dict[bytes, bytes] = {}
        self.base = self.write(Tree(files, None))
        self.refs = {f"refs/heads/{cassette.manifest.world.base}": self.base}
        self.played: dict[Identity, Known] = {}
        self.moments: dict[Identity, Moment] = {}
        self.ran: dict[str, list[tuple[str, int | None]]] = {}
        """By feature: names and exits of its recorded commands that are still to come."""
        self.results: dict[tuple[str, Commit], int | None] = {}
        """By command and content of the tree."""
        self.missed: list[Identity] = []
        self.variant: Variant | None = None
        self.dies = False
        """`mz` is killed while the altered call is under way, and finds what it left afterwards."""
        self.limit = STEPS_MAX + STEPS_MAX_CALL * len(cassette.taken)

    @cached_property
    def counted(self) -> Mapping[str, int]:
        return counted(self.cassette)

    def tick(self, name: str) -> None:
        """Raises Endless."""
        super().tick(name)
        if self.steps > self.limit:
            raise Endless(name)

    def write(self, tree: Tree) -> Commit:
        """As ever, but a file's content is digested once."""
        digest = hashlib.sha1(repr((tree.parent, tree.message, tree.merged)).encode())
        for name, data in sorted(tree.files.items()):
            digest.update(b"%s\0%s" % (name.encode("utf-8", "surrogateescape"), self._name(data)))
        commit = Commit(digest.hexdigest())
        self.objects[commit] = tree
        return commit

    def _name(self, data: bytes) -> bytes:
        known = self._names.get(data)
        if known is None:
            known = self._names[data] = hashlib.sha1(data).digest()
        return known

    def content_of(self, files: Files) -> Commit:
        """The same files, the same name."""
        return self.write(Tree(files, None))

    def fork(self, variant: Variant, dies: bool) -> Tape:
        """A world of its own, as it was before the variant's call was asked for."""
        moment = self.moments[variant.identity]
        other = Tape(self.cassette, self.pins, {}, self.patched)
        other.store, other.blobs = self.store.copy(other.tick, moment.length), MemoryBlobs()
        other.blobs.kept, other.objects = ChainMap({}, self.blobs.kept), ChainMap({}, self.objects)
        other.base, other.refs, other.now_us, other._names = self.base, dict(moment.refs), moment.now_us, self._names
        other.played, other.results, other.counted = self.played, self.results, self.counted
        other.variant, other.dies = variant, dies
        return other

    def leap(self, until_us: int) -> None:
        """The clock: nobody waits."""
        self.now_us = max(self.now_us, until_us)


def commands_of(story: bytes) -> list[tuple[str, int | None]]:
    """Names and exits of the commands that ran, in order."""
    events = (json.loads(line) for line in story.splitlines())
    return [(event["name"], event["exit"]) for event in events if event["type"] == "command.ran"]


def mended(story: bytes) -> tuple[int, ...]:
    """How many of its events were told whenever the run was halted for it and resumed again."""
    events = [json.loads(line) for line in story.splitlines()]
    return tuple(
        at
        for at, (event, following) in enumerate(pairwise(events), start=1)
        if event.get("hold") == "fatal" and following["type"] == "feature.hold-released"
    )


class TapeAgents:
    """Implements `mz_engine.ports.Agents`: the cassette's answers, and for one call a variant of its answer."""

    def __init__(self, tape: Tape, offences: dict[str, tuple[Offence, ...]]) -> None:
        self._tape, self._offences = tape, offences

    def call(self, spec: CallSpec) -> CallResult:
        tape, identity = self._tape, self._identity(spec.key)
        tape.tick("call.before")
        tape.calls.append(spec.key)
        taken = tape.taken.get(identity)
        if taken is None:
            tape.missed.append(identity)
            return refused("recording-missing")
        before = dict(tape.worktrees[spec.place.feature])
        known = tape.played.get(identity)
        if known is None:
            known = self._first_time(spec, taken, before)
        if known is None or known.before != before:
            return refused("drift")
        return self._answer(spec, taken, known)

    def _first_time(self, spec: CallSpec, taken: Taken, before: Files) -> Known | None:
        tape = self._tape
        after = tape.patched(before, content(taken, "patch"))
        if after is None:
            return None
        length = len(tape.store.log)
        while length and _asks(tape.store.log[length - 1], spec.key):
            length -= 1
        tape.moments[taken.recording.identity] = Moment(length, dict(tape.refs), tape.now_us)
        tape.played[taken.recording.identity] = Known(before, after)
        return tape.played[taken.recording.identity]

    def _answer(self, spec: CallSpec, taken: Taken, known: Known) -> CallResult:
        tape = self._tape
        variant = tape.variant if tape.variant and tape.variant.identity == taken.recording.identity else None
        if variant is None or variant.changes:
            tape.worktrees[spec.place.feature] = dict(known.after)
        if tape.dies if variant else taken.recording.outcome == "lost":
            raise Interrupted(spec.key)
        result = result_of(variant) if variant else recorded(taken)
        if taken.recording.outcome == "replied":
            self._offences[spec.place.feature] = taken.recording.offences
        version = self.read(spec.agent, result).version or taken.recording.version
        return replace(result, version=version)

    def salvage(self, key: str) -> CallResult | None:
        identity = self._identity(key)
        variant, taken = self._tape.variant, self._tape.taken.get(identity)
        if variant is not None and variant.identity == identity:
            return replace(result_of(variant), exit=None, problem=None)
        return None if taken is None else recorded(taken)

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
        known = session is None or key.partition("/")[2] not in elsewhere(self._tape.cassette)
        return known and self._tape.adapters[agent].capabilities().sessions

    def _identity(self, key: str) -> Identity:
        return identify(self._tape.cassette.manifest.pipeline, key)


def identify(pipeline: str, key: str) -> Identity:
    """The identity of a call from its key."""
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
        case CallReserved(key=reserved):
            return reserved == key
    return False


def recorded(taken: Taken) -> CallResult:
    """What a call came to when it was recorded."""
    recording, failure = taken.recording, taken.recording.failure
    return CallResult(
        stdout=content(taken, "stdout"),
        stderr=content(taken, "stderr"),
        exit=recording.exit,
        duration_ms=recording.duration_ms,
        problem=Problem(kind=ProblemClass(failure.kind), code=failure.code) if failure else None,
    )


def result_of(variant: Variant) -> CallResult:
    """What the call comes to instead."""
    return CallResult(
        stdout=variant.stdout, stderr=variant.stderr, exit=variant.exit, duration_ms=1, problem=variant.ours
    )


class TapeWorkspace(SimulatedWorkspace):
    """Finds in the tree, besides what is there, what the agent had left that no patch holds."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape)
        self.offences: dict[str, tuple[Offence, ...]] = {}

    def capture(self, place: Place, before: Commit) -> Capture:
        return replace(super().capture(place, before), offences=self.offences.pop(place.feature, ()))


class TapePorts:
    """Implements `mz_engine.ports.Ports`."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.workspace = TapeWorkspace(tape)
        self.agents = TapeAgents(tape, self.workspace.offences)
        self.forge, self.blobs, self.secrets = SimulatedForge(tape), tape.blobs, Secrets({})

    @property
    def executor(self) -> TapePorts:
        return self

    prices = learnings = clock = executor

    def run(self, place: Place, command: str, timeout_seconds: int, key: str) -> CommandResult:
        """What came of the command when it was recorded; where nobody knows, it went well."""
        tape = self.tape
        tape.tick("command.before")
        at = (command, tape.content_of(tape.worktrees[place.feature]))
        if ran := tape.ran.get(place.feature):
            name = key.split("/")[-1].partition(".")[2] if "/setup/" not in key else command
            found = next((one for one in ran if one[0] == name), None)
            if found is not None:
                ran.remove(found)
                tape.results[at] = found[1]
        return CommandResult(exit=tape.results.get(at, 0), output=b"", duration_ms=1)

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
