"""Base classes of events. Every event type declares its tag, kind (by its base), schema version and non-deterministic
fields."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import msgspec


class EventKind(Enum):
    """Reason for an event. Replays compare intents and derived events, and supply outcomes and external events."""

    INTENT = "intent"
    OUTCOME = "outcome"
    EXTERNAL = "external"
    DERIVED = "derived"


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of every event. `NON_DETERMINISTIC` names the fields that the log digest leaves out: durations, raw-output
    digests, commit ids."""

    KIND: ClassVar[EventKind]
    SCHEMA: ClassVar[int] = 1
    NON_DETERMINISTIC: ClassVar[frozenset[str]] = frozenset()


class IntentEvent(Event, frozen=True, kw_only=True):
    """Something that cannot be repeated, or can be looked up, is about to be done; its outcome is pending."""

    KIND = EventKind.INTENT


class OutcomeEvent(Event, frozen=True, kw_only=True):
    """The result of an intent, from outside the engine."""

    KIND = EventKind.OUTCOME


class ExternalEvent(Event, frozen=True, kw_only=True):
    """From outside: a person, a timer, another stream."""

    KIND = EventKind.EXTERNAL


class DerivedEvent(Event, frozen=True, kw_only=True):
    """A pure function of earlier events and blobs."""

    KIND = EventKind.DERIVED


class EventPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of the small structs that events are made of."""
