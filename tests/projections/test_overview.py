"""What people are shown of a run: folded from events, total over all of them, and never zero where nothing is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallRef,
    CallReserved,
    CallSettled,
    ForbiddenChange,
    ReplyParsed,
    Usage,
)
from mz_events.catalog.delivery import ChecksPolled
from mz_events.catalog.feature import (
    FeatureCancelled,
    FeatureDelivered,
    FeatureFailed,
    FeatureHeld,
    FeatureRetried,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    UnitCompleted,
)
from mz_events.catalog.run import (
    AnswerAccepted,
    FeatureAdmitted,
    FeatureMerged,
    FeatureOutcome,
    FeatureStopped,
    Hold,
    ItemAdded,
    ItemHeld,
    ItemSkipped,
    RetryAccepted,
    RunFinished,
    RunHalted,
    RunIdle,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopRequested,
    Verdict,
)
from mz_events.catalog.validation import ArtifactParsed, ChangesChecked, CommandRan, GateChecked
from mz_events.names import Commit, Digest, FeatureId, Path, RunId, StreamId, feature_stream, run_stream
from mz_events.store import Recorded
from mz_projections.cost.totals import totals
from mz_projections.feature.calls import paid_calls
from mz_projections.run.fold import fold_run
from mz_projections.usage import sum_known
from mz_projections.views.model import FeatureStatus, FeatureView, RunView
from mz_projections.views.run import RunProjection, run_view

from tests.support.samples import samples
from tests.support.steps import COMMAND

RUN = "r1"
LOGIN = FeatureId("login")
DIGEST = Digest("5e" * 32)
TREE = Commit("c0" * 20)


def recorded(stream: StreamId, event: Event, position: int) -> Recorded[Event]:
    return Recorded(stream, position, position, position * 1000, position * 1000, event, "")


def shown(*events: tuple[str, Event]) -> RunView:
    """The run after these, each given with its feature; an empty one means the run's own stream."""
    streams = [(feature_stream(RUN, feature) if feature else run_stream(RUN), event) for feature, event in events]
    return run_view(RUN, [recorded(stream, event, index) for index, (stream, event) in enumerate(streams, 1)])


def of_login(*events: Event) -> FeatureView:
    view = shown(*(("login", event) for event in events)).find_feature("login")
    assert view is not None
    return view


def of_run(*events: Event) -> FeatureView:
    view = shown(*(("", event) for event in events)).find_feature("login")
    assert view is not None
    return view


def ref(phase: str = "code", attempt: int = 1, role: str = "builder", unit: str = "") -> CallRef:
    return CallRef(key=f"r1/login/{phase}/{unit}/{attempt}/{role}", phase=phase, unit=unit, iteration=1,
                   attempt=attempt, role=role)  # fmt: skip


def requested(call: CallRef, estimate: int | None = 5) -> AgentRequested:
    return AgentRequested(ref=call, agent="a", model="m", prompt=DIGEST, template="t", full_prompt=True, session=None,
                          resumes=False, tree=TREE, estimated_tokens=1,
                          estimated_nanousd=estimate)  # fmt: skip


def read(call: CallRef, *usage: Usage, reported: int | None = None) -> ReplyParsed:
    return ReplyParsed(ref=call, parser="p", ending="success", session=None, text=DIGEST, usage=usage,
                     reported_nanousd=reported)  # fmt: skip


def ran(name: str, passed: int | None, failed: int | None, stage: str = "gate") -> CommandRan:
    return replace(COMMAND, stage=stage, phase="code", unit="", name=name, passed=passed, failed=failed)


ITEM = ItemAdded(feature=LOGIN, source="features.md#login", priority=1, order=0, title=DIGEST, body=DIGEST)
STARTED = FeatureStarted(
    feature=LOGIN, run_version=1, branch="feat/login", target="main", starts_from=(TREE,), title=DIGEST, body=DIGEST
)


# totality -------------------------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.sampled_from(("", "login", "audit")), st.sampled_from(samples())), max_size=40))
def test_any_events_in_any_order_can_be_shown(events: Sequence[tuple[str, Event]]) -> None:
    view = shown(*events)
    assert view.events == len(events)
    for feature in view.features:
        assert set(feature.completed_phases) <= {phase.phase for phase in feature.phases}
        assert feature.tests is None or min(feature.tests) >= 0


def test_every_rest_is_a_status() -> None:
    assert {feature_outcome.value for feature_outcome in FeatureOutcome} <= set(get_args(FeatureStatus))


def test_other_runs_change_nothing() -> None:
    fold = RunProjection(RUN)
    for stream in ("run/r2", "run/r10/login", "run/r2/login", "inbox/r1"):
        fold.apply(recorded(StreamId(stream), STARTED, 1))
    assert fold.run == RunView(run=RUN)


@given(st.lists(st.tuples(st.sampled_from(("login", "audit")), st.sampled_from(samples())), max_size=40))
def test_it_agrees_with_the_other_projections(events: Sequence[tuple[str, Event]]) -> None:
    """Costs and open questions have projections of their own; nobody may see two truths."""
    recorded_events = [recorded(feature_stream(RUN, feature), event, n) for n, (feature, event) in enumerate(events, 1)]
    for view in run_view(RUN, recorded_events).features:
        mine = [item for item in recorded_events if item.stream == feature_stream(RUN, view.feature)]
        if len({call.key for call in view.calls}) == len(view.calls):
            sums = totals(paid_calls(mine))
            assert (view.input_tokens, view.output_tokens) == (sums.input_tokens, sums.output_tokens)
            assert view.estimated_nanousd == sums.estimated_nanousd
            assert (view.reported_nanousd, view.computed_nanousd) == (sums.reported_nanousd, sums.computed_nanousd)
            assert [call.status for call in view.calls] == [cost.status for cost in paid_calls(mine)]


# the run --------------------------------------------------------------------------------------------------------------
def test_status_of_a_run() -> None:
    begun = RunStarted(run=RunId(RUN), pipeline="p", base="main", base_commit=TREE, pins=DIGEST, mz_version="0.1")
    halted = RunHalted(feature=LOGIN, code="auth-failure")
    steps: tuple[tuple[tuple[Event, ...], str, str], ...] = (
        ((begun,), "running", ""),
        ((begun, RunIdle()), "idle", ""),
        ((begun, RunStopRequested()), "stopped", ""),
        ((begun, RunStopRequested(), RunIdle()), "stopped", ""),
        ((begun, halted, RunIdle()), "halted", "auth-failure"),
        ((begun, halted, RunIdle(), RunResumed(mz_version="0.1")), "running", ""),
        ((begun, RunFinished()), "finished", ""),
        ((begun, RunFinished(), ITEM), "running", ""),
    )
    for events, status, code in steps:
        view = shown(*(("", event) for event in events))
        assert (view.status, view.code) == (status, code)


def test_what_stopped_pauses_with_its_run() -> None:
    begun = RunStarted(run=RunId(RUN), pipeline="p", base="main", base_commit=TREE, pins=DIGEST, mz_version="0.1")
    events: tuple[Event, ...] = (
        begun, ITEM, FeatureAdmitted(feature=LOGIN), RunPaused(actor=None),
        FeatureStopped(feature=LOGIN, version=1, status=FeatureOutcome.INTERRUPTED),
    )  # fmt: skip
    assert feature_of(*events) == "paused"
    assert feature_of(*events, RunStopRequested()) == "interrupted"
    assert feature_of(*events, RunResumed(mz_version="0.1")) == "working", "before anything else is recorded of it"


def test_the_clock_of_a_run_leaves_out_the_time_without_work() -> None:
    begun = RunStarted(run=RunId(RUN), pipeline="p", base="main", base_commit=TREE, pins=DIGEST, mz_version="0.1")
    times = ((begun, 10), (ITEM, 40), (RunPaused(actor=None), 50), (RunResumed(mz_version="0.1"), 90))
    view = run_view(RUN, [recorded(run_stream(RUN), event, at) for event, at in times])
    assert view.clock_us == 50_000, "as if it had begun with the 40 milliseconds that it had worked before"


def test_the_time_of_a_feature_leaves_out_that_between_its_delivery_and_its_revision() -> None:
    accepted = RetryAccepted(feature=LOGIN, phase=None, note=None, actor=DIGEST, keeps_tree=True)
    own, delivered = feature_stream(RUN, LOGIN), FeatureDelivered(ending="delivered", head=TREE)
    times = (
        (run_stream(RUN), ITEM, 10), (own, STARTED, 20), (own, delivered, 50), (run_stream(RUN), accepted, 950),
        (own, FeatureRetried(run_version=4, to="code", keeps_tree=True, actor=DIGEST), 960), (own, delivered, 970),
    )  # fmt: skip
    (view,) = run_view(RUN, [recorded(stream, event, at) for stream, event, at in times]).features
    assert (view.started_us, view.ended_us) == (920_000, 970_000), "30 milliseconds, and then 20"


def feature_of(*events: Event) -> str:
    return shown(*(("", event) for event in events)).features[0].status


def test_status_of_a_feature_by_its_run() -> None:
    rested = FeatureStopped(feature=LOGIN, version=1, status=FeatureOutcome.HELD, hold=Hold.BUDGET)
    answered = AnswerAccepted(feature=LOGIN, verdict=Verdict.RETRY, actor=DIGEST)
    assert of_run(ITEM).status == "queued"
    assert of_run(ITEM, FeatureAdmitted(feature=LOGIN)).status == "working"
    assert of_run(ITEM, FeatureAdmitted(feature=LOGIN), rested).hold is Hold.BUDGET
    assert of_run(ITEM, rested, answered).status == "working"
    assert of_run(ITEM, ItemHeld(feature=LOGIN, blocked_by=FeatureId("audit"))).blocked_by == "audit"
    assert of_run(ItemSkipped(feature=LOGIN, delivered_by="run/r0@9", changed=False)).status == "skipped"
    delivered = FeatureStopped(feature=LOGIN, version=1, status=FeatureOutcome.DELIVERED)
    assert of_run(ITEM, delivered, answered).status == "delivered"


# one feature ----------------------------------------------------------------------------------------------------------
def test_status_of_a_feature_by_its_own_stream() -> None:
    question = HumanRequested(phase="code", unit="", question_kind=QuestionKind.APPROVAL, code="verdict.severity")
    answered = HumanAnswered(run_version=3, verdict=Verdict.APPROVE, actor=DIGEST)
    held = FeatureHeld(hold=Hold.TIMER, until_us=77, code="rate-limit")
    waiting = of_login(STARTED, question)
    assert waiting.status == "waiting"
    assert waiting.question is not None
    assert (waiting.question.question_kind, waiting.question.since_us) == (QuestionKind.APPROVAL, 2000)
    assert of_login(STARTED, question, answered).question is None
    assert (of_login(STARTED, held).status, of_login(STARTED, held).until_us) == ("held", 77)
    assert of_login(STARTED, held, HoldReleased(run_version=4, hold=Hold.TIMER)).status == "working"
    ended = of_login(STARTED, question, FeatureCancelled(run_version=5))
    assert (ended.status, ended.question, ended.ended_us) == ("cancelled", None, 3000)
    assert of_login(STARTED, FeatureFailed(code="merge")).code == "merge"
    assert of_login(STARTED, FeatureDelivered(ending="merged", head=TREE)).status == "merged"


@pytest.mark.parametrize(
    "after",
    [
        HoldReleased(run_version=4, hold=Hold.FATAL),
        FeatureRetried(run_version=4, to="", note=None, actor=DIGEST),
        FeatureCancelled(run_version=4),
        FeatureFailed(code="merge"),
        FeatureDelivered(ending="merged", head=TREE),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_template_that_halted_it_is_told_only_meanwhile(after: Event) -> None:
    held = FeatureHeld(hold=Hold.FATAL, code="template-broken", template=Path("code.md.j2"), line=3)
    halted = of_login(STARTED, held).template_error
    assert halted is not None
    assert halted.location == "code.md.j2:3"
    assert of_login(STARTED, held, after).template_error is None


def test_attempts_are_calls_of_the_phases_own_agent() -> None:
    calls = [ref(), ref(attempt=2), ref(role="reviewer"), ref(unit="u1"), ref(phase="pr")]
    view = of_login(PhaseStarted(phase="code", iteration=1), *(requested(call) for call in calls))
    assert view.attempts == {"code": 3, "pr": 1}


def test_tests_are_those_of_the_last_gate_that_counts() -> None:
    assert of_login(STARTED).tests is None
    assert of_login(ran("lint", None, None)).tests is None
    assert of_login(ran("test", 9, 9, stage="prepare")).tests is None
    assert of_login(ran("test", 3, 2), ran("lint", None, None), ran("test", 5, 0)).tests == (5, 0)
    assert of_login(ran("test", 3, 0), ran("e2e", 2, 1)).tests == (5, 1)


def test_unknown_amounts_are_none() -> None:
    assert sum_known([]) is None
    assert sum_known([None, None]) is None
    assert sum_known([None, 0]) == 0
    lost = of_login(requested(ref(), estimate=None), AgentLost(ref=ref(), stdout=DIGEST))
    assert (lost.input_tokens, lost.output_tokens, lost.estimated_nanousd) == (None, None, None)
    assert (lost.reported_nanousd, lost.computed_nanousd) == (None, None)
    assert lost.calls[0].status == "lost"


def test_the_last_reading_of_a_reply_counts() -> None:
    usage, two = Usage(model="m", input=10, output=1), Usage(model="m", input=20, output=2)
    call = ref()
    view = of_login(requested(call), read(call, usage, reported=7), read(call, usage, two, reported=8),
                    CallPriced(key=call.key, computed_nanousd=9))  # fmt: skip
    assert (view.input_tokens, view.output_tokens) == (30, 3)
    assert (view.estimated_nanousd, view.reported_nanousd, view.computed_nanousd) == (5, 8, 9)


def test_offences_of_capture_and_check_are_told_once() -> None:
    call = ref()
    nested = ForbiddenChange(kind="nested-git", path="lib")
    reply = AgentReplied(
        ref=call, stdout=DIGEST, stderr=DIGEST, exit=0, duration_ms=1, tree=TREE, forbidden_changes=(nested,)
    )
    checked = ChangesChecked(ref=call, tree=TREE, forbidden_changes=(nested, ForbiddenChange(kind="outside", path="x")))
    assert of_login(requested(call), reply, checked).calls[0].forbidden_changes == ("nested-git lib", "outside x")


def test_a_gate_judges_the_last_reply_of_its_cell() -> None:
    first, second, other = ref(), ref(attempt=2), ref(unit="u1")
    no = GateChecked(phase="code", unit="", gate="test", passed=False)
    yes = GateChecked(phase="code", unit="", gate="test", passed=True)
    view = of_login(requested(first), no, requested(second), requested(other), requested(ref(role="reviewer")), no, yes)
    assert [[refusal.gate for refusal in call.rejections] for call in view.calls] == [["test"], ["test"], [], []]


def test_phases_units_and_rollbacks() -> None:
    def parsed(artifact: str, phase: str) -> ArtifactParsed:
        return ArtifactParsed(artifact=artifact, phase=phase, unit="", path=Path("a.md"), digest=DIGEST)

    events: list[Event] = [
        PhaseStarted(phase="prd", iteration=1), parsed("prd", "prd"), PhaseCompleted(phase="prd"),
        PhaseStarted(phase="spec", iteration=1), parsed("spec", "spec"), PhaseCompleted(phase="spec"),
        PhaseStarted(phase="code", iteration=1, units=("u1", "u2")), UnitCompleted(phase="code", unit="u1"),
    ]  # fmt: skip
    before = of_login(*events)
    assert (before.phase, before.completed_phases) == ("code", ("prd", "spec"))
    assert before.phases[-1].units_done == ("u1",)
    after = of_login(*events, RolledBack(source="code", to="spec"))
    assert [phase.state for phase in after.phases] == ["completed", "superseded", "superseded"]
    assert [artifact.artifact for artifact in after.artifacts] == ["prd"]
    assert after.rollbacks == 1
    again = of_login(*events, RolledBack(source="code", to="spec"), PhaseStarted(phase="spec", iteration=2),
                     PhaseCompleted(phase="spec"))  # fmt: skip
    assert again.completed_phases == ("prd", "spec")
    assert again.phases[-1].iteration == 2


def test_what_the_budget_counts() -> None:
    """As the fold that grants calls counts: what was settled, and what is set aside."""
    events: tuple[Event, ...] = (
        CallReserved(feature=LOGIN, key="a", nanousd=10), CallSettled(feature=LOGIN, key="a", nanousd=12),
        CallReserved(feature=LOGIN, key="b", nanousd=5), CallReserved(feature=LOGIN, key="c", nanousd=None),
    )  # fmt: skip
    item = ItemAdded(feature=LOGIN, source="s", priority=1, order=0, title=DIGEST, body=DIGEST)
    view = shown(("", item), *(("", event) for event in events))
    own = [recorded(run_stream(RUN), event, position) for position, event in enumerate((item, *events), 1)]
    assert view.committed_nanousd == fold_run(own).committed_nanousd == 17


def test_unpriced_calls_are_those_that_a_price_was_asked_for() -> None:
    first, second = ref(), ref(attempt=2)
    view = of_login(
        requested(first), read(first), CallPriced(key=first.key, computed_nanousd=None),
        requested(second), AgentLost(ref=second, stdout=DIGEST), requested(ref(attempt=3)),
    )  # fmt: skip
    assert view.unpriced == 2


def test_trees_before_and_after_a_call() -> None:
    call = ref()
    view = of_login(requested(call), ChangesChecked(ref=call, tree=Commit("ee" * 20)))
    assert (view.calls[0].tree_before, view.calls[0].tree_after) == (TREE, "ee" * 20)
    assert of_login(requested(call)).calls[0].tree_after is None


def test_commands_and_artifacts_belong_to_an_attempt() -> None:
    first, second = ref(), ref(attempt=2)

    def parsed(digest: str) -> ArtifactParsed:
        return ArtifactParsed(artifact="code", phase="code", unit="", path=None, digest=Digest(digest * 64))

    view = of_login(
        PhaseStarted(phase="code", iteration=1), ran("test", 1, 0, "prepare"),
        requested(first), parsed("1"), ran("test", 1, 1), requested(second), parsed("2"), ran("test", 2, 0),
    )  # fmt: skip
    assert [(command.iteration, command.attempt) for command in view.commands] == [(1, 0), (1, 1), (1, 2)]
    assert [[artifact.digest[0] for artifact in call.artifacts] for call in view.calls] == [["1"], ["2"]]
    assert [artifact.digest[0] for artifact in view.artifacts] == ["2"]


def test_a_feature_that_is_done_once_more() -> None:
    again = FeatureRetried(run_version=1, to="code", actor=DIGEST)
    done = (
        PhaseStarted(phase="prd", iteration=1),
        PhaseCompleted(phase="prd"),
        PhaseStarted(phase="code", iteration=1),
    )
    view = of_login(*done, FeatureFailed(code="x"), again)
    assert (view.status, view.code, view.completed_phases) == ("working", "", ("prd",))
    assert [phase.state for phase in view.phases] == ["completed", "superseded"]


def test_checks_of_a_pull_request() -> None:
    def observed(expected: bool) -> ChecksPolled:
        return ChecksPolled(key="k", commit=TREE, commit_known=expected, passed=2, failed=1, pending=3)

    assert of_login(observed(expected=True)).checks == (2, 1, 3)
    assert of_login(observed(expected=True), observed(expected=False)).checks is None


def test_a_run_is_at_rest_when_nothing_more_comes_by_itself() -> None:
    working = ("", FeatureAdmitted(feature=LOGIN))
    assert not shown(working).has_stopped
    assert not shown(working, ("", RunPaused(actor=None))).has_stopped
    assert not shown(working, ("", RunStopRequested())).has_stopped
    assert shown(("", RunStopRequested())).has_stopped
    assert shown(("", RunIdle())).has_stopped
    assert shown(("", RunPaused(actor=None))).status == "paused"


def test_a_feature_that_an_idle_run_did_not_start_is_held_by_its_dependency() -> None:
    first, second = FeatureId("first"), FeatureId("second")
    items = (replace(ITEM, feature=first), replace(ITEM, feature=second, depends_on=(first,)))
    stopped = FeatureStopped(feature=first, version=1, status=FeatureOutcome.DELIVERED)
    waiting = replace(stopped, status=FeatureOutcome.WAITING)

    def held(*events: Event) -> tuple[str, str, str]:
        row = shown(*(("", event) for event in (*items, FeatureAdmitted(feature=first), *events))).features[1]
        return row.status, row.blocked_by, row.code

    assert held(stopped) == ("queued", "", "")
    assert held(stopped, RunIdle()) == ("held", "first", "merge")
    assert held(waiting, RunIdle()) == ("held", "first", "dependency")
    resumed = (stopped, RunIdle(), RunResumed(mz_version="1"))
    assert held(*resumed) == ("queued", "", "")
    merged = (*resumed, FeatureMerged(feature=first, head=TREE))
    assert held(*merged, FeatureAdmitted(feature=second)) == ("working", "", "")
    assert shown(*(("", event) for event in (*items, *merged))).features[0].status == "merged"
