"""A recorded stream and the position of an effect in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar, overload

from mz_engine.ports import RepositoryUnusable
from mz_events.catalog.base import Event
from mz_events.catalog.check import ChangesChecked, CommandRan, RefMoved
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold
from mz_events.envelope import Recorded

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Event)
G = TypeVar("G", bound=Event)
NEAR = 4
"""Number of events within which the end of a step is: those that are appended together."""


class Unanswered(Exception):
    """The recorded stream has no result here: it ends, or continues with something else."""


class Lost(Exception):
    """Recorded data that is needed to compute this again is gone. The message says which."""


class Tape:
    """The events of a stream, from which the ports of one effect read recorded results."""

    def __init__(self, events: Sequence[Recorded[Event]]) -> None:
        self.events = events
        self.at = 0

    def next(self) -> Event | None:
        """Return the event at the position; None at the end."""
        return self.events[self.at].event if self.at < len(self.events) else None

    def take(self, produced: Sequence[Event]) -> None:
        """Advance past those produced events that were recorded here."""
        for event in produced:
            if type(self.next()) is type(event):
                self.at += 1

    @overload
    def outcome(self, kind: type[E], /) -> E: ...
    @overload
    def outcome(self, kind: type[E], other: type[F], /) -> E | F: ...
    @overload
    def outcome(self, kind: type[E], other: type[F], third: type[G], /) -> E | F | G: ...
    def outcome(self, *kinds: type[Event]) -> Event:
        """Return the recorded outcome, behind moved refs. Raises RepositoryUnusable if the repository was unusable, and
        NotInRecord."""
        place = self.at
        while place < len(self.events) and isinstance(self.events[place].event, RefMoved):
            place += 1
        found = self.events[place].event if place < len(self.events) else None
        self.unusable()
        if isinstance(found, kinds):
            return found
        raise Unanswered

    def unusable(self) -> None:
        """Raise RepositoryUnusable if that was recorded here."""
        found = self.next()
        if isinstance(found, FeatureHeld) and found.hold is Hold.FATAL and found.template is None:
            raise RepositoryUnusable(found.code or "", "as it was recorded")

    def ahead(self, kind: type[E]) -> E | None:
        """Return the next event of that kind if it belongs to what the effect is about to append."""
        near = islice(self.events, self.at, self.at + NEAR)
        return next((one.event for one in near if isinstance(one.event, kind)), None)

    def checked(self) -> ChangesChecked | None:
        """Return the check of the tree at the position; a set-up of the worktree may precede it."""
        for one in self.events[self.at :]:
            if isinstance(one.event, ChangesChecked):
                return one.event
            if not (isinstance(one.event, CommandRan) and one.event.stage == "setup"):
                break
        return None

    def first_of(self, at: int, usual: type[Event], other: type[Event]) -> type[Event]:
        """Return the one of two event types that comes next, if it is near."""
        near = (type(one.event) for one in islice(self.events, at, at + NEAR))
        return next((kind for kind in near if kind in (usual, other)), usual)

    def moved(self) -> list[RefMoved]:
        """Return the moved refs at the position."""
        found = []
        for one in self.events[self.at :]:
            if not isinstance(one.event, RefMoved):
                break
            found.append(one.event)
        return found

    def now_us(self) -> int:
        """Return the time at which the next event was observed, by the raw clock."""
        place = min(self.at, len(self.events) - 1)
        return self.events[place].observed_at_us
