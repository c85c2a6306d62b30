"""Collector for the expected events of one action, derived from the recorded stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from mz_engine.effects.steps import Scene
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied
from mz_events.catalog.check import CommandRan, RefMoved
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold

from mz_recordings.history.tape import NEAR, Tape

E = TypeVar("E", bound=Event)


class Sketch:
    """The expected events of one action; `events` grows as far as the recorded stream matches."""

    __slots__ = ("at", "events", "scene", "tape")

    def __init__(self, scene: Scene, tape: Tape, at: int) -> None:
        self.scene, self.tape, self.at = scene, tape, at
        self.events: list[Event] = []

    def next(self) -> Event | None:
        return self.tape.events[self.at].event if self.at < len(self.tape.events) else None

    def answered(self, *kinds: type[Event]) -> Event | None:
        """Append and return the recorded outcome if it is of these kinds; None if the recorded stream has none here, so
        that the action ends."""
        found = self.next()
        while isinstance(found, RefMoved) and AgentReplied in kinds:
            self._take(found)
            found = self.next()
        if isinstance(found, kinds) or (isinstance(found, FeatureHeld) and found.hold is Hold.FATAL):
            self._take(found)
            return found if isinstance(found, kinds) else None
        return None

    def decided(self, kind: type[E], blank: Mapping[str, Any], **fields: Any) -> E:
        """Append an event with these fields; the others are those of the recorded event, or of `blank`."""
        found = self.next()
        if type(found) is not kind:
            near = self._near(kind)
            event = kind(**{**blank, **fields}) if near is None else msgspec.structs.replace(near, **fields)
            self.events.append(event)
            return event
        for name, value in fields.items():
            if getattr(found, name) != value:
                found = msgspec.structs.replace(found, **fields)
                break
        self._take(found)
        return found

    def _near(self, kind: type[E]) -> E | None:
        """Return a near event of that kind behind one that does not belong here."""
        near = self.tape.events[self.at + 1 : self.at + NEAR]
        return next((one.event for one in near if isinstance(one.event, kind)), None)

    def ahead(self, kind: type[E]) -> E | None:
        """Return a near event of that kind."""
        near = self.tape.events[self.at : self.at + NEAR]
        return next((one.event for one in near if isinstance(one.event, kind)), None)

    def first_of(self, usual: type[Event], other: type[Event]) -> type[Event]:
        """Return which of the two outcomes was recorded here."""
        return self.tape.first_of(self.at, usual, other)

    def exactly(self, event: Event) -> None:
        self.events.append(event)
        if type(self.next()) is type(event):
            self.at += 1

    def set_up(self) -> bool:
        """Append the set-up of a rebuilt worktree. Return False if it failed, and with it the action."""
        while isinstance(found := self.next(), CommandRan) and found.stage == "setup":
            self._take(found)
            if found.exit != 0:
                self.answered()
                return False
        return not (isinstance(found, FeatureHeld) and found.hold is Hold.FATAL and self.answered() is None)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self.at += 1
