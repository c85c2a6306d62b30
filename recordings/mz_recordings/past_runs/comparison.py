"""Comparison of one recorded stream with the events that the current code produces.

After a divergence the recorded events are taken as they are, so that later, independent divergences are found too.
Events where the recorded stream took another course are not compared until the two match again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace
from mz_events.catalog.base import Event, EventKind
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_events.names import StreamId

from mz_recordings.past_runs.field_diff import Texts, differences, divergence_kind, finding_kind
from mz_recordings.past_runs.model import (
    INTENDED_CHANGES,
    Divergence,
    DivergenceKind,
    EventFieldDifference,
    IntendedChange,
    StreamReplay,
    explanation,
)

LOOKAHEAD_EVENTS = 4
"""Recorded events that are searched for one that the current code produces earlier."""
LOOKBACK_VERSIONS = 12
"""Versions for which an event that came too early is remembered."""
MESSAGE_CHARACTERS_MAX = 300
COMPARED_KINDS = (EventKind.INTENT, EventKind.DERIVED)

S = TypeVar("S")
ApplyEvent = Callable[[S, Recorded[Event]], S | None]
"""Returns the state after an event; None if the event is invalid in the state."""


class StreamComparison(Generic[S]):
    """Comparison of one stream; the state is folded from the recorded events."""

    def __init__(
        self,
        stream: StreamId,
        events: Sequence[Recorded[Event]],
        state: S,
        apply_event: ApplyEvent[S],
        next_type: Callable[[S], type[Event] | None],
        texts: Texts,
        changes: tuple[IntendedChange, ...] = INTENDED_CHANGES,
    ) -> None:
        self.stream, self.events, self.state = stream, events, state
        self.apply_event, self.next_type, self.texts, self.changes = apply_event, next_type, texts, changes
        self.index = 0
        self.steps = 0
        """Number of steps: recorded events, or events that only the current code produces."""
        self.compared = 0
        self.divergences: list[Divergence] = []
        self.not_compared = 0
        self.is_diverged = False
        """True while the recorded stream and the current code have taken different courses."""
        self.recorded_earlier: dict[int, tuple[Recorded[Event], bool]] = {}
        """Recorded events that were not produced yet, and True if the state includes them; by index of the
        divergence."""

    @property
    def recorded(self) -> Recorded[Event] | None:
        return self.events[self.index] if self.index < len(self.events) else None

    def apply_recorded(self) -> bool:
        """Apply the next recorded event. Return False if it is invalid here and changes nothing."""
        recorded = self.events[self.index]
        self._advance()
        next_state = self.apply_event(self.state, recorded)
        if next_state is not None:
            self.state = next_state
        return next_state is not None

    def _advance(self) -> None:
        self.index, self.steps = self.index + 1, self.steps + 1

    def compare(self, produced: Sequence[Event]) -> None:
        """Compare the events of one action with the recorded stream."""
        events = self.events
        for offset, event in enumerate(produced):
            if self.index >= len(events):
                return
            recorded = events[self.index]
            if event is recorded.event or event == recorded.event:  # The fast path.
                next_state = self.apply_event(self.state, recorded)
                if next_state is not None:
                    self.state, self.is_diverged = next_state, False
                    self.compared += event.KIND in COMPARED_KINDS
                    self._advance()
                    continue
            if not self._compare_event(event, recorded, produced[offset + 1 :]):
                return

    def note_nothing_produced(self, instead: str = "") -> None:
        """Note that the current code has nothing to do here, or does something else (`instead`)."""
        recorded = self.events[self.index]
        if instead:
            self._note_divergence("decision", recorded, None, note=f"the current code continues with: {instead}")
        else:
            self._note_divergence("missing", recorded, None, note="the current code does nothing here")
        self._diverge()

    def note_failure(self, error: Exception) -> None:
        """Note an error of the current code."""
        self._note_divergence("failure", self.events[self.index], None, note=error_text(error))
        self._diverge()

    def note_misplaced(self, note: str) -> None:
        """Note that the next recorded event, an external one, is invalid here."""
        self._note_divergence("order", self.events[self.index], None, note=note)
        self.apply_recorded()

    def note_not_stopped(self, stop: Recorded[Event], kind: DivergenceKind, note: str) -> None:
        """Note that the current code continues where the feature stopped, by this event of the run's stream."""
        location = replace(stop, stream=self.stream, version=self.events[self.index - 1].version)
        self._note_divergence(kind, location, None, note=note)

    def note_truncated(self, note: str) -> None:
        """Note that the events which the next one refers to are not in the log."""
        self._note_divergence("missing", self.events[self.index], None, note=note)

    def note_nondeterminism(self, index: int, first: Event | None, second: Event | None) -> None:
        """Note that the same input gave two results; `index` is that of the recorded event."""
        field_differences: tuple[EventFieldDifference, ...] = ()
        if first is not None and second is not None and type(first) is type(second):
            field_differences = differences(first, second, self.texts)
        note = "the same input, computed twice, gave two results"
        self._note_divergence("nondeterminism", self.events[index], first or second, field_differences, note)

    def result(self, not_recomputed: dict[str, int], missing_data: str | None = None) -> StreamReplay:
        """Return the result; with `missing_data`, nothing was compared from the next recorded event on."""
        is_cut = missing_data is not None and self.index < len(self.events)
        return StreamReplay(
            stream=self.stream,
            events=len(self.events),
            compared=self.compared,
            divergences=tuple(self.divergences),
            not_compared=self.not_compared + (len(self.events) - self.index if is_cut else 0),
            missing_data=f"{missing_data}, from {self.events[self.index].event_ref} on" if is_cut else None,
            not_recomputed=not_recomputed,
        )

    # one event --------------------------------------------------------------------------------------------------------
    def _compare_event(self, event: Event, recorded: Recorded[Event], remaining: Sequence[Event]) -> bool:
        """Compare one event. Return False if the action's other events need no comparison."""
        is_same_type = type(event) is type(recorded.event)
        field_differences = differences(recorded.event, event, self.texts) if is_same_type else ()
        if is_same_type and not field_differences:
            return self._match()
        if self._note_reordered(event):
            return True
        if is_same_type and not self._is_next_elsewhere(event, recorded, remaining):
            self._note_differences(recorded, event, field_differences)
            return self._match()
        if recorded.event.KIND is EventKind.EXTERNAL and self._is_after_next(event):
            self.note_misplaced("it is between events that are appended together")
            return self._compare_event(event, self.events[self.index], remaining)
        distance = self._distance_to(event)
        if distance:
            self._note_too_early(distance, remaining)
            self._note_differences(
                self.events[self.index], event, differences(self.events[self.index].event, event, self.texts)
            )
            return self._match()
        if self._is_extra(event, recorded, remaining):
            self._note_divergence("extra", recorded, event)
            return True
        self._note_divergence("decision", recorded, event)
        self._diverge()
        return False

    def _match(self) -> bool:
        self.is_diverged = False
        self.compared += self.events[self.index].event.KIND in COMPARED_KINDS
        self._apply_or_note()
        return True

    def _apply_or_note(self) -> None:
        recorded = self.events[self.index]
        if not self.apply_recorded() and all(divergence.intended_change for divergence in self.divergences):
            self._note_divergence(
                "decision", recorded, None, note="the current code does not allow this event in this state"
            )

    def _note_differences(
        self, recorded: Recorded[Event], event: Event, field_differences: tuple[EventFieldDifference, ...]
    ) -> None:
        if field_differences:
            self._note_divergence(
                divergence_kind(event, field_differences, self.texts), recorded, event, field_differences
            )

    def _is_after_next(self, event: Event) -> bool:
        """Return True if the recorded stream has this event right after the next one."""
        after = self.events[self.index + 1].event if self.index + 1 < len(self.events) else None
        return type(after) is type(event) and after is not None and identity_fields(after) == identity_fields(event)

    def _is_next_elsewhere(self, event: Event, recorded: Recorded[Event], remaining: Sequence[Event]) -> bool:
        """Return True if the recorded stream has this event next, or the current code produces the recorded one
        next."""
        after = self.events[self.index + 1].event if self.index + 1 < len(self.events) else None
        is_recorded_next = type(after) is type(event) and not differences(after, event, self.texts)
        return is_recorded_next or (
            bool(remaining)
            and type(remaining[0]) is type(recorded.event)
            and not differences(recorded.event, remaining[0], self.texts)
        )

    def _distance_to(self, event: Event) -> int:
        """Return the number of recorded events before this one; 0 if it is not near."""
        if self.events[self.index].event.KIND is EventKind.EXTERNAL:
            return 0
        for distance, candidate in enumerate(self.events[self.index + 1 : self.index + 1 + LOOKAHEAD_EVENTS], start=1):
            if candidate.event.KIND is EventKind.EXTERNAL:
                return 0
            if type(candidate.event) is type(event) and identity_fields(candidate.event) == identity_fields(event):
                return distance
        return 0

    def _note_too_early(self, distance: int, remaining: Sequence[Event]) -> None:
        """Note that recorded events come before the one that the current code produces first. One that it produces next
        has only changed places; one that is recorded twice counts once; any other is applied."""
        next_type = self._type_after(self.events[self.index + distance], remaining) if distance == 1 else None
        for _ in range(distance):
            recorded, divergence_index = self.events[self.index], len(self.divergences)
            is_duplicate = self.index > 0 and self.events[self.index - 1].event == recorded.event
            self._note_divergence("missing", recorded, None, note="the current code does not produce it here")
            if is_duplicate or type(recorded.event) is next_type:
                self._advance()
                is_applied = False
            else:
                is_applied = self.apply_recorded()
            if len(self.divergences) > divergence_index:
                self.recorded_earlier[divergence_index] = (recorded, is_applied)

    def _type_after(self, event: Recorded[Event], remaining: Sequence[Event]) -> type[Event] | None:
        """Return the type of the event that the current code produces after this recorded one."""
        if remaining:
            return type(remaining[0])
        state = self.apply_event(self.state, event)
        return None if state is None else self.next_type(state)

    def _note_reordered(self, event: Event) -> bool:
        """Return True if the recorded stream had this event shortly before: then only the order differs."""
        for divergence_index, (recorded, is_applied) in tuple(self.recorded_earlier.items()):
            if self.events[min(self.index, len(self.events) - 1)].version - recorded.version > LOOKBACK_VERSIONS:
                del self.recorded_earlier[divergence_index]
            elif type(recorded.event) is type(event) and not differences(recorded.event, event, self.texts):
                del self.recorded_earlier[divergence_index]
                next_recorded = self.recorded
                self.divergences[divergence_index] = self._divergence(
                    "order", recorded, event, (), f"the current code produces it before {_type(next_recorded)}"
                )
                self.steps += 1
                if not is_applied:
                    self._apply_unrecorded(event, recorded)
                return True
        return False

    def _is_extra(self, event: Event, recorded: Recorded[Event], remaining: Sequence[Event]) -> bool:
        """Return True if the current code, after this event, continues with the recorded one; then the event is
        applied."""
        state_before = self.state
        if remaining and type(remaining[0]) is type(recorded.event):
            self.steps += 1
            self._apply_unrecorded(event, recorded)
            return True
        if remaining or not self._apply_unrecorded(event, recorded):
            return False
        next_type = self.next_type(self.state)
        if next_type is type(recorded.event) or (next_type is None and recorded.event.KIND is EventKind.EXTERNAL):
            return True
        self.state = state_before
        return False

    def _apply_unrecorded(self, event: Event, successor: Recorded[Event]) -> bool:
        """Apply an event that was not recorded."""
        unrecorded = Recorded(
            stream=successor.stream,
            version=successor.version,
            position=successor.position,
            recorded_at_us=successor.recorded_at_us,
            observed_at_us=successor.observed_at_us,
            event=event,
            causation="",
            chain=b"",
        )
        next_state = self.apply_event(self.state, unrecorded)
        if next_state is not None:
            self.state, self.steps = next_state, self.steps + 1
        return next_state is not None

    def _diverge(self) -> None:
        """Apply the next recorded event without comparison."""
        self.not_compared += self.is_diverged
        self.is_diverged = True
        self.apply_recorded()

    def _note_divergence(
        self,
        kind: DivergenceKind,
        recorded: Recorded[Event],
        produced: Event | None,
        field_differences: tuple[EventFieldDifference, ...] = (),
        note: str = "",
    ) -> None:
        """Note a divergence once, with all that follows from it; nondeterminism is noted already."""
        last = self.divergences[-1] if self.divergences else None
        if last is not None and last.kind == "nondeterminism" and last.event_ref == recorded.event_ref:
            return
        if not self.is_diverged:
            self.divergences.append(self._divergence(kind, recorded, produced, field_differences, note))

    def _divergence(
        self,
        kind: DivergenceKind,
        recorded: Recorded[Event],
        produced: Event | None,
        field_differences: tuple[EventFieldDifference, ...],
        note: str,
    ) -> Divergence:
        produced_type, recorded_type = type_of(produced) if produced is not None else None, type_of(recorded.event)
        fields = {difference.field: (difference.recorded, difference.produced) for difference in field_differences}
        change = explanation(self.changes, produced_type or recorded_type, fields)
        return Divergence(
            event_ref=recorded.event_ref,
            kind=kind,
            finding=finding_kind(produced, kind, field_differences),
            recorded=recorded_type,
            produced=produced_type,
            differences=field_differences,
            note=note,
            intended_change=change.id if change is not None else "",
        )


def identity_fields(event: Event) -> tuple[object, ...]:
    """Return the fields that distinguish events of one type."""
    ref = getattr(event, "ref", None)
    names = ("key", "feature", "phase", "unit", "iteration", "artifact", "gate", "name", "stage")
    return (ref.key if ref is not None else "", *(getattr(event, name, "") for name in names))


def error_text(error: Exception) -> str:
    """Return the error's type and its message, shortened."""
    return f"{type(error).__name__}: {str(error)[:MESSAGE_CHARACTERS_MAX]}"


def _type(recorded: Recorded[Event] | None) -> str:
    return type_of(recorded.event) if recorded is not None else "the end"
