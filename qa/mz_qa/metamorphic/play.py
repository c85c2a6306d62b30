"""Plays every variant of every call of a cassette through the real parser, effects and decisions, in memory.

The cassette is played unaltered once. Then each call is replaced by each of its variants, starting just before the
call; without processes, thousands of variants take seconds."""

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
"""Number of parallel features, and the seed."""
ROUNDS_MAX = 100_000
Violations = tuple[str, ...]


def play_variants(cassette: Cassette, project: Path, environment: Mapping[str, str]) -> tuple[Outcome, ...]:
    """Play each variant of each recording through the project's current pipeline, and the cassette with its features in
    other orders. Raises WorldMissing and MzError like a replay."""
    parallel = max(1, len(cassette.manifest.world.items))
    pins = pins_of(project, environment, cassette.manifest, parallel)
    with tempfile.TemporaryDirectory(prefix="mz-variants-") as name:
        trees = Trees(cassette, Path(name), environment)
        world, broken = open_tape(cassette, pins, trees)
        outcomes = [*_unaltered(world, broken), *_reordered(world, trees)]
        usual_ends = {feature: end_of(told_of(world, feature)) for feature in _features(cassette)}
        for recorded_call in cassette.taken:
            if recorded_call.recording.identity in world.moments:
                outcomes += _varied(world, recorded_call, usual_ends[recorded_call.recording.identity.feature])
    return tuple(outcomes)


def open_tape(cassette: Cassette, pins: Pins, trees: Trees) -> tuple[Tape, Violations]:
    """Create the world of a cassette and play it unaltered; also return violated invariants."""
    world = Tape(cassette, pins, trees.files(trees.head), trees.patched)
    world.ran = {feature: commands_of(trace) for feature, trace in cassette.stories.items()}
    _begin(world, trees)
    return world, _run(world)


def _run(world: Tape, only: str | None = None, seed: int | None = None) -> Violations:
    """Run until idle; return the reasons why that failed, empty if none."""
    try:
        run_out(world, only, seed)
    except Endless:
        return ("it does not stop",)
    except Exception as error:
        return (f"internal error: {type(error).__name__}: {error}",)
    return ()


def _begin(world: Tape, trees: Trees) -> None:
    heads: dict[str, Commit] = {}
    for feature, commit in trees.delivered.items():
        heads[feature] = world.write(Tree(trees.files(commit), world.base))
    items = world.cassette.manifest.world.items
    begin(world.cassette, items, world.pins, world.store, TapePorts(world), world.base, heads)


def _features(cassette: Cassette) -> tuple[str, ...]:
    return tuple(item.feature for item in cassette.manifest.world.items)


def run_out(world: Tape, only: str | None = None, seed: int | None = None) -> None:
    """Run until idle; with `only`, until that feature stops. The seed chooses which feature takes the next step;
    without one they take turns. Raises CallLoopError."""
    fixture, ports, rng = world.cassette.manifest.world, TapePorts(world), Random(seed)
    coordinator = Punctual(fixture.run, world.pins, world.store, ports, _unsaid(world))
    proxy, active, decided_version = Inline(coordinator), dict[FeatureId, ReplayFeature](), -1
    for _ in range(ROUNDS_MAX):
        if coordinator.state.version != decided_version:
            coordinator.decide()
            decided_version = coordinator.state.version
        for feature in coordinator.runnable(frozenset(active)):
            if only in (None, feature):
                feature_loop = ReplayFeature(fixture.run, feature, world.pins, world.store, ports, proxy, unseen)
                feature_loop.killed = threading.Event()
                active[feature] = feature_loop
        if not active and not coordinator.taken_up(world.cassette):
            return
        if not active:
            continue
        feature = next(iter(active)) if seed is None else rng.choice(sorted(active))
        if not active[feature].step():
            coordinator.rested(active.pop(feature))
            decided_version = -1
    raise Endless("rounds")


class Punctual(ReplayCoordinator):
    """Repeats recorded decisions only at their recorded positions; other questions stay open."""

    def rested(self, feature_run: FeatureRun) -> None:
        remaining = self._said.get(feature_run.feature)
        if remaining and self._so_far(feature_run.feature) == remaining[0].after:
            super().rested(feature_run)
        else:
            Coordinator.rested(self, feature_run)

    def taken_up(self, cassette: Cassette) -> bool:
        """Resume a halted run if it was resumed at this point in the recording."""
        halted = self.state.halted
        if halted is None or self._so_far(halted.feature) not in mended(cassette.stories.get(halted.feature, b"")):
            return False
        self.resume()
        return True


def _unsaid(world: Tape) -> tuple[Said, ...]:
    """Return the recorded decisions that are not in the log yet."""
    accepted_counts: dict[str, int] = {}
    for recorded in world.store.log:
        if type(recorded.event).__name__ in ("AnswerGiven", "RetryGiven", "CancelGiven"):
            feature = getattr(recorded.event, "feature", "")
            accepted_counts[feature] = accepted_counts.get(feature, 0) + 1
    remaining: list[Said] = []
    for decision in world.cassette.manifest.world.said:
        if accepted_counts.get(decision.feature, 0) > 0:
            accepted_counts[decision.feature] -= 1
        else:
            remaining.append(decision)
    return tuple(remaining)


def told_of(world: Tape, feature: str, after: int = 0) -> list[Told]:
    """Return the feature's events after a version, in comparable form."""
    stream = feature_stream(world.cassette.manifest.world.run, feature)
    return told(recorded.event for recorded in world.store.read(stream, after))


def _unaltered(world: Tape, broken: Violations) -> Iterator[Outcome]:
    """Check the unaltered run: every end state is named, and every recording was used."""
    for feature in _features(world.cassette):
        end = end_of(told_of(world, feature))
        violated = broken or (() if end else ("it ended in a state without a name",))
        yield Outcome(feature=feature, call="", variant="as-recorded", how="memory", end=end, violations=violated)
    for recorded_call in world.cassette.taken:
        identity = recorded_call.recording.identity
        if identity not in world.moments:
            unused = ("the recording is unused, so its variants cannot be played: see mz replay",)
            yield Outcome(
                feature=identity.feature, call=identity.name, variant="as-recorded", how="memory", end="not played",
                violations=unused,
            )  # fmt: skip


def _reordered(world: Tape, trees: Trees) -> Iterator[Outcome]:
    """Check that other orders and interleavings of features give the same traces."""
    features = _features(world.cassette)
    if len(features) < 2:
        return
    usual_traces = {feature: _story(world, feature) for feature in features}
    for parallel, seed in ORDERS:
        pins = replace(world.pins, config=replace(world.pins.config, parallel_max=parallel))
        other_world = Tape(world.cassette, pins, trees.files(trees.head), trees.patched)
        other_world.played, other_world.results = world.played, world.results
        _begin(other_world, trees)
        broken = _run(other_world, seed=seed)
        for feature in features:
            is_same = _story(other_world, feature) == usual_traces[feature]
            yield Outcome(
                feature=feature,
                call="",
                variant=f"order-{seed}-parallel-{parallel}",
                how="memory",
                end=end_of(told_of(other_world, feature)),
                violations=broken or (() if is_same else ("its trace differs from that of the sequential run",)),
            )


def _story(world: Tape, feature: str) -> bytes:
    stream = feature_stream(world.cassette.manifest.world.run, feature)
    return write(story(recorded.event for recorded in world.store.read(stream)))


class Ran(NamedTuple):
    """Events from the altered call on."""

    story: list[Told]
    broken: Violations


def _varied(world: Tape, recorded_call: Taken, usual: str) -> Iterator[Outcome]:
    """Play all variants of one recording. Variants whose parsed replies are equivalent are played once and judged
    each."""
    agent, runs_by_key = world.cassette.manifest.agent, dict[object, Ran]()
    for variant in derive(recorded_call):
        reports_success = succeeds(agent, variant.stdout, variant.stderr)
        for crashes in (False, True):
            reading = _reading(world.adapters[agent], variant, crashes)
            equivalence_key = _likeness(reading, variant, crashes)
            if equivalence_key not in runs_by_key:
                runs_by_key[equivalence_key] = _play(world, variant, crashes)
            run = runs_by_key[equivalence_key]
            success = (reading.terminal == "success" if reports_success is None else reports_success) and (
                crashes or variant.ours is None
            )
            yield Outcome(
                feature=variant.identity.feature,
                call=variant.identity.name,
                variant=variant.name,
                how="crash" if crashes else "memory",
                end=end_of(run.story),
                violations=run.broken or violations(variant, success, run.story, usual),
            )


def _reading(adapter: Adapter, variant: Variant, crashes: bool) -> Reading:
    result = result_of(variant)
    return adapter.parse_output(replace(result, exit=None, problem=None) if crashes else result)


def _likeness(reading: Reading, variant: Variant, crashes: bool) -> object:
    """Return a key that is equal for variants with the same decisions; tokens and error texts do not matter."""
    problem = reading.problem
    effect = (problem.kind, problem.code, problem.retry_after_seconds) if problem else reading.text
    return crashes, variant.changes, variant.ours is None, reading.terminal, bool(reading.usage), effect


def _play(world: Tape, variant: Variant, crashes: bool) -> Ran:
    """Play one variant, starting just before its call."""
    fork, feature = world.fork(variant, crashes), variant.identity.feature
    version_before = sum(1 for _ in fork.store.read(feature_stream(world.cassette.manifest.world.run, feature)))
    broken = _run(fork, only=feature)
    return Ran(told_of(fork, feature, version_before), broken)
