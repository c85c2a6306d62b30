"""Open questions to people, people's decisions, and the status of their inbox messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.feature import Ask, HumanRequested
from mz_events.catalog.inbox import AnswerLeft, CancelLeft, PauseLeft, ResumeLeft, RetryLeft
from mz_events.catalog.run import AnswerGiven, CancelGiven, InboxTaken, RetryGiven, Verdict
from mz_events.envelope import Recorded
from mz_events.names import Digest, feature_stream

Kind = Literal["answer", "cancel", "retry", "pause", "resume"]
Fate = Literal["waits", "taken", "refused"]
Posted = AnswerLeft | CancelLeft | RetryLeft | PauseLeft | ResumeLeft
Accepted = AnswerGiven | CancelGiven | RetryGiven
KINDS: dict[type[Event], Kind] = {
    AnswerLeft: "answer", AnswerGiven: "answer", CancelLeft: "cancel", CancelGiven: "cancel", RetryLeft: "retry",
    RetryGiven: "retry", PauseLeft: "pause", ResumeLeft: "resume",
}  # fmt: skip


class Question(msgspec.Struct, frozen=True):
    """A feature that is waiting for a person."""

    run: str
    feature: str
    phase: str
    unit: str
    ask: Ask
    code: str
    """Subject of the question: a rule, a gate, a problem's code, a check."""
    detail: Digest | None
    """Blob: the text for the person."""
    since_us: int
    place: str
    """`stream@version` of the question."""

    @property
    def version(self) -> int:
        """Version in the feature's stream, cited by an answer."""
        return int(self.place.rpartition("@")[2])


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A person's message about a feature or the run."""

    kind: Kind
    feature: str | None
    """None: the run."""
    verdict: Verdict | None
    """Only for answers."""
    phase: str | None
    """Only for retries: first phase to repeat; None: the current phase."""
    note: Digest | None
    who: Digest
    at_us: int
    place: str


class Decision(Said, frozen=True, kw_only=True):
    """A message that the run has accepted."""

    question: Question | None
    """The question that was open then."""


class Letter(Said, frozen=True, kw_only=True):
    """A message in the inbox and its status."""

    question: int | None
    """Only for answers: version in the feature's stream of the question; None: any open question."""
    fate: Fate
    why: str = ""
    """Error code; empty if not rejected."""


def queue(events: Iterable[Recorded[Event]]) -> tuple[Question, ...]:
    """Return the open questions after these events, oldest first."""
    open_: dict[str, Question] = {}
    for recorded in events:
        _ask(open_, recorded)
    return tuple(open_.values())


def decisions(events: Iterable[Recorded[Event]]) -> tuple[Decision, ...]:
    """Return people's decisions in these events of one run (in log order), oldest first."""
    open_: dict[str, Question] = {}
    found = []
    for recorded in events:
        _ask(open_, recorded)
        if isinstance(event := recorded.event, Accepted):
            message, run = _said(event, recorded), recorded.stream.removeprefix("run/")
            question = open_.get(feature_stream(run, event.feature))
            found.append(Decision(**msgspec.structs.asdict(message), question=question))
    return tuple(found)


def letters(inbox: Iterable[Recorded[Event]], run: Iterable[Recorded[Event]]) -> tuple[Letter, ...]:
    """Return the messages, given the events of a run's inbox and those of its own stream: oldest first."""
    reads = {recorded.event.version: recorded.event for recorded in run if isinstance(recorded.event, InboxTaken)}
    return tuple(
        _letter(recorded.event, recorded, reads.get(recorded.version))
        for recorded in inbox
        if isinstance(recorded.event, Posted)
    )


def _ask(open_: dict[str, Question], recorded: Recorded[Event]) -> None:
    """Update the open questions: any later event in the feature's stream closes its question."""
    if recorded.stream.count("/") == 2:
        open_.pop(recorded.stream, None)
        if isinstance(recorded.event, HumanRequested):
            open_[recorded.stream] = _question(recorded.event, recorded)


def _question(event: HumanRequested, recorded: Recorded[Event]) -> Question:
    _, run, feature = recorded.stream.split("/")
    return Question(
        run,
        feature,
        event.phase,
        event.unit,
        event.ask,
        event.code,
        event.detail,
        recorded.recorded_at_us,
        recorded.place,
    )


def _said(event: Posted | Accepted, recorded: Recorded[Event]) -> Said:
    return Said(
        kind=KINDS[type(event)],
        feature=None if isinstance(event, PauseLeft | ResumeLeft) else event.feature,
        verdict=event.verdict if isinstance(event, AnswerLeft | AnswerGiven) else None,
        phase=event.phase if isinstance(event, RetryLeft | RetryGiven) else None,
        note=None if isinstance(event, PauseLeft | ResumeLeft) else event.note,
        who=event.who,
        at_us=recorded.recorded_at_us,
        place=recorded.place,
    )


def _letter(event: Posted, recorded: Recorded[Event], read: InboxTaken | None) -> Letter:
    fate: Fate = "waits" if read is None else "taken" if read.accepted else "refused"
    return Letter(
        **msgspec.structs.asdict(_said(event, recorded)),
        question=event.question if isinstance(event, AnswerLeft) else None,
        fate=fate,
        why=read.why if read else "",
    )
