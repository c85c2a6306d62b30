"""Driver: plays every way in which every call of a cassette might have ended, through the real core, in memory.

The cassette is played once as it is. Then each call is answered otherwise, once for each variant, from the moment at
which it was asked: the real parser, effects and deciders, without processes, so that thousands take seconds.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.coordinator import Coordinator
from mz_engine.pins import Pins
from mz_engine.ports import Reading
from mz_engine.runner import FeatureRun
from mz_events.names import Commit, FeatureId, feature_stream
from mz_recordings.cassette import Cassette, Said, Taken
from mz_recordings.playing.drive import ReplayCoordinator, ReplayFeature, begin, unseen
from mz_recordings.playing.today import pins_of
from mz_recordings.recording.story import story, write
from mz_recordings.whatif.variants import Variant, derive

from mz_qa.metamorphic.properties import Outcome, Told, end_of, succeeds, told, violations
from mz_qa.metamorphic.trees import Trees
from mz_qa.metamorphic.world import Endless, Tape, TapePorts, commands_of, mended, result_of
from mz_qa.simulation.driver import Inline
from mz_qa.simulation.world import Tree

ORDERS = ((1, 1), (2, 2), (2, 3), (4, 4), (4, 5))
"""How many features at the same time, and the seed."""
ROUNDS_MAX = 100_000
Violations = tuple[str, ...]


def play_variants(cassette: Cassette, project: Path, environment: Mapping[str, str]) -> tuple[Outcome, ...]:
    """What becomes of each variant of each recording, through today's pipeline of the project, and of the cassette with
    its features at work in other orders. Raises WorldMissing and MzError as a replay does."""
    parallel = max(1, len(cassette.manifest.world.items))
    pins = pins_of(project, environment, cassette.manifest, parallel)
    with tempfile.TemporaryDirectory(prefix="mz-variants-") as name:
        trees = Trees(cassette, Path(name), environment)
        tape, broken = open_tape(cassette, pins, trees)
        found = [*_unaltered(tape, broken), *_reordered(tape, trees)]
        usual = {feature: end_of(told_of(tape, feature)) for feature in _features(cassette)}
        for one in cassette.taken:
            if one.recording.identity in tape.moments:
                found += _varied(tape, one, usual[one.recording.identity.feature])
    return tuple(found)


def open_tape(cassette: Cassette, pins: Pins, trees: Trees) -> tuple[Tape, Violations]:
    """The world of a cassette, in which it has been played as it is; and what broke."""
    tape = Tape(cassette, pins, trees.files(trees.head), trees.patched)
    tape.ran = {feature: commands_of(story) for feature, story in cassette.stories.items()}
    _begin(tape, trees)
    return tape, _run(tape)


def _run(tape: Tape, only: str | None = None, seed: int | None = None) -> Violations:
    """What kept the run from coming to rest; empty: nothing."""
    try:
        run_out(tape, only, seed)
    except Endless:
        return ("it does not come to rest",)
    except Exception as error:
        return (f"the core breaks: {type(error).__name__}: {error}",)
    return ()


def _begin(tape: Tape, trees: Trees) -> None:
    heads: dict[str, Commit] = {}
    for feature, commit in trees.delivered.items():
        heads[feature] = tape.write(Tree(trees.files(commit), tape.base))
    items = tape.cassette.manifest.world.items
    begin(tape.cassette, items, tape.pins, tape.store, TapePorts(tape), tape.base, heads)


def _features(cassette: Cassette) -> tuple[str, ...]:
    return tuple(item.feature for item in cassette.manifest.world.items)


def run_out(tape: Tape, only: str | None = None, seed: int | None = None) -> None:
    """Until nothing can go on; with `only`, until that feature rests. The seed chooses which feature takes the next
    step; without one they take turns as they come. Raises Endless."""
    world, ports, random = tape.cassette.manifest.world, TapePorts(tape), Random(seed)
    coordinator = Punctual(world.run, tape.pins, tape.store, ports, _unsaid(tape))
    door, alive, decided = Inline(coordinator), dict[FeatureId, ReplayFeature](), -1
    for _ in range(ROUNDS_MAX):
        if coordinator.state.version != decided:
            coordinator.decide()
            decided = coordinator.state.version
        for feature in coordinator.runnable(frozenset(alive)):
            if only in (None, feature):
                run = ReplayFeature(world.run, feature, tape.pins, tape.store, ports, door, unseen)
                run.killed = threading.Event()
                alive[feature] = run
        if not alive and not coordinator.taken_up(tape.cassette):
            return
        if not alive:
            continue
        feature = next(iter(alive)) if seed is None else random.choice(sorted(alive))
        if not alive[feature].step():
            coordinator.rested(alive.pop(feature))
            decided = -1
    raise Endless("rounds")


class Punctual(ReplayCoordinator):
    """People say what they said where they said it, and nowhere else: what is asked besides stays open."""

    def rested(self, feature_run: FeatureRun) -> None:
        left = self._said.get(feature_run.feature)
        if left and self._so_far(feature_run.feature) == left[0].after:
            super().rested(feature_run)
        else:
            Coordinator.rested(self, feature_run)

    def taken_up(self, cassette: Cassette) -> bool:
        """The run was halted, and somebody resumes it as then."""
        halted = self.state.halted
        if halted is None or self._so_far(halted.feature) not in mended(cassette.stories.get(halted.feature, b"")):
            return False
        self.resume()
        return True


def _unsaid(tape: Tape) -> tuple[Said, ...]:
    """What people have still to say, after what they have said in the log so far."""
    given: dict[str, int] = {}
    for recorded in tape.store.log:
        if type(recorded.event).__name__ in ("AnswerGiven", "RetryGiven", "CancelGiven"):
            feature = getattr(recorded.event, "feature", "")
            given[feature] = given.get(feature, 0) + 1
    left: list[Said] = []
    for one in tape.cassette.manifest.world.said:
        if given.get(one.feature, 0) > 0:
            given[one.feature] -= 1
        else:
            left.append(one)
    return tuple(left)


def told_of(tape: Tape, feature: str, after: int = 0) -> list[Told]:
    """The feature's events from that version on."""
    stream = feature_stream(tape.cassette.manifest.world.run, feature)
    return told(recorded.event for recorded in tape.store.read(stream, after))


def _unaltered(tape: Tape, broken: Violations) -> Iterator[Outcome]:
    """As it is: every end has a name, and every recording was asked for, else its variants are not played."""
    for feature in _features(tape.cassette):
        end = end_of(told_of(tape, feature))
        found = broken or (() if end else ("it ended in no state that has a name",))
        yield Outcome(feature=feature, call="", variant="as-recorded", how="memory", end=end, violations=found)
    for one in tape.cassette.taken:
        identity = one.recording.identity
        if identity not in tape.moments:
            why = ("nothing asks for it any more, so that its variants cannot be played: see mz replay",)
            yield Outcome(
                feature=identity.feature, call=identity.name, variant="as-recorded", how="memory", end="not played",
                violations=why,
            )  # fmt: skip


def _reordered(tape: Tape, trees: Trees) -> Iterator[Outcome]:
    """Features at work in other orders and interleavings tell the same stories."""
    features = _features(tape.cassette)
    if len(features) < 2:
        return
    usual = {feature: _story(tape, feature) for feature in features}
    for parallel, seed in ORDERS:
        pins = replace(tape.pins, config=replace(tape.pins.config, parallel_max=parallel))
        other = Tape(tape.cassette, pins, trees.files(trees.head), trees.patched)
        other.played, other.results = tape.played, tape.results
        _begin(other, trees)
        broken = _run(other, seed=seed)
        for feature in features:
            same = _story(other, feature) == usual[feature]
            yield Outcome(
                feature=feature,
                call="",
                variant=f"order-{seed}-parallel-{parallel}",
                how="memory",
                end=end_of(told_of(other, feature)),
                violations=broken or (() if same else ("its story is another one than when the features took turns",)),
            )


def _story(tape: Tape, feature: str) -> bytes:
    stream = feature_stream(tape.cassette.manifest.world.run, feature)
    return write(story(recorded.event for recorded in tape.store.read(stream)))


class Ran(NamedTuple):
    """What happened from the altered call on."""

    story: list[Told]
    broken: Violations


def _varied(tape: Tape, taken: Taken, usual: str) -> Iterator[Outcome]:
    """All variants of one recording. What the core cannot tell apart, since it sees nothing but the parser's reading,
    is played once and judged for each."""
    agent, known = tape.cassette.manifest.agent, dict[object, Ran]()
    for variant in derive(taken):
        said = succeeds(agent, variant.stdout, variant.stderr)
        for dies in (False, True):
            reading = _reading(tape.adapters[agent], variant, dies)
            likeness = _likeness(reading, variant, dies)
            if likeness not in known:
                known[likeness] = _play(tape, variant, dies)
            ran = known[likeness]
            well = (reading.terminal == "success" if said is None else said) and (dies or variant.ours is None)
            yield Outcome(
                feature=variant.identity.feature,
                call=variant.identity.name,
                variant=variant.name,
                how="crash" if dies else "memory",
                end=end_of(ran.story),
                violations=ran.broken or violations(variant, well, ran.story, usual),
            )


def _reading(adapter: Adapter, variant: Variant, dies: bool) -> Reading:
    result = result_of(variant)
    return adapter.parse_output(replace(result, exit=None, problem=None) if dies else result)


def _likeness(reading: Reading, variant: Variant, dies: bool) -> object:
    """The same for what leads to the same decisions: tokens and words of a failure decide nothing."""
    problem = reading.problem
    kind = (problem.kind, problem.code, problem.retry_after_seconds) if problem else reading.text
    return dies, variant.changes, variant.ours is None, reading.terminal, bool(reading.usage), kind


def _play(tape: Tape, variant: Variant, dies: bool) -> Ran:
    """One variant, from the moment at which its call is asked for."""
    other, feature = tape.fork(variant, dies), variant.identity.feature
    begun = sum(1 for _ in other.store.read(feature_stream(tape.cassette.manifest.world.run, feature)))
    broken = _run(other, only=feature)
    return Ran(told_of(other, feature, begun), broken)
