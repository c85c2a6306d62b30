"""The envelope of an event: its position in a stream and in the log."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from mz_events.catalog.base import Event
from mz_events.names import StreamId

FEATURE_DEPTH = 2
"""Number of slashes in `run/<run>/<feature>`."""
E = TypeVar("E", bound=Event, covariant=True)


class Recorded(msgspec.Struct, Generic[E], frozen=True, gc=False):
    """One event as read from the log."""

    stream: StreamId
    version: int
    """Within the stream, from 1, without gaps."""
    position: int
    """Within this log: a local, gap-free cursor for readers. Not stable across logs; `stream@version` is."""
    recorded_at_us: int
    """Microseconds since the epoch, UTC; non-decreasing within a stream."""
    observed_at_us: int
    """Time by the clock port when the event was appended; may go backwards. Timers and prices use it."""
    event: E
    causation: str
    """`stream@version` of the event that led to this one, or empty."""
    chain: bytes
    """sha256 over the previous link and all fields above except the position."""

    @property
    def event_ref(self) -> str:
        """`stream@version`: the name of this event in output and reports."""
        return f"{self.stream}@{self.version}"

    @property
    def is_forked_copy(self) -> bool:
        """True if this event happened in the run that this run was forked from; the causation names the original."""
        if not self.causation:
            return False
        origin, _, _ = self.causation.partition("@")
        return origin != self.stream and origin.count("/") == self.stream.count("/") == FEATURE_DEPTH


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event as bytes, exactly as stored: the data covered by the chain."""

    stream: StreamId
    version: int
    position: int
    type: str
    schema: int
    recorded_at_us: int
    observed_at_us: int
    causation: str
    payload: bytes
    chain: bytes


class Head(msgspec.Struct, frozen=True, gc=False):
    """End of a stream, stored apart from its events to detect truncation."""

    version: int
    chain: bytes
