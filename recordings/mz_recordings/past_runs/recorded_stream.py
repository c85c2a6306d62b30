"""A recorded stream and the position of an effect in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar, overload

from mz_engine.ports import RepositoryUnusable
from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureHeld
from mz_events.catalog.run import Hold
from mz_events.catalog.validation import ChangesChecked, CommandRan, RefMoved
from mz_events.envelope import Recorded

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Event)
G = TypeVar("G", bound=Event)
NEAR = 4
"""Number of events within which the end of a step is: those that are appended together."""


class NotInRecord(Exception):
    """The recorded stream has no result here: it ends, or continues with something else."""


class RecordedDataMissing(Exception):
    """Recorded data that is needed to compute this again is gone. The message says which."""


class RecordedStream:
    """The events of a stream, from which the ports of one effect read recorded results."""

    def __init__(self, events: Sequence[Recorded[Event]]) -> None:
        self.events = events
        self.position = 0

    def next_event(self) -> Event | None:
        """Return the event at the position; None at the end."""
        return self.events[self.position].event if self.position < len(self.events) else None

    def skip_produced(self, produced: Sequence[Event]) -> None:
        """Advance past those produced events that were recorded here."""
        for event in produced:
            if type(self.next_event()) is type(event):
                self.position += 1

    @overload
    def outcome(self, kind: type[E], /) -> E: ...
    @overload
    def outcome(self, kind: type[E], other: type[F], /) -> E | F: ...
    @overload
    def outcome(self, kind: type[E], other: type[F], third: type[G], /) -> E | F | G: ...
    def outcome(self, *kinds: type[Event]) -> Event:
        """Return the recorded outcome, behind moved refs. Raises RepositoryUnusable if the repository was unusable, and
        NotInRecord."""
        index = self.position
        while index < len(self.events) and isinstance(self.events[index].event, RefMoved):
            index += 1
        event = self.events[index].event if index < len(self.events) else None
        self.raise_if_unusable()
        if isinstance(event, kinds):
            return event
        raise NotInRecord

    def raise_if_unusable(self) -> None:
        """Raise RepositoryUnusable if that was recorded here."""
        event = self.next_event()
        if isinstance(event, FeatureHeld) and event.hold is Hold.FATAL and event.template is None:
            raise RepositoryUnusable(event.code or "", "as it was recorded")

    def find_near(self, kind: type[E]) -> E | None:
        """Return the next event of that kind if it belongs to what the effect is about to append."""
        near = islice(self.events, self.position, self.position + NEAR)
        return next((recorded.event for recorded in near if isinstance(recorded.event, kind)), None)

    def changes_checked(self) -> ChangesChecked | None:
        """Return the check of the tree at the position; a set-up of the worktree may precede it."""
        for recorded in self.events[self.position :]:
            if isinstance(recorded.event, ChangesChecked):
                return recorded.event
            if not (isinstance(recorded.event, CommandRan) and recorded.event.stage == "setup"):
                break
        return None

    def first_of(self, usual: type[Event], other: type[Event]) -> type[Event]:
        """Return the one of two event types that comes next, if it is near."""
        near = (type(recorded.event) for recorded in islice(self.events, self.position, self.position + NEAR))
        return next((kind for kind in near if kind in (usual, other)), usual)

    def moved_refs(self) -> list[RefMoved]:
        """Return the moved refs at the position."""
        moves = []
        for recorded in self.events[self.position :]:
            if not isinstance(recorded.event, RefMoved):
                break
            moves.append(recorded.event)
        return moves

    def now_us(self) -> int:
        """Return the time at which the next event was observed, by the raw clock."""
        index = min(self.position, len(self.events) - 1)
        return self.events[index].observed_at_us
