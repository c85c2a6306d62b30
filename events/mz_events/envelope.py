"""Facts: an event with its place in the log."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from mz_events.catalog.base import Event
from mz_events.names import StreamId

FEATURE_DEPTH = 2
"""Slashes in `run/<run>/<feature>`."""
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

    @property
    def copied(self) -> bool:
        """It happened in another run, whose feature's stream its causation names; this one was forked from there."""
        if not self.causation:
            return False
        origin, _, _ = self.causation.partition("@")
        return origin != self.stream and origin.count("/") == self.stream.count("/") == FEATURE_DEPTH


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event as bytes, exactly as the log keeps it: what the chain covers."""

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
    """Where a stream ends, kept apart from its events: a stream cut short no longer fits its head."""

    version: int
    chain: bytes
