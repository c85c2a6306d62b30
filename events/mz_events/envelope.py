"""Facts: an event with its place in the log."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from mz_events.catalog.base import Event
from mz_events.names import StreamId

E = TypeVar("E", bound=Event, covariant=True)


class Recorded(msgspec.Struct, Generic[E], frozen=True, gc=False):
    """One event as the log keeps it."""

    stream: StreamId
    version: int
    """Within the stream, from 1, without gaps."""
    position: int
    """Within this log: a local, gap-free cursor for readers. Not stable across logs; `stream@version` is."""
    recorded_at_us: int
    """Microseconds since the epoch, UTC; never falling within a stream."""
    observed_at_us: int
    """The raw clock; timers and prices use it."""
    event: E
    causation: str
    """`stream@version` of the event that led to this one, or empty."""
    chain: bytes
    """sha256 over the previous link and everything above but the position."""

    @property
    def place(self) -> str:
        """`stream@version`: how people and reports name this event."""
        return f"{self.stream}@{self.version}"
