"""What is decided for a run: order, slots, dependencies, claims, money, halts, rest."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.decide import run as act
from mz_engine.decide.run import (
    ForgePoll,
    claim_files,
    decide_run,
    due_features,
    forge_polls,
    reserve_money,
    runnable_features,
)
from mz_engine.decoding.quantity import Usd
from mz_engine.model.config import Budget, Config
from mz_engine.model.pins import Pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallReserved, CallSettled
from mz_events.catalog.run import (
    AnswerAccepted,
    BudgetChanged,
    CancelAccepted,
    ClaimCompared,
    ClaimRejected,
    FeatureAdmitted,
    FeatureMerged,
    FeatureOutcome,
    FeatureReleased,
    FeatureStopped,
    FilesClaimed,
    Hold,
    InboxRead,
    ItemAdded,
    ItemHeld,
    ItemSkipped,
    RunFinished,
    RunHalted,
    RunIdle,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopRequested,
    TimerFired,
    Verdict,
)
from mz_events.names import Commit, FeatureId, Path, RunId
from mz_projections.run.fold import RunState
from mz_projections.run.spending import DAY_US, SpendingEntry
from mz_qa.simulation import trial

from tests.support.steps import BASE, DIGEST, given_run, recorded, when_run_decided

PINS = trial.pins(Config(parallel_max=2))
A, B, C = FeatureId("a"), FeatureId("b"), FeatureId("c")
HEAD = Commit("e" * 40)
STARTED = RunStarted(run=RunId("r1"), pipeline="trial", base="main", base_commit=BASE, pins=DIGEST, mz_version="1")


def item(feature: FeatureId, *needs: FeatureId, priority: int = 3, order: int = 0) -> ItemAdded:
    return ItemAdded(
        feature=feature,
        source=f"f#{feature}",
        priority=priority,
        order=order,
        depends_on=needs,
        title=DIGEST,
        body=DIGEST,
    )


def rested(feature: FeatureId, status: FeatureOutcome, **more: object) -> FeatureStopped:
    return replace(FeatureStopped(feature=feature, version=9, status=status, head=HEAD), **more)


def then(*events: Event, pins: Pins = PINS) -> act.RunAction:
    return when_run_decided(given_run(STARTED, *events), pins)


def admit(feature: FeatureId, *starts_from: Commit, onto: FeatureId | None = None) -> FeatureAdmitted:
    return FeatureAdmitted(feature=feature, starts_from=starts_from, stacked_on=onto)


# order and slots ------------------------------------------------------------------------------------------------------
def test_features_are_admitted_by_priority_then_as_listed() -> None:
    items = (item(A, order=0), item(B, priority=0, order=1), item(C, order=2))
    assert then(*items) == admit(B)
    assert then(*items, FeatureAdmitted(feature=B)) == admit(A)


def test_no_more_features_run_than_there_are_slots() -> None:
    events = (item(A), item(B, order=1), item(C, order=2), FeatureAdmitted(feature=A), FeatureAdmitted(feature=B))
    assert then(*events) == act.AwaitEvents(until_us=None)
    assert then(*events, rested(A, FeatureOutcome.WAITING)) == admit(C)


def test_a_dependent_starts_from_the_delivered_commit_of_what_it_depends_on() -> None:
    events: tuple[Event, ...] = (item(A), item(B, A, order=1), FeatureAdmitted(feature=A))
    assert then(*events) == act.AwaitEvents(until_us=None)
    assert then(*events, rested(A, FeatureOutcome.DELIVERED)) == admit(B, HEAD, onto=A)


def test_several_dependencies_are_merged_and_the_base_is_the_target() -> None:
    events: tuple[Event, ...] = (item(A), item(B, order=1), item(C, A, B, order=2))
    events = (*events, FeatureAdmitted(feature=A), FeatureAdmitted(feature=B))
    events = (*events, rested(A, FeatureOutcome.DELIVERED), rested(B, FeatureOutcome.DELIVERED, head=BASE))
    assert then(*events) == admit(C, HEAD, BASE)


def test_a_dependency_that_an_earlier_run_delivered_counts() -> None:
    skipped = ItemSkipped(feature=A, delivered_by="run/r0/a@9", changed=False, head=HEAD)
    assert then(skipped, item(B, A)) == admit(B, HEAD, onto=A)


@pytest.mark.parametrize("status", [FeatureOutcome.FAILED, FeatureOutcome.CANCELLED])
def test_a_failed_dependency_holds_its_dependents_and_no_other(status: FeatureOutcome) -> None:
    events = (item(A), item(B, A, order=1), item(C, B, order=2), FeatureAdmitted(feature=A), rested(A, status))
    first, second = ItemHeld(feature=B, blocked_by=A), ItemHeld(feature=C, blocked_by=B)
    assert then(*events) == first
    assert then(*events, first) == second
    assert then(*events, first, second) == RunIdle()


# merged pull requests -------------------------------------------------------------------------------------------------
MERGED_FIRST = replace(PINS, pipeline=replace(PINS.pipeline, dependencies="merged"))
NEW_HEAD = Commit("f" * 40)


def test_a_dependent_starts_from_the_base_branch_once_what_it_depends_on_is_merged() -> None:
    delivered = (item(A), item(B, A, order=1), FeatureAdmitted(feature=A), rested(A, FeatureOutcome.DELIVERED))
    assert then(*delivered, pins=MERGED_FIRST) == RunIdle()
    merged = (*delivered, FeatureMerged(feature=A, head=HEAD), FeatureMerged(feature=C, head=BASE))
    assert then(*merged, pins=MERGED_FIRST) == admit(B, HEAD), (
        "the merge of a feature that it does not need is no start"
    )


def test_several_merged_dependencies_give_the_newest_head() -> None:
    events: tuple[Event, ...] = (item(A), item(B, order=1), item(C, A, B, order=2))
    events = (*events, *(FeatureAdmitted(feature=feature) for feature in (A, B)))
    events = (*events, *(rested(feature, FeatureOutcome.DELIVERED) for feature in (A, B)))
    first = (*events, FeatureMerged(feature=B, head=HEAD))
    assert then(*first, pins=MERGED_FIRST) == RunIdle()
    assert then(*first, FeatureMerged(feature=A, head=NEW_HEAD), pins=MERGED_FIRST) == admit(C, NEW_HEAD)


def polls(*events: Event, pins: Pins = MERGED_FIRST) -> tuple[ForgePoll, ...]:
    return forge_polls(given_run(STARTED, *events), pins)


def test_the_forge_is_asked_for_merges_that_a_feature_waits_for() -> None:
    at_work = (item(A), item(B, A, order=1), FeatureAdmitted(feature=A))
    assert polls(*at_work) == ()
    delivered = (*at_work, rested(A, FeatureOutcome.DELIVERED))
    assert polls(*delivered) == (ForgePoll("merge", A),)
    assert polls(*delivered, pins=PINS) == ()
    assert polls(*delivered, FeatureMerged(feature=A, head=HEAD)) == ()
    assert polls(*delivered, FeatureAdmitted(feature=B)) == ()
    assert polls(*delivered, rested(B, FeatureOutcome.CANCELLED)) == ()
    assert polls(item(B, A)) == (ForgePoll("merge", A),), "an earlier run delivered it"


@pytest.mark.parametrize("pins", [PINS, MERGED_FIRST])
def test_the_forge_is_asked_for_the_checks_of_features_held_for_them(pins: Pins) -> None:
    held = (*BOTH, rested(B, FeatureOutcome.HELD, hold=Hold.CHECKS, until_us=500))
    assert polls(*held, pins=pins) == (ForgePoll("checks", B),)
    assert due_features(given_run(STARTED, *held), 500) == (B,)


# claims ---------------------------------------------------------------------------------------------------------------
CLAIMED = FilesClaimed(feature=A, phase="build", paths=(Path("x"), Path("y")))
CONTENDED = ClaimRejected(feature=B, phase="build", paths=(Path("y"), Path("z")), holder=A)
BOTH = (item(A), item(B, order=1), FeatureAdmitted(feature=A), FeatureAdmitted(feature=B))


def test_a_claim_is_refused_while_one_of_its_files_is_in_flight() -> None:
    state = given_run(STARTED, *BOTH, CLAIMED)
    assert claim_files(state, B, "build", (Path("y"), Path("z"))) == CONTENDED
    assert claim_files(state, B, "build", (Path("z"),)) == FilesClaimed(feature=B, phase="build", paths=(Path("z"),))
    assert isinstance(claim_files(state, A, "build", (Path("x"),)), FilesClaimed), "nobody is in his own way"


def test_the_held_feature_goes_on_when_the_holder_is_done_and_the_claim_is_compared() -> None:
    events: tuple[Event, ...] = (*BOTH, CLAIMED, CONTENDED, rested(B, FeatureOutcome.HELD, hold=Hold.CLAIM))
    assert then(*events) == act.AwaitEvents(until_us=None)
    events = (*events, rested(A, FeatureOutcome.DELIVERED, changed_paths=(Path("x"), Path("w"))))
    compared = ClaimCompared(feature=A, confirmed=(Path("x"),), unused=(Path("y"),), missed=(Path("w"),))
    assert then(*events) == compared
    events = (*events, ClaimCompared(feature=A, confirmed=(), unused=(), missed=()))
    assert then(*events) == FeatureReleased(feature=B, hold=Hold.CLAIM)
    events = (*events, FeatureReleased(feature=B, hold=Hold.CLAIM))
    assert then(*events) == act.AwaitEvents(until_us=None)


def test_the_comparison_leaves_the_pipelines_own_artifacts_out() -> None:
    """The trial's are `plans/{feature}.json`, `notes/{feature}.{unit}.md` and `letters/{feature}.md`."""
    changed = ("plans/a.json", "notes/a.u1.md", "letters/a.md", "letters/b.md", "notes/sub/a.u1.md", "x")
    stop = rested(A, FeatureOutcome.DELIVERED, changed_paths=tuple(map(Path, changed)))
    missed = (Path("letters/b.md"), Path("notes/sub/a.u1.md"))
    compared = ClaimCompared(feature=A, confirmed=(Path("x"),), unused=(Path("y"),), missed=missed)
    assert then(*BOTH, CLAIMED, stop) == compared


def test_a_holder_that_waits_for_a_person_keeps_its_files() -> None:
    held, waiting = rested(B, FeatureOutcome.HELD, hold=Hold.CLAIM), rested(A, FeatureOutcome.WAITING)
    assert then(*BOTH, CLAIMED, CONTENDED, held, waiting) == RunIdle()


# money ----------------------------------------------------------------------------------------------------------------
def reserve(state: RunState, nanousd: int | None, pins: Pins) -> CallReserved | CallOverBudget:
    call = CallOverBudget(feature=A, key="key", role="builder", nanousd=nanousd)
    return reserve_money(state, call, pins, ())


def budget(run: int | None = None, feature: int | None = None) -> Pins:
    limits = Budget(
        run_nanousd=None if run is None else Usd(run), feature_nanousd=None if feature is None else Usd(feature)
    )
    return trial.pins(Config(budget=limits))


def test_a_call_is_held_when_the_budget_has_no_room() -> None:
    state = given_run(STARTED, *BOTH, CallReserved(feature=B, key="k", nanousd=60))
    assert isinstance(reserve(state, 40, budget(run=100)), CallReserved)
    assert isinstance(reserve(state, 41, budget(run=100)), CallOverBudget)
    assert isinstance(reserve(state, 50, budget(feature=50)), CallReserved)
    assert isinstance(reserve(state, 51, budget(feature=50)), CallOverBudget)
    assert isinstance(reserve(state, 10**12, budget()), CallReserved)


OTHERS = (SpendingEntry(at_us=1, key="other run", charged=True, nanousd=60, tokens=600),)
LIMITS: list[tuple[dict[str, int], str]] = [
    ({"call_nanousd": 39}, "call"),
    ({"call_nanousd": 41, "feature_nanousd": 40}, "feature"),
    ({"call_tokens": 399}, "call_tokens"),
    ({"call_tokens": 500, "run_tokens": 499}, "run_tokens"),
    ({"feature_nanousd": 39}, "feature"),
    ({"feature_tokens": 399}, "feature_tokens"),
    ({"run_nanousd": 69}, "run"),
    ({"run_tokens": 699}, "run_tokens"),
    ({"day_nanousd": 99}, "day"),
    ({"day_tokens": 999}, "day_tokens"),
    ({"run_nanousd": 1, "day_nanousd": 1, "feature_nanousd": 1}, "feature"),
    ({"run_nanousd": 70, "run_tokens": 700, "day_nanousd": 100, "day_tokens": 1000, "feature_nanousd": 40}, ""),
    ({"call_nanousd": 40, "call_tokens": 400, "feature_tokens": 400}, ""),
]


@pytest.mark.parametrize(("limits", "exceeded"), LIMITS)
def test_each_budget_holds_a_call_that_does_not_fit(limits: dict[str, int], exceeded: str) -> None:
    """The run has 30 and 300 reserved by another feature, the day 60 and 600 by another run; the call needs 40, 400."""
    state = given_run(STARTED, *BOTH, CallReserved(feature=B, key="k", nanousd=30, tokens=300))
    pins = trial.pins(Config(budget=msgspec.structs.replace(Budget(), **limits)))
    call = CallOverBudget(feature=A, key="key", role="builder", nanousd=40, tokens=400)
    event = reserve_money(state, call, pins, OTHERS)
    assert (event.budget if isinstance(event, CallOverBudget) else "") == exceeded
    if isinstance(event, CallOverBudget):
        assert event.limit == limits[exceeded if exceeded.endswith("tokens") else f"{exceeded}_nanousd"]
        assert event.until_us == (1 + DAY_US if exceeded.startswith("day") else None)
    changed = BudgetChanged(**{"run_nanousd": None, "feature_nanousd": None, **limits})
    state = given_run(STARTED, *BOTH, CallReserved(feature=B, key="k", nanousd=30, tokens=300), changed)
    assert reserve_money(state, call, trial.pins(Config()), OTHERS) == event, "a changed budget counts as a pinned one"


def test_a_call_reserves_its_whole_budget() -> None:
    pins = trial.pins(Config(budget=Budget(call_nanousd=Usd(50), call_tokens=70)))
    reserved = reserve(given_run(STARTED, *BOTH), None, pins)
    assert reserved == CallReserved(feature=A, key="key", nanousd=50, tokens=70), "also without a price"
    again = CallOverBudget(feature=A, key="key", role="builder", nanousd=50, tokens=70)
    assert reserve_money(given_run(STARTED, *BOTH), again, pins, ()) == reserved


def test_a_call_held_by_the_day_is_tried_once_after_a_resume() -> None:
    over = CallOverBudget(feature=A, key="k2", role="builder", nanousd=50, budget="day", limit=70, committed=60)
    held = (item(A), admit(A), over, rested(A, FeatureOutcome.HELD, hold=Hold.BUDGET))
    assert then(*held) == RunIdle()
    resumed = (*held, RunResumed(mz_version="1"))
    assert then(*resumed) == FeatureReleased(feature=A, hold=Hold.BUDGET)
    again = FeatureReleased(feature=A, hold=Hold.BUDGET), over, rested(A, FeatureOutcome.HELD, hold=Hold.BUDGET)
    assert then(*resumed, *again) == RunIdle()


def test_a_model_without_a_price_reserves_nothing() -> None:
    reserved = reserve(given_run(STARTED, *BOTH), None, budget(run=1))
    assert isinstance(reserved, CallReserved)
    assert reserved.nanousd is None


def test_a_held_call_goes_on_when_others_turned_out_cheaper() -> None:
    held = (
        CallOverBudget(feature=A, key="k2", role="builder", nanousd=50),
        rested(A, FeatureOutcome.HELD, hold=Hold.BUDGET),
    )
    events: tuple[Event, ...] = (*BOTH, CallReserved(feature=B, key="k", nanousd=60), *held)
    pins = budget(run=100)
    assert then(*events, pins=pins) == act.AwaitEvents(until_us=None)
    settled = (*events, CallSettled(feature=B, key="k", nanousd=20))
    assert then(*settled, pins=pins) == FeatureReleased(feature=A, hold=Hold.BUDGET)
    dear = (*events, CallSettled(feature=B, key="k", nanousd=60), rested(B, FeatureOutcome.DELIVERED))
    assert then(*dear, pins=pins) == RunIdle()


def test_a_started_feature_goes_on_before_a_more_urgent_one_starts() -> None:
    held = (
        CallOverBudget(feature=A, key="k", role="builder", nanousd=50),
        rested(A, FeatureOutcome.HELD, hold=Hold.BUDGET),
    )
    events = (item(A), item(B, priority=0, order=1), FeatureAdmitted(feature=A), *held)
    assert then(*events, pins=budget(run=50)) == FeatureReleased(feature=A, hold=Hold.BUDGET)
    assert then(*events, pins=budget(run=49)) == admit(B)


# timers, halts, stops -------------------------------------------------------------------------------------------------
def test_a_timer_keeps_the_run_awake_and_fires_when_it_is_due() -> None:
    held = (item(A), FeatureAdmitted(feature=A), rested(A, FeatureOutcome.HELD, hold=Hold.TIMER, until_us=500))
    assert then(*held) == act.AwaitEvents(until_us=500)
    state = given_run(STARTED, *held)
    assert due_features(state, 499) == ()
    assert due_features(state, 500) == (A,)
    assert runnable_features(given_run(STARTED, *held, TimerFired(feature=A)), frozenset(), 1) == (A,)


FATAL = (*BOTH, rested(A, FeatureOutcome.HELD, hold=Hold.FATAL, code="auth-failure"))


def test_a_fatal_problem_halts_the_run_and_a_resume_goes_on() -> None:
    assert then(*FATAL) == RunHalted(feature=A, code="auth-failure")
    halted = (*FATAL, RunHalted(feature=A, code="auth-failure"))
    assert then(*halted) == act.AwaitEvents(until_us=None)
    assert runnable_features(given_run(STARTED, *halted), frozenset(), 2) == ()
    stopped = (*halted, rested(B, FeatureOutcome.INTERRUPTED))
    assert then(*stopped) == RunIdle()
    resumed = (*stopped, RunResumed(mz_version="1"))
    assert then(*resumed) == FeatureReleased(feature=A, hold=Hold.FATAL)
    assert runnable_features(given_run(STARTED, *resumed), frozenset(), 2) == (B,)


def test_a_problem_of_one_feature_alone_halts_no_run_and_a_resume_tries_it_again() -> None:
    own = (*BOTH, rested(A, FeatureOutcome.HELD, hold=Hold.FATAL, code="branch-checked-out"))
    assert then(*own) == act.AwaitEvents(until_us=None)
    delivered = (*own, rested(B, FeatureOutcome.DELIVERED))
    assert then(*delivered) != FeatureReleased(feature=A, hold=Hold.FATAL)
    assert then(*delivered, RunResumed(mz_version="1")) == FeatureReleased(feature=A, hold=Hold.FATAL)


def test_a_paused_run_starts_nothing_and_waits_until_it_is_resumed_or_stopped() -> None:
    held = rested(B, FeatureOutcome.HELD, hold=Hold.TIMER, until_us=500)
    paused = (item(A), item(B, order=1), FeatureAdmitted(feature=B), held, RunPaused(actor=None))
    assert then(*paused) == act.AwaitEvents(until_us=None)
    assert then(*paused, RunResumed(mz_version="1")) == admit(A)
    assert then(*paused, RunStopRequested()) == RunIdle()
    assert then(item(A), rested(A, FeatureOutcome.CANCELLED), RunPaused(actor=None)) == RunFinished()


def test_during_a_pause_only_a_cancellation_runs() -> None:
    paused = (*BOTH, RunPaused(actor=None))
    assert runnable_features(given_run(STARTED, *paused), frozenset(), 2) == ()
    cancelled = given_run(STARTED, *paused, CancelAccepted(feature=B, actor=DIGEST))
    assert runnable_features(cancelled, frozenset(), 2) == (B,)


def test_features_run_in_the_slots_that_no_other_drives() -> None:
    state = given_run(STARTED, *BOTH)
    assert runnable_features(state, frozenset(), 2) == (A, B)
    assert runnable_features(state, frozenset(), 1) == (A,)
    assert runnable_features(state, frozenset({"a"}), 2) == (B,)
    assert runnable_features(state, frozenset({"a"}), 1) == ()


def test_after_a_stop_nothing_starts_until_the_run_is_resumed() -> None:
    stopped = rested(A, FeatureOutcome.INTERRUPTED)
    events = (item(A), item(B, order=1), FeatureAdmitted(feature=A), RunStopRequested(), stopped)
    assert then(*events) == RunIdle()
    assert then(*events, RunResumed(mz_version="1")) == admit(B)


# the end --------------------------------------------------------------------------------------------------------------
def test_a_run_is_finished_when_every_item_has_ended() -> None:
    events: tuple[Event, ...] = (*BOTH, rested(A, FeatureOutcome.DELIVERED))
    assert then(*events, rested(B, FeatureOutcome.FAILED)) == RunFinished()
    assert then(*events, rested(B, FeatureOutcome.WAITING)) == RunIdle()


def test_one_failure_leaves_the_others_alone() -> None:
    assert then(item(A), item(B, order=1), FeatureAdmitted(feature=A), rested(A, FeatureOutcome.FAILED)) == admit(B)


def test_an_answer_makes_the_feature_run_again() -> None:
    events: tuple[Event, ...] = (item(A), FeatureAdmitted(feature=A), rested(A, FeatureOutcome.WAITING))
    answered = given_run(STARTED, *events, AnswerAccepted(feature=A, verdict=Verdict.APPROVE, actor=DIGEST))
    assert runnable_features(answered, frozenset(), 1) == (A,)
    assert [version for version, _ in answered.tracks[A].messages] == [3, 5]


EVENTS: list[Event] = [
    *FATAL,
    CLAIMED,
    CONTENDED,
    CallReserved(feature=A, key="k", nanousd=1),
    CallOverBudget(feature=B, key="k2", role="builder", nanousd=2),
    CallSettled(feature=A, key="k", nanousd=1),
    rested(A, FeatureOutcome.DELIVERED),
    rested(B, FeatureOutcome.HELD, hold=Hold.TIMER, until_us=5),
    rested(B, FeatureOutcome.HELD, hold=Hold.CLAIM),
    TimerFired(feature=B),
    FeatureReleased(feature=B, hold=Hold.CLAIM),
    CancelAccepted(feature=A, actor=DIGEST),
    InboxRead(version=1, accepted=True),
    ItemHeld(feature=B, blocked_by=A),
    RunHalted(feature=A, code="x"),
    RunResumed(mz_version="1"),
    RunStopRequested(),
    RunIdle(),
    RunFinished(),
    item(C, A, B),
]


@hypothesis_given(st.lists(st.sampled_from(EVENTS), max_size=30))
def test_the_run_is_total_over_any_order_of_events(events: list[Event]) -> None:
    state = given_run(STARTED, *events)
    assert state.version == len(recorded(STARTED, *events))
    decide_run(state, PINS)
    runnable_features(state, frozenset(), 2)
