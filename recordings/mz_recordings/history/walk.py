"""Comparison of one recorded stream with the events that the current code produces.

After a divergence the recorded events are taken as they are, so that later, independent divergences are found too.
Events where the recorded stream took another course are not compared until the two match again.
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
"""Recorded events that are searched for one that the current code produces earlier."""
BEHIND = 12
"""Versions for which an event that came too early is remembered."""
WORDS_MAX = 300
COMPARED = (Role.INTENT, Role.DERIVED)

S = TypeVar("S")
Follow = Callable[[S, Recorded[Event]], S | None]
"""Returns the state after an event; None if the event is invalid in the state."""


class Walk(Generic[S]):
    """Comparison of one stream; the state is folded from the recorded events."""

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
        """Number of steps: recorded events, or events that only the current code produces."""
        self.compared = 0
        self.found: list[Divergence] = []
        self.unfollowed = 0
        self.astray = False
        """True while the recorded stream and the current code have taken different courses."""
        self.early: dict[int, tuple[Recorded[Event], bool]] = {}
        """Recorded events that were not produced yet, and True if the state includes them; by index of the
        divergence."""

    @property
    def recorded(self) -> Recorded[Event] | None:
        return self.events[self.at] if self.at < len(self.events) else None

    def take(self) -> bool:
        """Apply the next recorded event. Return False if it is invalid here and changes nothing."""
        recorded = self.events[self.at]
        self._pass()
        following = self.follow(self.state, recorded)
        if following is not None:
            self.state = following
        return following is not None

    def _pass(self) -> None:
        self.at, self.moves = self.at + 1, self.moves + 1

    def hold(self, produced: Sequence[Event]) -> None:
        """Compare the events of one action with the recorded stream."""
        events = self.events
        for at, event in enumerate(produced):
            if self.at >= len(events):
                return
            recorded = events[self.at]
            if event is recorded.event or event == recorded.event:  # The fast path.
                following = self.follow(self.state, recorded)
                if following is not None:
                    self.state, self.astray = following, False
                    self.compared += event.ROLE in COMPARED
                    self._pass()
                    continue
            if not self._hold_one(event, recorded, produced[at + 1 :]):
                return

    def nothing_produced(self, instead: str = "") -> None:
        """Note that the current code has nothing to do here, or does something else (`instead`)."""
        recorded = self.events[self.at]
        if instead:
            self._part("decision", recorded, None, note=f"the current code continues with: {instead}")
        else:
            self._part("missing", recorded, None, note="the current code does nothing here")
        self._go_astray()

    def failed(self, error: Exception) -> None:
        """Note an error of the current code."""
        self._part("failure", self.events[self.at], None, note=said(error))
        self._go_astray()

    def out_of_place(self, note: str) -> None:
        """Note that the next recorded event, an external one, is invalid here."""
        self._part("order", self.events[self.at], None, note=note)
        self.take()

    def not_at_rest(self, rested: Recorded[Event], kind: Parting, note: str) -> None:
        """Note that the current code continues where the feature stopped, by this event of the run's stream."""
        here = replace(rested, stream=self.stream, version=self.events[self.at - 1].version)
        self._part(kind, here, None, note=note)

    def cut_off(self, note: str) -> None:
        """Note that the events which the next one refers to are not in the log."""
        self._part("missing", self.events[self.at], None, note=note)

    def by_chance(self, at: int, first: Event | None, second: Event | None) -> None:
        """Note that the same input gave two results; `index` is that of the recorded event."""
        found: tuple[Difference, ...] = ()
        if first is not None and second is not None and type(first) is type(second):
            found = differences(first, second, self.texts)
        note = "the same input, computed twice, gave two results"
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
        """Compare one event. Return False if the action's other events need no comparison."""
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
            self.out_of_place("it is between events that are appended together")
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
            self._part("decision", recorded, None, note="the current code does not allow this event in this state")

    def _differ(self, recorded: Recorded[Event], event: Event, found: tuple[Difference, ...]) -> None:
        if found:
            self._part(kind_of(event, found, self.texts), recorded, event, found)

    def _after(self, event: Event) -> bool:
        """Return True if the recorded stream has this event right after the next one."""
        after = self.events[self.at + 1].event if self.at + 1 < len(self.events) else None
        return type(after) is type(event) and after is not None and whose(after) == whose(event)

    def _elsewhere(self, event: Event, recorded: Recorded[Event], rest: Sequence[Event]) -> bool:
        """Return True if the recorded stream has this event next, or the current code produces the recorded one
        next."""
        after = self.events[self.at + 1].event if self.at + 1 < len(self.events) else None
        same = type(after) is type(event) and not differences(after, event, self.texts)
        return same or (
            bool(rest)
            and type(rest[0]) is type(recorded.event)
            and not differences(recorded.event, rest[0], self.texts)
        )

    def _ahead(self, event: Event) -> int:
        """Return the number of recorded events before this one; 0 if it is not near."""
        if self.events[self.at].event.ROLE is Role.FACT:
            return 0
        for distance, one in enumerate(self.events[self.at + 1 : self.at + 1 + AHEAD], start=1):
            if one.event.ROLE is Role.FACT:
                return 0
            if type(one.event) is type(event) and whose(one.event) == whose(event):
                return distance
        return 0

    def _too_early(self, number: int, rest: Sequence[Event]) -> None:
        """Note that recorded events come before the one that the current code produces first. One that it produces next
        has only changed places; one that is recorded twice counts once; any other is applied."""
        following = self._following(self.events[self.at + number], rest) if number == 1 else None
        for _ in range(number):
            recorded, at = self.events[self.at], len(self.found)
            twice = self.at > 0 and self.events[self.at - 1].event == recorded.event
            self._part("missing", recorded, None, note="the current code does not produce it here")
            if twice or type(recorded.event) is following:
                self._pass()
                counted = False
            else:
                counted = self.take()
            if len(self.found) > at:
                self.early[at] = (recorded, counted)

    def _following(self, event: Recorded[Event], rest: Sequence[Event]) -> type[Event] | None:
        """Return the type of the event that the current code produces after this recorded one."""
        if rest:
            return type(rest[0])
        state = self.follow(self.state, event)
        return None if state is None else self.next_of(state)

    def _was_early(self, event: Event) -> bool:
        """Return True if the recorded stream had this event shortly before: then only the order differs."""
        for at, (recorded, counted) in tuple(self.early.items()):
            if self.events[min(self.at, len(self.events) - 1)].version - recorded.version > BEHIND:
                del self.early[at]
            elif type(recorded.event) is type(event) and not differences(recorded.event, event, self.texts):
                del self.early[at]
                place = self.recorded
                self.found[at] = self._made(
                    "order", recorded, event, (), f"the current code produces it before {_type(place)}"
                )
                self.moves += 1
                if not counted:
                    self._imagine(event, recorded)
                return True
        return False

    def _comes_between(self, event: Event, recorded: Recorded[Event], rest: Sequence[Event]) -> bool:
        """Return True if the current code, after this event, continues with the recorded one; then the event is
        applied."""
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
        """Apply an event that was not recorded."""
        imagined = Recorded(
            stream=there.stream, version=there.version, position=there.position, recorded_at_us=there.recorded_at_us,
            observed_at_us=there.observed_at_us, event=event, causation="", chain=b"",
        )  # fmt: skip
        following = self.follow(self.state, imagined)
        if following is not None:
            self.state, self.moves = following, self.moves + 1
        return following is not None

    def _go_astray(self) -> None:
        """Apply the next recorded event without comparison."""
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
        """Note a divergence once, with all that follows from it; nondeterminism is noted already."""
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
    """Return the fields that distinguish events of one type."""
    ref = getattr(event, "ref", None)
    names = ("key", "feature", "phase", "unit", "iteration", "artifact", "gate", "name", "stage")
    return (ref.key if ref is not None else "", *(getattr(event, name, "") for name in names))


def said(error: Exception) -> str:
    """Return the error's type and its message, shortened."""
    return f"{type(error).__name__}: {str(error)[:WORDS_MAX]}"


def _type(recorded: Recorded[Event] | None) -> str:
    return type_of(recorded.event) if recorded is not None else "the end"
