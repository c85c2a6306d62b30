"""Log and blobs in memory; they survive the simulated process, which may crash before or after every append."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence

from mz_events.catalog.base import Event
from mz_events.chain import GENESIS, link
from mz_events.codec import CODEC
from mz_events.envelope import Recorded
from mz_events.names import Digest, StreamId
from mz_events.store import Append, BlobMissing, VersionConflict

Tick = Callable[[str], None]


class MemoryStore:
    """Implements the Store port; encodes and decodes events with the real codec."""

    def __init__(self, tick: Tick) -> None:
        self.tick = tick
        self.log: list[Recorded[Event]] = []
        self._streams: dict[StreamId, list[Recorded[Event]]] = {}

    def copy(self, tick: Tick, length: int) -> MemoryStore:
        """Return a separate store with the first `length` events of this one."""
        store = MemoryStore(tick)
        for recorded in self.log[:length]:
            store.log.append(recorded)
            store._streams.setdefault(recorded.stream, []).append(recorded)
        return store

    def append(self, appends: Sequence[Append], now_us: int) -> tuple[Recorded[Event], ...]:
        self.tick("append.before")
        added: list[Recorded[Event]] = []
        for append in appends:
            added += self._sequence(append, now_us, len(self.log) + len(added))
        self.log += added
        for recorded in added:
            self._streams.setdefault(recorded.stream, []).append(recorded)
        self.tick("append.after")
        return tuple(added)

    def _sequence(self, append: Append, now_us: int, position: int) -> Iterator[Recorded[Event]]:
        earlier_events = self._streams.get(append.stream, [])
        version, recorded_at_us, chain = (
            (earlier_events[-1].version, earlier_events[-1].recorded_at_us, earlier_events[-1].chain)
            if earlier_events
            else (0, 0, GENESIS)
        )
        if append.expected is not None and append.expected != version:
            raise VersionConflict(append.stream, append.expected, version)
        for event in append.events:
            version, position, recorded_at_us = version + 1, position + 1, max(recorded_at_us, now_us)
            type_, schema, payload = CODEC.encode(event)
            chain = link(
                chain, append.stream, version, type_, schema, recorded_at_us, now_us, append.causation, payload
            )
            yield Recorded(
                stream=append.stream,
                version=version,
                position=position,
                recorded_at_us=recorded_at_us,
                observed_at_us=now_us,
                event=CODEC.decode(type_, schema, payload, f"{append.stream}@{version}"),
                causation=append.causation,
                chain=chain,
            )

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
