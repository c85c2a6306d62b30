"""The log and blob ports, and the envelope of an event: its position in a stream and in the log. All state is folded
from the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from mz_events.catalog.base import Event
from mz_events.names import Digest, StreamId

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


class Append(msgspec.Struct, frozen=True):
    """Events for one stream, in order."""

    stream: StreamId
    expected: int | None
    """Version that the stream must have; 0: it must not exist. None: any (inboxes)."""
    events: tuple[Event, ...]
    causation: str = ""


class VersionConflict(Exception):
    """Another process appended: since the run's lock is held, there is a second holder."""

    def __init__(self, stream: StreamId, expected: int, actual: int) -> None:
        super().__init__(f"{stream} is at version {actual}, not {expected}")
        self.stream, self.expected, self.actual = stream, expected, actual


class UnknownEvent(Exception):
    """An event of a newer `mz` that this one does not know."""

    def __init__(self, event_ref: str, type_: str, schema: int) -> None:
        super().__init__(f"{event_ref} is {type_}/{schema}, which this version of mz does not know: update mz")
        self.event_ref, self.type, self.schema = event_ref, type_, schema


class StoreUnusable(Exception):
    """The log cannot be read or written; the message gives the reason (locked, truncated, full disk, newer format)."""


class Store(Protocol):
    def append(self, appends: Sequence[Append], now_us: int) -> tuple[Recorded[Event], ...]:
        """Append everything in one durable transaction, or nothing.

        Raises: VersionConflict, StoreUnusable.
        """

    def read(self, stream: StreamId, after: int = 0) -> Iterator[Recorded[Event]]:
        """Yield the stream's events with a version greater than `after`, in order; none if it does not exist."""

    def read_all(self, after: int = 0, limit: int | None = None) -> Iterator[Recorded[Event]]:
        """Yield every stream's events with a position greater than `after`, in order of position."""

    def streams(self, prefix: str = "") -> tuple[tuple[StreamId, int], ...]:
        """Return names and versions of the streams that begin with `prefix`, sorted by name."""


class Log(Store, Protocol):
    """Adds what read models need: the identity and size of the log."""

    @property
    def log_id(self) -> str:
        """Random id, set once when the log is created; a copy of the log has the same."""

    def head(self) -> int:
        """Return the position of the last event; 0 for an empty log. Cheap: meant for polling."""

    def link(self, position: int) -> bytes | None:
        """Return the chain value of the event at `position`; None if there is none."""

    def read_types(self, types: Collection[str], after: int, last_position: int) -> Iterator[Recorded[Event]]:
        """Yield events of these types with `after < position <= last_position`, in order; other types are not
        decoded."""


class Blobs(Protocol):
    """Prose, by content. A blob is on the disk (fsynced) before the append that cites it."""

    def put(self, data: bytes) -> Digest: ...

    def get(self, digest: Digest) -> bytes:
        """Return the bytes.

        Raises: BlobMissing.
        """


class BlobMissing(Exception):
    """An event cites a blob that does not exist: erased, or lost."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"blob {digest} is missing")
        self.digest = digest


class BlobWasErased(BlobMissing):
    """A person erased the blob; the event `BlobErased` records it."""

    def __init__(self, digest: str, reason: str) -> None:
        Exception.__init__(self, f"blob {digest} was erased: {reason}")
        self.digest, self.reason = digest, reason


class BlobDamaged(BlobMissing):
    """The bytes on the disk are not the ones that were put; treated as missing."""

    def __init__(self, digest: str, path: str) -> None:
        Exception.__init__(self, f"blob {digest} is damaged: {path} does not hold the bytes that were put there")
        self.digest = digest
