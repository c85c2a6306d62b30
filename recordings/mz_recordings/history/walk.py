"""Pure: goes along one recorded stream, and holds what today's code produces against it, event by event.

After a divergence it takes the record's word and goes on, so that later, independent ones are found too. Where the
record went another way, nothing is said of its events until the two meet again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace
from mz_events.catalog.base import Event, Role
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_events.names import StreamId

from mz_recordings.history.changes import CHANGES, Change, explanation
from mz_recordings.history.contrast import Texts, differences, finding_of, kind_of
from mz_recordings.history.divergence import Difference, Divergence, Parting, Replayed

AHEAD = 4
"""How far the record is searched for an event that today's code produces earlier."""
BEHIND = 12
"""For how many versions an event that came too early is remembered."""
WORDS_MAX = 300
COMPARED = (Role.INTENT, Role.DERIVED)

S = TypeVar("S")
Follow = Callable[[S, Recorded[Event]], S | None]
"""The state after an event; None where it may not come then."""


class Walk(Generic[S]):
    """Where a replay stands in one stream: its state is folded from the record."""

    def __init__(
        self,
        stream: StreamId,
        events: Sequence[Recorded[Event]],
        state: S,
        follow: Follow[S],
        next_of: Callable[[S], type[Event] | None],
        texts: Texts,
        changes: tuple[Change, ...] = CHANGES,
    ) -> None:
        self.stream, self.events, self.state = stream, events, state
        self.follow, self.next_of, self.texts, self.changes = follow, next_of, texts, changes
        self.at = 0
        self.moves = 0
        """How often it came on: along the record, or by an event that only today's code produces."""
        self.compared = 0
        self.found: list[Divergence] = []
        self.unfollowed = 0
        self.astray = False
        """The record has gone another way, and the two have not met again."""
        self.early: dict[int, tuple[Recorded[Event], bool]] = {}
        """What was recorded and not produced yet, by where the divergence stands in `found`; and whether it counts in
        the state."""

    @property
    def recorded(self) -> Recorded[Event] | None:
        return self.events[self.at] if self.at < len(self.events) else None

    def take(self) -> bool:
        """The record's next event, into the state. False: it may not come there, and changes nothing."""
        recorded = self.events[self.at]
        self._pass()
        following = self.follow(self.state, recorded)
        if following is not None:
            self.state = following
        return following is not None

    def _pass(self) -> None:
        self.at, self.moves = self.at + 1, self.moves + 1

    def hold(self, produced: Sequence[Event]) -> None:
        """Hold what one action produces against the record."""
        events = self.events
        for at, event in enumerate(produced):
            if self.at >= len(events):
                return
            recorded = events[self.at]
            if event is recorded.event or event == recorded.event:  # As nearly all are.
                following = self.follow(self.state, recorded)
                if following is not None:
                    self.state, self.astray = following, False
                    self.compared += event.ROLE in COMPARED
                    self._pass()
                    continue
            if not self._hold_one(event, recorded, produced[at + 1 :]):
                return

    def nothing_produced(self, instead: str = "") -> None:
        """The record goes on where today's code has nothing to do, or does something `instead`."""
        recorded = self.events[self.at]
        if instead:
            self._part("decision", recorded, None, note=f"today's code goes on with: {instead}")
        else:
            self._part("missing", recorded, None, note="today's code does nothing here")
        self._go_astray()

    def failed(self, error: Exception) -> None:
        """Today's code broke off where it should have gone on."""
        self._part("failure", self.events[self.at], None, note=said(error))
        self._go_astray()

    def out_of_place(self, note: str) -> None:
        """The record's next event, a fact, may not come here."""
        self._part("order", self.events[self.at], None, note=note)
        self.take()

    def not_at_rest(self, rested: Recorded[Event], kind: Parting, note: str) -> None:
        """Where the record came to rest, by this event of the run's stream, today's code does something."""
        here = replace(rested, stream=self.stream, version=self.events[self.at - 1].version)
        self._part(kind, here, None, note=note)

    def cut_off(self, note: str) -> None:
        """What the next event, a fact, cites is not in the record."""
        self._part("missing", self.events[self.at], None, note=note)

    def by_chance(self, at: int, first: Event | None, second: Event | None) -> None:
        """The same input gave two answers; `at` is the place of the recorded event that they stand for."""
        found: tuple[Difference, ...] = ()
        if first is not None and second is not None and type(first) is type(second):
            found = differences(first, second, self.texts)
        note = "the same input, computed twice, gave two answers"
        self._part("nondeterminism", self.events[at], first or second, found, note)

    def result(self, left: dict[str, int]) -> Replayed:
        return Replayed(
            stream=self.stream,
            events=len(self.events),
            compared=self.compared,
            divergences=tuple(self.found),
            unfollowed=self.unfollowed,
            left=left,
        )

    # one event --------------------------------------------------------------------------------------------------------
    def _hold_one(self, event: Event, recorded: Recorded[Event], rest: Sequence[Event]) -> bool:
        """False: the action's other events are of no use any more."""
        same = type(event) is type(recorded.event)
        found = differences(recorded.event, event, self.texts) if same else ()
        if same and not found:
            return self._met()
        if self._was_early(event):
            return True
        if same and not self._elsewhere(event, recorded, rest):
            self._differ(recorded, event, found)
            return self._met()
        if recorded.event.ROLE is Role.FACT and self._after(event):
            self.out_of_place("it comes between events that are appended at once")
            return self._hold_one(event, self.events[self.at], rest)
        ahead = self._ahead(event)
        if ahead:
            self._too_early(ahead, rest)
            self._differ(self.events[self.at], event, differences(self.events[self.at].event, event, self.texts))
            return self._met()
        if self._comes_between(event, recorded, rest):
            self._part("extra", recorded, event)
            return True
        self._part("decision", recorded, event)
        self._go_astray()
        return False

    def _met(self) -> bool:
        self.astray = False
        self.compared += self.events[self.at].event.ROLE in COMPARED
        self._take_or_tell()
        return True

    def _take_or_tell(self) -> None:
        recorded = self.events[self.at]
        if not self.take() and all(one.explained for one in self.found):
            self._part("decision", recorded, None, note="today's code does not let this event come in this state")

    def _differ(self, recorded: Recorded[Event], event: Event, found: tuple[Difference, ...]) -> None:
        if found:
            self._part(kind_of(event, found, self.texts), recorded, event, found)

    def _after(self, event: Event) -> bool:
        """Whether the record has this event right behind the next one."""
        after = self.events[self.at + 1].event if self.at + 1 < len(self.events) else None
        return type(after) is type(event) and after is not None and whose(after) == whose(event)

    def _elsewhere(self, event: Event, recorded: Recorded[Event], rest: Sequence[Event]) -> bool:
        """Whether the record has this very event next, or today's code the recorded one."""
        after = self.events[self.at + 1].event if self.at + 1 < len(self.events) else None
        same = type(after) is type(event) and not differences(after, event, self.texts)
        return same or (
            bool(rest)
            and type(rest[0]) is type(recorded.event)
            and not differences(recorded.event, rest[0], self.texts)
        )

    def _ahead(self, event: Event) -> int:
        """How many recorded events stand before this one; 0: it is not near."""
        if self.events[self.at].event.ROLE is Role.FACT:
            return 0
        for distance, one in enumerate(self.events[self.at + 1 : self.at + 1 + AHEAD], start=1):
            if one.event.ROLE is Role.FACT:
                return 0
            if type(one.event) is type(event) and whose(one.event) == whose(event):
                return distance
        return 0

    def _too_early(self, number: int, rest: Sequence[Event]) -> None:
        """So many recorded events come before the one that today's code produces first. One that it produces next has
        only changed places; one that stands there twice counts once; any other counts, for the record says so."""
        following = self._following(self.events[self.at + number], rest) if number == 1 else None
        for _ in range(number):
            recorded, at = self.events[self.at], len(self.found)
            twice = self.at > 0 and self.events[self.at - 1].event == recorded.event
            self._part("missing", recorded, None, note="today's code does not produce it here")
            if twice or type(recorded.event) is following:
                self._pass()
                counted = False
            else:
                counted = self.take()
            if len(self.found) > at:
                self.early[at] = (recorded, counted)

    def _following(self, event: Recorded[Event], rest: Sequence[Event]) -> type[Event] | None:
        """What today's code goes on with after this recorded event."""
        if rest:
            return type(rest[0])
        state = self.follow(self.state, event)
        return None if state is None else self.next_of(state)

    def _was_early(self, event: Event) -> bool:
        """Whether the record had this event a little before: then the two differ in their order."""
        for at, (recorded, counted) in tuple(self.early.items()):
            if self.events[min(self.at, len(self.events) - 1)].version - recorded.version > BEHIND:
                del self.early[at]
            elif type(recorded.event) is type(event) and not differences(recorded.event, event, self.texts):
                del self.early[at]
                place = self.recorded
                self.found[at] = self._made(
                    "order", recorded, event, (), f"today's code produces it before {_type(place)}"
                )
                self.moves += 1
                if not counted:
                    self._imagine(event, recorded)
                return True
        return False

    def _comes_between(self, event: Event, recorded: Recorded[Event], rest: Sequence[Event]) -> bool:
        """Whether today's code, after this event, goes on with what was recorded here; then it has come about."""
        before = self.state
        if rest and type(rest[0]) is type(recorded.event):
            self.moves += 1
            self._imagine(event, recorded)
            return True
        if rest or not self._imagine(event, recorded):
            return False
        following = self.next_of(self.state)
        if following is type(recorded.event) or (following is None and recorded.event.ROLE is Role.FACT):
            return True
        self.state = before
        return False

    def _imagine(self, event: Event, there: Recorded[Event]) -> bool:
        """Let an event count that was not recorded."""
        imagined = Recorded(
            stream=there.stream, version=there.version, position=there.position, recorded_at_us=there.recorded_at_us,
            observed_at_us=there.observed_at_us, event=event, causation="", chain=b"",
        )  # fmt: skip
        following = self.follow(self.state, imagined)
        if following is not None:
            self.state, self.moves = following, self.moves + 1
        return following is not None

    def _go_astray(self) -> None:
        """Take the record's word for its next event."""
        self.unfollowed += self.astray
        self.astray = True
        self.take()

    def _part(
        self,
        kind: Parting,
        recorded: Recorded[Event],
        produced: Event | None,
        found: tuple[Difference, ...] = (),
        note: str = "",
    ) -> None:
        """Once for all that one parting of the ways leads to; what chance gave is told already."""
        told = self.found[-1] if self.found else None
        if told is not None and told.kind == "nondeterminism" and told.place == recorded.place:
            return
        if not self.astray:
            self.found.append(self._made(kind, recorded, produced, found, note))

    def _made(
        self,
        kind: Parting,
        recorded: Recorded[Event],
        produced: Event | None,
        found: tuple[Difference, ...],
        note: str,
    ) -> Divergence:
        now, was = type_of(produced) if produced is not None else None, type_of(recorded.event)
        fields = {one.field: (one.recorded, one.produced) for one in found}
        change = explanation(self.changes, now or was, fields)
        return Divergence(
            place=recorded.place,
            kind=kind,
            finding=finding_of(produced, kind, found),
            recorded=was,
            produced=now,
            differences=found,
            note=note,
            explained=change.id if change is not None else "",
        )


def whose(event: Event) -> tuple[object, ...]:
    """What tells two events of one type apart."""
    ref = getattr(event, "ref", None)
    names = ("key", "feature", "phase", "unit", "iteration", "artifact", "gate", "name", "stage")
    return (ref.key if ref is not None else "", *(getattr(event, name, "") for name in names))


def said(error: Exception) -> str:
    """What it is, and its own words, shortened."""
    return f"{type(error).__name__}: {str(error)[:WORDS_MAX]}"


def _type(recorded: Recorded[Event] | None) -> str:
    return type_of(recorded.event) if recorded is not None else "the end"
