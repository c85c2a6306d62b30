"""The hash chain that makes a stream's history tamper-evident.

Each link is sha256 over the previous link and all stored data of the event except its position. Every field is
delimited, so no two events hash the same bytes. Changing, dropping, swapping or inserting an event breaks the chain of
its stream there; truncating a stream contradicts its head, truncating the log leaves a gap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from mz_events.envelope import Head, Stored
from mz_events.names import StreamId

GENESIS = bytes(32)
"""The link before the first event of a stream."""


def link(
    prev: bytes,
    stream: str,
    version: int,
    type_: str,
    schema: int,
    recorded_at_us: int,
    observed_at_us: int,
    causation: str,
    payload: bytes,
) -> bytes:
    """Return the 32 bytes of an event's link; `prev` is the link of the previous version, or GENESIS."""
    numbers = f"{version} {schema} {recorded_at_us} {observed_at_us} {len(stream)} {len(type_)} "
    texts = f"{numbers}{stream}{type_}{causation}".encode()
    return hashlib.sha256(prev + hashlib.sha256(payload).digest() + texts).digest()


class Damage(msgspec.Struct, frozen=True):
    """One point at which the log differs from what was appended."""

    place: str
    """`stream@version`."""
    position: int
    what: str


def verify(events: Iterable[Stored], heads: Mapping[StreamId, Head]) -> tuple[Damage, ...]:
    """Return the first break of each stream and every gap among positions; empty when the log is intact.

    `events` are all events in order of position, `heads` the heads of all streams.
    """
    found: list[Damage] = []
    reached: dict[StreamId, Head] = {}
    broken: set[StreamId] = set()
    position = 0
    for event in events:
        if event.position != position + 1:
            found.append(_damage(event, f"positions {position + 1} to {event.position - 1} are missing"))
        position = event.position
        if event.stream in broken:
            continue
        before = reached.get(event.stream, Head(0, GENESIS))
        reached[event.stream] = Head(event.version, event.chain)
        if what := _break(before, event):
            broken.add(event.stream)
            found.append(_damage(event, what))
    for stream in sorted((heads.keys() | reached.keys()) - broken):
        end, head = reached.get(stream, Head(0, GENESIS)), heads.get(stream, Head(0, GENESIS))
        if end != head:
            what = f"the stream ends at version {end.version}, its head says {head.version}"
            if end.version == head.version:
                what = "the last event is not the one named by the stream's head"
            found.append(Damage(f"{stream}@{end.version}", position, what))
    return tuple(found)


def _damage(event: Stored, what: str) -> Damage:
    return Damage(f"{event.stream}@{event.version}", event.position, what)


def _break(before: Head, event: Stored) -> str:
    """Return an error message for an event that follows `previous`; empty if it is valid."""
    if event.version != before.version + 1:
        return f"version {before.version} of the stream is followed by version {event.version}"
    expected = link(
        before.chain,
        event.stream,
        event.version,
        event.type,
        event.schema,
        event.recorded_at_us,
        event.observed_at_us,
        event.causation,
        event.payload,
    )
    return "" if event.chain == expected else "the event or the one before it was changed: wrong chain value"
