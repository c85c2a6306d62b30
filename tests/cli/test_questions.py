"""What a person is told that an answer does is what it does: each kind of question, answered in each way, in the
simulated world."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_cli.people.questions import FAILS_TEXT, NEXT_CALL_TEXT, question_text, verdict_effects
from mz_engine.model.rules import ProseRule
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallReserved, ContextComposed
from mz_events.catalog.delivery import ChecksPolled, CommitRequested
from mz_events.catalog.feature import (
    Blocked,
    FeatureFailed,
    FeatureStarted,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    QuestionKind,
    RolledBack,
    UnitCompleted,
)
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import ChangesChecked, CommandRan, GateChecked
from mz_events.names import Commit, Digest, FeatureId, feature_stream
from mz_projections.feature.fold import fold
from mz_projections.feature.state import CreatingWorkspace, FeatureProgress, Waiting, progress_of
from mz_projections.views.messages import open_questions
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import ScriptedReply

from tests.engine.test_generation import Generation, pins
from tests.support import driving
from tests.support.asking import ASKING, Asking, at
from tests.support.views import question

SENT_BACK = "the feature is rolled back again, with your note"
COMES: dict[str, tuple[type[Event], ...]] = {
    FAILS_TEXT: (FeatureFailed,),
    NEXT_CALL_TEXT: (AgentRequested,),
    SENT_BACK: (RolledBack,),
    "the feature continues with the work as it is": (CommitRequested,),
    "the change is accepted, and the feature continues with the agent's reply": (ChangesChecked,),
    "mz waits for the checks again; first push or restart them": (ChecksPolled,),
    "the feature continues as if they had passed": (UnitCompleted, PhaseCompleted),
    "the agent's files are restored, and the agent tries again with your note": (AgentRequested,),
    "build starts again": (CommandRan, Blocked),
    "the feature continues in spite of baseline.check": (CommandRan, AgentRequested),
    "the work is rejected; you are asked again": (Blocked, HumanRequested),
    "the feature continues without this review, and no call": (CommitRequested,),
}
"""What is said, and the events that must come next, without those of UNTOLD."""
UNTOLD = (ContextComposed, CallReserved)


def following(asking: Asking, verdict: Verdict) -> tuple[str, list[type[Event]], FeatureProgress]:
    """What is said of the answer, what comes after it, and what the feature has in the end."""
    world, stream = asking.world(), feature_stream(trial.RUN, FeatureId(asking.feature))
    state = fold(world.store.read(stream))
    assert isinstance(state, Waiting)
    texts = dict(verdict_effects(state, asking.pins.pipeline))
    driving.answer(world, asking.feature, verdict, "please mind this")
    drive_run(world, trial.RUN, asking.pins, seed=1)
    recorded = tuple(world.store.read(stream))
    events, progress = [item.event for item in recorded], progress_of(fold(recorded))
    assert progress is not None
    count = next(i for i, event in enumerate(events) if isinstance(event, HumanAnswered))
    return texts[verdict], [type(event) for event in events[count + 1 :] if type(event) not in UNTOLD], progress


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("name", ASKING)
def test_an_answer_does_what_is_said_of_it(name: str, verdict: Verdict) -> None:
    if verdict is Verdict.ACCEPT:
        return  # About gates alone: test_a_gate_that_a_person_accepts.
    output, came, _ = following(ASKING[name], verdict)
    assert tuple(came[: len(COMES[output])]) == COMES[output], f"{name}, {verdict.value}: {output}"


def test_a_gate_that_a_person_accepts() -> None:
    asking = ASKING["rollbacks"]
    world, stream = asking.world(), feature_stream(trial.RUN, FeatureId(asking.feature))
    state = fold(world.store.read(stream))
    assert isinstance(state, Waiting)
    effect = dict(verdict_effects(state, asking.pins.pipeline))[Verdict.ACCEPT]
    assert effect == "the feature continues although check failed; the same failure passes from here on"
    driving.answer(world, asking.feature, Verdict.ACCEPT, "the check is wrong")
    drive_run(world, trial.RUN, asking.pins, seed=1)
    events = [recorded.event for recorded in world.store.read(stream)]
    later = events[next(i for i, event in enumerate(events) if isinstance(event, HumanAnswered)) :]
    assert next(event for event in later if isinstance(event, AgentRequested)).ref.role == "reviewer"
    assert not any(isinstance(event, GateChecked) and event.gate == "check" for event in later[:20])


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.RETRY, Verdict.REJECT])
@pytest.mark.parametrize("text", ["no verdict", '{"severity": "MAJOR", "cause": "code"}'])
def test_a_reviewer_that_only_gives_invalid_verdicts(text: str, verdict: Verdict) -> None:
    """Who approves accepts the work without the review: no further call of the reviewer is paid for."""
    prose = ProseRule(id="note.clear", requirement="It is clear.")
    pins = trial.pins()
    pins = replace(pins, rules={**pins.rules, "note": replace(pins.rules["note"], rules=(prose,))})
    asking = Asking(pins=pins, script=at("build", "reviewer", lambda world, spec: ScriptedReply(text=text)))
    output, came, progress = following(asking, verdict)
    assert tuple(came[: len(COMES[output])]) == COMES[output], f"{verdict.value}: {output}"
    assert "verdict" not in progress.artifacts, "no later phase reads an invalid one"
    before_commit = came[: came.index(CommitRequested)] if CommitRequested in came else came
    assert (AgentRequested in before_commit) == (verdict is Verdict.RETRY)


def test_what_is_rejected_goes_where_the_pipeline_says() -> None:
    output, came, _ = following(Asking(pins=trial.pins(), feature="a"), Verdict.REJECT)
    assert (output, came[:2]) == ("the feature is rolled back to build, with your note", [Blocked, RolledBack])


def test_a_note_reaches_the_agent() -> None:
    asking = ASKING["blocker"]
    world = asking.world()
    driving.answer(world, "b", Verdict.RETRY, "use SQLite")
    drive_run(world, trial.RUN, asking.pins, seed=1)
    events = [
        recorded.event
        for recorded in world.store.read(feature_stream(trial.RUN, FeatureId("b")))
        if recorded.stream.endswith("/b")
    ]
    prompts = [world.blobs.get(event.prompt).decode() for event in events if isinstance(event, AgentRequested)]
    assert "NOTE use SQLite" in prompts[1]


@pytest.mark.parametrize("name", ASKING)
def test_every_question_is_put_into_words(name: str) -> None:
    (question,) = open_questions(ASKING[name].world().store.read_all())
    assert question.question_kind is (QuestionKind.UNROUTED if name == "baseline" else QuestionKind(name))
    assert question.code in question_text(question)


def test_an_approval_after_a_phase_names_the_phase() -> None:
    """Its code is called like a level of autonomy."""
    requested = question(QuestionKind.APPROVAL, "checkpoint", "prd")
    assert question_text(requested) == "the pipeline requires your approval (after prd)"
    assert question_text(replace(requested, code="breaking")) == "the pipeline requires your approval (breaking)"


@pytest.mark.parametrize(
    ("code", "text", "does"),
    [
        ("branch-exists", "its branch exists already", "first rename or delete the existing one"),
        ("git-failed", "its branch and worktree cannot be created (git-failed)", "first fix the reported error"),
        ("dependencies-conflict", "merge conflict (dependencies-conflict)", "first resolve the conflict in them"),
    ],
)
def test_what_is_asked_before_the_first_phase(code: str, text: str, does: str) -> None:
    started = FeatureStarted(
        feature=FeatureId("b"), run_version=1, branch="feat/b", target="main", starts_from=(Commit("a" * 40),),
        title=Digest("0" * 64), body=Digest("0" * 64),
    )  # fmt: skip
    human_requested = HumanRequested(phase="", unit="", question_kind=QuestionKind.CONFLICT, code=code)
    assert question_text(question(QuestionKind.CONFLICT, code)).startswith(text)
    summary = verdict_effects(Waiting(human_requested, CreatingWorkspace(started=started, run_version=1)), None)
    assert all(does in output for verdict, output in summary if verdict is not Verdict.REJECT)


def test_a_rejection_goes_where_the_pipeline_says() -> None:
    """Without such a route, and where the pipeline is not known, this is said too."""
    asking = ASKING["approval"]
    state = fold(asking.world().store.read(feature_stream(trial.RUN, FeatureId("a"))))
    texts = dict(verdict_effects(state, None))
    assert "or asks you" in texts[Verdict.REJECT]


def test_nothing_is_said_of_a_feature_that_asks_nothing() -> None:
    assert verdict_effects(fold(()), trial.pins().pipeline) == ()


def test_work_without_an_agent_is_not_tried_again_by_one() -> None:
    generation = Generation(pinned=replace(pins(), config=replace(pins().config, autonomy="supervised")))
    generation.plans = ["[]\n"]
    generation.drive()
    driving.answer(generation.world, "plan-1", Verdict.APPROVE)
    generation.drive()
    generation.close()
    stream = feature_stream(trial.RUN, FeatureId("finish-1"))
    state = fold(generation.world.store.read(stream))
    assert isinstance(state, Waiting)
    assert dict(verdict_effects(state, generation.pins.pipeline))[Verdict.RETRY] == "finish starts again"
    before = len(tuple(generation.world.store.read(stream)))
    driving.answer(generation.world, "finish-1", Verdict.RETRY)
    generation.drive()
    events = [recorded.event for recorded in generation.world.store.read(stream)][before:]
    assert [type(event) for event in events] == [HumanAnswered, CommandRan, GateChecked, HumanRequested]
