"""What meets on the way: pauses, stops, cancels, retries and answers against features that are just coming to rest;
colleagues who push; forges and repositories that fail for a moment. In the simulated world and with real threads."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from mz_engine.decoding.quantity import Duration
from mz_engine.ports import CallResult, CallSpec, CiCheck, FeatureWorktree, MergeResult, RemoteError, RepositoryUnusable
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop, RunSide
from mz_engine.run.plan import find_unfinished_run
from mz_engine.run.scheduler import Scheduler
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import PullRequestRequested
from mz_events.catalog.inbox import CancelPosted, PausePosted
from mz_events.catalog.run import FeatureOutcome, RunFinished, Verdict
from mz_events.names import Commit, FeatureId, Path, run_stream
from mz_events.store import Append, Recorded
from mz_projections.feature.state import Waiting
from mz_projections.views.run import run_view
from mz_qa.simulation import trial
from mz_qa.simulation.world import (
    Files,
    ScriptedReply,
    SimulatedAgents,
    SimulatedForge,
    SimulatedPorts,
    SimulatedWorkspace,
    Tree,
)

from tests.engine.test_delivery import GREEN, PENDING, RED, Bench, refusing, rejected, retry, status
from tests.support import driving

B = FeatureId("b")


def cancel(bench: Bench, feature: FeatureId | None = B) -> CancelPosted:
    return CancelPosted(feature=feature, actor=bench.world.blobs.put(b"tester"))


class Hands:
    """One feature's thread and the coordinator, moved step by step."""

    def __init__(self, bench: Bench) -> None:
        trial.begin(bench.world, bench.pins, bench.items)
        self.bench, ports = bench, SimulatedPorts(bench.world)
        self.run = Coordinator(trial.RUN, bench.pins, bench.world.store, ports, lambda recorded: None)
        self.run.decide()
        self.feature = FeatureLoop(trial.RUN, B, bench.pins, bench.world.store, ports, self.run, lambda recorded: None)

    def to_rest(self) -> None:
        while self.feature.step():
            pass

    def until(self, kind: type[object]) -> None:
        while not any(isinstance(event, kind) for event in self.bench.events()):
            assert self.feature.step()


# pauses and stops -----------------------------------------------------------------------------------------------------
def test_a_run_that_goes_on_before_a_pause_took_hold_leaves_no_feature_behind() -> None:
    hands = Hands(Bench())
    hands.until(AgentRequested)
    hands.run.pause()
    hands.to_rest()
    hands.run.unpause()
    hands.run.worker_stopped(hands.feature)
    assert status(hands.bench.run()) is FeatureOutcome.DELIVERED


def test_a_cancel_that_meets_a_feature_coming_to_rest_in_a_pause_is_heard() -> None:
    bench = Bench()
    bench.world.script = refusing
    hands = Hands(bench)
    while not isinstance(hands.feature.state, Waiting):
        assert hands.feature.step()
    hands.run.pause()
    hands.to_rest()
    bench.leave(cancel(bench))
    hands.run.read_inbox()
    hands.run.worker_stopped(hands.feature)
    hands.run.unpause()
    assert status(bench.run()) is FeatureOutcome.CANCELLED


@pytest.mark.parametrize("how", ["pause", "stop"])
def test_a_cancel_and_a_rest_during_a_call_settle_its_money(how: str) -> None:
    bench = Bench()
    hands = Hands(bench)

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        if len(bench.world.call_keys) == 1:
            bench.leave(cancel(bench))
            hands.run.read_inbox()
            hands.run.pause() if how == "pause" else hands.run.stop()
        return trial.script(spec, files)

    bench.world.script = script
    hands.to_rest()
    hands.run.worker_stopped(hands.feature)
    coordinator = bench.resume()
    assert status(coordinator) is FeatureOutcome.CANCELLED
    assert coordinator.state.tracks["b"].reservations == {}
    assert bench.kinds()["CallSettled"] == bench.kinds()["AgentRequested"] == 1


def test_giving_up_a_paused_run_ends_it() -> None:
    bench = Bench()
    hands = Hands(bench)
    hands.until(AgentRequested)
    hands.run.pause()
    hands.to_rest()
    hands.run.worker_stopped(hands.feature)
    bench.leave(cancel(bench, None))
    hands.run.decide()
    assert hands.run.runnable_features(frozenset()) == (B,)
    hands.to_rest()
    hands.run.worker_stopped(hands.feature)
    assert isinstance(hands.run.decide(), RunFinished)


@pytest.mark.slow
def test_pausing_and_going_on_at_once_strands_no_thread() -> None:
    for seed in range(20):
        bench = Bench({"b": (), "e": (), "g": ()}, checks_settle=Duration(0))
        trial.begin(bench.world, bench.pins, bench.items)
        coordinator, scheduler = threaded(bench)
        poke = threading.Thread(target=pausing, args=(scheduler, random.Random(seed)))
        poke.start()
        scheduler.run()
        poke.join()
        assert {status(coordinator, feature) for feature in "beg"} == {FeatureOutcome.DELIVERED}, seed


def threaded(bench: Bench) -> tuple[Coordinator, Scheduler]:
    """The store of the simulation is not made for threads: it is locked here."""
    lock, ports, append = threading.RLock(), SimulatedPorts(bench.world), bench.world.store.append

    def locked(appends: Sequence[Append], now_us: int) -> tuple[Recorded[Event], ...]:
        with lock:
            return append(appends, now_us)

    bench.world.store.append = locked  # type: ignore[method-assign]
    coordinator = Coordinator(trial.RUN, bench.pins, bench.world.store, ports, lambda recorded: None)

    def begin(feature: FeatureId, door: RunSide) -> FeatureLoop:
        return FeatureLoop(trial.RUN, feature, bench.pins, bench.world.store, ports, door, lambda recorded: None)

    return coordinator, Scheduler(coordinator, begin, lambda watch: None)


def pausing(scheduler: Scheduler, dice: random.Random) -> None:
    for _ in range(40):
        for wanted in (True, False):
            scheduler.pause(wanted)
            time.sleep(dice.random() * 0.002)


# retries --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["retry", "cancel"])
def test_a_call_behind_a_fatal_hold_is_settled_before_anything_else(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, call, broken = Bench(), SimulatedAgents.call, list[int]()

    def once(self: SimulatedAgents, spec: CallSpec) -> CallResult:
        result = call(self, spec)
        if not broken:
            broken.append(1)
            raise RepositoryUnusable("git-timeout", "slow")
        return result

    monkeypatch.setattr(SimulatedAgents, "call", once)
    assert bench.run().state.halt
    bench.leave(retry(bench, None) if how == "retry" else cancel(bench))
    coordinator = bench.resume()
    assert status(coordinator) is (FeatureOutcome.DELIVERED if how == "retry" else FeatureOutcome.CANCELLED)
    assert coordinator.state.tracks["b"].reservations == {}
    assert bench.kinds()["CallSettled"] == bench.kinds()["AgentRequested"]
    assert bench.kinds()["FeatureRetried"] == (how == "retry")


def test_claims_of_a_feature_that_is_done_once_more_block_nobody_for_ever() -> None:
    bench, state = Bench({"b": (), "e": ()}), {"fails": True, "red": False}
    first: list[Commit] = []

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        feature, phase = spec.worktree.feature, spec.key.split("/")[2]
        if phase == "plan":
            plan = json.dumps([{"id": "u1", "files": [f"{feature}1.txt", "shared.txt"]}])
            return ScriptedReply(
                files={f"plans/{feature}.json": plan if feature == "b" or "MEND" in spec.prompt else "no"}
            )
        if phase == "ship" and feature == "b" and state["fails"]:
            return ScriptedReply(text="no file at all")
        return trial.script(spec, files)

    def checks(head: Commit, looks: int) -> tuple[CiCheck, ...]:
        if not first and head == bench.world.remote.get("feat/e"):
            first.append(head)
        if first and head == first[0]:
            return (RED,) if state["red"] else (PENDING,)
        return (GREEN,)

    def reject() -> None:
        driving.answer(bench.world, "b", Verdict.REJECT)
        bench.world.on_wait = again

    def again() -> None:
        state["fails"] = False
        bench.leave(retry(bench, "build"))
        bench.world.on_wait = red

    def red() -> None:
        state["red"] = True

    bench.world.script, bench.world.checks, bench.world.on_wait = script, checks, reject
    coordinator = bench.run()
    for _ in range(2):
        if {status(coordinator, feature) for feature in "be"} != {FeatureOutcome.DELIVERED}:
            coordinator = bench.resume()
    assert {status(coordinator, feature) for feature in "be"} == {FeatureOutcome.DELIVERED}


def test_a_run_that_is_to_do_something_once_more_is_not_finished_for_mz_run() -> None:
    bench = Bench()
    rejected(bench)
    assert find_unfinished_run(bench.world.store) is None
    bench.leave(retry(bench, None))
    assert find_unfinished_run(bench.world.store) is not None


@pytest.mark.parametrize("late", ["retry", "pause"])
def test_a_message_that_comes_too_late_leaves_the_run_finished(late: str) -> None:
    bench = Bench()
    bench.run()
    bench.leave(retry(bench, None) if late == "retry" else PausePosted(actor=bench.world.blobs.put(b"tester")))
    bench.resume()
    assert run_view(trial.RUN, bench.world.store.read(run_stream(trial.RUN))).status == "finished"


# other people ---------------------------------------------------------------------------------------------------------
def test_what_a_colleague_pushed_onto_the_branch_is_not_overwritten() -> None:
    bench, first = Bench(), list[Commit]()

    def checks(head: Commit, looks: int) -> tuple[CiCheck, ...]:
        if not first:
            first.append(head)
            files = {**bench.on_the_branch(), "reviewer.txt": b"precious"}
            bench.world.remote["feat/b"] = bench.world.write(Tree(files, head, b"by a reviewer"))
        return (RED,)

    bench.world.checks = checks
    assert status(bench.run()) is FeatureOutcome.WAITING
    assert bench.on_the_branch()["reviewer.txt"] == b"precious"
    state = bench.state()
    assert isinstance(state, Waiting)
    assert state.question.code == "branch-moved"


def test_a_branch_of_the_same_name_at_the_remote_is_not_overwritten() -> None:
    bench = Bench()
    trial.begin(bench.world, bench.pins, bench.items)
    theirs = bench.world.write(Tree({"mine.txt": b"a week of work"}, bench.world.base, b"colleague"))
    bench.world.remote["feat/b"] = theirs
    assert status(bench.run()) is FeatureOutcome.WAITING
    assert bench.world.remote["feat/b"] == theirs
    del bench.world.remote["feat/b"]
    driving.answer(bench.world, "b")
    assert status(bench.run()) is FeatureOutcome.DELIVERED


def test_a_check_that_is_there_first_is_not_all_of_them() -> None:
    bench, since = Bench(checks_settle=Duration(90)), list[int]()

    def checks(head: Commit, looks: int) -> tuple[CiCheck, ...]:
        since.append(bench.world.now_us)
        sign_off = CiCheck(name="DCO", state="green")
        return (sign_off,) if bench.world.now_us - since[0] < 5_000_000 else (sign_off, RED)

    bench.world.checks = checks
    assert status(bench.run()) is FeatureOutcome.WAITING


def test_a_stacked_pull_request_targets_the_base_after_its_dependency_was_merged_meanwhile() -> None:
    bench, first = Bench({"b": (), "d": ("b",)}), list[Commit]()

    def checks(head: Commit, looks: int) -> tuple[CiCheck, ...]:
        if head == bench.world.remote.get("feat/d"):
            first.append(head)
            bench.world.merged_branches.add("feat/b")
        return (RED,) if first and head == first[0] else (GREEN,)

    bench.world.checks = checks
    assert status(bench.run(), "d") is FeatureOutcome.DELIVERED
    texts = [event.target for event in bench.events("d") if isinstance(event, PullRequestRequested)]
    assert texts == ["feat/b", "main"]
    assert bench.world.targets[2] == "main"


def test_a_pull_request_that_somebody_closed_is_a_question() -> None:
    bench = Bench()

    def checks(head: Commit, looks: int) -> tuple[CiCheck, ...]:
        pulls = bench.world.pull_requests
        for key, pull in pulls.items():
            pulls[key] = replace(pull, state="closed")
        return (RED,)

    bench.world.checks = checks
    assert status(bench.run()) is FeatureOutcome.WAITING
    state = bench.state()
    assert isinstance(state, Waiting)
    assert state.question.code == "pull-request-refused"


# merges ---------------------------------------------------------------------------------------------------------------
def test_markers_that_an_agent_left_are_seen_after_another_merge_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git merges the second time against what was merged first, and finds no conflict any more."""
    bench, merge, moved = Bench(), SimulatedWorkspace.merge, list[int]()
    trial.begin(bench.world, bench.pins, bench.items)

    def three_way(
        self: SimulatedWorkspace, folder: FeatureWorktree, head: Commit, other: Commit, message: bytes
    ) -> MergeResult:
        last = next((tree.merged for tree in self.world.commits(folder.branch) if tree.merged), None)
        if last is None or self.contains(head, other):
            return merge(self, folder, head, other, message)
        ours, theirs, base = (dict(self.world.objects[commit].files) for commit in (head, other, last))
        files = {**ours, **{path: data for path, data in theirs.items() if base.get(path) != data}}
        made = self.world.write(Tree(files, head, message, other))
        self.world.refs[f"refs/heads/{folder.branch}"] = made
        self.world.worktrees[folder.feature] = dict(files)
        return MergeResult(commit=made, tree=made, changed=True)

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        if "conflict markers" not in spec.prompt or spec.key.split("/")[2:4] != ["build", "u1"]:
            return trial.script(spec, files)
        if not moved:
            moved.append(1)
            here = bench.world.refs["refs/heads/main"]
            bench.base_moves(**{"unrelated.txt": "more news"})
            bench.world.refs["refs/heads/main"] = here
        return ScriptedReply(files={"notes/b.u1.md": "Nothing to do here."})

    bench.world.script = script
    bench.base_moves(**{"b1.txt": "theirs"})
    monkeypatch.setattr(SimulatedWorkspace, "merge", three_way)
    assert status(bench.run()) is FeatureOutcome.WAITING
    assert bench.world.pushes == []


def test_a_conflict_that_no_marker_shows_is_never_taken_for_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary file, or one that one side removed: git keeps ours and writes no markers."""
    bench, merge = Bench(), SimulatedWorkspace.merge
    trial.begin(bench.world, bench.pins, bench.items)
    bench.base_moves(**{"b1.txt": "theirs"})

    def silent(
        self: SimulatedWorkspace, folder: FeatureWorktree, head: Commit, other: Commit, message: bytes
    ) -> MergeResult:
        merge_result = merge(self, folder, head, other, message)
        if not merge_result.conflicts:
            return merge_result
        files = {**self.world.objects[merge_result.commit].files, "b1.txt": self.world.objects[head].files["b1.txt"]}
        made = self.world.write(Tree(files, head, message, other))
        self.world.refs[f"refs/heads/{folder.branch}"] = made
        self.world.worktrees[folder.feature] = dict(files)
        return MergeResult(commit=made, tree=made, changed=True, conflicts=(Path("b1.txt"),))

    monkeypatch.setattr(SimulatedWorkspace, "merge", silent)
    assert status(bench.run()) is FeatureOutcome.WAITING
    state = bench.state()
    assert isinstance(state, Waiting)
    assert state.question.code == "merge_base.unmarked"
    assert state.question.detail is not None
    assert b"b1.txt" in bench.world.blobs.get(state.question.detail)
    driving.answer(bench.world, "b")
    assert status(bench.run()) is FeatureOutcome.DELIVERED


# a moment's failure ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [RemoteError("HTTP 502"), RepositoryUnusable("git-timeout", "slow disk")])
@pytest.mark.parametrize("time", [1, 2, 3])
def test_a_forge_that_is_down_for_a_moment_asks_nobody(
    time: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, numbers = Bench(), list[int]()

    def checks(self: SimulatedForge, number: int, head: Commit) -> tuple[CiCheck, ...]:
        numbers.append(1)
        if len(numbers) == time:
            raise error
        return (PENDING,) if len(numbers) < 5 else (GREEN,)

    monkeypatch.setattr(SimulatedForge, "checks", checks)
    coordinator = bench.run()
    if coordinator.state.halt:  # The repository itself: the run stops, and goes on where it was.
        coordinator = bench.resume()
    assert status(coordinator) is FeatureOutcome.DELIVERED
    assert bench.kinds()["HumanRequested"] == 0
