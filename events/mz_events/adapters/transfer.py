"""A run as JSON Lines, to move it to another log: its seal, then its events as stored, each after the blobs that it is
the first to cite."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.inbox import BlobErased
from mz_events.codec import CODEC, cited_digests
from mz_events.names import Digest, StreamId, is_of_run
from mz_events.seal import InvalidSeal, Seal, parse_seals
from mz_events.store import BlobWasErased, Stored

Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""It fits into a column, even as a position after those of another log."""


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a line, with its payload unchanged."""

    stream: StreamId
    version: Number
    position: Number
    """Within the file, from 1."""
    type: str
    schema: Number
    recorded_at_us: Number
    observed_at_us: Number
    causation: str
    payload: msgspec.Raw
    chain: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A seal, a blob, or an event."""

    seal: str = ""
    blob: bytes | None = None
    event: StoredEvent | None = None


_LINE = msgspec.json.Decoder(Line)


def export_run(store: SqliteStore, blobs: FileBlobs, seal: Seal) -> Iterator[Line]:
    """Yield the lines of what was sealed. Raises BlobMissing for what was not erased."""
    yield Line(seal=seal.text)
    written = set[Digest]()
    for position, event in enumerate(store.stored(seal.heads), start=1):
        for digest in cited_digests(CODEC.decode(event.type, event.schema, event.payload, event.stream)):
            if digest not in written:
                written.add(digest)
                with suppress(BlobWasErased):
                    yield Line(blob=blobs.get(digest))
        values = {"position": position, "payload": msgspec.Raw(event.payload), "chain": event.chain.hex()}
        yield Line(event=StoredEvent(**{**asdict(event), **values}))


def import_run(store: SqliteStore, blobs: FileBlobs, lines: Iterable[bytes]) -> tuple[Seal, bool]:
    """Import a run, or nothing if any of it is not as it was sealed. Return its seal, and False if it was here already.
    Raises InvalidSeal, DecodeError, StoreUnusable, UnknownEvent, BlobMissing."""
    decoded = map(_LINE.decode, lines)
    seals = parse_seals(next(decoded, Line()).seal)[0]
    if len(seals) != 1 or not all(is_of_run(name, seals[0].run or "") for name in seals[0].heads):
        raise InvalidSeal("the first line is not the seal of one run")
    here = {name: head for name, head in store.heads().items() if is_of_run(name, seals[0].run or "")}
    if here and here != seals[0].heads:
        raise InvalidSeal(f"the run {seals[0].run} is here already, with other events")
    if not here:
        erased = dict[Digest, str]()
        store.insert(_stored_events(decoded, blobs, erased), seals[0].heads)
        for digest, reason in erased.items():
            blobs.erase(digest, reason)
    return seals[0], not here


def _stored_events(lines: Iterable[Line], blobs: FileBlobs, erased: dict[Digest, str]) -> Iterator[Stored]:
    """Yield the events, store the blobs that were not erased here, and add to `erased` why those are missing that were
    erased there. Raises InvalidSeal at the end for another blob that is missing."""
    missing, reasons = set[Digest](), dict[Digest, Digest]()
    for line in lines:
        if line.blob is not None and not blobs.was_erased(Digest(hashlib.sha256(line.blob).hexdigest())):
            blobs.put(line.blob)
        if line.event is not None:
            values = {"payload": bytes(line.event.payload), "chain": bytes.fromhex(line.event.chain)}
            stored = Stored(**{**asdict(line.event), **values})
            event = CODEC.decode(stored.type, stored.schema, stored.payload, f"{stored.stream}@{stored.version}")
            missing |= {d for d in cited_digests(event) if not blobs.path(d).exists() and not blobs.was_erased(d)}
            reasons |= {event.blob: event.reason} if isinstance(event, BlobErased) else {}
            yield stored
    if lost := missing - reasons.keys():
        raise InvalidSeal(f"the text {min(lost)} is missing or was changed")
    erased |= {digest: blobs.get(reasons[digest]).decode() for digest in missing}
