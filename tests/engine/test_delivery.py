"""Pull requests until green, in the simulated world: a base that moves, checks that are red, flaky, late or missing,
dependencies that must be merged, pauses, and features that a person wants done once more."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from mz_engine.decoding.quantity import Duration
from mz_engine.effects.delivery import is_flaky
from mz_engine.forge.github import find_keys
from mz_engine.model.config import PullRequests
from mz_engine.model.pipeline import BlockRoute
from mz_engine.ports import CallSpec, CiCheck
from mz_engine.run.coordinator import Coordinator
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ReplyParsed
from mz_events.catalog.delivery import BaseMerged, PullRequestRequested
from mz_events.catalog.inbox import CancelPosted, PausePosted, ResumePosted, RetryPosted
from mz_events.catalog.run import (
    ClaimCompared,
    FeatureOutcome,
    InboxRead,
    RetryAccepted,
    RunPaused,
    RunResumed,
    Verdict,
)
from mz_events.catalog.validation import GateChecked
from mz_events.names import Commit, FeatureId, feature_stream, inbox_stream, run_stream
from mz_events.store import Append
from mz_projections.feature.calls import FeatureCalls
from mz_projections.feature.calls import evolve as evolve_calls_of
from mz_projections.feature.fold import fold
from mz_projections.feature.state import Ended, FeatureProgress, State, Waiting, progress_of
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, Tree, World

from tests.support import driving
from tests.support.crashing import CrashingWorld

B = FeatureId("b")
"""The feature that needs no person and no rework."""
GREEN, RED = CiCheck(name="ci / test", state="green", run="7"), CiCheck(name="ci / test", state="red", run="7")
PENDING = CiCheck(name="ci / test", state="pending")


class Bench:
    """One run over feature `b` alone, in a world that a test changes on the way."""

    def __init__(
        self, items: dict[str, tuple[str, ...]] | None = None, world: World | None = None, **settings: object
    ) -> None:
        self.world = world or driving.new_world()
        pull_requests = PullRequests(strategy="draft", **settings)  # type: ignore[arg-type]
        self.pins = trial.pins(replace(trial.trial_config(), pull_requests=pull_requests))
        self.items = items or {"b": ()}

    def run(self) -> Coordinator:
        if not self.world.store.log:
            trial.begin(self.world, self.pins, self.items)
        return drive_run(self.world, str(trial.RUN), self.pins, seed=1)

    def resume(self) -> Coordinator:
        coordinator = Coordinator(trial.RUN, self.pins, self.world.store, _Clock(self.world), lambda recorded: None)
        coordinator.resume()
        return self.run()

    def kinds(self, feature: str = "b") -> Counter[str]:
        return Counter(type(event).__name__ for event in self.events(feature))

    def events(self, feature: str = "b") -> list[Event]:
        return [recorded.event for recorded in self.world.store.read(feature_stream(trial.RUN, FeatureId(feature)))]

    def leave(self, *events: Event) -> None:
        self.world.store.append([Append(inbox_stream(trial.RUN), None, events)], self.world.now_us)

    def state(self, feature: str = "b") -> State:
        return fold(self.world.store.read(feature_stream(trial.RUN, FeatureId(feature))))

    def base_moves(self, **files: str) -> Commit:
        """Somebody else's commit on the base branch."""
        old = self.world.refs["refs/heads/main"]
        content = {**self.world.objects[old].files, **{name: text.encode() for name, text in files.items()}}
        moved = self.world.write(Tree(content, old, b"by somebody else"))
        self.world.refs["refs/heads/main"] = self.world.remote["main"] = moved
        return moved

    def run_to_branch(self) -> dict[str, bytes]:
        assert status(self.run()) is FeatureOutcome.DELIVERED
        return self.on_the_branch()

    def on_the_branch(self) -> dict[str, bytes]:
        return dict(self.world.objects[self.world.remote["feat/b"]].files)


class _Clock:
    def __init__(self, world: World) -> None:
        self.world = world

    def now_us(self) -> int:
        return self.world.now_us


def progress(bench: Bench) -> FeatureProgress:
    result = progress_of(bench.state())
    assert result is not None
    return result


def status(coordinator: Coordinator, feature: str = "b") -> FeatureOutcome | None:
    rested = coordinator.state.tracks[feature].last_stop
    return rested.status if rested else None


# the base -------------------------------------------------------------------------------------------------------------
def test_a_base_that_moved_is_merged_in_and_the_gates_run_again() -> None:
    bench = Bench()
    trial.begin(bench.world, bench.pins, bench.items)
    bench.base_moves(**{"other.txt": "news"})
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert bench.on_the_branch()["other.txt"] == b"news"
    state = bench.state()
    assert isinstance(state, Ended)
    assert "b1.txt" in state.changed_paths
    assert "other.txt" not in state.changed_paths
    assert bench.kinds()["BaseMerged"] == 1
    gates = [event.gate for event in bench.events() if isinstance(event, GateChecked)]
    assert gates[-2:] == ["check", "final"]


def mending(spec: CallSpec, files: Files) -> ScriptedReply:
    """Writes over the conflict when it is told of one."""
    if "conflict markers" in spec.prompt and spec.key.split("/")[2:4] == ["build", "u1"]:
        return ScriptedReply(files={"b1.txt": "both", "notes/b.u1.md": "Both sides are kept now."})
    return trial.script(spec, files)


def test_a_conflict_is_mended_by_the_agent_once_and_the_history_is_kept() -> None:
    bench = Bench()
    trial.begin(bench.world, bench.pins, bench.items)
    bench.world.script = mending
    moved = bench.base_moves(**{"b1.txt": "theirs"})
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert bench.on_the_branch()["b1.txt"] == b"both"
    assert any(tree.merged == moved for tree in bench.world.commits("feat/b"))
    assert (bench.kinds()["RolledBack"], bench.kinds()["HumanRequested"]) == (1, 0)
    assert len(bench.world.pull_requests) == 1


def test_a_conflict_that_the_agent_leaves_goes_to_a_person() -> None:
    bench = Bench()
    trial.begin(bench.world, bench.pins, bench.items)
    bench.base_moves(**{"b1.txt": "theirs"})
    bench.world.script = lambda spec, files: (
        ScriptedReply(files={"notes/b.u1.md": "Nothing to do here."})
        if spec.key.split("/")[2:4] == ["build", "u1"] and "conflict markers" in spec.prompt
        else trial.script(spec, files)
    )
    assert status(bench.run()) is FeatureOutcome.WAITING
    state = bench.state()
    assert isinstance(state, Waiting)
    assert (state.question.question_kind.value, state.question.code) == ("conflict", "merge_base")
    assert bench.world.pushes == [], "nothing with conflict markers leaves the machine"


# checks ---------------------------------------------------------------------------------------------------------------
def test_waiting_for_checks_takes_one_event_however_often_is_asked() -> None:
    bench = Bench()
    bench.world.checks = lambda head, looks: (PENDING,) if looks < 50 else (GREEN,)
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert bench.kinds()["ChecksPolled"] == 2
    assert bench.kinds()["FeatureHeld"] == 1
    assert sum(bench.world.poll_counts.values()) > 50


def test_red_checks_go_back_to_the_agent_with_their_log_and_the_mended_work_is_pushed() -> None:
    bench = Bench()
    first: list[Commit] = []

    def checks(head: Commit, looks: int) -> tuple[CiCheck, ...]:
        first.append(head)
        return (RED,) if head == first[0] else (GREEN,)

    bench.world.checks = checks
    bench.world.script = lambda spec, files: (
        ScriptedReply(files={"b1.txt": "mended", "notes/b.u1.md": "Mended as the log says."})
        if spec.key.split("/")[2:4] == ["build", "u1"] and "is broken" in spec.prompt
        else trial.script(spec, files)
    )
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert any("ci / test is broken" in prompt for prompt in prompts(bench)), "no prompt held the log"
    assert len(bench.world.pushes) == 2
    assert [pull.number for pull in bench.world.pull_requests.values()] == [1], "the same pull request got new words"


def prompts(bench: Bench) -> list[str]:
    digests = [event.prompt for event in bench.events() if isinstance(event, AgentRequested)]
    return [bench.world.blobs.get(digest).decode() for digest in digests]


@pytest.mark.parametrize(
    ("verdict", "end"),
    [
        (Verdict.APPROVE, FeatureOutcome.DELIVERED),
        (Verdict.REJECT, FeatureOutcome.FAILED),
        (Verdict.RETRY, FeatureOutcome.WAITING),
    ],
)
def test_checks_that_stay_red_are_for_a_person(verdict: Verdict, end: FeatureOutcome) -> None:
    bench = Bench()
    bench.world.checks = lambda head, looks: (RED,)
    assert status(bench.run()) is FeatureOutcome.WAITING
    assert bench.kinds()["RolledBack"] == 1
    driving.answer(bench.world, "b", verdict)
    assert status(bench.run()) is end


def test_flaky_checks_are_started_again_before_an_agent_is_asked() -> None:
    bench = Bench(flaky=("ci / *",))
    bench.world.checks = lambda head, looks: (GREEN,) if len(bench.world.reruns) == 2 else (RED,)
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert bench.world.reruns == ["7", "7"]
    assert bench.kinds()["RolledBack"] == 0


def test_checks_that_never_end_are_a_question_after_the_time_that_the_settings_give() -> None:
    bench = Bench(checks_wait=Duration(600))
    bench.world.checks = lambda head, looks: (PENDING,)
    before = bench.world.now_us
    assert status(bench.run()) is FeatureOutcome.WAITING
    assert 600 <= (bench.world.now_us - before) / 1_000_000 < 700


def test_a_pull_request_without_any_check_is_delivered_after_the_grace() -> None:
    bench = Bench(checks_settle=Duration(90))
    bench.world.checks = lambda head, looks: ()
    before = bench.world.now_us
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert 90 <= (bench.world.now_us - before) / 1_000_000 < 150


def test_the_documented_pattern_of_flaky_checks_is_that_of_their_job() -> None:
    check = CiCheck(name="CI / e2e-chrome", state="red", run="7")
    assert is_flaky(check, ("e2e*",))
    assert is_flaky(check, ("CI / e2e*",))
    assert not is_flaky(check, ("chrome*",))
    assert not is_flaky(replace(check, run=None), ("e2e*",)), "the forge cannot start it again"


# papers and commits -------------------------------------------------------------------------------------------------
PAPERS = {"plans/b.json", "notes/b.u1.md", "notes/b.u2.md", "letters/b.md"}


def with_settings(bench: Bench, **settings: Any) -> Bench:
    bench.pins = replace(bench.pins, config=replace(bench.pins.config, **settings))
    return bench


def without_papers(**settings: Any) -> Bench:
    """With the default of pull requests, on whose branches the trial otherwise has papers."""
    return with_settings(Bench(**settings), papers=None)


def subjects(bench: Bench) -> list[bytes]:
    """Of the commits of the branch, oldest first, without those of the base."""
    return [tree.message.split(b"\n")[0] for tree in bench.world.commits("feat/b") if tree.message][::-1]


def test_papers_stay_off_the_branch_of_a_pull_request_and_in_the_captures() -> None:
    bench = without_papers()
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert not PAPERS & bench.on_the_branch().keys()
    assert {"b1.txt", "b2.txt"} <= bench.on_the_branch().keys()
    assert bench.world.objects[progress(bench).tree].files.keys() >= PAPERS
    made = [f"build u{number} of b".encode() for number in (1, 2, 3)]
    assert subjects(bench) == made, "no commit without content"
    assert Bench().run_to_branch().keys() >= PAPERS
    without_pull_request = with_settings(without_papers(), pull_requests=PullRequests(strategy="none"))
    without_pull_request.run()
    head = progress(without_pull_request).head
    assert without_pull_request.world.objects[head].files.keys() >= PAPERS


def test_a_branch_with_nothing_but_papers_gets_no_pull_request() -> None:
    """A forge refuses one without commits."""

    def only_papers(spec: CallSpec, files: Files) -> ScriptedReply:
        reply = trial.script(spec, files)
        kept = {path: text for path, text in reply.files.items() if path.startswith(("plans/", "notes/", "letters/"))}
        return ScriptedReply(files=kept, text=reply.text)

    bench = without_papers()
    bench.world.script, bench.world.commands = only_papers, lambda command, files: (0, "")
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert (bench.world.pull_requests, subjects(bench)) == ({}, [])


def test_an_output_that_is_delivered_is_no_paper() -> None:
    bench = without_papers()
    *phases, ship = bench.pins.pipeline.phases
    outputs = tuple(replace(output, delivered=True) for output in ship.outputs)
    pipeline = replace(bench.pins.pipeline, phases=(*phases, replace(ship, outputs=outputs)))
    bench.pins = replace(bench.pins, pipeline=pipeline)
    assert bench.run_to_branch().keys() & PAPERS == {"letters/b.md"}


def test_a_squashed_delivery_is_one_commit_with_the_usage_of_all_phases() -> None:
    bench = with_settings(without_papers(), commits="squash")
    assert not PAPERS & bench.run_to_branch().keys()
    assert subjects(bench) == [b"Feature b"]
    message = bench.world.objects[bench.world.remote["feat/b"]].message.decode()
    usage = progress(bench).usage
    assert f"Mz-Tokens: {usage.input_tokens} in, {usage.output_tokens} out\n" in message
    assert usage.input_tokens == sum(
        entry.input for event in bench.events() if isinstance(event, ReplyParsed) for entry in event.usage
    )


def test_a_merged_base_takes_no_paper_from_the_worktree() -> None:
    bench = without_papers()
    trial.begin(bench.world, bench.pins, bench.items)
    bench.world.script = mending
    bench.base_moves(**{"b1.txt": "theirs"})
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    [merged, *_] = [event for event in bench.events() if isinstance(event, BaseMerged) and event.changed]
    assert bench.world.objects[merged.tree].files.keys() >= PAPERS
    assert not PAPERS & bench.on_the_branch().keys()


def test_a_restored_tree_changes_the_branch_only_by_work() -> None:
    """A retry from the first phase that writes anything but papers restores the tree from before it."""
    for commits in ("phases", "squash"):
        bench = with_settings(without_papers(), commits=commits)
        bench.world.script = refusing
        assert status(bench.run()) is FeatureOutcome.WAITING
        bench.leave(retry(bench, "build"))
        bench.world.script = trial.script
        assert status(bench.run()) is FeatureOutcome.DELIVERED
        assert not PAPERS & bench.on_the_branch().keys()
        assert {"b1.txt", "b2.txt"} <= bench.on_the_branch().keys()


def test_the_pull_request_says_what_a_reviewer_wants_and_hides_its_key() -> None:
    bench = without_papers()
    bench.run()
    [request] = [event for event in bench.events() if isinstance(event, PullRequestRequested)]
    body = bench.world.blobs.get(request.body).decode()
    visible = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    assert request.key not in visible
    assert find_keys(body) == [request.key]
    assert "> **Feature b**\n" in body
    assert "| `check` | not run | passed |" in body
    calls = bench.kinds()["AgentRequested"]
    assert f"- {calls} calls of simulated (plan 1, build {calls - 2}, ship 1), " in body
    assert "- letters/b.md: `mz show b --artifact letter`\n" in body


# dependencies ---------------------------------------------------------------------------------------------------------
def test_with_merged_dependencies_a_dependent_starts_from_the_base_with_the_merge_in_it() -> None:
    bench = Bench({"b": (), "d": ("b",)})
    bench.pins = replace(bench.pins, pipeline=replace(bench.pins.pipeline, dependencies="merged"))
    coordinator = bench.run()
    assert status(coordinator) is FeatureOutcome.DELIVERED
    assert not coordinator.state.tracks["d"].admitted
    assert coordinator.state.idle
    bench.world.merged_branches.add("feat/b")
    merged = bench.base_moves(**{"b1.txt": "u1 of b"})
    coordinator = bench.resume()
    assert status(coordinator, "d") is FeatureOutcome.DELIVERED
    book = progress_of(bench.state("d"))
    assert book is not None
    assert (book.started.starts_from, book.started.target) == ((merged,), "main")


def test_a_stacked_feature_targets_its_dependency_and_the_base_once_that_is_merged() -> None:
    def targets(merged: bool) -> list[str]:
        bench = Bench({"b": (), "d": ("b",)})
        bench.world.merged_branches |= {"feat/b"} if merged else set()
        bench.run()
        return [event.target for event in bench.events("d") if isinstance(event, PullRequestRequested)]

    assert targets(merged=False) == ["feat/b"]
    assert targets(merged=True) == ["main"]


# people ---------------------------------------------------------------------------------------------------------------
def refusing(spec: CallSpec, files: Files) -> ScriptedReply:
    return (
        ScriptedReply(text="no file at all")
        if "/ship/" in spec.key and spec.key.split("/")[4] == "1"
        else trial.script(spec, files)
    )


def rejected(bench: Bench) -> None:
    """The feature fails in its last phase."""
    bench.world.script = refusing
    assert status(bench.run()) is FeatureOutcome.WAITING
    driving.answer(bench.world, "b", Verdict.REJECT)
    coordinator = bench.run()
    assert (status(coordinator), coordinator.state.finished) == (FeatureOutcome.FAILED, True)


def retry(bench: Bench, phase: str | None, feature: str = "b") -> RetryPosted:
    put = bench.world.blobs.put
    return RetryPosted(feature=FeatureId(feature), phase=phase, note=put(b"with care"), actor=put(b"tester"))


@pytest.mark.parametrize(("phase", "calls"), [(None, 1), ("build", 7), ("plan", 8), ("nonsense", 1)])
def test_a_failed_feature_of_a_finished_run_is_done_once_more(phase: str | None, calls: int) -> None:
    bench = Bench()
    rejected(bench)
    before = len(bench.world.call_keys)
    bench.leave(retry(bench, phase))
    coordinator = bench.resume()
    assert (status(coordinator), coordinator.state.finished) == (FeatureOutcome.DELIVERED, True)
    assert len(bench.world.call_keys) - before == calls
    assert len(bench.world.call_keys) == len(set(bench.world.call_keys)), "two calls had one key"


def test_a_feature_that_was_given_up_before_it_began_can_still_be_wanted() -> None:
    bench = Bench({"b": (), "d": ("b",)})
    trial.begin(bench.world, bench.pins, bench.items)
    bench.leave(CancelPosted(feature=FeatureId("d"), actor=bench.world.blobs.put(b"tester")))
    assert status(bench.run(), "d") is FeatureOutcome.CANCELLED
    bench.leave(retry(bench, None, "d"))
    assert status(bench.resume(), "d") is FeatureOutcome.DELIVERED


def revise(bench: Bench, phase: str | None, note: bytes = b"name the author too") -> None:
    put = bench.world.blobs.put
    feature = FeatureId("b")
    bench.leave(RetryPosted(feature=feature, phase=phase, note=put(note), actor=put(b"tester"), keeps_tree=True))


def revising(spec: CallSpec, files: Files) -> ScriptedReply:
    """Follows the note."""
    if "name the author too" in spec.prompt and spec.key.split("/")[3] == "u1":
        return ScriptedReply(files={"b1.txt": "u1 of b, by Ada", "notes/b.u1.md": "The author is named now."})
    return trial.script(spec, files)


@pytest.mark.parametrize(("phase", "calls"), [(None, 7), ("build", 7), ("plan", 8), ("ship", 1)])
def test_delivered_work_is_taken_up_again_on_its_branch_and_in_its_pull_request(phase: str | None, calls: int) -> None:
    bench = without_papers()
    bench.world.script = revising
    bench.run()
    before, first = len(bench.world.call_keys), bench.world.remote["feat/b"]
    revise(bench, phase)
    coordinator = bench.resume()
    assert (status(coordinator), coordinator.state.finished) == (FeatureOutcome.DELIVERED, True)
    assert len(bench.world.call_keys) - before == calls
    assert len(bench.world.call_keys) == len(set(bench.world.call_keys)), "two calls had one key"
    assert any("name the author too" in prompt for prompt in prompts(bench))
    assert bench.kinds()["TreeRestored"] == 0
    if phase in (None, "build"):
        assert bench.on_the_branch()["b1.txt"] == b"u1 of b, by Ada"
        assert bench.world.objects[bench.world.remote["feat/b"]].parent == first, "one commit more, nothing rewritten"
    requests = [event for event in bench.events() if isinstance(event, PullRequestRequested)]
    assert len(requests) == 2
    assert list(bench.world.pull_requests) == [requests[-1].key], "it was updated, not opened twice"


def test_a_revision_that_changes_nothing_adds_no_commit() -> None:
    bench = Bench()
    bench.run()
    head = progress(bench).head
    revise(bench, "ship")
    assert status(bench.resume()) is FeatureOutcome.DELIVERED
    assert (progress(bench).head, bench.world.remote["feat/b"]) == (head, head)


def test_a_revision_counts_again_and_its_first_delivery_is_not_wasted() -> None:
    bench = Bench()
    bench.run()
    revise(bench, None)
    bench.resume()
    calls = FeatureCalls(str(trial.RUN), "b")
    for recorded in bench.world.store.read(feature_stream(trial.RUN, B)):
        (calls,) = evolve_calls_of(lambda _: calls, recorded)  # noqa: B023
    assert not [call for call in calls.calls if call.is_superseded]
    claims = [r.event for r in bench.world.store.read(run_stream(trial.RUN)) if isinstance(r.event, ClaimCompared)]
    assert len(claims) == 2


@pytest.mark.parametrize("delivered", [False, True])
def test_only_what_was_delivered_is_revised(delivered: bool) -> None:
    bench = Bench()
    trial.begin(bench.world, bench.pins, bench.items)
    if delivered:
        bench.run()
    revise(bench, None)
    bench.resume() if delivered else bench.run()
    run = [recorded.event for recorded in bench.world.store.read(run_stream(trial.RUN))]
    assert [event.accepted for event in run if isinstance(event, InboxRead)] == [delivered]


def test_the_pipeline_chooses_where_a_revision_begins() -> None:
    pipeline = trial.pins().pipeline
    assert pipeline.revision_phase == "build", "as after failed checks"
    *phases, ship = pipeline.phases
    routed = replace(ship, on_block=(*ship.on_block, BlockRoute(cause="revision", to="plan", scope="tree")))
    assert replace(pipeline, phases=(*phases, routed)).revision_phase == "plan"
    assert replace(pipeline, phases=(*phases, replace(ship, on_block=()))).revision_phase == "build"


@pytest.mark.parametrize("ended", [False, True])
def test_what_works_or_was_delivered_is_not_done_again(ended: bool) -> None:
    bench = Bench()
    trial.begin(bench.world, bench.pins, bench.items)
    if ended:
        bench.run()
    bench.leave(retry(bench, None))
    bench.run()
    run = [recorded.event for recorded in bench.world.store.read(run_stream(trial.RUN))]
    assert [event.accepted for event in run if isinstance(event, InboxRead)] == [False]
    assert not any(isinstance(event, RetryAccepted) for event in run)


def test_a_pause_starts_nothing_more_until_somebody_says_go_on() -> None:
    bench = Bench({"b": (), "d": ()})
    trial.begin(bench.world, bench.pins, bench.items)
    who = bench.world.blobs.put(b"tester")
    bench.leave(PausePosted(actor=who))
    bench.world.on_wait = lambda: bench.leave(ResumePosted(actor=who))
    coordinator = bench.run()
    assert {status(coordinator, feature) for feature in "bd"} == {FeatureOutcome.DELIVERED}
    kinds = [type(recorded.event) for recorded in bench.world.store.read(run_stream(trial.RUN))]
    assert kinds.index(RunResumed) - kinds.index(RunPaused) == 2, "only the message that it may go on is in between"


# crashes --------------------------------------------------------------------------------------------------------------
def eventful(world: World) -> Bench:
    """Everything on one way: the base moves with a conflict, the checks are flaky, then red, then green."""
    bench = without_papers(world=world, flaky=("flaky",))

    def checks(head: Commit, looks: int) -> tuple[CiCheck, ...]:
        if {*world.poll_counts} - {head}:
            return (GREEN,)
        return (CiCheck(name="flaky", state="red", run="8"),) if not world.reruns else (RED,)

    world.checks, world.script = checks, mending
    return bench


def end_of(bench: Bench) -> dict[str, object]:
    state = bench.state()
    assert isinstance(state, Ended)
    return {
        "status": state.status,
        "files": bench.on_the_branch(),
        "calls": sorted(Counter(bench.world.call_keys)),
        "pushes": len(bench.world.pushes),
        "pull requests": len(bench.world.pull_requests),
    }


@pytest.mark.slow
def test_a_crash_anywhere_on_the_way_to_green_reaches_the_same_end() -> None:
    world = CrashingWorld(trial.FILES, trial.script, trial.commands)
    clean = eventful(world)
    trial.begin(world, clean.pins, clean.items)
    clean.base_moves(**{"b1.txt": "theirs"})
    world.crash_at()
    assert status(clean.run()) is FeatureOutcome.DELIVERED
    expected = end_of(clean)
    for instant, left in enumerate(world.left):
        bench = eventful(left)
        bench.resume()
        end = end_of(bench)
        calls = end.pop("calls")
        assert end == {name: value for name, value in expected.items() if name != "calls"}, instant
        assert isinstance(calls, list)
        assert len(bench.world.call_keys) == len(set(bench.world.call_keys)), instant
