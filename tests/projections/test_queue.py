"""What waits for a person."""

from __future__ import annotations

from mz_events.catalog.base import Event
from mz_events.catalog.feature import Ask, FeatureCancelled, HumanAnswered, HumanRequested
from mz_events.catalog.run import AnswerGiven, RunRested
from mz_events.envelope import Recorded
from mz_events.names import Digest, StreamId, feature_stream, run_stream
from mz_projections.queue import Question, queue

from tests.support.samples import sample

RUN, ONE, OTHER = run_stream("r"), feature_stream("r", "one"), feature_stream("r", "other")


def recorded(*entries: tuple[StreamId, Event]) -> list[Recorded[Event]]:
    return [Recorded(stream, at, at, at * 10, at, event, "", b"") for at, (stream, event) in enumerate(entries, 1)]


def test_a_question_waits_until_it_is_answered() -> None:
    asked = sample(HumanRequested)
    assert queue(recorded((ONE, asked))) == (
        Question("r", "one", "phase", "unit", Ask.EXHAUSTED, "code", Digest("5e" * 32), 10, "run/r/one@1"),
    )
    assert queue(recorded((ONE, asked), (ONE, sample(HumanAnswered)))) == ()


def test_the_oldest_comes_first_and_only_the_newest_of_a_feature_counts() -> None:
    asked = sample(HumanRequested)
    events = recorded((ONE, asked), (OTHER, asked), (ONE, sample(HumanAnswered)), (ONE, asked))
    assert [(question.feature, question.since_us) for question in queue(events)] == [("other", 20), ("one", 40)]


def test_an_answer_on_its_way_has_not_arrived() -> None:
    events = recorded((ONE, sample(HumanRequested)), (RUN, sample(AnswerGiven)), (RUN, sample(RunRested)))
    assert len(queue(events)) == 1


def test_a_feature_that_was_given_up_asks_nothing() -> None:
    assert queue(recorded((ONE, sample(HumanRequested)), (ONE, sample(FeatureCancelled)))) == ()


def test_nothing_waits_in_an_empty_log() -> None:
    assert queue([]) == ()
