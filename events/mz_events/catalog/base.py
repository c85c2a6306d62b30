"""Base classes of events. Every event type declares its tag, kind, schema version and non-deterministic fields."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import msgspec


class EventKind(Enum):
    """Reason for an event. Replays compare intents and derived events, and supply outcomes and external events."""

    INTENT = "intent"
    """Something that cannot be repeated, or can be looked up, is about to be done; its outcome is pending."""
    OUTCOME = "outcome"
    """The result of an intent, from outside the engine."""
    EXTERNAL = "external"
    """From outside: a person, a timer, another stream."""
    DERIVED = "derived"
    """A pure function of earlier events and blobs."""


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of every event. `NON_DETERMINISTIC` names the fields that the log digest leaves out: durations, raw-output
    digests, commit ids."""

    KIND: ClassVar[EventKind]
    SCHEMA: ClassVar[int] = 1
    NON_DETERMINISTIC: ClassVar[frozenset[str]] = frozenset()


class EventPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of the small structs that events are made of."""
