"""The log and the blobs in memory, for replays and simulations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping, Sequence

from mz_events.catalog.base import Event
from mz_events.names import Digest, StreamId
from mz_events.store import Append, BlobMissing, Recorded, VersionConflict


class MemoryStore:
    """Implements the Store port. Events are kept as they are, without a hash chain. Used by one thread."""

    def __init__(self) -> None:
        self.log: list[Recorded[Event]] = []
        self._streams: dict[StreamId, list[Recorded[Event]]] = {}

    def copy_to(self, store: MemoryStore, length: int) -> None:
        """Give an empty store the first `length` events of this one."""
        store._add(self.log[:length])

    def append(self, appends: Sequence[Append], now_us: int) -> tuple[Recorded[Event], ...]:
        added: list[Recorded[Event]] = []
        for append in appends:
            added += self._sequence(append, now_us, tuple(added))
        self._add(added)
        return tuple(added)

    def _add(self, added: Sequence[Recorded[Event]]) -> None:
        self.log += added
        for recorded in added:
            self._streams.setdefault(recorded.stream, []).append(recorded)

    def _sequence(self, append: Append, now_us: int, added: tuple[Recorded[Event], ...]) -> Iterator[Recorded[Event]]:
        """Yield the events with their places after the log and what the same transaction has `added`."""
        position = len(self.log) + len(added)
        earlier_events = self._streams.get(append.stream, [])[-1:]
        earlier_events += [recorded for recorded in added if recorded.stream == append.stream]
        last = earlier_events[-1] if earlier_events else None
        version, recorded_at_us = (last.version, last.recorded_at_us) if last is not None else (0, 0)
        if append.expected is not None and append.expected != version:
            raise VersionConflict(append.stream, append.expected, version)
        for event in append.events:
            version, position, recorded_at_us = version + 1, position + 1, max(recorded_at_us, now_us)
            yield Recorded(append.stream, version, position, recorded_at_us, now_us, event, append.causation)

    def read(self, stream: StreamId, after: int = 0) -> Iterator[Recorded[Event]]:
        return iter(self._streams.get(stream, [])[after:])

    def read_all(self, after: int = 0, limit: int | None = None) -> Iterator[Recorded[Event]]:
        return iter(self.log[after : None if limit is None else after + limit])

    def streams(self, prefix: str = "") -> tuple[tuple[StreamId, int], ...]:
        return tuple(sorted((name, len(events)) for name, events in self._streams.items() if name.startswith(prefix)))


class MemoryBlobs:
    """Implements the Blobs port."""

    def __init__(self) -> None:
        self.data_by_digest: MutableMapping[Digest, bytes] = {}

    def put(self, data: bytes) -> Digest:
        digest = Digest(hashlib.sha256(data).hexdigest())
        self.data_by_digest[digest] = data
        return digest

    def get(self, digest: Digest) -> bytes:
        try:
            return self.data_by_digest[digest]
        except KeyError:
            raise BlobMissing(digest) from None
