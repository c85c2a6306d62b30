"""The thread driver and the coordinator over a simulated world: what several features do to each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.decoding.quantity import Usd
from mz_engine.effects.call import REPLY_TOKENS
from mz_engine.model.config import Budget, Coefficients, Command, Config
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, CallSpec, ParsedReply, Price, RepositoryUnusable
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop, IllegalTransition, RunSide, next_state
from mz_engine.run.scheduler import Scheduler
from mz_engine.run.spending_record import NOT_RECORDED, SpendingRecord
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentRequested,
    CallOverBudget,
    CallReserved,
    CallSettled,
    Problem,
    ProblemClass,
    Usage,
)
from mz_events.catalog.feature import PhaseCompleted
from mz_events.catalog.inbox import CancelPosted
from mz_events.catalog.run import BudgetChanged, FeatureOutcome, Hold, RunHalted, Verdict
from mz_events.names import FeatureId, feature_stream, inbox_stream, run_stream
from mz_events.store import Append, Recorded, VersionConflict
from mz_projections.feature.fold import fold
from mz_projections.feature.state import BetweenPhases, Held, NotStarted
from mz_projections.run.fold import RunState, fold_run
from mz_projections.run.spending import total
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import NANO_PER_TOKEN, Files, ScriptedReply, SimulatedAdapter, SimulatedPorts, World

from tests.support import driving
from tests.support.steps import planned, recorded

DEPENDENCIES: Mapping[str, tuple[str, ...]] = {"b": ()}
THREE: Mapping[str, tuple[str, ...]] = {"b": (), "c": (), "d": ()}


def simple(**more: object) -> Config:
    """No person is needed on the way; `check` is the only gate."""
    fields = {"agent": "simulated", "commands": {"check": Command(run="check")}, "parallel_max": 3, **more}
    return Config(**fields)  # type: ignore[arg-type]


Script = Callable[[CallSpec, Files], ScriptedReply]


class Hasty(SimulatedPorts):
    """A clock that moves on by a second whenever it is looked at, so that nothing is waited for."""

    def now_us(self) -> int:
        self.world.now_us += 1_000_000
        return self.world.now_us


def run_threads(
    world: World, pins: Pins, ports: SimulatedPorts | None = None, record: SpendingRecord = NOT_RECORDED
) -> RunState:
    ports = ports or Hasty(world)
    coordinator = Coordinator(trial.RUN, pins, world.store, ports, lambda recorded: None)
    coordinator.spending = record
    if coordinator.state.idle or coordinator.state.halt or coordinator.state.stop_requested:
        coordinator.resume()

    def begin(feature: FeatureId, door: RunSide) -> FeatureLoop:
        return FeatureLoop(trial.RUN, feature, pins, world.store, ports, door, lambda recorded: None)

    Scheduler(coordinator, begin, lambda poll: coordinator.poll_forge(poll, ports)).run()
    return coordinator.state


def statuses(state: RunState) -> dict[str, FeatureOutcome | None]:
    return {feature: track.last_stop.status if track.last_stop else None for feature, track in state.tracks.items()}


class Misbehaving:
    """The trial script, with something else for chosen features, as often as asked."""

    def __init__(self, times: int, **answers: ScriptedReply) -> None:
        self.left, self.answers = dict.fromkeys(answers, times), answers

    def __call__(self, spec: CallSpec, files: Files) -> ScriptedReply:
        feature = spec.worktree.feature
        if self.left.get(feature):
            self.left[feature] -= 1
            return self.answers[feature]
        return trial.script(spec, files)


def fails(kind: ProblemClass, code: str, retry: int | None = None) -> ScriptedReply:
    return ScriptedReply(problem=Problem(kind=kind, code=code, retry_after_seconds=retry))


def world_of(
    script: Script | None = None, items: Mapping[str, tuple[str, ...]] = THREE, **more: object
) -> tuple[World, Pins]:
    world, pins = World({"README.md": "x"}, script or trial.script, trial.commands), trial.pins(simple(**more))
    trial.begin(world, pins, dict(items))
    return world, pins


def test_features_are_delivered_side_by_side() -> None:
    world, pins = world_of()
    state = run_threads(world, pins)
    assert set(statuses(state).values()) == {FeatureOutcome.DELIVERED}
    assert state.finished
    assert len(world.call_keys) == len(set(world.call_keys)) == 3 * 8


def test_a_failed_feature_leaves_the_others_alone() -> None:
    world, pins = world_of(Misbehaving(9, c=fails(ProblemClass.UNKNOWN, "exit-9")))
    state = run_threads(world, pins)
    actual = statuses(state)
    assert actual == {"b": FeatureOutcome.DELIVERED, "c": FeatureOutcome.WAITING, "d": FeatureOutcome.DELIVERED}
    assert state.idle
    driving.answer(world, "c", Verdict.REJECT)
    state = run_threads(world, pins)
    assert statuses(state)["c"] is FeatureOutcome.FAILED
    assert state.finished


def test_a_fatal_problem_stops_the_run_and_a_resume_goes_on() -> None:
    world, pins = world_of(Misbehaving(1, c=fails(ProblemClass.FATAL, "auth-failure")), parallel_max=1)
    state = run_threads(world, pins)
    assert state.halt is not None
    assert state.halt.code == "auth-failure"
    assert statuses(state) == {"b": FeatureOutcome.DELIVERED, "c": FeatureOutcome.HELD, "d": None}, (
        "nothing new is started"
    )
    state = run_threads(world, pins)
    assert set(statuses(state).values()) == {FeatureOutcome.DELIVERED}


def test_a_rate_limit_is_waited_for() -> None:
    world, pins = world_of(Misbehaving(1, b=fails(ProblemClass.TRANSIENT, "rate-limit", 1)), DEPENDENCIES)
    state = run_threads(world, pins)
    assert statuses(state) == {"b": FeatureOutcome.DELIVERED}
    kinds = [type(item.event).__name__ for item in world.store.read(run_stream(trial.RUN))]
    assert kinds.count("TimerFired") == 1


def test_the_budget_holds_calls_and_says_so() -> None:
    world, pins = world_of(budget=Budget(run_nanousd=Usd(2_200_000)), parallel_max=1)
    state = run_threads(world, pins)
    held = [
        track.last_stop.hold
        for track in state.tracks.values()
        if track.last_stop and track.last_stop.status is FeatureOutcome.HELD
    ]
    assert held == [Hold.BUDGET] * len(held)
    assert held, "three features cost more than this budget"
    assert state.idle
    assert state.committed_nanousd <= 2_200_000


def held_by(state: RunState) -> dict[str, str]:
    return {name: track.over_budget.budget for name, track in state.tracks.items() if track.over_budget}


class Parsing(Hasty):
    """An agent whose output is read in another way."""

    def __init__(self, world: World, parse: Callable[[CallResult], ParsedReply]) -> None:
        super().__init__(world)
        adapter = SimulatedAdapter()
        adapter.parse_output = parse  # type: ignore[method-assign, assignment]
        self.agents.adapter = lambda agent: adapter  # type: ignore[method-assign]


def test_a_feature_over_its_tokens_is_held_alone_and_goes_on_with_more() -> None:
    world, pins = world_of(items={"b": (), "c": ()})
    assert set(statuses(run_threads(world, pins)).values()) == {FeatureOutcome.DELIVERED}
    spent = max(track.charged.tokens for track in fold_run(world.store.read(run_stream(trial.RUN))).tracks.values())
    world, pins = world_of(items={"b": (), "c": ()}, budget=Budget(feature_tokens=spent // 2))
    state = run_threads(world, pins)
    assert held_by(state) == {"b": "feature_tokens", "c": "feature_tokens"}
    assert all(track.committed.tokens <= spent // 2 for track in state.tracks.values())
    Coordinator(trial.RUN, pins, world.store, SimulatedPorts(world), lambda recorded: None).set_budget(
        Budget(feature_tokens=spent + REPLY_TOKENS)
    )
    assert set(statuses(run_threads(world, pins)).values()) == {FeatureOutcome.DELIVERED}


def test_the_day_counts_what_runs_of_other_repositories_spent(tmp_path: Path) -> None:
    """The second run has room for some calls; a day later it goes on."""
    world, pins = world_of(items=DEPENDENCIES)
    run_threads(world, pins, record=SpendingRecord(tmp_path, "/one"))
    spent = total(SpendingRecord(tmp_path).day(world.now_us))
    charged = fold_run(world.store.read(run_stream(trial.RUN))).committed
    assert spent == charged, "every charge is in the record, and no reservation is left"
    world, pins = world_of(items=DEPENDENCIES, budget=Budget(day_nanousd=Usd(spent.nanousd + 2_200_000)))
    second = SpendingRecord(tmp_path, "/two")
    state = run_threads(world, pins, record=second)
    assert held_by(state) == {"b": "day"}
    over = state.tracks["b"].over_budget
    assert over is not None
    assert over.committed == spent.nanousd + state.committed_nanousd
    assert total(second.day(world.now_us)).nanousd <= pins.config.budget.day_nanousd  # type: ignore[operator]
    before = state.version
    assert held_by(run_threads(world, pins, record=second)) == {"b": "day"}, "a resume alone does not help"
    assert fold_run(world.store.read(run_stream(trial.RUN))).version - before < 8, "nor does it go on for ever"
    assert over.until_us is not None
    world.now_us = over.until_us
    assert statuses(run_threads(world, pins, record=second)) == {"b": FeatureOutcome.DELIVERED}


def test_a_reservation_before_a_crash_leaves_room_for_its_own_call(tmp_path: Path) -> None:
    world, pins = world_of(items=DEPENDENCIES, budget=Budget(call_nanousd=Usd(10**9), day_nanousd=Usd(10**9)))
    crashing = SpendingRecord(tmp_path, "/one")
    add = crashing.add

    def crash(*arguments: Any, **named: Any) -> None:
        add(*arguments, **named)
        raise SystemError

    crashing.add = crash  # type: ignore[method-assign]
    with pytest.raises(SystemError):
        run_threads(world, pins, record=crashing)
    run_threads(world, pins, record=SpendingRecord(tmp_path, "/one"))
    events = [item.event for item in world.store.read(run_stream(trial.RUN))]
    assert next(type(event) for event in events if isinstance(event, CallReserved | CallOverBudget)) is CallReserved


def test_a_killed_call_counts_with_the_budget_of_a_call() -> None:
    """It reported nothing: it may have spent all that it was allowed."""
    budget = Budget(call_nanousd=Usd(10**9), call_tokens=10**6)
    world, pins = world_of(Misbehaving(1, b=fails(ProblemClass.PHASE, "call-budget")), DEPENDENCIES, budget=budget)

    def parse(result: CallResult) -> ParsedReply:
        reply = SimulatedAdapter().parse_output(result)
        return replace(reply, ending="no-terminal", usage=()) if result.problem else reply

    state = run_threads(world, pins, Parsing(world, parse))
    assert statuses(state) == {"b": FeatureOutcome.DELIVERED}
    charges = [item.event for item in world.store.read(run_stream(trial.RUN)) if isinstance(item.event, CallSettled)]
    assert [(e.nanousd, e.tokens) for e in charges if e.nanousd >= 10**9] == [(10**9, 10**6)]


def test_a_negative_bill_never_makes_the_total_smaller(tmp_path: Path) -> None:
    world, pins = world_of(items=DEPENDENCIES)
    totals, record = list[int](), SpendingRecord(tmp_path, "/one")
    add = record.add

    def observed(*arguments: Any, **named: Any) -> None:
        add(*arguments, **named)
        totals.append(total(record.day(world.now_us)).nanousd)

    record.add = observed  # type: ignore[method-assign]

    def parse(result: CallResult) -> ParsedReply:
        return replace(SimulatedAdapter().parse_output(result), reported_nanousd=-(10**12), usage=())

    run_threads(world, pins, Parsing(world, parse), record)
    assert totals == sorted(totals)
    assert totals[-1] > 0


def test_money_is_set_aside_by_what_such_calls_took() -> None:
    """The estimate of tokens stays what it was, so that the next calibration compares like with like."""
    coefficients = Coefficients(
        agent="simulated", phase="", calls=5, input=3.0, output=0.5, input_tokens=1, output_tokens=1
    )
    requestses = []
    for calibration in ((), (coefficients,)):
        world, pins = world_of(items=DEPENDENCIES, calibration=calibration)
        assert statuses(run_threads(world, pins)) == {"b": FeatureOutcome.DELIVERED}
        events = [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]
        requestses.append([event for event in events if isinstance(event, AgentRequested)])
    for plain, fitted in zip(*requestses, strict=True):
        prompt = plain.estimated_tokens - REPLY_TOKENS
        assert fitted.estimated_tokens == plain.estimated_tokens
        assert plain.estimated_nanousd == plain.estimated_tokens * NANO_PER_TOKEN
        assert fitted.estimated_nanousd == (3 * prompt + REPLY_TOKENS // 2) * NANO_PER_TOKEN


class Priceless(Hasty):
    """A model that nobody has a price for, and an agent that does not report any."""

    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        return Price(nanousd=None, unpriced=("simulated",), prices="none")


def test_what_nobody_can_price_stays_set_aside() -> None:
    """A budget must not take it for nothing."""
    world, pins = world_of(items=DEPENDENCIES)
    state = run_threads(world, pins, Priceless(world))
    events = [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]
    reserved = {event.key: event.nanousd for event in events if isinstance(event, CallReserved)}
    settled = {event.key: event.nanousd for event in events if isinstance(event, CallSettled)}
    assert settled == reserved
    assert state.committed_nanousd == sum(settled.values()) > 0


def test_a_secret_in_a_file_asks_a_person_and_is_never_committed() -> None:
    leak = ScriptedReply(files={"plans/b.json": "SECRET"})
    world, pins = world_of(Misbehaving(1, b=leak), DEPENDENCIES)
    state = run_threads(world, pins)
    assert statuses(state) == {"b": FeatureOutcome.WAITING}
    assert state.tracks["b"].last_stop is not None
    assert state.tracks["b"].last_stop.code == "plans/b.json"
    driving.answer(world, "b", Verdict.RETRY)
    assert statuses(run_threads(world, pins)) == {"b": FeatureOutcome.DELIVERED}
    assert all(b"SECRET" not in data for tree in world.commits("feat/b") for data in tree.files.values())


def test_changes_outside_the_contract_are_reverted_and_recorded() -> None:
    world, pins = world_of(items=DEPENDENCIES)
    run_threads(world, pins)
    offences = [
        offence.path
        for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))
        if type(item.event).__name__ == "ChangesChecked"
        for offence in item.event.forbidden_changes  # type: ignore[attr-defined]
    ]
    assert offences == ["stray.txt"]
    assert "stray.txt" not in world.commits("feat/b")[0].files


def test_a_person_cancels_a_feature_and_the_others_go_on() -> None:
    world, pins = world_of()
    left = CancelPosted(feature=FeatureId("c"), actor=world.blobs.put(b"tester"))
    world.store.append([Append(inbox_stream(trial.RUN), None, (left,))], 1)
    state = run_threads(world, pins)
    actual = statuses(state)
    assert actual == {"b": FeatureOutcome.DELIVERED, "c": FeatureOutcome.CANCELLED, "d": FeatureOutcome.DELIVERED}
    assert not any("/c/" in key for key in world.call_keys)


def test_an_answer_to_a_question_that_is_gone_is_refused_and_recorded() -> None:
    world, pins = world_of(items=DEPENDENCIES)
    driving.answer(world, "b")
    run_threads(world, pins)
    events = [
        item.event for item in world.store.read(run_stream(trial.RUN)) if type(item.event).__name__ == "InboxRead"
    ]
    assert [(event.accepted, event.rejection_code) for event in events] == [(False, "not-waiting")]  # type: ignore[attr-defined]


def test_a_second_process_is_noticed_and_stops() -> None:
    world, pins = world_of(items=DEPENDENCIES)
    real, once = world.store.append, threading.Event()

    def interfering(appends: Sequence[Append], now_us: int) -> tuple[Recorded[Event], ...]:
        if not once.is_set() and appends[0].stream.endswith("/b"):
            once.set()
            real([Append(appends[0].stream, appends[0].expected, appends[0].events)], now_us)
        return real(appends, now_us)

    world.store.append = interfering  # type: ignore[method-assign]
    with pytest.raises(VersionConflict):
        run_threads(world, pins)


def test_an_unusable_repository_halts_the_run_with_its_code() -> None:
    world, pins = world_of(items=DEPENDENCIES)
    ports = SimulatedPorts(world)

    def broken(*arguments: object) -> None:
        raise RepositoryUnusable("git-broken", "git cannot be used here")

    coordinator = Coordinator(trial.RUN, pins, world.store, ports, lambda recorded: None)

    def begin(feature: FeatureId, door: RunSide) -> FeatureLoop:
        run = FeatureLoop(trial.RUN, feature, pins, world.store, ports, door, lambda recorded: None)
        ports.workspace.ensure = broken  # type: ignore[method-assign, assignment]
        return run

    Scheduler(coordinator, begin, lambda poll: coordinator.poll_forge(poll, ports)).run()
    assert coordinator.state.halt is not None
    assert coordinator.state.halt.code == "git-broken"
    assert isinstance(fold(world.store.read(feature_stream(trial.RUN, FeatureId("b")))), Held)


def test_what_a_thread_dies_of_is_raised_and_the_others_come_to_rest() -> None:
    world, pins = world_of()

    class Bug(Exception):
        pass

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        if spec.worktree.feature == "c":
            raise Bug
        return trial.script(spec, files)

    world.script = script
    with pytest.raises(Bug):
        run_threads(world, pins)
    world.script = trial.script
    assert set(statuses(run_threads(world, pins)).values()) == {FeatureOutcome.DELIVERED}


def test_a_thread_that_cannot_start_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world, pins = world_of()

    def fail_to_start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail_to_start)
    with pytest.raises(RuntimeError, match="new thread"):
        run_threads(world, pins)


def test_an_illegal_event_is_refused_before_it_is_appended() -> None:
    with pytest.raises(IllegalTransition, match="PhaseCompleted is not allowed in state NotStarted"):
        next_state(NotStarted(), (PhaseCompleted(phase="plan"),), 0)
    between = fold(recorded(*planned()))
    assert isinstance(between, BetweenPhases)
    with pytest.raises(IllegalTransition):
        next_state(between, (PhaseCompleted(phase="plan"),), 0)


def test_more_money_lets_a_held_feature_go_on() -> None:
    world, pins = world_of(items=DEPENDENCIES, budget=Budget(run_nanousd=Usd(1)))
    state = run_threads(world, pins)
    assert state.tracks["b"].last_stop is not None
    assert state.tracks["b"].last_stop.hold is Hold.BUDGET
    coordinator = Coordinator(trial.RUN, pins, world.store, Hasty(world), lambda recorded: None)
    coordinator.set_budget(Budget(run_nanousd=Usd(1)))
    assert coordinator.state.budget is None, "nothing is recorded where nothing changed"
    coordinator.set_budget(Budget())
    assert statuses(run_threads(world, pins)) == {"b": FeatureOutcome.DELIVERED}


def test_a_new_budget_can_be_stored() -> None:
    """Settings hold amounts that the log cannot encode."""
    world, pins = world_of(items=DEPENDENCIES)
    run_threads(world, pins)
    coordinator = Coordinator(trial.RUN, pins, world.store, Hasty(world), lambda recorded: None)
    coordinator.set_budget(Budget(run_nanousd=Usd(7), feature_nanousd=Usd(5)))
    changed = [item.event for item in world.store.read(run_stream(trial.RUN))][-1]
    assert msgspec.json.decode(msgspec.json.encode(changed), type=BudgetChanged) == changed


def test_what_was_given_up_with_its_dependency_is_not_held_for_it() -> None:
    world, pins = world_of(items={"a": (), "b": ("a",)})
    left = CancelPosted(feature=None, actor=world.blobs.put(b"tester"))
    world.store.append([Append(inbox_stream(trial.RUN), None, (left,))], world.now_us)
    state = run_threads(world, pins)
    assert statuses(state) == {"a": FeatureOutcome.CANCELLED, "b": FeatureOutcome.CANCELLED}
    assert (state.finished, state.tracks["b"].held_by) == (True, None)


@pytest.mark.parametrize("seed", range(6))
def test_a_key_that_two_features_were_refused_halts_the_run_once(seed: int) -> None:
    """The second one's reply is read when the key is mended already: it says nothing about the new one."""
    mended = False

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        refused = Problem(kind=ProblemClass.FATAL, code="auth-failure")
        return trial.script(spec, files) if mended else ScriptedReply(problem=refused)

    world, pins = world_of(script, {"b": (), "c": ()})
    drive_run(world, trial.RUN, pins, seed)
    mended = True
    halts = [recorded.event for recorded in world.store.log if isinstance(recorded.event, RunHalted)]
    assert len(halts) == 1
    Coordinator(trial.RUN, pins, world.store, SimulatedPorts(world), lambda recorded: None).resume()
    state = drive_run(world, trial.RUN, pins, seed).state
    assert set(statuses(state).values()) == {FeatureOutcome.DELIVERED}
    assert sum(isinstance(recorded.event, RunHalted) for recorded in world.store.log) == 1


def test_a_key_that_is_still_refused_halts_the_run_again() -> None:
    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        return ScriptedReply(problem=Problem(kind=ProblemClass.FATAL, code="auth-failure"))

    world, pins = world_of(script, {"b": (), "c": ()})
    for halts in (1, 2, 3):
        drive_run(world, trial.RUN, pins, 1)
        assert sum(isinstance(recorded.event, RunHalted) for recorded in world.store.log) == halts
        Coordinator(trial.RUN, pins, world.store, SimulatedPorts(world), lambda recorded: None).resume()


def test_a_call_that_was_cut_off_is_repeated_with_a_word_about_it() -> None:
    prompts: list[str] = []

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        prompts.append(spec.prompt)
        full = Problem(kind=ProblemClass.PHASE, code="output-limit")
        return ScriptedReply(problem=full) if len(prompts) == 1 else trial.script(spec, files)

    world, pins = world_of(script, DEPENDENCIES)
    assert set(statuses(drive_run(world, trial.RUN, pins, 1).state).values()) == {FeatureOutcome.DELIVERED}
    assert ["cut off" in prompt for prompt in prompts[:3]] == [False, True, False]
