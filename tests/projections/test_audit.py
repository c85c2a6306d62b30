"""What an audit states of a run, what it finds missing, and where the log says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.model.pins import encode_pins
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentLost, AgentReplied, CallPriced, ForbiddenChange, Problem, ProblemClass
from mz_events.catalog.delivery import ChecksPolled, CommitRequested
from mz_events.catalog.feature import (
    FeatureDelivered,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    QuestionKind,
    RolledBack,
)
from mz_events.catalog.run import (
    AnswerAccepted,
    FeatureAdmitted,
    FeatureOutcome,
    FeatureStopped,
    InboxRead,
    ItemAdded,
    ItemSkipped,
    RunFinished,
    RunResumed,
    RunStarted,
    Verdict,
)
from mz_events.catalog.validation import ArtifactParsed, ChangesChecked, CommandRan
from mz_events.names import FeatureId, feature_stream, parse_path
from mz_events.store import Recorded
from mz_projections.audit.auditor import audit
from mz_projections.audit.model import FAULT_KINDS, Gap, RunAudit, broken_rules
from mz_projections.cost.totals import totals
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.fold import fold
from mz_projections.feature.state import progress_of
from mz_projections.run.pins import PinnedConfig, PinnedPhase, PinnedPipeline, PinnedRun, decode_pinned
from mz_projections.views.run import run_view
from mz_qa.simulation import trial

from tests.support import driving, steps
from tests.support.samples import sample
from tests.support.steps import BASE, DIGEST

A = FeatureId("a")
CALL, UNIT_CALL = steps.ref("plan"), steps.ref("build", unit="u1")
DELIVERED = FeatureDelivered(ending="delivered", head=BASE, changed_paths=(parse_path("a.py"),))
RAN = replace(sample(CommandRan), stage="gate", phase="build", unit="u1", name="test", exit=0, passed=7, failed=0)
RAN = replace(RAN, missing=None)
COMMIT = CommitRequested(key="k", purpose="work", phase="build", unit="u1", tree=BASE, parent=BASE, message=DIGEST)
APPROVED = HumanAnswered(run_version=4, verdict=Verdict.APPROVE, actor=DIGEST)


def question(ask: QuestionKind) -> HumanRequested:
    return HumanRequested(phase="build", unit="u1", question_kind=ask)


def run_of(*own: Event, feature: Sequence[Event] = ()) -> tuple[Recorded[Event], ...]:
    """The run's own events, and after them those of feature `a`."""
    begun = (
        replace(sample(RunStarted), pipeline="trial", isolation="namespace"),
        replace(sample(ItemAdded), feature=A, quarantined=False),
    )
    events = [*steps.recorded(*begun, *own, stream="run/r1"), *steps.recorded(*feature, stream="run/r1/a")]
    return tuple(replace(event, position=at) for at, event in enumerate(events, 1))


def audited(*feature: Event, pinned: PinnedRun | None = None) -> RunAudit:
    """Of a run whose one feature is delivered in the end."""
    return audit("r1", run_of(feature=(*feature, DELIVERED)), pinned or PinnedRun())


def gaps(*feature: Event) -> list[Gap]:
    return [gap for gap in audited(*feature).all_gaps if gap.kind != "untested"]


def test_a_level_without_mount_namespaces_is_a_remark() -> None:
    resumed = [RunResumed(mz_version="1", isolation=level) for level in ("", "subreaper", "subreaper", "namespace")]
    report = audit("r1", run_of(*resumed, feature=(DELIVERED,)), PinnedRun())
    assert report.view.isolation == ("namespace", "subreaper")
    (gap,) = [gap for gap in report.gaps if gap.kind == "weak-isolation"]
    assert "could change whatever may be changed by mz's user" in gap.message
    assert not gap.fault


def test_agents_in_containers_and_commands_have_a_level_each() -> None:
    resumed = [RunResumed(mz_version="1", isolation=levels) for levels in ("container landlock", "bubblewrap")]
    report = audit("r1", run_of(*resumed, feature=(DELIVERED,)), PinnedRun())
    assert report.view.isolation == ("namespace", "container", "landlock", "bubblewrap")
    (gap,) = [gap for gap in report.gaps if gap.kind == "weak-isolation"]
    assert "isolation was landlock" in gap.message


def test_less_than_mount_namespaces_that_keeps_files_is_a_smaller_remark() -> None:
    report = audit("r1", run_of(RunResumed(mz_version="1", isolation="landlock"), feature=(DELIVERED,)), PinnedRun())
    (gap,) = [gap for gap in report.gaps if gap.kind == "weak-isolation"]
    assert "isolation was landlock: agents and commands could reach sockets" in gap.message


def test_a_clean_run_has_no_faults() -> None:
    run_audit = audited(*steps.planned(), PhaseStarted(phase="build", iteration=1), *steps.accepted(UNIT_CALL), RAN,
                    steps.gate("test", passed=True), COMMIT, CallPriced(key=CALL.key, computed_nanousd=1),
                    CallPriced(key=UNIT_CALL.key, computed_nanousd=1))  # fmt: skip
    assert run_audit.all_gaps == ()
    assert [feature.view.status for feature in run_audit.features] == ["delivered"]


def test_what_was_asked_changed_and_decided() -> None:
    (feature,) = audited(*steps.planned(), *steps.refused_reply(UNIT_CALL), RAN, steps.gate("test", True)).features
    assert feature.requested is not None
    assert feature.requested.event_ref == "run/r1@2"
    (made,) = feature.artifacts
    assert made.call is not None
    assert (made.parsed.event.artifact, made.parsed.event_ref) == ("plan", "run/r1/a@9")
    assert made.call.event_ref == "run/r1/a@5"
    (commit,) = feature.commits
    assert (commit.request.phase, commit.committed.event_ref) == ("plan", "run/r1/a@12")
    replies = [(reply.event.ref.phase, broken_rules(reply.event.violations)) for reply in feature.replies]
    assert replies == [("plan", ()), ("build", ("plan.json",))]
    (gate,) = feature.gates
    assert gate.command is not None
    assert (gate.checked.event.passed, gate.command.event) == (True, RAN)
    assert feature.tests_after == (gate.command,)


def test_a_gate_is_decided_on_its_own_run() -> None:
    """A rule gate after a command has no process behind it, and a later one none that an earlier one used up."""
    (feature,) = audited(RAN, steps.gate("test", True), steps.gate("size", True), steps.gate("test", True)).features
    assert [gate.command is not None for gate in feature.gates] == [True, False, False]


@pytest.mark.parametrize(("passed", "remarks"), [(7, 0), (6, 1), (None, 1)])
def test_tests_that_disappear_are_a_remark(passed: int | None, remarks: int) -> None:
    """A gate that passes with fewer tests than on the base: some were deleted or skipped, or nothing was tested."""
    base = replace(RAN, stage="base", phase="", unit="")
    after = replace(RAN, passed=passed, failed=None if passed is None else 0)
    events = run_of(base, feature=(after, steps.gate("test", True), DELIVERED))
    messages = [gap.message for gap in audit("r1", events, PinnedRun()).all_gaps if gap.kind == "fewer-tests"]
    assert messages == [f"test: 7 tests passed on the base, {passed or 0} after the work"] * remarks


def test_a_renamed_test_is_a_remark_although_the_number_is_the_same() -> None:
    base, after = replace(RAN, stage="base", phase="", unit=""), replace(RAN, missing=steps.DIGEST)
    events = run_of(base, feature=(after, steps.gate("test", True), DELIVERED))
    messages = [gap.message for gap in audit("r1", events, PinnedRun()).all_gaps if gap.kind == "fewer-tests"]
    assert messages == ["test: 7 tests passed on the base, 7 after the work; some of the former are missing"]


def test_without_a_preparation_tests_before_are_those_of_the_base() -> None:
    base = replace(RAN, stage="base", phase="", unit="")
    own = replace(base, stage="prepare", phase="build", passed=3)
    tested = (replace(base, passed=1), base, replace(base, name="lint", passed=None, failed=None))
    for feature, before in (((RAN,), [(7, "run/r1@4")]), ((own, RAN), [(3, "run/r1/a@1")]), ((), [])):
        (result,) = audit("r1", run_of(*tested, feature=feature), PinnedRun()).features
        assert [(ran.event.passed, ran.event_ref) for ran in result.tests_before] == before


def test_tests_before_are_the_first_preparation() -> None:
    before = [replace(RAN, stage="prepare", passed=number) for number in (3, 9)]
    (feature,) = audited(*before, RAN, replace(RAN, passed=8)).features
    assert [ran.event.passed for ran in feature.tests_before] == [3]
    assert [ran.event.passed for ran in feature.tests_after] == [8]


def test_artifacts_that_were_taken_back_are_not_shown() -> None:
    (feature,) = audited(*steps.planned(), RolledBack(source="plan", to="plan")).features
    assert feature.artifacts == ()


def test_people() -> None:
    requested = (*steps.OPENED, PhaseStarted(phase="build", iteration=1), question(QuestionKind.BLOCKER))
    events = run_of(FeatureAdmitted(feature=A), feature=requested)
    answer = Recorded(
        events[0].stream, 4, 99, 9, 9,
        AnswerAccepted(feature=A, verdict=Verdict.RETRY, note=DIGEST, actor=DIGEST), "",
    )  # fmt: skip
    (feature,) = audit("r1", (*events, answer), PinnedRun()).features
    (decision,) = feature.decisions
    assert (decision.verdict, decision.event_ref, decision.note) == (Verdict.RETRY, "run/r1@4", DIGEST)
    assert decision.question is not None
    assert decision.question.event_ref == "run/r1/a@4"


# what is missing ------------------------------------------------------------------------------------------------------
REFUSED = steps.gate("test", passed=False)
RED = replace(sample(ChecksPolled), failed=1, pending=0)
OFFENCE = (ForbiddenChange(kind="outside", path="README.md"),)
LIMITED = Problem(kind=ProblemClass.TRANSIENT, code="rate-limit")
SALVAGED = replace(sample(AgentReplied), ref=CALL, salvaged=True, forbidden_changes=())


@pytest.mark.parametrize(
    ("events", "kind", "fault", "places"),
    [
        ((REFUSED, COMMIT), "past-gate", True, (1, 2)),
        ((REFUSED, question(QuestionKind.APPROVAL), APPROVED, COMMIT), "past-gate", False, (1, 4)),
        ((RED,), "checks-red", True, (1,)),
        ((RED, question(QuestionKind.CHECKS), APPROVED), "checks-red", False, (1,)),
        ((ChangesChecked(ref=CALL, tree=BASE, forbidden_changes=OFFENCE),), "reverted", False, (1,)),
        ((steps.requested(CALL), AgentLost(ref=CALL, stdout=DIGEST), CallPriced(key=CALL.key, computed_nanousd=1)),
         "lost", False, (1,)),
        ((*steps.replied(CALL, LIMITED), CallPriced(key=CALL.key, computed_nanousd=1)), "failed", False, (1,)),
        (steps.accepted(CALL), "unpriced", False, (1,)),
        ((steps.requested(CALL), SALVAGED, CallPriced(key=CALL.key, computed_nanousd=1)), "salvaged", False, (1,)),
        ((steps.requested(CALL), CallPriced(key=CALL.key, computed_nanousd=1), PhaseCompleted(phase="plan")),
         "not-validated", True, (1, 3)),
    ],
)  # fmt: skip
def test_gaps(events: Sequence[Event], kind: str, fault: bool, places: Sequence[int]) -> None:
    (gap,) = gaps(*events)
    assert (gap.kind, gap.fault, gap.feature) == (kind, fault, "a")
    assert gap.event_refs == tuple(f"run/r1/a@{version}" for version in places)


@pytest.mark.parametrize(
    "events",
    [
        (REFUSED, steps.gate("test", passed=True), COMMIT),
        (REFUSED, steps.requested(UNIT_CALL), COMMIT),
        (REFUSED, RolledBack(source="build", to="build"), COMMIT),
        (RED, replace(RED, failed=0, pending=0)),
    ],
)
def test_what_was_mended_is_no_gap(events: Sequence[Event]) -> None:
    assert not [gap for gap in gaps(*events) if gap.fault]


def test_what_was_not_delivered() -> None:
    events = run_of(
        FeatureAdmitted(feature=A),
        FeatureStopped(feature=A, version=2, status=FeatureOutcome.FAILED, code="no"),
        RunFinished(),
        feature=steps.OPENED,
    )
    (gap,) = audit("r1", events, PinnedRun()).faults
    assert (gap.kind, gap.event_refs) == ("not-delivered", ("run/r1/a@2",))
    (queued,) = audit("r1", run_of(), PinnedRun()).faults
    assert queued.event_refs == ("run/r1@2",), "where nothing else is known, the item itself"


def test_an_item_that_was_delivered_before_is_no_gap() -> None:
    skipped = ItemSkipped(feature=FeatureId("b"), delivered_by="run/r0/b@9", changed=False)
    run_audit = audit("r1", run_of(skipped, feature=(RAN, DELIVERED)), PinnedRun())
    assert [feature.view.status for feature in run_audit.features] == ["delivered", "skipped"]
    assert run_audit.faults == ()
    assert run_audit.features[1].requested is not None
    assert run_audit.features[1].requested.skipped_for == "run/r0/b@9"


def test_nothing_was_run_on_what_was_delivered() -> None:
    assert [gap.kind for gap in audited().all_gaps] == ["untested"]


@pytest.mark.parametrize(
    ("changed", "is_remark"), [((), True), (("plans/b.json",), True), (("plans/b.json", "b.py"), False)]
)
def test_a_delivery_of_artifacts_alone_is_a_remark(changed: tuple[str, ...], is_remark: bool) -> None:
    delivered = replace(DELIVERED, changed_paths=tuple(map(parse_path, changed)))
    path = parse_path("plans/b.json")
    planned = [replace(event, path=path) if isinstance(event, ArtifactParsed) else event for event in steps.planned()]
    kinds = [gap.kind for gap in audit("r1", run_of(feature=(*planned, delivered)), PinnedRun()).all_gaps]
    assert ("unchanged" in kinds) is is_remark


@pytest.mark.parametrize(
    ("phase", "edits", "is_remark"),
    [
        (PinnedPhase("plan", outputs=({"artifact": "plan", "rules": "plan"},)), {}, False),
        (PinnedPhase("plan", outputs=({"artifact": "plan", "path": "plan.md", "rules": "plan"},)), {}, True),
        (PinnedPhase("plan", writable=("**",)), {}, True),
        (PinnedPhase("plan", edit="seed"), {"seed": {}}, True),
        (PinnedPhase("plan", edit="seed"), {}, False),
        (PinnedPhase("other"), {}, True),
    ],
)
def test_what_may_change_nothing_is_not_expected_to(phase: PinnedPhase, edits: dict[str, Any], is_remark: bool) -> None:
    pinned = PinnedRun(PinnedPipeline((phase,)), PinnedConfig(edits=edits))
    kinds = [
        gap.kind
        for gap in audit(
            "r1", run_of(feature=(*steps.planned(), replace(DELIVERED, changed_paths=()))), pinned
        ).all_gaps
    ]
    assert {"unchanged", "untested"}.intersection(kinds) == ({"unchanged", "untested"} if is_remark else set())


def test_refused_messages() -> None:
    inbox_read = InboxRead(version=1, accepted=False, rejection_code="not-waiting")
    (gap,) = audit("r1", run_of(inbox_read, feature=(RAN, DELIVERED)), PinnedRun()).all_gaps
    assert (gap.kind, gap.event_refs) == ("refused", ("run/r1@3", "inbox/r1@1"))


PINS = {
    "rules": {"unknown": "to this version"},
    "config": {"commands": {"test": {"run": "make test"}}},
    "pipeline": {"phases": [
        {"phase": "plan", "agent": {"role": "r"}, "outputs": [{"artifact": "plan"}]},
        {"phase": "build", "agent": {}, "prepare": [{"run": "lint"}], "gates": [{"run": "test"}, {"run": "lint"}]},
        {"phase": "dream", "agent": {}, "gates": [{"run": "build"}]},
        {"phase": "send", "gates": []},
    ]},
}  # fmt: skip


def test_what_the_pipeline_asked_for_and_the_run_could_not_do() -> None:
    pinned = decode_pinned(msgspec.json.encode(PINS))
    assert pinned is not None
    assert pinned.unconfigured_commands() == {"lint": ("build",), "build": ("dream",)}
    assert pinned.unchecked_phases() == ("dream",)
    run_audit = audited(RAN, pinned=pinned)
    assert [(gap.kind, gap.event_refs, gap.fault) for gap in run_audit.gaps] == [
        ("left-out", ("run/r1@1",), False), ("left-out", ("run/r1@1",), False), ("unchecked", ("run/r1@1",), False)
    ]  # fmt: skip


def test_pins_that_cannot_be_read_are_said_to_be() -> None:
    assert decode_pinned(b"no json") is None
    assert decode_pinned(b'{"pipeline": 3}') is None
    assert [gap.kind for gap in audit("r1", run_of(feature=(RAN, DELIVERED)), None).all_gaps] == ["unchecked"]


def test_one_feature_only() -> None:
    other = replace(sample(ItemAdded), feature=FeatureId("b"))
    run_audit = audit(
        "r1", run_of(other, feature=(*steps.accepted(CALL), DELIVERED)), PinnedRun(config=PinnedConfig()), "b"
    )
    assert [feature.view.feature for feature in run_audit.features] == ["b"]
    assert run_audit.spending.total.calls == 0


def test_it_agrees_with_the_other_projections() -> None:
    events = run_of(feature=(*steps.planned(), *steps.refused_reply(UNIT_CALL), DELIVERED))
    run_audit = audit("r1", events, PinnedRun())
    assert run_audit.spending.total == totals(paid_calls(events))
    assert run_audit.features[0].spending.total == totals(paid_calls(events))
    actual = [feature.view.status for feature in run_audit.features]
    assert actual == [view.status for view in run_view("r1", events).features]


def test_faults_are_gaps_that_are_told_of_features() -> None:
    assert {"left-out", "unpriced", "reverted"}.isdisjoint(FAULT_KINDS)


@pytest.mark.slow
def test_a_run_of_the_engine() -> None:
    """Units, a rework, a review that sends a unit back, a person who approves: read back as the engine saw it."""
    world, pinned = driving.new_world(), trial.pins()
    trial.begin(world, pinned, {"a": (), "b": (), "c": ("a",)})
    driving.deliver(world, pinned, seed=1)
    events = tuple(recorded for recorded in world.store.read_all() if not recorded.stream.startswith("inbox/"))
    run_audit = audit("r1", events, decode_pinned(encode_pins(pinned)))
    statuses = {feature.view.feature: feature.view.status for feature in run_audit.features}
    assert (statuses, run_audit.faults) == (dict.fromkeys(("a", "b", "c"), "delivered"), ())
    assert {gap.kind for gap in run_audit.all_gaps} == {"reverted"}
    actual = [(sums.outcome, sums.calls) for sums in run_audit.spending.wasted_by_outcome]
    assert actual == [("rejected", 2), ("superseded", 2)]
    first, *_ = run_audit.features
    (decision,) = first.decisions
    assert decision.question
    assert (decision.verdict, decision.question.question_kind) == (Verdict.APPROVE, QuestionKind.APPROVAL)
    decided = [gate.checked.event for gate in first.gates if gate.command]
    assert [(gate.unit, gate.gate, gate.passed) for gate in decided] == [
        ("u1", "check", False), ("u1", "check", True), ("u2", "check", True), ("u2", "check", True),
        ("u3", "check", True), ("u3", "final", True)]  # fmt: skip
    assert {made.call.outcome for made in first.artifacts if made.call} == {"kept"}
    for view in run_view(trial.RUN, events).features:
        progress = progress_of(fold(world.store.read(feature_stream(trial.RUN, view.feature))))
        assert progress is not None
        assert view.current_phases == tuple(progress.start_trees)
