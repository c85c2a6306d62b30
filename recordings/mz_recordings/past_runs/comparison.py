"""Comparison of one recorded stream with the events that the current code produces.

Where an event has other fields, the recorded one is used, so that later differences are found too. Where the two take
different courses, the comparison ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import AgentRequested, CallPriced, CallSettled, ReplyParsed
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked
from mz_events.codec import type_of
from mz_events.store import Recorded

from mz_recordings.findings.model import FindingKind
from mz_recordings.past_runs.model import (
    INTENDED_CHANGES,
    Divergence,
    DivergenceKind,
    EventFieldDifference,
    IntendedChange,
    StreamReplay,
    field_name,
)
from mz_recordings.replay.compare import diff_lines

Texts = Callable[[str], str | None]
"""Returns the text of a digest; None if it is not a digest, or the text is gone."""

COMPARED_OUTCOME_FIELDS: dict[type[Event], frozenset[str]] = {
    CommandRan: frozenset(
        {"stage", "phase", "unit", "name", "passed", "failed", "signature", "excerpt", "new_failures"}
    ),
    ChangesChecked: frozenset({"ref", "changes", "forbidden_changes"}),
}
"""Fields of these outcomes that follow from recorded bytes and trees. Of other outcomes, only `ref` and `key` are
compared."""
IDENTITY_FIELDS = frozenset({"ref", "key"})
RESULT_EVENTS = (ReplyParsed, CallPriced, CallSettled, ArtifactParsed, CommandRan)
VERDICT_EVENTS = (ArtifactValidated, GateChecked, ChangesChecked)
PROMPT_FIELDS = frozenset({"prompt", "estimated_tokens", "estimated_nanousd", "prompt_tokens", "full_prompt_tokens"})
"""The prompt, and what follows from it."""
LOOKAHEAD_EVENTS = 4
"""Recorded events that are searched for one that the current code produces earlier."""
MESSAGE_CHARACTERS_MAX = 300
COMPARED_KINDS = (EventKind.INTENT, EventKind.DERIVED)
NOT_ALLOWED = "the current code does not allow this event in this state"

S = TypeVar("S")


class StreamComparison(Generic[S]):
    """Comparison of one stream; the state is folded from the recorded events."""

    def __init__(
        self,
        events: Sequence[Recorded[Event]],
        state: S,
        apply_event: Callable[[S, Recorded[Event]], S | None],
        next_type: Callable[[S], type[Event] | None],
        changes: tuple[IntendedChange, ...] = INTENDED_CHANGES,
        texts: Texts = lambda digest: None,
    ) -> None:
        """`apply_event` returns the state after an event, None if it is invalid in the state; `next_type` the type of
        the event that the current code produces in a state."""
        self.events, self.state, self.changes = events, state, changes
        self.apply_event, self.next_type, self.texts = apply_event, next_type, texts
        self.index = 0
        self.compared = 0
        self.divergences: list[Divergence] = []
        self.has_ended = False

    @property
    def next_recorded(self) -> Recorded[Event] | None:
        """The recorded event to compare next; None at the end of the comparison."""
        return None if self.has_ended or self.index == len(self.events) else self.events[self.index]

    def apply_recorded(self) -> bool:
        """Apply the next recorded event. Return False if it is invalid in this state."""
        next_state = self.apply_event(self.state, self.events[self.index])
        if next_state is not None:
            self.state, self.index = next_state, self.index + 1
        return next_state is not None

    def compare(self, produced: Sequence[Event]) -> None:
        """Compare the events of one action with the recorded stream."""
        if not produced:
            self.end("missing", note="the current code does nothing here")
        for number, event in enumerate(produced, start=1):
            recorded = self.next_recorded
            if recorded is None:
                return
            if type(event) is not type(recorded.event):
                self.end(self._kind_of_other_course(event, recorded, produced[number:]), event)
                return
            field_differences = differences(recorded.event, event, self.texts)
            if field_differences:
                self.note(divergence_kind(event), recorded, event, field_differences)
            self.compared += event.KIND in COMPARED_KINDS
            if not self.apply_recorded():
                self.has_ended = True
                if not field_differences or self.divergences[-1].intended_change:
                    self.note("decision", recorded, note=NOT_ALLOWED)

    def end(self, kind: DivergenceKind, produced: Event | None = None, note: str = "") -> None:
        """Note that the current code takes another course than the next recorded event; compare nothing after it."""
        self.note(kind, self.events[self.index], produced, note=note)
        self.has_ended = True

    def note(
        self,
        kind: DivergenceKind,
        recorded: Recorded[Event],
        produced: Event | None = None,
        field_differences: tuple[EventFieldDifference, ...] = (),
        note: str = "",
    ) -> None:
        divergence = Divergence(
            event_ref=recorded.event_ref,
            kind=kind,
            finding=finding_kind(produced, kind, field_differences),
            recorded=type_of(recorded.event),
            produced=type_of(produced) if produced is not None else None,
            differences=field_differences,
            note=note,
        )
        change_id = next((change.id for change in self.changes if change.explains(divergence)), "")
        self.divergences.append(replace(divergence, intended_change=change_id))

    def result(self, not_recomputed: Mapping[str, int], missing_data: str | None = None) -> StreamReplay:
        """Return the result; with `missing_data`, nothing was compared from the next recorded event on."""
        left = len(self.events) - self.index
        return StreamReplay(
            stream=self.events[0].stream,
            events=len(self.events),
            compared=self.compared,
            divergences=tuple(self.divergences),
            not_compared=max(0, left - self.has_ended),
            missing_data=f"{missing_data}, from {self.events[self.index].event_ref} on" if missing_data else None,
            not_recomputed=not_recomputed,
        )

    def _kind_of_other_course(
        self, event: Event, recorded: Recorded[Event], remaining: Sequence[Event]
    ) -> DivergenceKind:
        """Return whether the event is recorded later, the recorded one produced later, both, or neither."""
        later = self.events[self.index + 1 : self.index + 1 + LOOKAHEAD_EVENTS]
        is_recorded_later = any(
            type(candidate.event) is type(event) and identity_fields(candidate.event) == identity_fields(event)
            for candidate in later
        )
        if remaining:
            following: type[Event] | None = type(remaining[0])
        else:
            state = self.apply_event(self.state, replace(recorded, event=event))
            following = None if state is None else self.next_type(state)
        is_external = recorded.event.KIND is EventKind.EXTERNAL
        if is_recorded_later:
            return "order" if is_external or following is type(recorded.event) else "missing"
        return "extra" if following is type(recorded.event) or (is_external and following is None) else "decision"


def identity_fields(event: Event) -> tuple[object, ...]:
    """Return the fields that distinguish events of one type."""
    ref = getattr(event, "ref", None)
    names = ("key", "feature", "phase", "unit", "iteration", "artifact", "gate", "name", "stage")
    return (ref.key if ref is not None else "", *(getattr(event, name, "") for name in names))


def error_text(error: Exception) -> str:
    """Return the error's type and its message, shortened."""
    return f"{type(error).__name__}: {str(error)[:MESSAGE_CHARACTERS_MAX]}"


# fields ---------------------------------------------------------------------------------------------------------------
def compared_fields(event: Event) -> frozenset[str]:
    """Return the fields that must be equal to the recorded ones."""
    if event.KIND in (EventKind.INTENT, EventKind.DERIVED):
        return frozenset(event.__struct_fields__)
    return COMPARED_OUTCOME_FIELDS.get(type(event), IDENTITY_FIELDS & frozenset(event.__struct_fields__))


def differences(recorded: Event, produced: Event, texts: Texts) -> tuple[EventFieldDifference, ...]:
    """Return the differences between two events of one type that count."""
    if recorded is produced or recorded == produced:
        return ()
    fields = [
        name
        for name in recorded.__struct_fields__
        if name in compared_fields(recorded) and getattr(recorded, name) != getattr(produced, name)
    ]
    old: dict[str, Any] = msgspec.to_builtins(recorded)
    new: dict[str, Any] = msgspec.to_builtins(produced)
    return tuple(
        difference for name in fields for difference in _value_differences(name, old.get(name), new.get(name), texts)
    )


def _value_differences(path: str, old: Any, new: Any, texts: Texts) -> Iterator[EventFieldDifference]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _value_differences(f"{path}.{name}", old.get(name), new.get(name), texts)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for index, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from _value_differences(f"{path}.{index}", old_item, new_item, texts)
    else:
        yield EventFieldDifference(
            field=path,
            recorded=_as_json(old),
            produced=_as_json(new),
            lines=diff_lines(_text_lines(old, texts), _text_lines(new, texts)),
        )


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _text_lines(value: Any, texts: Texts) -> list[str]:
    """Return the lines of the text of a digest; a report is a JSON array of messages."""
    text = texts(value) if isinstance(value, str) else None
    if text is None:
        return []
    if text.startswith("["):
        try:
            messages = json.loads(text)
        except ValueError:
            messages = None
        if isinstance(messages, list) and all(isinstance(message, str) for message in messages):
            text = "\n".join(messages)
    return text.splitlines()


def divergence_kind(event: Event) -> DivergenceKind:
    """Classify a divergence of an event with other fields."""
    if isinstance(event, VERDICT_EVENTS):
        return "verdict"
    return "result" if isinstance(event, RESULT_EVENTS) else "arguments"


def finding_kind(
    event: Event | None, kind: DivergenceKind, field_differences: tuple[EventFieldDifference, ...]
) -> FindingKind:
    if kind == "verdict":
        return "DECISION"
    if kind == "arguments" and isinstance(event, AgentRequested):
        fields = {field_name(difference.field) for difference in field_differences}
        return "PROMPT" if "prompt" in fields and fields <= PROMPT_FIELDS else "CONFIG"
    if kind == "result":
        if isinstance(event, ReplyParsed):
            return "STREAM"
        return "ARTIFACT" if isinstance(event, ArtifactParsed) else "TRACE" if isinstance(event, CommandRan) else "COST"
    return "TRACE"
