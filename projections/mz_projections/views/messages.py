"""Open questions to people, people's decisions, and the status of their inbox messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.feature import HumanRequested
from mz_events.catalog.inbox import AnswerPosted, CancelPosted, PausePosted, ResumePosted, RetryPosted
from mz_events.catalog.run import AnswerAccepted, CancelAccepted, InboxRead, PersonCommits, RetryAccepted, Verdict
from mz_events.names import Digest, feature_stream
from mz_events.store import Recorded

from mz_projections.views.model import Question, question_of

Kind = Literal["answer", "cancel", "retry", "revision", "pause", "resume"]
MessageStatus = Literal["pending", "accepted", "rejected"]
Posted = AnswerPosted | CancelPosted | RetryPosted | PausePosted | ResumePosted
Accepted = AnswerAccepted | CancelAccepted | RetryAccepted
KINDS: dict[type[Event], Kind] = {
    AnswerPosted: "answer",
    AnswerAccepted: "answer",
    CancelPosted: "cancel",
    CancelAccepted: "cancel",
    RetryPosted: "retry",
    RetryAccepted: "retry",
    PausePosted: "pause",
    ResumePosted: "resume",
}


class HumanMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A person's message about a feature or the run."""

    kind: Kind
    feature: str | None
    """None: the run."""
    verdict: Verdict | None
    """Only for answers."""
    phase: str | None
    """Only for retries and revisions: first phase to repeat; None: the current, or the pipeline's choice."""
    commits: PersonCommits | None = None
    """Only for revisions: commits of people on the branch."""
    note: Digest | None
    actor: Digest
    recorded_at_us: int
    event_ref: str


class Decision(HumanMessage, frozen=True, kw_only=True):
    """A message that the run has accepted."""

    question: Question | None
    """The question that was open then."""


class InboxMessage(HumanMessage, frozen=True, kw_only=True):
    question: int | None
    """Only for answers: version in the feature's stream of the question; None: any open question."""
    status: MessageStatus
    rejection_code: str = ""
    """Error code; empty if not rejected."""


def open_questions(events: Iterable[Recorded[Event]]) -> tuple[Question, ...]:
    """Return the open questions after these events, oldest first."""
    questions: dict[str, Question] = {}
    for recorded in events:
        _track_question(questions, recorded)
    return tuple(questions.values())


def decisions(events: Iterable[Recorded[Event]]) -> tuple[Decision, ...]:
    """Return people's decisions in these events of one run (in log order), oldest first."""
    questions: dict[str, Question] = {}
    decided = []
    for recorded in events:
        _track_question(questions, recorded)
        if isinstance(event := recorded.event, Accepted):
            message, run = _human_message(event, recorded), recorded.stream.removeprefix("run/")
            question = questions.get(feature_stream(run, event.feature))
            decided.append(Decision(**msgspec.structs.asdict(message), question=question))
    return tuple(decided)


def inbox_messages(inbox: Iterable[Recorded[Event]], run: Iterable[Recorded[Event]]) -> tuple[InboxMessage, ...]:
    """Return the messages, given the events of a run's inbox and those of its own stream: oldest first."""
    reads = {recorded.event.version: recorded.event for recorded in run if isinstance(recorded.event, InboxRead)}
    return tuple(
        _inbox_message(recorded.event, recorded, reads.get(recorded.version))
        for recorded in inbox
        if isinstance(recorded.event, Posted)
    )


def _track_question(questions: dict[str, Question], recorded: Recorded[Event]) -> None:
    """Update the open questions: any later event in the feature's stream closes its question."""
    if recorded.stream.count("/") == 2:
        questions.pop(recorded.stream, None)
        if isinstance(recorded.event, HumanRequested):
            questions[recorded.stream] = question_of(recorded.event, recorded)


def message_kind(event: Event) -> Kind:
    is_revision = isinstance(event, RetryPosted | RetryAccepted) and event.keeps_tree
    return "revision" if is_revision else KINDS[type(event)]


def _human_message(event: Posted | Accepted, recorded: Recorded[Event]) -> HumanMessage:
    return HumanMessage(
        kind=message_kind(event),
        feature=None if isinstance(event, PausePosted | ResumePosted) else event.feature,
        verdict=event.verdict if isinstance(event, AnswerPosted | AnswerAccepted) else None,
        phase=event.phase if isinstance(event, RetryPosted | RetryAccepted) else None,
        commits=event.commits if isinstance(event, RetryPosted | RetryAccepted) else None,
        note=None if isinstance(event, PausePosted | ResumePosted) else event.note,
        actor=event.actor,
        recorded_at_us=recorded.recorded_at_us,
        event_ref=recorded.event_ref,
    )


def _inbox_message(event: Posted, recorded: Recorded[Event], read: InboxRead | None) -> InboxMessage:
    status: MessageStatus = "pending" if read is None else "accepted" if read.accepted else "rejected"
    return InboxMessage(
        **msgspec.structs.asdict(_human_message(event, recorded)),
        question=event.question if isinstance(event, AnswerPosted) else None,
        status=status,
        rejection_code=read.rejection_code if read else "",
    )
