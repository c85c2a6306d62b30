"""What comes in between: holds in the middle of something, cancels, late messages. Nothing owed is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from mz_engine.decide import actions as act
from mz_engine.model.config import Command, PullRequests, WorkspaceSettings
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Gate, Phase
from mz_engine.ports import CallResult, CallSpec, Capture, RepositoryUnusable, StorageFailed
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop, RunSide
from mz_engine.run.scheduler import Scheduler
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested, Problem, ProblemClass
from mz_events.catalog.feature import (
    Blocked,
    HumanAnswered,
    HumanRequested,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    UnitStarted,
)
from mz_events.catalog.inbox import CancelPosted, RetryPosted
from mz_events.catalog.run import FeatureOutcome, FilesClaimed, Verdict
from mz_events.catalog.validation import CommandRan, GateChecked
from mz_events.names import Digest, FeatureId, feature_stream, inbox_stream
from mz_events.store import Append
from mz_projections.feature.state import Restoring
from mz_projections.run.fold import FeatureTrack
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Crash, Files, ScriptedReply, SimulatedPorts

from tests.engine.test_scheduler import DEPENDENCIES, simple, statuses, world_of
from tests.support import driving
from tests.support.steps import DIGEST, accepted, gate, planned, ref, state_after, when_decided

B = FeatureId("b")
NOTE = Digest("e" * 64)
BROKEN = RepositoryUnusable("git-broken", "git cannot be used here")
IN_BUILD: tuple[Event, ...] = (
    *planned(),
    PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3")),
    FilesClaimed(feature=B, phase="build", paths=()),
    UnitStarted(phase="build", unit="u1", iteration=1),
)


class Hands:
    """One feature, driven by hand over a simulated world."""

    def __init__(self, pins: Pins | None = None, **more: object) -> None:
        self.world, made = world_of(None, DEPENDENCIES, **more)
        self.pins = pins or made
        self.ports = SimulatedPorts(self.world)
        self.run = Coordinator(trial.RUN, self.pins, self.world.store, self.ports, lambda recorded: None)
        self.run.decide()
        self.feature = FeatureLoop(
            trial.RUN, B, self.pins, self.world.store, self.ports, self.run, lambda recorded: None
        )

    def events(self) -> list[Event]:
        return [recorded.event for recorded in self.world.store.read(feature_stream(trial.RUN, B))]

    def until(self, kind: type[Event]) -> None:
        while not any(isinstance(event, kind) for event in self.events()):
            assert self.feature.step()

    def to_rest(self) -> None:
        while self.feature.step():
            pass

    def cancel(self) -> None:
        self.post(CancelPosted(feature=B, actor=DIGEST))

    def post(self, left: Event) -> None:
        self.world.store.append([Append(inbox_stream(trial.RUN), None, (left,))], 1)
        self.run.decide()

    def halt_and_resume(self) -> None:
        self.to_rest()
        self.run.worker_stopped(self.feature)
        self.run.decide()
        assert self.run.state.halt is not None
        self.run.resume()
        self.run = drive_run(self.world, trial.RUN, self.pins, 1)

    @property
    def track(self) -> FeatureTrack:
        return self.run.state.tracks["b"]

    def settled(self) -> bool:
        """Every request has one outcome, and no money is set aside any more."""
        counter = Counter(event.ref.key for event in self.events() if isinstance(event, AgentRequested))
        answered = Counter(
            event.ref.key for event in self.events() if isinstance(event, AgentReplied | AgentFailed | AgentLost)
        )
        return counter == answered and self.track.reservations == {}


def broken_at(call: Callable[..., Any], time: int, error: Exception = BROKEN) -> Callable[..., Any]:
    """The same, but raising at its n-th call."""
    left = [time]

    def once(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise error
        return call(*arguments)

    return once


# holds ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("method", "time"), [("commit", 1), ("ensure", 4), ("revert_paths", 1)])
def test_a_repository_that_breaks_anywhere_costs_no_second_call(method: str, time: int) -> None:
    hands = Hands()
    setattr(hands.ports.workspace, method, broken_at(getattr(hands.ports.workspace, method), time))
    hands.halt_and_resume()
    assert statuses(hands.run.state) == {"b": FeatureOutcome.DELIVERED}
    assert len(hands.world.call_keys) == 8
    assert hands.settled()


def test_a_hold_before_the_preparation_does_not_skip_it() -> None:
    hands = Hands()
    hands.until(FilesClaimed)
    hands.ports.workspace.ensure = broken_at(hands.ports.workspace.ensure, 1)  # type: ignore[method-assign]
    hands.halt_and_resume()
    prepared = [event.unit for event in hands.events() if isinstance(event, CommandRan) and event.stage == "prepare"]
    assert prepared == ["u1", "u2", "u3"]


def test_a_delivery_that_breaks_is_taken_up_again_in_a_phase_without_an_agent() -> None:
    config = simple(pull_requests=PullRequests(strategy="draft"))
    hands = Hands(with_ship(trial.pins(config), agent=None, prompt=None, outputs=()))
    hands.ports.workspace.push = broken_at(hands.ports.workspace.push, 1)  # type: ignore[method-assign]
    hands.halt_and_resume()
    assert statuses(hands.run.state) == {"b": FeatureOutcome.DELIVERED}
    assert len(hands.world.pushes) == len(hands.world.pull_requests) == 1
    assert hands.settled()


def test_a_reply_is_kept_if_git_fails_while_its_tree_is_captured() -> None:
    hands = Hands()
    hands.ports.workspace.capture = broken_at(hands.ports.workspace.capture, 2)  # type: ignore[method-assign]
    hands.halt_and_resume()
    assert statuses(hands.run.state) == {"b": FeatureOutcome.DELIVERED}
    assert len(hands.world.call_keys) == 8, "the reply was paid once"
    assert not any(isinstance(event, AgentFailed | AgentLost) for event in hands.events())
    assert hands.settled()


def test_a_worktree_that_an_agent_removed_is_a_failed_call() -> None:
    hands = Hands()
    lost = RepositoryUnusable("worktree-lost", "no such directory")
    hands.ports.workspace.capture = broken_at(hands.ports.workspace.capture, 2, lost)  # type: ignore[method-assign]
    hands.to_rest()
    assert [event.problem.code for event in hands.events() if isinstance(event, AgentFailed)] == ["worktree-lost"]


@pytest.mark.parametrize(
    ("problem", "exit_code"), [(None, 0), (Problem(kind=ProblemClass.TRANSIENT, code="idle"), None)]
)
def test_what_a_spool_says_about_the_end_of_a_call_is_used(problem: Problem | None, exit_code: int | None) -> None:
    hands = Hands()
    hands.ports.workspace.capture = broken_at(hands.ports.workspace.capture, 2)  # type: ignore[method-assign]
    hands.to_rest()
    key = hands.world.call_keys[-1]
    hands.world.spools[key] = replace(hands.world.spools[key], problem=problem)
    hands.halt_and_resume()
    replies = [event for event in hands.events() if isinstance(event, AgentReplied) and event.ref.key == key]
    assert [(reply.salvaged, reply.exit) for reply in replies] == [(True, exit_code)]


@pytest.mark.parametrize("method", ["open", "ensure", "capture", "revert_paths", "commit", "changes"])
def test_a_full_disk_of_git_ends_the_process_and_a_resume_continues(method: str) -> None:
    hands = Hands()
    method_before = getattr(hands.ports.workspace, method)
    setattr(hands.ports.workspace, method, broken_at(method_before, 1, StorageFailed("git-failed", "no space")))
    with pytest.raises(StorageFailed):
        hands.to_rest()
    state = drive_run(hands.world, trial.RUN, hands.pins, 1).state
    assert statuses(state) == {"b": FeatureOutcome.DELIVERED}
    assert len(hands.world.call_keys) == 8


# cancels --------------------------------------------------------------------------------------------------------------
def test_a_cancel_waits_until_the_reply_is_paid() -> None:
    hands = Hands()
    hands.until(AgentReplied)
    hands.cancel()
    hands.to_rest()
    hands.run.worker_stopped(hands.feature)
    assert hands.track.last_stop is not None
    assert hands.track.last_stop.status is FeatureOutcome.CANCELLED
    assert hands.settled()
    assert hands.track.charged.nanousd > 0


@pytest.mark.parametrize("method", ["capture", "commit"])
@pytest.mark.parametrize(
    "message", [CancelPosted(feature=B, actor=DIGEST), RetryPosted(feature=B, phase=None, actor=DIGEST)]
)
def test_a_message_behind_an_intent_that_git_cannot_reconcile_ends_with_an_error(message: Event, method: str) -> None:
    hands = Hands()
    works = getattr(hands.ports.workspace, method)

    def fails(*arguments: object) -> Capture:
        raise BROKEN

    setattr(hands.ports.workspace, method, fails)
    hands.to_rest()
    hands.run.worker_stopped(hands.feature)
    hands.post(message)
    with pytest.raises(StorageFailed, match="git cannot be used"):
        hands.to_rest()
    setattr(hands.ports.workspace, method, works)
    hands.feature = FeatureLoop(
        trial.RUN, B, hands.pins, hands.world.store, hands.ports, hands.run, lambda recorded: None
    )
    hands.to_rest()
    hands.run.worker_stopped(hands.feature)
    assert len(hands.world.call_keys) == len(set(hands.world.call_keys))
    outcome = FeatureOutcome.CANCELLED if isinstance(message, CancelPosted) else FeatureOutcome.DELIVERED
    assert statuses(hands.run.state) == {"b": outcome}
    assert hands.settled()


def test_a_cancel_that_meets_a_feature_on_its_way_to_rest_is_not_lost() -> None:
    hands = Hands()
    blocker = ScriptedReply(problem=Problem(kind=ProblemClass.NEEDS_PERSON, code="agent-blocker"))
    hands.world.script = lambda spec, files: blocker
    hands.to_rest()
    hands.cancel()
    hands.run.worker_stopped(hands.feature)
    assert statuses(drive_run(hands.world, trial.RUN, hands.pins, 1).state) == {"b": FeatureOutcome.CANCELLED}


@pytest.mark.parametrize("cut", range(3, 260, 31))
def test_a_cancel_at_any_time_leaves_nothing_open(cut: int) -> None:
    hands = Hands()
    for _ in range(cut):
        if not hands.feature.step():
            break
    hands.cancel()
    hands.run.worker_stopped(hands.feature)
    hands.run = drive_run(hands.world, trial.RUN, hands.pins, 1)
    assert hands.track.last_stop is not None
    assert hands.track.last_stop.status in (FeatureOutcome.CANCELLED, FeatureOutcome.DELIVERED)
    assert hands.settled()


# money ----------------------------------------------------------------------------------------------------------------
def test_a_call_that_never_began_costs_nothing() -> None:
    hands = Hands()
    missing = Problem(kind=ProblemClass.FATAL, code="tool-missing")

    def nothing(spec: CallSpec) -> CallResult:
        return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0, problem=missing)

    hands.ports.agents.call = nothing  # type: ignore[method-assign]
    hands.to_rest()
    hands.run.worker_stopped(hands.feature)
    assert hands.track.charged.nanousd == 0
    assert hands.settled()


# rework ---------------------------------------------------------------------------------------------------------------
def test_a_secret_that_a_rework_leaves_lying_is_found_again() -> None:
    texts: list[str] = []

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        if "/build/u1/" in spec.key and spec.key.endswith("builder"):
            texts.append(spec.key)
            files_written = {"b1.txt": "SECRET"} if len(texts) == 1 else {}
            return ScriptedReply(files={**files_written, "notes/b.u1.md": "the first unit"})
        return trial.script(spec, files)

    world, pins = world_of(items=DEPENDENCIES)
    world.script = script
    assert statuses(drive_run(world, trial.RUN, pins, 1).state) == {"b": FeatureOutcome.WAITING}
    driving.answer(world, "b", Verdict.RETRY, "remove it")
    drive_run(world, trial.RUN, pins, 1)
    assert all(b"SECRET" not in data for tree in world.commits("feat/b") for data in tree.files.values())


def with_ship(pins: Pins, **fields: Any) -> Pins:
    """The trial pipeline with another last phase."""

    def changed(phase: Phase) -> Phase:
        return replace(phase, **fields) if phase.phase == "ship" else phase

    return replace(pins, pipeline=replace(pins.pipeline, phases=tuple(map(changed, pins.pipeline.phases))))


def test_rules_over_the_feature_see_what_all_replies_changed() -> None:
    texts: list[str] = []

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        if "/ship/" not in spec.key:
            return trial.script(spec, files)
        texts.append(spec.key)
        if len(texts) > 1:
            return ScriptedReply(files={"f0.txt": "fine"})
        many = {f"f{number}.txt": "x" if number else "broken" for number in range(9)}
        return ScriptedReply(files={**many, "letters/b.md": "A letter about b"})

    world, pins = world_of(items=DEPENDENCIES)
    world.script = script
    gates = (Gate(run="check", cause="x"), Gate(rule="files_max", cause="x"))
    pins = with_ship(pins, writable=("f*.txt",), gates=gates)
    pins = replace(pins, config=replace(pins.config, limits=replace(pins.config.limits, feature_files_max=3)))
    drive_run(world, trial.RUN, pins, 1)
    checked = [recorded.event for recorded in world.store.log if isinstance(recorded.event, GateChecked)]
    assert ("files_max", False) in [(event.gate, event.passed) for event in checked]


def test_a_phase_without_an_agent_asks_a_person_where_its_gate_fails() -> None:
    world, pins = world_of(items=DEPENDENCIES)
    pins = with_ship(pins, agent=None, prompt=None, outputs=(), gates=(Gate(run="final", cause="weather"),))
    commands = {**pins.config.commands, "final": Command(run="final")}
    pins = replace(pins, config=replace(pins.config, commands=commands))
    sky = ["grey", "grey", "blue"]

    def weather(command: str, files: Files) -> tuple[int, str]:
        return (int(sky.pop(0) != "blue"), "") if command == "final" and "letters/b.md" not in files else (0, "")

    pins = replace(
        pins,
        pipeline=replace(
            pins.pipeline, phases=tuple(replace(p, gates=()) if p.phase == "build" else p for p in pins.pipeline.phases)
        ),
    )
    world.commands = weather
    for _ in range(2):
        assert statuses(drive_run(world, trial.RUN, pins, 1).state) == {"b": FeatureOutcome.WAITING}
        driving.answer(world, "b", Verdict.RETRY)
    assert statuses(drive_run(world, trial.RUN, pins, 1).state) == {"b": FeatureOutcome.DELIVERED}
    assert sky == []


# people ---------------------------------------------------------------------------------------------------------------
def test_another_try_after_a_review_is_the_builders() -> None:
    events = (
        *IN_BUILD,
        *accepted(ref("build", unit="u1")),
        gate("check", True),
        *accepted(ref("build", unit="u1", role="reviewer"), verdict=()),
        Blocked(phase="build", unit="u1", cause="weather", check="reviewer", note=DIGEST),
        HumanRequested(phase="build", unit="u1", question_kind=QuestionKind.UNROUTED),
        HumanAnswered(run_version=9, verdict=Verdict.RETRY, note=NOTE, actor=DIGEST),
    )
    assert when_decided(state_after(*events), trial.pins()) == act.CallAgent(role="builder", attempt=2)


def test_notes_go_where_they_belong_once() -> None:
    blocked = Blocked(phase="build", unit="u1", cause="person", check="g", note=NOTE)
    rejected = (
        *IN_BUILD,
        *accepted(ref("build", unit="u1")),
        HumanRequested(phase="build", unit="u1", question_kind=QuestionKind.APPROVAL, code="g"),
        HumanAnswered(run_version=9, verdict=Verdict.REJECT, note=NOTE, actor=DIGEST),
        blocked,
        RolledBack(source="build", to="plan"),
    )
    state = state_after(*rejected)
    assert isinstance(state, Restoring)
    assert state.progress.notes == {"plan": (NOTE,)}
    units = ("u1", "u2", "u3")
    twice = (
        *IN_BUILD,
        blocked,
        RolledBack(source="build", to="build", units=units),
        PhaseStarted(phase="build", iteration=1, units=units),
        UnitStarted(phase="build", unit="u1", iteration=2),
        blocked,
        RolledBack(source="build", to="plan"),
    )
    state = state_after(*twice)
    assert isinstance(state, Restoring)
    assert not any(key.startswith("build") for key in state.progress.notes), "notes for superseded units go with them"


# the rest -------------------------------------------------------------------------------------------------------------
def test_what_a_feature_touched_does_not_count_what_it_started_from() -> None:
    world, pins = world_of(items={"b": (), "c": (), "d": ("b", "c")})
    rested = drive_run(world, trial.RUN, pins, 1).state.tracks["d"].last_stop
    assert rested is not None
    assert rested.changed_paths
    assert all("d" in path for path in rested.changed_paths)


def test_a_set_up_that_died_in_a_rebuilt_worktree_is_run_again() -> None:
    hands = Hands(workspace=WorkspaceSettings(setup=("install",)))
    hands.until(AgentReplied)
    hands.world.worktrees.pop("b")
    log: list[str] = []
    real = hands.world.commands

    def commands(command: str, files: Files) -> tuple[int | None, str]:
        log.append(command)
        if log == ["install"]:
            raise Crash("install")
        return real(command, files)

    hands.world.commands = commands
    with pytest.raises(Crash):
        hands.to_rest()
    drive_run(hands.world, trial.RUN, hands.pins, 1)
    assert log[:2] == ["install", "install"]


def test_an_error_of_the_coordinator_leaves_no_thread_behind() -> None:
    world, pins = world_of(items={"b": (), "c": ()})
    ports = SimulatedPorts(world)
    run = Coordinator(trial.RUN, pins, world.store, ports, lambda recorded: None)

    def begin(feature: FeatureId, door: RunSide) -> FeatureLoop:
        return FeatureLoop(trial.RUN, feature, pins, world.store, ports, door, lambda recorded: None)

    looks = [1]  # The run is decided on when it begins, and when a feature stops.

    def full() -> None:
        looks[0] -= 1
        if looks[0] < 0:
            raise OSError(28, "no space")

    run.read_inbox = full  # type: ignore[method-assign]
    scheduler = Scheduler(run, begin, lambda watch: None)
    with pytest.raises(OSError, match="no space"):
        scheduler.run()
    assert scheduler.threads == {}


def test_a_stop_is_recorded_as_one_even_when_everything_rests_first() -> None:
    world, pins = world_of(items=DEPENDENCIES)
    ports = SimulatedPorts(world)
    run = Coordinator(trial.RUN, pins, world.store, ports, lambda recorded: None)

    def begin(feature: FeatureId, door: RunSide) -> FeatureLoop:
        return FeatureLoop(trial.RUN, feature, pins, world.store, ports, door, lambda recorded: None)

    scheduler = Scheduler(run, begin, lambda watch: None)

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        scheduler.stop_requested = True
        return trial.script(spec, files)

    world.script = script
    scheduler.run()
    assert run.state.stop_requested
