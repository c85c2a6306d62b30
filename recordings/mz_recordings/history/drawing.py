"""Pure: the events of one action, drawn after the record, as far as the record goes along with it."""

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
    """The events of one action, drawn after the record: `events` grows as the record goes along with it."""

    __slots__ = ("at", "events", "scene", "tape")

    def __init__(self, scene: Scene, tape: Tape, at: int) -> None:
        self.scene, self.tape, self.at = scene, tape, at
        self.events: list[Event] = []

    def next(self) -> Event | None:
        return self.tape.events[self.at].event if self.at < len(self.tape.events) else None

    def answered(self, *kinds: type[Event]) -> Event | None:
        """What the world said, in the record's words; None where it said none of this, and the action goes no
        further."""
        found = self.next()
        while isinstance(found, RefMoved) and AgentReplied in kinds:
            self._take(found)
            found = self.next()
        if isinstance(found, kinds) or (isinstance(found, FeatureHeld) and found.hold is Hold.FATAL):
            self._take(found)
            return found if isinstance(found, kinds) else None
        return None

    def decided(self, kind: type[E], blank: Mapping[str, Any], **fields: Any) -> E:
        """An event of today's code: these fields are its own, the others the record's, or `blank`."""
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
        """One of that kind a little further on, where something stands before it that does not belong there."""
        near = self.tape.events[self.at + 1 : self.at + NEAR]
        return next((one.event for one in near if isinstance(one.event, kind)), None)

    def ahead(self, kind: type[E]) -> E | None:
        """One of that kind a little further on in the record."""
        near = self.tape.events[self.at : self.at + NEAR]
        return next((one.event for one in near if isinstance(one.event, kind)), None)

    def first_of(self, usual: type[Event], other: type[Event]) -> type[Event]:
        """Which of the two answers of the run was recorded here."""
        return self.tape.first_of(self.at, usual, other)

    def exactly(self, event: Event) -> None:
        self.events.append(event)
        if type(self.next()) is type(event):
            self.at += 1

    def set_up(self) -> bool:
        """A worktree that had to be built again is set up again. False: that failed, and the action with it."""
        while isinstance(found := self.next(), CommandRan) and found.stage == "setup":
            self._take(found)
            if found.exit != 0:
                self.answered()
                return False
        return not (isinstance(found, FeatureHeld) and found.hold is Hold.FATAL and self.answered() is None)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self.at += 1
