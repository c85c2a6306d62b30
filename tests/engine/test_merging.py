"""Deliveries that change the repository, in the simulated world: a merge into the target, tags, a closed branch."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from mz_engine.model.config import PullRequests, Sources
from mz_engine.model.pipeline import ItemKind, TagStep
from mz_engine.ports import CallSpec, RepositoryUnusable
from mz_events.catalog.delivery import BaseMerged, BranchLanded, DeliveryFailed, Tagged, TargetMoved
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import FeatureOutcome, Verdict
from mz_events.catalog.validation import GateChecked
from mz_events.names import Commit, FeatureId, feature_stream, run_stream
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.state import Ended, Waiting
from mz_projections.run.fold import fold_run
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, SimulatedAdapter, SimulatedWorkspace, World

from tests.engine.test_delivery import Bench, mending, revise, revising, status
from tests.support import driving
from tests.support.crashing import CrashingWorld

MAIN = "refs/heads/main"
DAY = "1970-01-01"


def merging(items: dict[str, tuple[str, ...]] | None = None, world: World | None = None, **settings: object) -> Bench:
    bench = Bench(items, world)
    config = replace(bench.pins.config, pull_requests=PullRequests(strategy="none"), **settings)
    bench.pins = replace(bench.pins, pipeline=trial.with_merge(bench.pins.pipeline), config=config)
    trial.begin(bench.world, bench.pins, bench.items)
    return bench


def tags(bench: Bench) -> dict[str, Commit]:
    start = "refs/tags/"
    return {ref.removeprefix(start): oid for ref, oid in bench.world.refs.items() if ref.startswith(start)}


def test_the_target_gets_the_very_tree_of_the_branch_in_a_commit_with_two_parents() -> None:
    bench = merging()
    assert status(bench.run()) is FeatureOutcome.MERGED
    world, state = bench.world, bench.state()
    assert isinstance(state, Ended)
    assert state.progress is not None
    landed = world.refs[MAIN]
    merge = world.objects[landed]
    assert state.head == landed
    assert (merge.parent, merge.merged) == (world.base, state.progress.head)
    assert merge.files == world.objects[state.progress.head].files
    assert merge.message.startswith(b"Merge branch 'feat/b' into main\n\nMz-Key: r1/b/ship/-/1/0/merge\n")
    assert tags(bench) == {f"v{DAY}-b": landed, "r1/b-ready": state.progress.head, "feature-b-base": world.base}
    assert "refs/heads/feat/b" not in world.refs
    assert f"refs/mz/r1/closed/heads/feat/b/{state.progress.head}" in world.refs
    assert (world.pushes, world.pull_requests) == ([], {})


def trailers(bench: Bench) -> dict[str, str]:
    """The trailers of the newest merge, in their order."""
    message = bench.world.objects[bench.world.refs[MAIN]].message.decode()
    return dict(line.split(": ", 1) for line in message.split("\n\n")[1].splitlines())


def test_a_merge_states_the_lines_and_the_usage_of_all_calls() -> None:
    bench = merging(sources=Sources(code=("*.txt", "!b2.txt"), tests=("b2.txt",)))
    bench.base_moves(**{"other.txt": "theirs"})
    assert status(bench.run()) is FeatureOutcome.MERGED
    state = bench.state()
    assert isinstance(state, Ended)
    assert state.progress is not None
    usage, paid = state.progress.usage, paid_calls(bench.world.store.read(feature_stream(trial.RUN, FeatureId("b"))))
    assert trailers(bench) == {
        "Mz-Key": "r1/b/ship/-/1/0/merge",
        "Mz-Feature": "b",
        "Mz-Lines": "code +2 -0, tests +1 -0",
        "Mz-Calls": f"{len(paid)}",
        "Mz-Tokens": f"{usage.input_tokens} in, {usage.output_tokens} out",
        "Mz-Cost-USD": f"{sum(call.paid_nanousd or 0 for call in paid) / 1e9:.6f}",
        "Mz-Duration-Seconds": f"{usage.duration_ms / 1000:.1f}",
    }


def test_messages_state_no_tokens_where_no_agent_told_any(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = SimulatedAdapter.parse_output
    monkeypatch.setattr(SimulatedAdapter, "parse_output", lambda *args: replace(parse(*args), usage=()))
    bench = merging()
    assert status(bench.run()) is FeatureOutcome.MERGED
    assert list(trailers(bench)) == ["Mz-Key", "Mz-Feature", "Mz-Lines", "Mz-Calls", "Mz-Duration-Seconds"]


def test_messages_state_no_usage_where_settings_leave_it_out() -> None:
    bench = merging(usage_in_commits=False)
    assert status(bench.run()) is FeatureOutcome.MERGED
    assert list(trailers(bench)) == ["Mz-Key", "Mz-Feature", "Mz-Lines", "Mz-Calls"]
    assert not [tree for tree in bench.world.objects.values() if b"Mz-Tokens" in tree.message]


def test_lines_that_git_cannot_count_are_not_stated_and_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def source_change(*_: object) -> None:
        raise RepositoryUnusable("git", "killed")

    monkeypatch.setattr(SimulatedWorkspace, "source_change", source_change)
    bench = merging()
    assert status(bench.run()) is FeatureOutcome.MERGED
    assert list(trailers(bench))[:3] == ["Mz-Key", "Mz-Feature", "Mz-Calls"]


def test_a_target_that_moved_is_taken_in_first_and_the_gates_run_again() -> None:
    bench = merging()
    moved = bench.base_moves(**{"other.txt": "theirs"})
    assert status(bench.run()) is FeatureOutcome.MERGED
    landed = bench.world.objects[bench.world.refs[MAIN]]
    assert (landed.parent, landed.files["other.txt"]) == (moved, b"theirs")
    gates = [event.gate for event in bench.events() if isinstance(event, GateChecked)]
    assert gates[-2:] == ["check", "final"]
    assert tags(bench)["feature-b-base"] == moved


def moving(bench: Bench, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Somebody moves the target between the look at it and its merge."""
    advance, left = SimulatedWorkspace.advance, list(range(times))

    def late(self: SimulatedWorkspace, branch: str, old: Commit, commit: Commit) -> Commit | None:
        if left:
            bench.base_moves(**{f"other{left.pop()}.txt": "theirs"})
        return advance(self, branch, old, commit)

    monkeypatch.setattr(SimulatedWorkspace, "advance", late)


def test_a_target_that_moves_during_the_merge_is_taken_in_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = merging()
    moving(bench, monkeypatch, 2)
    assert status(bench.run()) is FeatureOutcome.MERGED
    assert bench.kinds()["TargetMoved"] == 2
    files = bench.world.objects[bench.world.refs[MAIN]].files
    assert {"other0.txt", "other1.txt", "b1.txt"} <= files.keys()
    assert len(bench.world.landings) == 1


def test_a_target_that_never_stands_still_is_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = merging()
    moving(bench, monkeypatch, 12)
    assert status(bench.run()) is FeatureOutcome.WAITING
    state = bench.state()
    assert isinstance(state, Waiting)
    assert state.question.code == "target-moved"
    assert bench.kinds()["TargetMoved"] == 10
    driving.answer(bench.world, "b", Verdict.APPROVE)
    assert status(bench.run()) is FeatureOutcome.MERGED
    assert bench.kinds()["TargetMoved"] == 12


def test_a_conflict_with_the_target_is_mended_before_the_merge() -> None:
    bench = merging()
    bench.world.script = mending
    bench.base_moves(**{"b1.txt": "theirs"})
    assert status(bench.run()) is FeatureOutcome.MERGED
    assert bench.world.objects[bench.world.refs[MAIN]].files["b1.txt"] == b"both"


def test_nothing_lands_whose_gates_fail_with_what_the_target_brought() -> None:
    bench = merging()
    bench.base_moves(**{"other.txt": "broken"})
    run = bench.run()
    assert status(run) is FeatureOutcome.WAITING
    assert bench.world.landings == []


def test_what_is_in_the_way_in_a_checkout_moves_nothing_and_asks() -> None:
    bench = merging()
    bench.world.in_the_way = True
    assert status(bench.run()) is FeatureOutcome.WAITING
    [failure] = [event for event in bench.events() if isinstance(event, DeliveryFailed)]
    assert (failure.code, bench.world.refs[MAIN]) == ("checkout-in-the-way", bench.world.base)
    bench.world.in_the_way = False
    driving.answer(bench.world, "b", Verdict.APPROVE)
    assert status(bench.run()) is FeatureOutcome.MERGED


def test_a_tag_of_somebody_else_stays_and_a_dated_name_gets_a_number() -> None:
    bench = merging()
    mine = bench.base_moves(**{"other.txt": "theirs"})
    bench.world.refs |= {f"refs/tags/v{DAY}-b": mine, "refs/tags/feature-b-base": bench.world.base}
    assert status(bench.run()) is FeatureOutcome.WAITING
    [failure] = [event for event in bench.events() if isinstance(event, DeliveryFailed)]
    assert failure.code == "tag-exists"
    assert [event.name for event in bench.events() if isinstance(event, Tagged)] == ["r1/b-ready", f"v{DAY}.2-b"]
    del bench.world.refs["refs/tags/feature-b-base"]
    driving.answer(bench.world, "b", Verdict.APPROVE)
    assert status(bench.run()) is FeatureOutcome.MERGED
    assert tags(bench)[f"v{DAY}-b"] == mine


def test_features_that_work_at_the_same_time_land_one_after_the_other() -> None:
    bench = merging({"b": (), "c": (), "d": ("b",)})
    coordinator = bench.run()
    assert {status(coordinator, feature) for feature in "bcd"} == {FeatureOutcome.MERGED}
    files = bench.world.objects[bench.world.refs[MAIN]].files
    assert {"b1.txt", "c1.txt", "d1.txt"} <= files.keys()
    assert len(bench.world.landings) == 3
    [started, *_] = [event for event in bench.events("d") if isinstance(event, FeatureStarted)]
    [needed] = [event.commit for event in bench.events("b") if isinstance(event, BranchLanded)]
    assert needed in started.starts_from
    [merged] = [event for event in bench.events("d") if isinstance(event, BaseMerged)]
    [landed] = [event for event in bench.events("d") if isinstance(event, BranchLanded)]
    assert landed.branch == "main", "a dependency that is merged is no branch to stack upon"
    assert merged.base == landed.old


def test_an_agent_that_moves_the_target_and_makes_tags_lands_nothing_unseen() -> None:
    """With a sandbox it cannot; without one, what it moves is taken in like anybody's commit."""
    bench = merging()

    def hostile(spec: CallSpec, files: Files) -> ScriptedReply:
        if spec.key.split("/")[2] == "ship":
            bench.base_moves(**{"b1.txt": "broken"})
            bench.world.refs["refs/tags/r1/b-ready"] = bench.world.base
        return trial.script(spec, files)

    bench.world.script = hostile
    assert status(bench.run()) is FeatureOutcome.WAITING
    assert bench.world.landings == []


def test_a_branch_that_the_target_has_already_is_no_merge() -> None:
    bench = merging(papers="log")
    bench.world.script = lambda spec, files: ScriptedReply(
        files={path: text for path, text in trial.script(spec, files).files.items() if "/" in path},
        text=trial.script(spec, files).text,
    )
    bench.world.commands = lambda command, files: (0, "")
    assert status(bench.run()) is FeatureOutcome.MERGED
    [landed] = [event for event in bench.events() if isinstance(event, BranchLanded)]
    assert (landed.changed, bench.world.refs[MAIN]) == (False, bench.world.base)


def test_a_merged_feature_is_revised_and_merged_once_more() -> None:
    bench = merging()
    steps = ("merge_base", "merge", TagStep(tag="v{date}-{item}", at="merge"), "close_branch")
    *phases, ship, _ = bench.pins.pipeline.phases
    pipeline = replace(bench.pins.pipeline, phases=(*phases, replace(ship, deliver=steps)))
    bench.pins = replace(bench.pins, pipeline=pipeline)
    bench.world.script = revising
    assert status(bench.run()) is FeatureOutcome.MERGED
    first = bench.world.refs[MAIN]
    revise(bench, "build")
    assert status(bench.resume()) is FeatureOutcome.MERGED
    landed = bench.world.objects[bench.world.refs[MAIN]]
    assert (landed.parent, landed.files["b1.txt"]) == (first, b"u1 of b, by Ada")
    assert tags(bench) == {f"v{DAY}-b": first, f"v{DAY}.2-b": bench.world.refs[MAIN]}
    assert "refs/heads/feat/b" not in bench.world.refs


@pytest.mark.parametrize(
    ("steps", "ending"),
    [
        ((), FeatureOutcome.DONE),
        (("close_branch",), FeatureOutcome.DONE),
        (("push", "open_pr"), FeatureOutcome.DELIVERED),
    ],
)
def test_how_a_feature_ends_follows_from_its_steps(steps: tuple[str, ...], ending: FeatureOutcome) -> None:
    bench = Bench()
    *phases, ship = bench.pins.pipeline.phases
    pipeline = replace(bench.pins.pipeline, phases=(*phases, replace(ship, deliver=steps)))
    bench.pins = replace(bench.pins, pipeline=pipeline)
    assert status(bench.run()) is ending
    assert bench.kinds()["DeliveryFailed"] == 0


def test_a_target_that_moved_is_merged_in_and_pushed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    *phases, ship = bench.pins.pipeline.phases
    ship = replace(ship, deliver=("merge_base", "push", "open_pr", "merge"))
    bench.pins = replace(bench.pins, pipeline=replace(bench.pins.pipeline, phases=(*phases, ship)))
    moving(bench, monkeypatch, 1)
    assert status(bench.run()) is FeatureOutcome.MERGED
    [moved] = [event for event in bench.events() if isinstance(event, TargetMoved)]
    assert bench.world.objects[bench.world.refs[MAIN]].parent == moved.commit
    assert len(bench.world.pushes) == 2
    assert [pull.number for pull in bench.world.pull_requests.values()] == [1]


# crashes --------------------------------------------------------------------------------------------------------------
def end_of(world: World) -> dict[str, object]:
    """What is the same whatever happened on the way."""
    tracks = fold_run(world.store.read(run_stream(trial.RUN))).tracks
    landings = [item for item in world.store.read(run_stream(trial.RUN)) if isinstance(item.event, BranchLanded)]
    return {
        "ends": {name: track.last_stop.status for name, track in tracks.items() if track.last_stop},
        "files": dict(world.objects[world.refs[MAIN]].files),
        "refs": sorted(re.sub("[0-9a-f]{40}", "", ref) for ref in world.refs),
        "messages": [re.sub(rb"Mz-(Calls|Cost|Duration).*", b"", tree.message) for tree in world.commits("main")],
        "landings": (len(landings), len(world.landings)),
        "calls": len(world.call_keys),
    }


@pytest.mark.slow
@pytest.mark.parametrize("moves", [False, True])
def test_a_crash_at_any_step_merges_and_tags_once(moves: bool) -> None:
    world = CrashingWorld(trial.FILES, trial.script, trial.commands)
    bench = merging(world=world)
    if moves:
        bench.base_moves(**{"other.txt": "theirs"})
    world.crash_at()
    bench.run()
    expected = end_of(world)
    assert expected["landings"] == (1, 1)
    for cut, left in enumerate(world.left):
        drive_run(left, trial.RUN, bench.pins, 1)
        assert end_of(left) == expected, f"cut {cut}"


def test_an_item_that_fails_where_nothing_works_keeps_the_reason() -> None:
    bench = Bench()
    kind = ItemKind(kind="", sources=("backlog",), when_stuck="fail")
    bench.pins = replace(bench.pins, pipeline=replace(bench.pins.pipeline, items=(kind,)))
    bench.world.script = lambda spec, files: ScriptedReply(files={"plans/b.json": "no plan"})
    assert status(bench.run()) is FeatureOutcome.FAILED
    state = bench.state()
    assert isinstance(state, Ended)
    assert state.detail is not None
    assert b"JSON" in bench.world.blobs.get(state.detail)
    assert bench.kinds()["HumanRequested"] == 0
