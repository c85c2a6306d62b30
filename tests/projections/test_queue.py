"""What waits for a person, what people said, and what became of what they left."""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureCancelled, HumanAnswered, HumanRequested, QuestionKind
from mz_events.catalog.inbox import AnswerPosted, CancelPosted, PausePosted, ResumePosted, RetryPosted
from mz_events.catalog.run import AnswerAccepted, CancelAccepted, InboxRead, RetryAccepted, RunIdle
from mz_events.names import Digest, FeatureId, StreamId, feature_stream, inbox_stream, run_stream
from mz_events.store import Recorded
from mz_projections.views.messages import decisions, inbox_messages, open_questions
from mz_projections.views.model import Question

from tests.support.samples import sample

RUN, FIRST, OTHER = run_stream("r"), feature_stream("r", "one"), feature_stream("r", "other")
INBOX, ACCEPTED = inbox_stream("r"), (AnswerAccepted, CancelAccepted, RetryAccepted)


def recorded(*entries: tuple[StreamId, Event]) -> list[Recorded[Event]]:
    return [Recorded(stream, at, at, at * 10, at, event, "") for at, (stream, event) in enumerate(entries, 1)]


def test_a_question_waits_until_it_is_answered() -> None:
    question = replace(sample(HumanRequested), codes=("code", "other"))
    assert open_questions(recorded((FIRST, question))) == (
        Question(
            question_kind=QuestionKind.EXHAUSTED,
            code="code, other",
            phase="phase",
            unit="unit",
            detail=Digest("5e" * 32),
            since_us=10,
            event_ref="run/r/one@1",
        ),
    )
    assert open_questions(recorded((FIRST, question), (FIRST, sample(HumanAnswered)))) == ()


def test_the_oldest_comes_first_and_only_the_newest_of_a_feature_counts() -> None:
    human_requested = sample(HumanRequested)
    events = recorded(
        (FIRST, human_requested), (OTHER, human_requested), (FIRST, sample(HumanAnswered)), (FIRST, human_requested)
    )
    actual = [(question.feature, question.since_us) for question in open_questions(events)]
    assert actual == [("other", 20), ("one", 40)]


def test_an_answer_on_its_way_has_not_arrived() -> None:
    events = recorded((FIRST, sample(HumanRequested)), (RUN, sample(AnswerAccepted)), (RUN, sample(RunIdle)))
    assert len(open_questions(events)) == 1


def test_a_feature_that_was_given_up_asks_nothing() -> None:
    assert open_questions(recorded((FIRST, sample(HumanRequested)), (FIRST, sample(FeatureCancelled)))) == ()


def test_nothing_waits_in_an_empty_log() -> None:
    assert open_questions([]) == ()


# what people said -----------------------------------------------------------------------------------------------------
def test_a_decision_knows_its_question() -> None:
    question, accepted = sample(HumanRequested), replace(sample(AnswerAccepted), feature=FeatureId("one"))
    events = recorded(
        (FIRST, question), (RUN, accepted), (FIRST, sample(HumanAnswered)), (RUN, replace(accepted, note=None))
    )
    first, second = decisions(events)
    assert first.question == open_questions(events[:1])[0]
    assert (first.kind, first.verdict) == ("answer", accepted.verdict)
    assert (first.recorded_at_us, first.event_ref) == (20, "run/r@2")
    assert (second.question, second.note) == (None, None)


def test_all_that_people_can_say_of_a_feature_is_a_decision() -> None:
    kinds = [decision.kind for decision in decisions(recorded(*((RUN, sample(kind)) for kind in ACCEPTED)))]
    assert kinds == ["answer", "cancel", "revision"]
    retry = decisions(recorded((RUN, sample(RetryAccepted))))[0]
    assert (retry.phase, retry.verdict) == ("phase", None)


def test_what_became_of_a_letter() -> None:
    inbox = recorded(
        *((INBOX, sample(kind)) for kind in (AnswerPosted, CancelPosted, RetryPosted, PausePosted, ResumePosted))
    )
    used = (InboxRead(version=1, accepted=True), InboxRead(version=2, accepted=False, rejection_code="not-waiting"))
    result = inbox_messages(inbox, recorded(*((RUN, event) for event in used)))
    assert [(item.kind, item.status, item.rejection_code) for item in result] == [
        ("answer", "accepted", ""),
        ("cancel", "rejected", "not-waiting"),
        ("revision", "pending", ""),
        ("pause", "pending", ""),
        ("resume", "pending", ""),
    ]
    assert [inbox_message.feature for inbox_message in result] == ["feat-001", "feat-001", "feat-001", None, None]
    assert (result[0].question, result[2].question) == (len("question"), None)


def test_a_question_knows_its_version() -> None:
    assert open_questions(recorded((RUN, sample(RunIdle)), (FIRST, sample(HumanRequested))))[0].version == 2
