"""Pure: what waits for a person, what people said, and what became of what they left."""

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
KINDS: dict[type[Event], Kind] = {
    AnswerLeft: "answer", AnswerGiven: "answer", CancelLeft: "cancel", CancelGiven: "cancel", RetryLeft: "retry",
    RetryGiven: "retry", PauseLeft: "pause", ResumeLeft: "resume",
}  # fmt: skip


class Question(msgspec.Struct, frozen=True):
    """A feature that cannot go on without a person."""

    run: str
    feature: str
    phase: str
    unit: str
    ask: Ask
    code: str
    """What it is about: a rule, a gate, a problem's code, a check."""
    detail: Digest | None
    """Blob: the text that the person reads."""
    since_us: int
    place: str
    """`stream@version` of the question."""

    @property
    def version(self) -> int:
        """Of the feature's stream: what an answer cites."""
        return int(self.place.rpartition("@")[2])


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants of a feature, or of the run."""

    kind: Kind
    feature: str | None
    """None: the whole run."""
    verdict: Verdict | None
    """Of an answer."""
    phase: str | None
    """Of a retry: from where on; None: where the feature stands."""
    note: Digest | None
    who: Digest
    at_us: int
    place: str


class Decision(Said, frozen=True, kw_only=True):
    """Something said that the run has taken up."""

    question: Question | None
    """The one that was open then."""


class Letter(Said, frozen=True, kw_only=True):
    """Something left in the inbox, and what became of it."""

    question: int | None
    """Of an answer: the version of the feature's stream that asked; None: whichever question is open."""
    fate: Fate
    why: str = ""
    """Code of the refusal."""


def queue(events: Iterable[Recorded[Event]]) -> tuple[Question, ...]:
    """The open questions after these events, the oldest first."""
    open_: dict[str, Question] = {}
    for recorded in events:
        _ask(open_, recorded)
    return tuple(open_.values())


def decisions(events: Iterable[Recorded[Event]]) -> tuple[Decision, ...]:
    """What people decided, of these events of one run in the order of the log: the oldest first."""
    open_: dict[str, Question] = {}
    found = []
    for recorded in events:
        _ask(open_, recorded)
        if isinstance(recorded.event, AnswerGiven | CancelGiven | RetryGiven):
            said, run = _said(recorded), recorded.stream.removeprefix("run/")
            asked = open_.get(feature_stream(run, recorded.event.feature))
            found.append(Decision(**msgspec.structs.asdict(said), question=asked))
    return tuple(found)


def letters(inbox: Iterable[Recorded[Event]], run: Iterable[Recorded[Event]]) -> tuple[Letter, ...]:
    """What was left, given the events of a run's inbox and those of its own stream: the oldest first."""
    taken = {recorded.event.version: recorded.event for recorded in run if isinstance(recorded.event, InboxTaken)}
    return tuple(_letter(recorded, taken.get(recorded.version)) for recorded in inbox)


def _ask(open_: dict[str, Question], recorded: Recorded[Event]) -> None:
    """While a question is open nothing else comes to its feature: any later event of the feature's stream closes it."""
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


def _said(recorded: Recorded[Event]) -> Said:
    event = recorded.event
    return Said(
        kind=KINDS[type(event)], feature=getattr(event, "feature", None), verdict=getattr(event, "verdict", None),
        phase=getattr(event, "phase", None), note=getattr(event, "note", None), who=getattr(event, "who", Digest("")),
        at_us=recorded.recorded_at_us, place=recorded.place,
    )  # fmt: skip


def _letter(recorded: Recorded[Event], taken: InboxTaken | None) -> Letter:
    fate: Fate = "waits" if taken is None else "taken" if taken.accepted else "refused"
    return Letter(
        **msgspec.structs.asdict(_said(recorded)),
        question=getattr(recorded.event, "question", None),
        fate=fate,
        why=taken.why if taken else "",
    )
