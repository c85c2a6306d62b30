"""What is decided for one feature: given events, when decided, then this action."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.decide import actions as act
from mz_engine.decide import feature as decisions
from mz_engine.decide.actions import Work
from mz_engine.decide.feature import decide_feature
from mz_engine.decide.units import dependency_order
from mz_engine.decoding.quantity import Duration
from mz_engine.model.config import Config, Limits
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PhaseInput
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentLost,
    CallOverBudget,
    CallPriced,
    CallReserved,
    CallSettled,
    ContextComposed,
    Problem,
    ProblemClass,
    ReplyParsed,
)
from mz_events.catalog.delivery import (
    BaseMerged,
    BranchesClosed,
    BranchLanded,
    ChecksPolled,
    ChecksRerun,
    Committed,
    PullRequestOpened,
    Pushed,
    Tagged,
    TargetMoved,
)
from mz_events.catalog.feature import (
    Blocked,
    FeatureCancelled,
    FeatureFailed,
    FeatureHeld,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    TreeRestored,
    UnitCompleted,
    UnitStarted,
    WorkspaceConflicted,
)
from mz_events.catalog.memory import LearningsCaptured
from mz_events.catalog.run import ClaimRejected, FilesClaimed, Hold, Verdict
from mz_events.catalog.validation import ArtifactParsed, CommandRan, Unit
from mz_events.names import Commit, FeatureId, Path
from mz_projections.feature.fold import apply_strict, fold
from mz_projections.feature.state import BetweenPhases, InPhase, NotStarted, Restoring
from mz_projections.feature.unit import UNIT_RUN_HANDLERS
from mz_qa.simulation import trial

from tests.support.samples import sample
from tests.support.steps import (
    BASE,
    COMMAND,
    DIGEST,
    OPENED,
    SECOND_US,
    STARTED,
    UNITS,
    accepted,
    committed,
    gate,
    merging,
    planned,
    recorded,
    ref,
    refused_reply,
    replied,
    requested,
    shipping,
    state_after,
    when_decided,
)

PINS = trial.pins()
NEVER_LAST = {ArtifactParsed, CallPriced, CallReserved, CallSettled, ContextComposed, LearningsCaptured}
"""Events within a unit after which the one before them still decides."""
LAST_EVENTS = (
    *(kind for kind in UNIT_RUN_HANDLERS if kind not in NEVER_LAST),
    *(BaseMerged, Blocked, BranchLanded, Committed, HoldReleased, HumanAnswered, Pushed),
)
IN_PLAN = (*OPENED, PhaseStarted(phase="plan", iteration=1), UnitStarted(phase="plan", unit="", iteration=1))
IN_BUILD = (
    *planned(),
    PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3")),
    FilesClaimed(feature=FeatureId("a"), phase="build", paths=(Path("a1.txt"),)),
    UnitStarted(phase="build", unit="u1", iteration=1),
)


def ran(stage: str = "prepare", code: int | None = 0, **fields: object) -> CommandRan:
    return replace(COMMAND, stage=stage, exit=code, **fields)


def judged(severity: str, cause: str) -> ArtifactParsed:
    fields = {"severity": severity, "cause": cause}
    return ArtifactParsed(artifact="verdict", phase="build", unit="u1", path=None, digest=DIGEST, fields=fields)


def build_call(attempt: int = 1, role: str = "builder") -> tuple[Event, ...]:
    return accepted(ref("build", attempt, role, unit="u1"))


def then(*events: Event, pins: Pins = PINS) -> act.Action | None:
    return when_decided(state_after(*events), pins)


@pytest.mark.parametrize("kind", LAST_EVENTS, ids=lambda kind: kind.__name__)
def test_only_events_of_delivery_continue_the_delivery(kind: type[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that `decide_unit` does not name would be one."""
    monkeypatch.setattr(decisions, "decide_delivery", lambda unit_run, phase, pins: Work.FINISH_FEATURE)
    state = state_after(*IN_BUILD)
    assert isinstance(state, InPhase)
    assert state.unit_run is not None
    action = when_decided(replace(state, unit_run=replace(state.unit_run, last_event=sample(kind))), PINS)
    delivers = {
        BaseMerged, BranchLanded, BranchesClosed, ChecksPolled, ChecksRerun, Committed, PullRequestOpened, Pushed,
        Tagged, TargetMoved,
    }  # fmt: skip
    assert (action is Work.FINISH_FEATURE) == (kind in delivers)


# the straight way -----------------------------------------------------------------------------------------------------
def test_nothing_is_decided_before_the_run_says_so() -> None:
    assert decide_feature(NotStarted(), PINS) is None


def test_the_workspace_comes_first() -> None:
    assert then(STARTED) == Work.CREATE_WORKSPACE


def test_set_up_commands_run_one_by_one_before_the_first_phase() -> None:
    from mz_engine.model.config import WorkspaceSettings

    config = Config(workspace=WorkspaceSettings(setup=("one", "two")))
    pins = trial.pins(config)
    assert then(*OPENED, pins=pins) == act.RunSetup(command="one")
    first, second = ran("setup", name="one"), ran("setup", name="two")
    assert then(*OPENED, first, pins=pins) == act.RunSetup(command="two")
    assert isinstance(then(*OPENED, first, second, pins=pins), PhaseStarted)
    failed = then(*OPENED, ran("setup", 1), pins=pins)
    assert failed == act.AskPerson(question_kind=QuestionKind.UNROUTED, code="setup-failed", text=DIGEST)


def test_phases_come_in_the_order_of_the_pipeline() -> None:
    assert then(*OPENED) == PhaseStarted(phase="plan", iteration=1, units=("",))
    assert then(*planned()) == PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3"))


def test_files_are_claimed_before_the_first_unit() -> None:
    started = (*planned(), PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3")))
    claim = act.ClaimFiles(phase="build", paths=(Path("a1.txt"), Path("a2.txt"), Path("a3.txt")))
    assert then(*started) == claim
    contended = ClaimRejected(feature=FeatureId("a"), phase="build", paths=(Path("a1.txt"),), holder=FeatureId("b"))
    assert then(*started, contended) == FeatureHeld(hold=Hold.CLAIM)
    held = (*started, contended, FeatureHeld(hold=Hold.CLAIM))
    assert then(*held) is None
    assert then(*held, HoldReleased(run_version=9, hold=Hold.CLAIM)) == claim


def test_a_cell_goes_from_preparation_to_the_commit() -> None:
    assert then(*IN_BUILD) == act.RunPreparation(command="check")
    prepared = (*IN_BUILD, ran())
    assert then(*prepared) == act.CallAgent(role="builder", attempt=1)
    call = ref("build", unit="u1")
    assert then(*prepared, requested(call)) == act.ReconcileIntent(intent=requested(call))
    assert isinstance(then(*prepared, *replied(call)[:2]), act.ParseReply)
    assert then(*prepared, *replied(call)) == Work.CHECK_CHANGES
    assert then(*prepared, *accepted(call)[:4]) == Work.VALIDATE_OUTPUTS
    assert then(*prepared, *accepted(call)) == act.RunGate(gate="check", cause="code")
    gated = (*prepared, *accepted(call), gate("check", True))
    assert then(*gated) == act.CallAgent(role="reviewer", attempt=1)
    verdict = judged("NONE", "none")
    review = accepted(ref("build", role="reviewer", unit="u1"))
    reviewed = (*gated, *review[:-1], verdict, review[-1])
    assert then(*reviewed) == Work.MAKE_COMMIT
    assert then(*reviewed, *committed("build", "u1")) == UnitCompleted(phase="build", unit="u1")
    done = (*reviewed, *committed("build", "u1"), UnitCompleted(phase="build", unit="u1"))
    assert then(*done) == UnitStarted(phase="build", unit="u2", iteration=1)


def test_a_gate_per_phase_waits_for_the_last_unit() -> None:
    last = (*planned(), PhaseStarted(phase="build", iteration=1, units=("u1",)))
    claimed = FilesClaimed(feature=FeatureId("a"), phase="build", paths=())
    begun = (*last, claimed, UnitStarted(phase="build", unit="u1", iteration=1))
    assert then(*begun, ran(), *build_call(), gate("check", True)) == act.RunGate(gate="final", cause="code")


def test_a_gate_without_a_command_is_left_out() -> None:
    pins = trial.pins(Config(commands={}))
    assert then(*IN_BUILD, pins=pins) == act.CallAgent(role="builder", attempt=1)
    assert then(*IN_BUILD, *build_call(), pins=pins) == act.CallAgent(role="reviewer", attempt=1)


@pytest.mark.parametrize(
    ("units", "names", "blocks"),
    [
        ("own", {"note", "note/u1"}, False),
        ("own", {"note", "note/u2"}, True),
        ("all", {"note", "note/u2"}, False),
        ("all", set(), True),
        ("dependencies", set(), False),
    ],
)
def test_an_input_is_that_of_the_unit_or_of_all(
    units: Literal["all", "own", "dependencies"], names: set[str], blocks: bool
) -> None:
    state = state_after(*IN_BUILD)
    assert isinstance(state, InPhase)
    artifacts = {**state.progress.artifacts, **dict.fromkeys(names, judged("low", "none"))}
    inputs = (PhaseInput(artifact="note", units=units),)
    phases = tuple(replace(phase, inputs=inputs) for phase in PINS.pipeline.phases)
    action = when_decided(
        replace(state, progress=replace(state.progress, artifacts=artifacts)),
        replace(PINS, pipeline=replace(PINS.pipeline, phases=phases)),
    )
    assert isinstance(action, act.BlockPhase) == blocks


def test_missing_inputs_block_before_an_agent_is_paid() -> None:
    without = (*OPENED, PhaseStarted(phase="ship", iteration=1), UnitStarted(phase="ship", unit="", iteration=1))
    assert then(*without) == act.BlockPhase(cause="inputs", check="plan")


# rework ---------------------------------------------------------------------------------------------------------------
def test_a_refused_reply_is_sent_back_until_attempts_are_used_up() -> None:
    once = (*IN_PLAN, *refused_reply(ref("plan")))
    assert then(*once) == act.CallAgent(role="builder", attempt=2)
    twice = (*once, *refused_reply(ref("plan", 2)))
    assert then(*twice) == act.CallAgent(role="builder", attempt=3)
    thrice = (*twice, *refused_reply(ref("plan", 3)))
    assert then(*thrice) == act.AskPerson(question_kind=QuestionKind.EXHAUSTED, code="plan.json", reports=(DIGEST,))


def test_rules_and_gates_share_one_allowance() -> None:
    events = (*IN_BUILD, ran(), *refused_reply(ref("build", unit="u1")))
    events = (*events, *build_call(2), gate("check", False))
    assert then(*events) == act.CallAgent(role="builder", attempt=3)
    events = (*events, *build_call(3), gate("check", False))
    assert then(*events) == act.BlockPhase(cause="code", check="check", reports=(DIGEST,))


def test_an_answer_grants_a_new_allowance_with_the_note() -> None:
    events = (*IN_PLAN, *refused_reply(ref("plan")), *refused_reply(ref("plan", 2)), *refused_reply(ref("plan", 3)))
    question = HumanRequested(phase="plan", unit="", question_kind=QuestionKind.EXHAUSTED)
    assert then(*events, question) is None
    answered = (*events, question, HumanAnswered(run_version=5, verdict=Verdict.APPROVE, note=DIGEST, actor=DIGEST))
    assert then(*answered) == act.CallAgent(role="builder", attempt=4)
    state = state_after(*answered)
    assert isinstance(state, InPhase)
    assert state.unit_run is not None
    assert state.unit_run.notes == (DIGEST,)
    refused_again = (*answered, *refused_reply(ref("plan", 4)))
    assert then(*refused_again) == act.CallAgent(role="builder", attempt=5)


def test_a_rejection_ends_the_feature() -> None:
    events = (
        *IN_PLAN,
        *refused_reply(ref("plan")),
        HumanRequested(phase="plan", unit="", question_kind=QuestionKind.EXHAUSTED),
    )
    rejected = HumanAnswered(run_version=5, verdict=Verdict.REJECT, actor=DIGEST)
    assert then(*events, rejected) == FeatureFailed(code="rejected")


# failed calls ---------------------------------------------------------------------------------------------------------
def problem(kind: ProblemClass, code: str = "x", retry: int | None = None) -> Problem:
    return Problem(kind=kind, code=code, retry_after_seconds=retry)


def test_a_failed_call_is_repeated_and_counted_apart_from_refusals() -> None:
    events: tuple[Event, ...] = IN_PLAN
    for attempt in (1, 2, 3):
        events = (*events, *replied(ref("plan", attempt), problem(ProblemClass.UNKNOWN)))
        assert then(*events) == act.CallAgent(role="builder", attempt=attempt + 1)
    events = (*events, *replied(ref("plan", 4), problem(ProblemClass.UNKNOWN)))
    assert then(*events) == act.AskPerson(question_kind=QuestionKind.RETRIES, code="x")


def test_a_lost_call_is_repeated_under_a_new_key() -> None:
    call = ref("plan")
    *_, parsed = replied(call, problem(ProblemClass.TRANSIENT, "lost"))
    assert isinstance(parsed, ReplyParsed)
    lost = (*IN_PLAN, requested(call), AgentLost(ref=call, stdout=DIGEST), replace(parsed, ending="no-terminal"))
    assert then(*lost) == act.CallAgent(role="builder", attempt=2)


@pytest.mark.parametrize(
    ("code", "retry", "seconds"), [("rate-limit", 90, 90), ("rate-limit", None, 600), ("overloaded", None, 30)]
)
def test_a_rate_limit_holds_the_feature_for_its_time(code: str, retry: int | None, seconds: int) -> None:
    events = (*IN_PLAN, *replied(ref("plan"), problem(ProblemClass.TRANSIENT, code, retry)))
    replied_at = (len(events) - 1) * SECOND_US
    expected = FeatureHeld(hold=Hold.TIMER, until_us=replied_at + seconds * SECOND_US, code=code)
    assert then(*events) == expected
    held = (*events, FeatureHeld(hold=Hold.TIMER, until_us=expected.until_us))
    assert then(*held, HoldReleased(run_version=9, hold=Hold.TIMER)) == act.CallAgent(role="builder", attempt=2)


def waits(*problems: Problem | None, pins: Pins = PINS) -> tuple[list[int], act.Action | None]:
    """The pauses after these calls, in seconds, and what follows the last one."""
    events: tuple[Event, ...] = IN_PLAN
    pauses, action = [], None
    for attempt, item in enumerate(problems, 1):
        events = (*events, *(replied(ref("plan", attempt), item) if item else refused_reply(ref("plan", attempt))))
        action = then(*events, pins=pins)
        if isinstance(action, FeatureHeld):
            assert action.until_us is not None
            pauses.append(
                (action.until_us - max(event.observed_at_us for event in recorded(*events)[:-1])) // SECOND_US
            )
            events = (*events, action, HoldReleased(run_version=9, hold=Hold.TIMER))
    return pauses, action


@pytest.mark.parametrize(
    ("code", "retry", "pauses"),
    [
        ("overloaded", 30, [30, 30, 60, 120, 240, 480, 960, 1680]),
        ("rate-limit", None, [600, 600, 1200, 1200]),
        ("rate-limit", 1500, [1500, 1500]),
        ("connection", 30, [30, 30, 60, 120, 240, 480, 960, 1680]),
    ],
)
def test_a_service_that_is_down_is_waited_for_with_growing_pauses(
    code: str, retry: int | None, pauses: list[int]
) -> None:
    down = problem(ProblemClass.TRANSIENT, code, retry)
    assert waits(*[down] * len(pauses)) == (pauses, then_held(pauses, code))
    too_long = act.AskPerson(question_kind=QuestionKind.LIMIT, code=code)
    assert waits(*[down] * (len(pauses) + 1)) == (pauses, too_long), "an hour in all"


def then_held(pauses: list[int], code: str) -> FeatureHeld:
    """The hold of the last pause."""
    before = len(IN_PLAN) + len(pauses) * 3 + (len(pauses) - 1) * 2
    return FeatureHeld(hold=Hold.TIMER, until_us=(before - 1 + pauses[-1]) * SECOND_US, code=code)


def test_a_reply_ends_the_patience_with_the_service() -> None:
    down, odd = problem(ProblemClass.TRANSIENT, "overloaded", 30), problem(ProblemClass.UNKNOWN)
    assert waits(down, down, down, None, down)[0] == [30, 30, 60, 30]
    assert waits(*[down] * 4, odd, odd, odd)[1] == act.CallAgent(role="builder", attempt=8)
    question = act.AskPerson(question_kind=QuestionKind.RETRIES, code="x")
    assert waits(*[down] * 4, *[odd] * 4)[1] == question, "what was waited out is none of the retries"


@pytest.mark.parametrize(
    ("seconds", "requested", "pauses"), [(45, None, [30, 15]), (20, None, [20]), (45, 30, [30]), (20, 30, [])]
)
def test_a_short_patience_is_used_up_unless_the_service_names_a_longer_wait(
    seconds: int, requested: int | None, pauses: list[int]
) -> None:
    pins = trial.pins(Config(limits=Limits(wait_max=Duration(seconds))))
    down = problem(ProblemClass.TRANSIENT, "overloaded", requested)
    question = act.AskPerson(question_kind=QuestionKind.LIMIT, code="overloaded")
    assert waits(*[down] * (len(pauses) + 1), pins=pins) == (pauses, question)


def test_a_reply_that_is_too_long_is_not_asked_for_again_and_again() -> None:
    full = problem(ProblemClass.PHASE, "output-limit")
    assert waits(full)[1] == act.CallAgent(role="builder", attempt=2)
    assert waits(full, full)[1] == act.AskPerson(question_kind=QuestionKind.RETRIES, code="output-limit")


def test_a_fatal_problem_holds_and_a_blocker_asks() -> None:
    fatal = (*IN_PLAN, *replied(ref("plan"), problem(ProblemClass.FATAL, "auth-failure")))
    assert then(*fatal) == FeatureHeld(hold=Hold.FATAL, code="auth-failure")
    human = (*IN_PLAN, *replied(ref("plan"), problem(ProblemClass.NEEDS_PERSON, "agent-blocker")))
    assert then(*human) == act.AskPerson(question_kind=QuestionKind.BLOCKER, code="agent-blocker")


def test_without_money_the_call_waits_and_the_same_role_goes_on() -> None:
    held = CallOverBudget(feature=FeatureId("a"), key="k", role="reviewer", nanousd=5)
    events = (*IN_BUILD, ran(), *build_call(), gate("check", True), held)
    assert then(*events) == FeatureHeld(hold=Hold.BUDGET)
    released = (*events, FeatureHeld(hold=Hold.BUDGET), HoldReleased(run_version=9, hold=Hold.BUDGET))
    assert then(*released) == act.CallAgent(role="reviewer", attempt=1)


# blocks and rollbacks -------------------------------------------------------------------------------------------------
def blocked(cause: str = "code", unit: str = "u1") -> Blocked:
    return Blocked(phase="build", unit=unit, cause=cause, check="check", note=DIGEST)


def test_a_block_leads_to_the_phase_of_its_cause() -> None:
    spec = (*IN_BUILD, ran(), *build_call(), blocked("spec"))
    assert then(*spec) == RolledBack(source="build", to="plan")
    back = (*spec, RolledBack(source="build", to="plan"))
    state = state_after(*back)
    assert isinstance(state, Restoring)
    assert state.progress.completed_phases == ()
    assert state.progress.artifacts == {}
    assert then(*back) == act.RestoreTree(committed=False)
    restored = (*back, *(event for event in restore_commit()), TreeRestored(tree=BASE))
    assert then(*restored) == PhaseStarted(phase="plan", iteration=2, units=("",))
    again = state_after(
        *restored, PhaseStarted(phase="plan", iteration=2), UnitStarted(phase="plan", unit="", iteration=2)
    )
    assert isinstance(again, InPhase)
    assert again.unit_run is not None
    assert again.unit_run.notes == (DIGEST,)


def restore_commit() -> tuple[Event, ...]:
    from mz_events.catalog.delivery import CommitRequested, Committed

    request = CommitRequested(key="k", purpose="restore", phase="plan", unit="", tree=BASE, parent=BASE, message=DIGEST)
    return request, Committed(key="k", commit=Commit("c" * 40), files=0, insertions=0, deletions=0)


def test_a_unit_goes_back_with_those_that_depend_on_it_and_no_other() -> None:
    events = (*IN_BUILD, ran(), *build_call(), *committed("build", "u1"), UnitCompleted(phase="build", unit="u1"))
    events = (*events, UnitStarted(phase="build", unit="u2", iteration=1), blocked(unit="u2"))
    assert then(*events) == RolledBack(source="build", to="build", units=("u2", "u3"))
    back = (*events, RolledBack(source="build", to="build", units=("u2", "u3")))
    assert isinstance(state_after(*back), BetweenPhases)
    assert then(*back) == PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3"))
    again = (
        *back,
        PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3")),
        FilesClaimed(feature=FeatureId("a"), phase="build", paths=()),
    )
    assert then(*again) == UnitStarted(phase="build", unit="u2", iteration=2)


def test_a_cause_without_a_route_goes_to_a_person() -> None:
    events = (*IN_BUILD, ran(), *build_call(), blocked("weather"))
    assert then(*events) == act.AskPerson(question_kind=QuestionKind.UNROUTED, code="weather.check", text=DIGEST)


def test_the_third_time_on_the_same_issue_a_person_decides() -> None:
    events: tuple[Event, ...] = IN_BUILD
    for _ in range(2):
        events = (*events, blocked())
        assert then(*events) == RolledBack(source="build", to="build", units=("u1", "u2", "u3"))
        events = (
            *events,
            RolledBack(source="build", to="build", units=("u1", "u2", "u3")),
            PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3")),
            FilesClaimed(feature=FeatureId("a"), phase="build", paths=()),
            UnitStarted(phase="build", unit="u1", iteration=2),
        )
    events = (*events, blocked())
    assert then(*events) == act.AskPerson(question_kind=QuestionKind.ROLLBACKS, code="code.check", text=DIGEST)
    question = HumanRequested(phase="build", unit="u1", question_kind=QuestionKind.ROLLBACKS)
    pardoned = (*events, question, HumanAnswered(run_version=7, verdict=Verdict.APPROVE, actor=DIGEST))
    assert then(*pardoned) == RolledBack(source="build", to="build", units=("u1", "u2", "u3"))


def blocked_for(check: str) -> Blocked:
    """A block of its own issue."""
    return replace(blocked(), check=check)


def test_after_too_many_rollbacks_a_person_decides() -> None:
    once = replace(PINS, pipeline=replace(PINS.pipeline, rollbacks_max=1))
    back = RolledBack(source="build", to="build", units=("u1", "u2", "u3"))
    assert then(*IN_BUILD, blocked_for("one"), pins=once) == back
    again = (
        *(*IN_BUILD, blocked_for("one"), back),
        PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3")),
        UnitStarted(phase="build", unit="u1", iteration=2),
        blocked_for("two"),
    )
    question = act.AskPerson(question_kind=QuestionKind.ROLLBACKS, code="code.two", text=DIGEST)
    assert then(*again, pins=once) == question
    assert then(*again) == back


# people ---------------------------------------------------------------------------------------------------------------
def reviewed(severity: str, cause: str) -> tuple[Event, ...]:
    verdict = judged(severity, cause)
    review = accepted(ref("build", role="reviewer", unit="u1"))
    return (*IN_BUILD, ran(), *build_call(), gate("check", True), *review[:-1], verdict, review[-1])


def test_a_verdict_with_a_cause_blocks() -> None:
    assert then(*reviewed("MAJOR", "spec")) == act.BlockPhase(cause="spec", check="reviewer", text=DIGEST)


def test_a_critical_verdict_is_shown_to_a_person() -> None:
    events = reviewed("CRITICAL", "none")
    assert then(*events) == act.AskPerson(question_kind=QuestionKind.APPROVAL, code="verdict.severity")
    request = (
        *events,
        HumanRequested(phase="build", unit="u1", question_kind=QuestionKind.APPROVAL, code="verdict.severity"),
    )
    approved = HumanAnswered(run_version=7, verdict=Verdict.APPROVE, actor=DIGEST)
    assert then(*request, approved) == Work.MAKE_COMMIT
    rejected = HumanAnswered(run_version=7, verdict=Verdict.REJECT, note=DIGEST, actor=DIGEST)
    assert then(*request, rejected) == act.BlockPhase(cause="person", check="verdict.severity", text=DIGEST)


def test_commits_that_do_not_merge_are_a_question_and_an_answer_tries_again() -> None:
    conflicted = (STARTED, WorkspaceConflicted(paths=(Path("x"),)))
    assert then(*conflicted) == act.AskPerson(question_kind=QuestionKind.CONFLICT, code="dependencies-conflict")
    request = (*conflicted, HumanRequested(phase="", unit="", question_kind=QuestionKind.CONFLICT))
    answered = HumanAnswered(run_version=9, verdict=Verdict.APPROVE, actor=DIGEST)
    assert then(*request, answered) == Work.CREATE_WORKSPACE


# totality -------------------------------------------------------------------------------------------------------------
STORIES = [
    shipping(),
    merging(),
    reviewed("CRITICAL", "none"),
    (*IN_BUILD, blocked("spec"), RolledBack(source="build", to="plan"), *restore_commit(), TreeRestored(tree=BASE)),
    (*IN_PLAN, *refused_reply(ref("plan")), FeatureCancelled(run_version=8)),
]
EVENTS = [event for trace in STORIES for event in trace]


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_evolve_and_decide_are_total_over_any_order_of_events(events: list[Event]) -> None:
    """Illegal events change nothing, and every state has an answer."""
    state = fold(recorded(*events))
    decide_feature(state, PINS)


@given(st.sampled_from(STORIES), st.data())
def test_an_ended_feature_takes_no_event(history: tuple[Event, ...], data: st.DataObject) -> None:
    ended = (
        state_after(*history, FeatureCancelled(run_version=8)) if history is not STORIES[-1] else state_after(*history)
    )
    event = data.draw(st.sampled_from(EVENTS))
    assert apply_strict(ended, recorded(event)[0]) is None


@st.composite
def unit_graphs(draw: st.DrawFn) -> tuple[Unit, ...]:
    """Any dependencies: unknown ones, circles, a unit on itself."""
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True))
    needs = st.lists(st.sampled_from([*names, "zz"]), max_size=3)
    return tuple(Unit(id=name, depends_on=tuple(draw(needs))) for name in names)


@given(unit_graphs())
def test_units_are_ordered_whatever_they_say_of_each_other(units: tuple[Unit, ...]) -> None:
    assert sorted(dependency_order(units)) == sorted(unit.id for unit in units)


def test_units_come_after_what_they_depend_on() -> None:
    assert dependency_order((UNITS[2], UNITS[1], UNITS[0])) == ("u1", "u2", "u3")
