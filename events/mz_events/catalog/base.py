"""Facts: what every event type declares: its tag, its role, its schema version and which fields are measurements."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import msgspec


class Role(Enum):
    """Why an event exists; replays compare intents and derived events, and answer outcomes and facts."""

    INTENT = "intent"
    """Something unrepeatable or findable is about to be done; its outcome is owed."""
    OUTCOME = "outcome"
    """What the world answered."""
    FACT = "fact"
    """From outside: a person, a timer, another stream."""
    DERIVED = "derived"
    """A pure function of earlier events and blobs."""


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of every event. `MEASURED` names the fields that the log digest leaves out: durations, raw-output
    digests, commit ids."""

    ROLE: ClassVar[Role]
    SCHEMA: ClassVar[int] = 1
    MEASURED: ClassVar[frozenset[str]] = frozenset()


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of the small structs that events are made of."""
