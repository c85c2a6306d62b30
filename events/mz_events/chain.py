"""The hash chain that makes a stream's history tamper-evident.

Each link is sha256 over the previous link and all stored data of the event except its position. Every field is
delimited, so no two events hash the same bytes. Changing, dropping, swapping or inserting an event breaks the chain of
its stream there; truncating a stream contradicts its head, truncating the log leaves a gap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from mz_events.names import StreamId
from mz_events.store import Head, Stored

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

    event_ref: str
    """`stream@version`."""
    position: int
    message: str


def verify(events: Iterable[Stored], heads: Mapping[StreamId, Head]) -> tuple[Damage, ...]:
    """Return the first break of each stream and every gap among positions; empty when the log is intact.

    `events` are all events in order of position, `heads` the heads of all streams.
    """
    damages: list[Damage] = []
    last_links: dict[StreamId, Head] = {}
    broken_streams: set[StreamId] = set()
    position = 0
    for event in events:
        if event.position != position + 1:
            damages.append(_damage(event, f"positions {position + 1} to {event.position - 1} are missing"))
        position = event.position
        if event.stream in broken_streams:
            continue
        previous = last_links.get(event.stream, Head(0, GENESIS))
        last_links[event.stream] = Head(event.version, event.chain)
        if message := _link_error(previous, event):
            broken_streams.add(event.stream)
            damages.append(_damage(event, message))
    for stream in sorted((heads.keys() | last_links.keys()) - broken_streams):
        end, head = last_links.get(stream, Head(0, GENESIS)), heads.get(stream, Head(0, GENESIS))
        if end != head:
            message = f"the stream ends at version {end.version}, its head says {head.version}"
            if end.version == head.version:
                message = "the last event is not the one named by the stream's head"
            damages.append(Damage(f"{stream}@{end.version}", position, message))
    return tuple(damages)


def _damage(event: Stored, message: str) -> Damage:
    return Damage(f"{event.stream}@{event.version}", event.position, message)


def _link_error(previous: Head, event: Stored) -> str:
    """Return an error message for an event that follows `previous`; empty if it is valid."""
    if event.version != previous.version + 1:
        return f"version {previous.version} of the stream is followed by version {event.version}"
    stream, version, _, *stored, chain = msgspec.structs.astuple(event)
    is_valid = chain == link(previous.chain, stream, version, *stored)
    return "" if is_valid else "the event or the one before it was changed: wrong chain value"
