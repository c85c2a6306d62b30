"""A crash at any instant loses nothing and pays nothing twice: the simulated process dies before and after every side
effect and every append, is started again, and must reach the same end; the world counts what was done to it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from msgspec.structs import replace
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PhaseContext
from mz_engine.ports import CallSpec
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested
from mz_events.catalog.inbox import CancelPosted
from mz_events.catalog.run import FeatureOutcome
from mz_events.names import FeatureId, feature_stream, inbox_stream, run_stream
from mz_events.store import Append
from mz_projections.feature.fold import fold
from mz_projections.feature.state import Ended
from mz_projections.run.fold import RunState, fold_run
from mz_qa.simulation import trial
from mz_qa.simulation.world import Crash, Files, ScriptedReply, World

from tests.support import driving
from tests.support.crashing import CrashingWorld
from tests.support.examples import first_of_each

OUTCOMES = AgentReplied | AgentFailed | AgentLost
ITEMS: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ()}


def outcome(world: World) -> dict[str, object]:
    """What is the same whatever happened on the way: statuses, phases, contents, commits, deliveries."""
    state: RunState = fold_run(world.store.read(run_stream(trial.RUN)))
    ends = {}
    for feature in state.tracks:
        folded = fold(world.store.read(feature_stream(trial.RUN, FeatureId(feature))))
        assert isinstance(folded, Ended), (feature, folded)
        assert folded.progress is not None
        ends[feature] = (
            folded.status,
            folded.progress.completed_phases,
            folded.progress.rollback_count,
            dict(world.commits(f"feat/{feature}")[0].files),
            [tree.message.split(b"\n")[0] for tree in world.commits(f"feat/{feature}")],
        )
    return {
        "ends": ends,
        "finished": state.finished,
        "calls": sorted(Counter(key.rsplit("/", 2)[0] + key[-8:] for key in world.call_keys).items()),
        "pushes": len(world.pushes),
        "pull requests": len(world.pull_requests),
    }


def nothing_twice(world: World) -> None:
    assert len(world.call_keys) == len(set(world.call_keys)), "an agent was called twice under one key"
    assert len(world.pushes) == len(set(world.pushes)), "a commit was pushed twice"
    for feature in ITEMS:
        keys = [
            line
            for tree in world.commits(f"feat/{feature}")
            for line in tree.message.split(b"\n")
            if line.startswith(b"Mz-Key")
        ]
        assert len(keys) == len(set(keys)), "a commit was made twice"
    intents = [recorded.event.ref.key for recorded in world.store.log if isinstance(recorded.event, AgentRequested)]
    assert len(intents) == len(set(intents))


def nothing_open(world: World) -> None:
    """Every call that was asked for came to one outcome, and no money is set aside for any."""
    keys = [item.event.ref.key for item in world.store.log if isinstance(item.event, AgentRequested)]
    settled = [recorded.event.ref.key for recorded in world.store.log if isinstance(recorded.event, OUTCOMES)]
    assert Counter(keys) == Counter(settled)
    tracks = fold_run(world.store.read(run_stream(trial.RUN))).tracks
    assert {feature: track.reservations for feature, track in tracks.items()} == {feature: {} for feature in tracks}


def clean(pinned: Pins, seed: int) -> World:
    world = driving.new_world()
    trial.begin(world, pinned, ITEMS)
    driving.deliver(world, pinned, seed)
    return world


def test_the_trial_pipeline_exercises_every_mechanism() -> None:
    world = clean(trial.pins(), seed=1)
    kinds = Counter(type(recorded.event).__name__ for recorded in world.store.log)
    for expected in (
        "GateChecked", "RolledBack", "HumanRequested", "HumanAnswered", "PullRequestOpened", "ClaimRejected",
        "HoldReleased", "ChangesChecked", "CallReserved", "ClaimCompared", "RunFinished", "CommandRan",
    ):  # fmt: skip
        assert kinds[expected], expected
    ends = outcome(world)["ends"]
    assert {feature: end[0].value for feature, end in ends.items()} == dict.fromkeys(ITEMS, "delivered")  # type: ignore[attr-defined]
    nothing_twice(world)
    nothing_open(world)


@pytest.mark.parametrize("seed", first_of_each(range(8), lambda seed: seed % 2))
@pytest.mark.slow
def test_any_interleaving_reaches_the_same_end(seed: int) -> None:
    pinned = trial.pins()
    world = clean(pinned, seed)
    assert outcome(world) == outcome(clean(pinned, seed=99))
    nothing_open(world)


def crash_and_resume(pinned: Pins, cut: int, seed: int) -> World:
    world = driving.new_world()
    trial.begin(world, pinned, ITEMS)
    world.crash_at_step = world.steps + cut
    with suppress(Crash):
        driving.deliver(world, pinned, seed)
    world.crash_at_step = None
    driving.deliver(world, pinned, seed)
    return world


@pytest.mark.slow
def test_a_salvaged_reply_tells_the_version_that_its_output_names() -> None:
    pinned = trial.pins()
    worlds = (crash_and_resume(pinned, cut, 7) for cut in range(20, 400, 10))
    salvaged = (
        recorded.event for world in worlds for recorded in world.store.log
        if isinstance(recorded.event, AgentReplied) and recorded.event.salvaged
    )  # fmt: skip
    assert next(salvaged).version == "1"


def steps_of_a_clean_run(pinned: Pins, seed: int) -> int:
    world = driving.new_world()
    trial.begin(world, pinned, ITEMS)
    start = world.steps
    driving.deliver(world, pinned, seed)
    return world.steps - start


def survives(pinned: Pins, seed: int, items: dict[str, tuple[str, ...]], part: int, parts: int) -> None:
    world = CrashingWorld(trial.FILES, trial.script, trial.commands)
    trial.begin(world, pinned, items)
    world.crash_at(1 + part, parts)
    driving.deliver(world, pinned, seed)
    expected = outcome(world)
    for cut, left in enumerate(world.left):
        driving.deliver(left, pinned, seed)
        assert outcome(left) == expected, f"cut {cut}"
        nothing_twice(left)
        nothing_open(left)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_a_crash_at_every_step_loses_nothing_and_pays_nothing_twice(part: int) -> None:
    """Of the feature that has every mechanism."""
    survives(trial.pins(), 7, {"a": ()}, part, 2)


@pytest.mark.slow
def test_a_crash_at_some_steps_of_features_in_parallel_loses_nothing_and_pays_nothing_twice() -> None:
    survives(trial.pins(), 7, ITEMS, part=3, parts=7)


def scoped_pins() -> Pins:
    """Every agent sees the files of its unit, and what the engine adds to them."""
    pins = trial.pins()
    use = PhaseContext(files=("{unit.files}", "{dependencies.files}"))
    phases = tuple(replace(phase, context=use) for phase in pins.pipeline.phases)
    return replace(pins, pipeline=replace(pins.pipeline, phases=phases))


def test_an_agent_that_sees_only_its_files_reaches_the_same_end() -> None:
    visible: dict[str, list[str]] = {}

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        visible.setdefault("/".join(spec.key.split("/")[1:7]), sorted(files))
        return trial.script(spec, files)

    world = World(trial.FILES, script, trial.commands)
    trial.begin(world, scoped_pins(), ITEMS)
    driving.deliver(world, scoped_pins(), seed=1)
    assert outcome(world)["ends"] == outcome(clean(trial.pins(), seed=1))["ends"]
    nothing_twice(world)
    plan = "plans/b.json"
    assert visible["b/plan/-/1/1/agent.builder"] == []
    assert visible["b/build/u1/1/1/agent.builder"] == [plan]
    assert visible["b/build/u1/1/1/agent.reviewer"] == ["b1.txt", "notes/b.u1.md", plan], "the work that it judges"
    assert visible["b/build/u2/1/1/agent.builder"] == ["b1.txt", plan], "what the unit depends on"
    assert visible["b/ship/-/1/1/agent.builder"] == [f"notes/b.u{number}.md" for number in (1, 2, 3)] + [plan]


@pytest.mark.slow
def test_a_crash_beside_laid_out_files_loses_nothing() -> None:
    survives(scoped_pins(), 7, ITEMS, 1, 12)


@pytest.mark.slow
def test_a_process_that_dies_again_and_again_gets_there() -> None:
    pinned = trial.pins()
    expected = outcome(clean(pinned, seed=3))
    for stride in (17, 29, 53):
        world = driving.new_world()
        trial.begin(world, pinned, ITEMS)
        for _ in range(2000):
            world.crash_at_step = world.steps + stride
            try:
                driving.deliver(world, pinned, seed=3)
                break
            except Crash:
                continue
        assert outcome(world) == expected
        nothing_twice(world)
        nothing_open(world)


class Visited(World):
    """Another process leaves a cancel of `c` in the inbox at one instant of the run."""

    cancels_at: int | None = None

    def tick(self, name: str) -> None:
        super().tick(name)
        if self.steps == self.cancels_at:
            left = CancelPosted(feature=FeatureId("c"), actor=self.blobs.put(b"tester"))
            self.store.append([Append(inbox_stream(trial.RUN), None, (left,))], self.now_us)


def cancelled_at(pinned: Pins, cut: int, seed: int, dies_after: int | None) -> World:
    """A run with a cancel after `cut` steps; with `dies_after`, the process dies that many steps later."""
    world = Visited({"README.md": "a project"}, trial.script, trial.commands)
    trial.begin(world, pinned, ITEMS)
    world.cancels_at = world.steps + cut
    if dies_after is not None:
        world.crash_at_step = world.cancels_at + dies_after
    with suppress(Crash):
        driving.deliver(world, pinned, seed)
    world.crash_at_step = None
    driving.deliver(world, pinned, seed)
    return world


@pytest.mark.slow
def test_a_cancel_at_many_steps_ends_its_feature_and_no_other() -> None:
    """Also where the process dies a little later."""
    pinned, feature_outcomes = trial.pins(), set()
    for number, cut in enumerate(range(1, steps_of_a_clean_run(pinned, 7) + 1, 41)):
        dies_after = 9 if number % 2 else None
        world = cancelled_at(pinned, cut, 7, dies_after)
        state = fold_run(world.store.read(run_stream(trial.RUN)))
        ends = {feature: track.last_stop and track.last_stop.status for feature, track in state.tracks.items()}
        feature_outcomes.add(ends["c"])
        assert state.finished, f"cut {cut}"
        assert ends == {"a": FeatureOutcome.DELIVERED, "b": FeatureOutcome.DELIVERED, "c": ends["c"]}, f"cut {cut}"
        nothing_twice(world)
        nothing_open(world)
    assert feature_outcomes == {FeatureOutcome.CANCELLED, FeatureOutcome.DELIVERED}, (
        "cancels come before and after its delivery"
    )
