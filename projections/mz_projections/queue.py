"""Pure: what waits for a person."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.feature import Ask, HumanRequested
from mz_events.envelope import Recorded
from mz_events.names import Digest


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


def queue(events: Iterable[Recorded[Event]]) -> tuple[Question, ...]:
    """The open questions after these events, the oldest first. While a question is open nothing else comes to its
    feature, so any later event of the feature's stream closes it."""
    open_: dict[str, Question] = {}
    for recorded in events:
        if recorded.stream.count("/") == 2:
            open_.pop(recorded.stream, None)
            if isinstance(recorded.event, HumanRequested):
                open_[recorded.stream] = _question(recorded.event, recorded)
    return tuple(open_.values())


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
