"""Collector for the expected events of one action, derived from the recorded stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from mz_engine.effects.steps import StepContext
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold
from mz_events.catalog.validation import CommandRan, RefMoved

from mz_recordings.past_runs.recorded_stream import NEAR, RecordedStream

E = TypeVar("E", bound=Event)


class ExpectedEvents:
    """The expected events of one action; `events` grows as far as the recorded stream matches."""

    __slots__ = ("events", "position", "scene", "stream")

    def __init__(self, scene: StepContext, stream: RecordedStream, position: int) -> None:
        self.scene, self.stream, self.position = scene, stream, position
        self.events: list[Event] = []

    def next_event(self) -> Event | None:
        return self.stream.events[self.position].event if self.position < len(self.stream.events) else None

    def append_outcome(self, *kinds: type[Event]) -> Event | None:
        """Append and return the recorded outcome if it is of these kinds; None if the recorded stream has none here, so
        that the action ends."""
        event = self.next_event()
        while isinstance(event, RefMoved) and AgentReplied in kinds:
            self._append_recorded(event)
            event = self.next_event()
        if isinstance(event, kinds) or (isinstance(event, FeatureHeld) and event.hold is Hold.FATAL):
            self._append_recorded(event)
            return event if isinstance(event, kinds) else None
        return None

    def append_decided(self, kind: type[E], blank: Mapping[str, Any], **fields: Any) -> E:
        """Append an event with these fields; the others are those of the recorded event, or of `blank`."""
        recorded = self.next_event()
        if type(recorded) is not kind:
            near = self._find_after_next(kind)
            event = kind(**{**blank, **fields}) if near is None else msgspec.structs.replace(near, **fields)
            self.events.append(event)
            return event
        for name, value in fields.items():
            if getattr(recorded, name) != value:
                recorded = msgspec.structs.replace(recorded, **fields)
                break
        self._append_recorded(recorded)
        return recorded

    def _find_after_next(self, kind: type[E]) -> E | None:
        """Return a near event of that kind behind one that does not belong here."""
        near = self.stream.events[self.position + 1 : self.position + NEAR]
        return next((recorded.event for recorded in near if isinstance(recorded.event, kind)), None)

    def find_near(self, kind: type[E]) -> E | None:
        """Return a near event of that kind."""
        near = self.stream.events[self.position : self.position + NEAR]
        return next((recorded.event for recorded in near if isinstance(recorded.event, kind)), None)

    def first_of(self, usual: type[Event], other: type[Event]) -> type[Event]:
        """Return which of the two outcomes was recorded here."""
        return self.stream.first_of(self.position, usual, other)

    def append(self, event: Event) -> None:
        self.events.append(event)
        if type(self.next_event()) is type(event):
            self.position += 1

    def append_setup(self) -> bool:
        """Append the set-up of a rebuilt worktree. Return False if it failed, and with it the action."""
        while isinstance(event := self.next_event(), CommandRan) and event.stage == "setup":
            self._append_recorded(event)
            if event.exit != 0:
                self.append_outcome()
                return False
        return not (isinstance(event, FeatureHeld) and event.hold is Hold.FATAL and self.append_outcome() is None)

    def _append_recorded(self, event: Event) -> None:
        self.events.append(event)
        self.position += 1
