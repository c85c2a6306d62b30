"""What a person is told that an answer does is what it does: each kind of question, answered in each way, in the
simulated world."""

from __future__ import annotations

import pytest
from mz_cli.questions import FAILS, NEXT_CALL, effects, question_words
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallReserved
from mz_events.catalog.check import ChangesChecked, CommandRan
from mz_events.catalog.delivery import ChecksSeen, CommitRequested
from mz_events.catalog.feature import (
    Ask,
    Blocked,
    FeatureFailed,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    RolledBack,
    UnitCompleted,
)
from mz_events.catalog.run import Verdict
from mz_events.names import FeatureId, feature_stream
from mz_projections.feature import fold
from mz_projections.queue import queue
from mz_projections.state import Waiting
from mz_qa.simulation.driver import drive

from tests.support import trial
from tests.support.asking import ASKING

SENT_BACK = "it is sent back once more, with your note"
COMES: dict[str, tuple[type[Event], ...]] = {
    FAILS: (FeatureFailed,),
    NEXT_CALL: (AgentRequested,),
    SENT_BACK: (RolledBack,),
    "it goes on with the work as it is": (CommitRequested,),
    "the change is taken as it is, and the feature goes on with the agent's reply": (ChangesChecked,),
    "the checks are waited for anew; push or start them again first": (ChecksSeen,),
    "it goes on as if they were green": (UnitCompleted, PhaseCompleted),
    "the agent's files are put back, and it does the work once more, with your note": (AgentRequested,),
    "build begins once more": (CommandRan, Blocked),
    "it goes on in spite of baseline.check": (CommandRan, AgentRequested),
    "not like this: you are asked how to go on": (Blocked, HumanRequested),
}
"""What is said, and the events that must come next."""


def following(name: str, verdict: Verdict) -> tuple[str, list[type[Event]]]:
    """What is said of the answer, and what comes after it."""
    asking = ASKING[name]
    world, stream = asking.world(), feature_stream(trial.RUN, FeatureId(asking.feature))
    state = fold(world.store.read(stream))
    assert isinstance(state, Waiting)
    said = dict(effects(state, asking.pins.pipeline))
    trial.answer(world, asking.feature, verdict, "please mind this")
    drive(world, trial.RUN, asking.pins, seed=1)
    events = [recorded.event for recorded in world.store.read(stream)]
    heard = next(i for i, event in enumerate(events) if isinstance(event, HumanAnswered))
    return said[verdict], [type(event) for event in events[heard + 1 :] if not isinstance(event, CallReserved)]


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("name", ASKING)
def test_an_answer_does_what_is_said_of_it(name: str, verdict: Verdict) -> None:
    said, came = following(name, verdict)
    assert tuple(came[: len(COMES[said])]) == COMES[said], f"{name}, {verdict.value}: {said}"


def test_a_note_reaches_the_agent() -> None:
    asking = ASKING["blocker"]
    world = asking.world()
    trial.answer(world, "b", Verdict.RETRY, "use SQLite")
    drive(world, trial.RUN, asking.pins, seed=1)
    asked = [
        one.event for one in world.store.read(feature_stream(trial.RUN, FeatureId("b"))) if one.stream.endswith("/b")
    ]
    prompts = [world.blobs.get(event.prompt).decode() for event in asked if isinstance(event, AgentRequested)]
    assert "NOTE use SQLite" in prompts[1]


@pytest.mark.parametrize("name", ASKING)
def test_every_question_is_put_into_words(name: str) -> None:
    (question,) = queue(ASKING[name].world().store.read_all())
    assert question.ask is (Ask.UNROUTED if name == "baseline" else Ask(name))
    assert question.code in question_words(question)


def test_a_rejection_goes_where_the_pipeline_says() -> None:
    """Without such a route, and where the pipeline is not known, this is said too."""
    asking = ASKING["approval"]
    state = fold(asking.world().store.read(feature_stream(trial.RUN, FeatureId("a"))))
    said = dict(effects(state, None))
    assert "or you are asked" in said[Verdict.REJECT]


def test_nothing_is_said_of_a_feature_that_asks_nothing() -> None:
    assert effects(fold(()), trial.pins().pipeline) == ()
