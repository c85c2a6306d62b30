"""What is decided between the last commit of a feature and its end: base, push, pull request, checks; and once more."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_engine.decide import actions as act
from mz_engine.decide.actions import Work
from mz_engine.decoding.quantity import Duration
from mz_engine.model.config import Config, Limits, PullRequests
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import ItemKind
from mz_events.catalog.base import Event
from mz_events.catalog.call import Problem, ProblemClass
from mz_events.catalog.delivery import (
    BaseMerged,
    BranchesClosed,
    BranchLanded,
    ChecksRerun,
    DeliveryFailed,
    MergeRequested,
    Tagged,
    TagRequested,
    TargetMoved,
)
from mz_events.catalog.feature import (
    Blocked,
    FeatureCancelled,
    FeatureFailed,
    FeatureHeld,
    FeatureRetried,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    UnitCompleted,
    UnitStarted,
)
from mz_events.catalog.run import FeatureOutcome, Hold, Verdict
from mz_events.names import Path
from mz_projections.feature.fold import apply_strict
from mz_projections.feature.state import BetweenPhases, CreatingWorkspace, Ended, Restoring, RunningSetup, progress_of
from mz_qa.simulation import trial

from tests.support.steps import (
    BASE,
    DIGEST,
    OPENED,
    OTHER,
    SECOND_US,
    STARTED,
    A,
    base_merged,
    checks_seen,
    gate,
    opened,
    planned,
    recorded,
    ref,
    refused_reply,
    replied,
    shipping,
    state_after,
    when_decided,
)

PINS = trial.pins(
    replace(trial.trial_config(), pull_requests=PullRequests(strategy="draft", checks_settle=Duration(0)))
)
READY = (*shipping(), base_merged(), *opened())
PUSHED_US = (len(READY) + 1) * SECOND_US
"""When the checks were looked at first: waiting counts from there."""


def then(*events: Event, pins: Pins = PINS) -> act.Action | None:
    return when_decided(state_after(*events), pins)


def answered(verdict: Verdict) -> HumanAnswered:
    return HumanAnswered(run_version=9, verdict=verdict, actor=DIGEST)


def test_after_the_commit_comes_the_base_the_push_the_pull_request_and_its_checks() -> None:
    merged = (*shipping(), base_merged())
    sent = (*merged, *opened())
    assert then(*shipping()) == act.Deliver(step="merge_base")
    assert then(*merged) == act.Deliver(step="push")
    assert isinstance(then(*sent[:-3]), act.ReconcileIntent)
    assert then(*sent[:-2]) == act.Deliver(step="open_pr")
    assert isinstance(then(*sent[:-1]), act.ReconcileIntent)
    assert then(*sent) == Work.POLL_CHECKS
    assert then(*sent, checks_seen(green=2)) == UnitCompleted(phase="ship", unit="")


def test_with_strategy_none_nothing_leaves_the_machine_and_nothing_is_waited_for() -> None:
    pins = trial.pins(Config())
    sent = (*shipping(), base_merged())
    assert then(*sent, pins=pins) == act.Deliver(step="open_pr")
    assert then(*sent, *opened(), pins=pins) == UnitCompleted(phase="ship", unit="")


def test_a_refused_delivery_is_tried_again_after_an_answer_without_paying_the_agent() -> None:
    failed = (*shipping(), base_merged(), DeliveryFailed(key="k", code="push-refused", detail=DIGEST))
    assert then(*failed) == act.AskPerson(question_kind=QuestionKind.UNROUTED, code="push-refused", text=DIGEST)
    events = (*failed, HumanRequested(phase="ship", unit="", question_kind=QuestionKind.UNROUTED))
    assert then(*events, answered(Verdict.APPROVE)) == act.Deliver(step="push")


def test_a_delivery_without_a_connection_waits_ever_longer_before_a_person_is_asked() -> None:
    pins = replace(PINS, config=replace(PINS.config, limits=Limits(wait_max=Duration(100))))
    failed, events = DeliveryFailed(key="k", code="connection", detail=DIGEST), shipping()
    for seconds in (30, 30, 40):
        events = (*events, failed)
        held = FeatureHeld(hold=Hold.TIMER, until_us=(len(events) + seconds) * SECOND_US, code="connection")
        assert then(*events, pins=pins) == held
        events = (*events, held, HoldReleased(hold=Hold.TIMER, run_version=1))
        assert then(*events, pins=pins) == act.Deliver(step="merge_base")
    question = act.AskPerson(question_kind=QuestionKind.UNROUTED, code="connection", text=DIGEST)
    assert then(*events, failed, pins=pins) == question


# the base -------------------------------------------------------------------------------------------------------------
def test_what_the_base_brought_is_checked_by_every_gate_on_the_way() -> None:
    merged = (*shipping(), base_merged(True))
    checked = (*merged, gate("check", True, phase="ship", unit=""))
    assert then(*merged) == act.RunGate(gate="check", cause="base")
    assert then(*checked) == act.RunGate(gate="final", cause="base")
    assert then(*checked, gate("final", True, phase="ship", unit="")) == act.Deliver(step="push")
    failed = (*checked, gate("final", False, phase="ship", unit="", cause="base"))
    assert then(*failed) == act.BlockPhase(cause="base", check="final", reports=(DIGEST,))


def conflict() -> tuple[Event, ...]:
    return (
        *shipping(),
        base_merged(True, "a1.txt"),
        Blocked(phase="ship", unit="", cause="base", check="merge_base", path="a1.txt", note=DIGEST),
    )


def test_a_conflict_goes_back_once_with_the_tree_as_it_is() -> None:
    assert then(*conflict()[:-1]) == act.BlockPhase(cause="base", check="merge_base")
    assert then(*conflict()) == RolledBack(source="ship", to="build", keeps_tree=True)
    state = state_after(*conflict(), RolledBack(source="ship", to="build", keeps_tree=True))
    assert isinstance(state, BetweenPhases)
    assert (state.progress.tree, state.progress.conflicted_files) == (OTHER, ("a1.txt",))
    assert state.progress.completed_phases == ("plan",)


def test_a_second_conflict_is_for_a_person_who_can_only_say_once_more_or_no() -> None:
    state = state_after(*conflict())
    book = progress_of(state)
    assert book is not None
    assert book.block_counts == {"base": 1}
    again = (*conflict(), conflict()[-1])
    assert then(*again) == act.AskPerson(question_kind=QuestionKind.CONFLICT, code="merge_base", text=DIGEST)
    events = (*again, HumanRequested(phase="ship", unit="", question_kind=QuestionKind.CONFLICT, code="merge_base"))
    assert then(*events, answered(Verdict.APPROVE)) == RolledBack(source="ship", to="build", keeps_tree=True)
    assert then(*events, answered(Verdict.REJECT)) == FeatureFailed(code="rejected")


def test_no_rollback_takes_back_what_the_base_brought() -> None:
    book = progress_of(state_after(*shipping(), base_merged(True)))
    assert book is not None
    assert set(book.start_trees.values()) == {OTHER}


def test_what_no_marker_can_show_is_for_a_person() -> None:
    merged = BaseMerged(key="k", base=OTHER, head=OTHER, tree=OTHER, changed=True, unmarked=(Path("logo.png"),))
    conflicted = (*shipping(), merged)
    events = (
        *conflicted,
        HumanRequested(phase="ship", unit="", question_kind=QuestionKind.CONFLICT, code="merge_base.unmarked"),
    )
    assert then(*conflicted) == act.AskPerson(question_kind=QuestionKind.CONFLICT, code="merge_base.unmarked")
    assert then(*events, answered(Verdict.APPROVE)) == act.RunGate(gate="check", cause="base")
    assert then(*events, answered(Verdict.RETRY)) == act.BlockPhase(cause="base", check="merge_base")
    assert then(*events, answered(Verdict.REJECT)) == FeatureFailed(code="rejected")


# checks ---------------------------------------------------------------------------------------------------------------
def hold(seconds: int) -> FeatureHeld:
    return FeatureHeld(hold=Hold.CHECKS, until_us=PUSHED_US + seconds * SECOND_US)


def test_pending_checks_give_the_slot_back_until_the_time_is_up() -> None:
    pending = (*READY, checks_seen(green=1, red=1, pending=1))
    assert then(*pending) == hold(3600)
    assert then(*READY, checks_seen(commit_known=False)) == hold(3600)
    again = (*pending, FeatureHeld(hold=Hold.CHECKS), HoldReleased(run_version=8, hold=Hold.CHECKS))
    assert then(*again) == Work.POLL_CHECKS


def test_checks_that_never_end_are_a_question() -> None:
    pins = trial.pins(Config(pull_requests=PullRequests(strategy="draft", checks_wait=Duration(2))))
    waited = (
        *READY, checks_seen(pending=1), FeatureHeld(hold=Hold.CHECKS), HoldReleased(run_version=8, hold=Hold.TIMER),
        checks_seen(pending=1),
    )  # fmt: skip
    assert then(*waited, pins=pins) == act.AskPerson(question_kind=QuestionKind.CHECKS, code="await_checks")
    events = (*waited, HumanRequested(phase="ship", unit="", question_kind=QuestionKind.CHECKS, code="await_checks"))
    assert then(*events, answered(Verdict.APPROVE), pins=pins) == UnitCompleted(phase="ship", unit="")
    assert then(*events, answered(Verdict.RETRY), pins=pins) == Work.POLL_CHECKS
    assert then(*events, answered(Verdict.REJECT), pins=pins) == FeatureFailed(code="rejected")


def test_a_pull_request_without_checks_waits_a_moment_for_the_first() -> None:
    """Checks appear one by one: a green one that is there first is not all of them."""
    pins = trial.pins(Config(pull_requests=PullRequests(strategy="draft", checks_settle=Duration(3))))
    for polled in (checks_seen(), checks_seen(green=1)):
        assert then(*READY, polled, pins=pins) == hold(3)
        waited = (*READY, polled, FeatureHeld(hold=Hold.TIMER), HoldReleased(run_version=8, hold=Hold.TIMER), polled)
        assert then(*waited, pins=pins) == UnitCompleted(phase="ship", unit="")


def test_flaky_checks_are_started_again_as_often_as_allowed() -> None:
    state = READY
    for _ in range(2):
        state = (*state, checks_seen(red=1, flaky=True))
        assert then(*state) == Work.RERUN_CHECKS
        state = (*state, ChecksRerun(key="k", runs=1))
        held = then(*state)
        assert isinstance(held, FeatureHeld)
        assert held.hold is Hold.CHECKS
        state = (*state, FeatureHeld(hold=Hold.CHECKS), HoldReleased(run_version=8, hold=Hold.CHECKS))
        assert then(*state) == Work.POLL_CHECKS
    red = (*state, checks_seen(red=1, flaky=True))
    assert then(*red) == act.BlockPhase(cause="checks", check="await_checks", reports=(DIGEST,))


def test_red_checks_go_back_once_and_then_to_a_person_who_may_take_it_as_it_is() -> None:
    block = Blocked(phase="ship", unit="", cause="checks", check="await_checks", note=DIGEST)
    red = (*READY, checks_seen(red=1))
    assert then(*red) == act.BlockPhase(cause="checks", check="await_checks", reports=(DIGEST,))
    assert then(*red, block) == RolledBack(source="ship", to="build", keeps_tree=True)
    again = (*red, block, block)
    assert then(*again) == act.AskPerson(question_kind=QuestionKind.CHECKS, code="await_checks", text=DIGEST)
    events = (*again, HumanRequested(phase="ship", unit="", question_kind=QuestionKind.CHECKS, code="await_checks"))
    assert then(*events, answered(Verdict.APPROVE)) == UnitCompleted(phase="ship", unit="")
    looked = (*events, answered(Verdict.RETRY))
    assert then(*looked) == Work.POLL_CHECKS
    assert then(*looked, checks_seen(green=1)) == UnitCompleted(phase="ship", unit="")
    assert then(*looked, checks_seen(red=1), block) == RolledBack(source="ship", to="build", keeps_tree=True)


# once more ------------------------------------------------------------------------------------------------------------
def retried(to: str) -> FeatureRetried:
    return FeatureRetried(run_version=20, to=to, note=DIGEST, actor=DIGEST)


def test_a_failed_feature_begins_again_with_the_phase_that_a_person_names() -> None:
    failed = (*shipping(), FeatureFailed(code="rejected"))
    state = state_after(*failed, retried("plan"))
    assert isinstance(state, Restoring)
    assert (state.to, state.progress.tree) == ("plan", BASE)
    assert (state.progress.completed_phases, state.progress.artifacts) == ((), {})
    assert state.progress.superseded_counts == {"plan": 1, "ship": 1}
    assert state.progress.notes == {"plan": (DIGEST,)}
    assert (state.progress.run_version, state.progress.restore_count, state.progress.rollback_count) == (20, 1, 0)
    assert when_decided(state, PINS) == act.RestoreTree(committed=False)


def test_a_cancelled_feature_goes_on_from_wherever_it_stood() -> None:
    actual = state_after(STARTED, FeatureCancelled(run_version=9), retried(""))
    assert actual == CreatingWorkspace(started=STARTED, run_version=20)
    setting = state_after(*OPENED, FeatureCancelled(run_version=9), retried(""))
    assert isinstance(setting, RunningSetup)
    between = state_after(*planned(), FeatureCancelled(run_version=9), retried("plan"))
    assert isinstance(between, Restoring)


def test_a_question_or_a_hold_can_be_answered_by_beginning_again() -> None:
    waiting = (*shipping(), HumanRequested(phase="ship", unit="", question_kind=QuestionKind.UNROUTED))
    held = (*shipping(), FeatureHeld(hold=Hold.BUDGET))
    for events in (waiting, held):
        state = state_after(*events, retried("ship"))
        assert isinstance(state, Restoring)
        assert state.progress.completed_phases == ("plan",)


def test_a_delivered_feature_is_not_done_again() -> None:
    ended = Ended(status=FeatureOutcome.DELIVERED, run_version=1, head=None)
    assert apply_strict(ended, recorded(retried("plan"))[0]) is None


# where nothing works --------------------------------------------------------------------------------------------------
TASK = ItemKind(kind="task", sources=("backlog",), when_stuck="fail")
TASK_PINS = replace(
    PINS,
    pipeline=replace(
        PINS.pipeline, items=(TASK,), phases=tuple(replace(phase, kind="task") for phase in PINS.pipeline.phases)
    ),
)
PLANNING = (*OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1))
UNKNOWN = Problem(kind=ProblemClass.UNKNOWN, code="x")
BLOCKED = Blocked(phase="ship", unit="", cause="weather", check="rain", note=DIGEST)


def calls(*problems: Problem) -> tuple[Event, ...]:
    return tuple(event for at, item in enumerate(problems, 1) for event in replied(ref("plan", at), item))


@pytest.mark.parametrize(
    ("events", "failure"),
    [
        (
            (*PLANNING, *(event for at in (1, 2, 3) for event in refused_reply(ref("plan", at)))),
            act.Fail(code="plan.json", reports=(DIGEST,)),
        ),
        ((*PLANNING, *calls(*[UNKNOWN] * 4)), act.Fail(code="x")),
        ((*PLANNING, *calls(Problem(kind=ProblemClass.NEEDS_PERSON, code="b"))), act.Fail(code="b")),
        ((*shipping(), BLOCKED), act.Fail(code="weather.rain", text=DIGEST)),
        (
            (*shipping(), BaseMerged(key="k", base=OTHER, head=OTHER, tree=OTHER, changed=True, unmarked=(Path("a"),))),
            act.Fail(code="merge_base.unmarked"),
        ),
    ],
    ids=["exhausted", "retries", "blocker", "unrouted", "conflict"],
)
def test_an_item_fails_where_nothing_works_if_its_kind_says_so(events: tuple[Event, ...], failure: act.Fail) -> None:
    assert then(*events, pins=TASK_PINS) == failure
    assert isinstance(then(*events), act.AskPerson)


@pytest.mark.parametrize(
    "events",
    [
        (*PLANNING, *calls(Problem(kind=ProblemClass.TRANSIENT, code="rate-limit", retry_after_seconds=4000))),
        (*shipping(), DeliveryFailed(key="k", code="tag-exists", detail=DIGEST)),
        (*shipping(), *[TargetMoved(key="k", branch="main", commit=OTHER)] * 10),
    ],
    ids=["limit", "refused delivery", "moved target"],
)
def test_what_concerns_the_world_outside_is_asked_anyway(events: tuple[Event, ...]) -> None:
    assert isinstance(then(*events, pins=TASK_PINS), act.AskPerson)


# steps that change branches and tags ----------------------------------------------------------------------------------
MERGING = replace(PINS, pipeline=trial.with_merge(PINS.pipeline))
MERGE = MergeRequested(key="r/merge", branch="main", message=DIGEST, old=OTHER, head=BASE, commit=OTHER)
LANDED = BranchLanded(feature=A, key="r/merge", branch="main", changed=True, old=OTHER, commit=OTHER)
MOVED = TargetMoved(key="r/merge", branch="main", commit=OTHER)


def tagged(step: str) -> tuple[Event, ...]:
    return TagRequested(key=f"r/{step}", name="t", commit=BASE), Tagged(key=f"r/{step}", name="t", commit=BASE)


READY_TO_MERGE = (*shipping(), base_merged(), *tagged("tag.1"))
MERGED = (*READY_TO_MERGE, MERGE, LANDED, *tagged("tag.3"), *tagged("tag.4"))
TIDYING = (
    *MERGED, UnitCompleted(phase="ship", unit=""), PhaseCompleted(phase="ship"),
    PhaseStarted(phase="tidy", iteration=1), UnitStarted(phase="tidy", unit="", iteration=1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("events", "action"),
    [
        (shipping(), act.Deliver(step="merge_base")),
        ((*shipping(), base_merged(changed=True)), act.RunGate(gate="check", cause="base")),
        ((*shipping(), base_merged(False, "a.txt")), act.BlockPhase(cause="base", check="merge_base")),
        ((*shipping(), base_merged()), act.Deliver(step="tag.1")),
        ((*shipping(), base_merged(), *tagged("tag.1")[:1]), act.ReconcileIntent(intent=tagged("tag.1")[0])),  # type: ignore[arg-type]
        (READY_TO_MERGE, act.Deliver(step="merge")),
        ((*READY_TO_MERGE, MERGE), act.ReconcileIntent(intent=MERGE)),
        ((*READY_TO_MERGE, MERGE, MOVED), act.Deliver(step="merge_base")),
        ((*READY_TO_MERGE, MOVED, base_merged(changed=True)), act.RunGate(gate="check", cause="base")),
        ((*READY_TO_MERGE, MOVED, base_merged()), act.Deliver(step="merge")),
        ((*READY_TO_MERGE, MERGE, LANDED), act.Deliver(step="tag.3")),
        ((*READY_TO_MERGE, MERGE, LANDED, *tagged("tag.3")), act.Deliver(step="tag.4")),
        (MERGED, UnitCompleted(phase="ship", unit="")),
        (TIDYING, act.Deliver(step="close_branch")),
        ((*TIDYING, BranchesClosed(key="r/close_branch", branches=("feat/a",))), UnitCompleted(phase="tidy", unit="")),
    ],
)
def test_each_step_waits_for_those_before_it(events: tuple[Event, ...], action: act.Action) -> None:
    assert then(*events, pins=MERGING) == action
