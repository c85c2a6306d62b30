"""Encoding and decoding of every event type ever released.

A payload is JSON of the event's Struct, its tag included. Payloads of an older `mz` are converted, schema by schema, by
the upcasters; an event of a newer one is an error that names it, never silently skipped.

The blobs that an event cites: every field of its payload declared as a digest in the catalog, nested ones too.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from types import ModuleType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from mz_events.catalog import call, delivery, feature, imported, inbox, run, validation
from mz_events.catalog.base import Event
from mz_events.names import Digest
from mz_events.store import StoreUnusable, UnknownEvent

Payload = dict[str, Any]
Upcast = Callable[[Payload], Payload]

FAMILIES: tuple[ModuleType, ...] = (run, feature, call, validation, delivery, inbox, imported)
"""The catalog's modules; add new ones here."""


def type_of(event: Event | type[Event]) -> str:
    """Return the tag that names an event's type in the log, such as `phase.started`."""
    return str(event.__struct_config__.tag)


def event_types(families: Iterable[ModuleType]) -> tuple[type[Event], ...]:
    """Return the concrete event types that these modules define, in the order of their definition."""
    definitions = chain.from_iterable(vars(family).values() for family in families)
    return tuple(
        dict.fromkeys(
            kind
            for kind in definitions
            if isinstance(kind, type) and issubclass(kind, Event) and kind.__struct_config__.tag is not None
        )
    )


ALL_EVENTS: tuple[type[Event], ...] = event_types(FAMILIES)

UPCASTERS: Mapping[tuple[str, int], Upcast] = {}
"""By (type, schema): maps a payload of that schema to one of the next. Never removed once released."""


class Codec:
    """Encoders and decoders of event types.

    `events` are the current types, `upcasters` convert every earlier schema to them.
    """

    def __init__(self, events: Iterable[type[Event]], upcasters: Mapping[tuple[str, int], Upcast]) -> None:
        self._types = {type_of(kind): kind for kind in events}
        self._keys = {kind: (name, kind.SCHEMA) for name, kind in self._types.items()}
        self.decoders: dict[tuple[str, int], Callable[[bytes], Event]] = {
            key: msgspec.json.Decoder(kind).decode for kind, key in self._keys.items()
        }
        """Raw decoders by type and schema; `decode` adds the event ref to their errors."""
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        for name, schema in upcasters:
            self.decoders[name, schema] = self._upcasting_decoder(name, schema, upcasters)

    def _upcasting_decoder(
        self, name: str, schema: int, upcasters: Mapping[tuple[str, int], Upcast]
    ) -> Callable[[bytes], Event]:
        kind = self._types[name]
        upcasts = [upcasters[name, from_schema] for from_schema in range(schema, kind.SCHEMA)]

        def decode(payload: bytes) -> Event:
            fields = msgspec.json.decode(payload, type=dict)
            for upcast in upcasts:
                fields = upcast(fields)
            return msgspec.convert(fields, kind)

        return decode

    def encode(self, event: Event) -> tuple[str, int, bytes]:
        """Return type, schema and canonical payload: fields in the order of the Struct, map keys sorted."""
        name, schema = self._keys[type(event)]
        return name, schema, self._encode(event)

    def decode(self, name: str, schema: int, payload: bytes, event_ref: str) -> Event:
        """Return the event of a stored payload; `event_ref` (`stream@version`) is for error messages.

        Raises: UnknownEvent for a type or schema of a newer `mz`, StoreUnusable for a damaged payload.
        """
        decode = self.decoders.get((name, schema))
        if decode is None:
            raise UnknownEvent(event_ref, name, schema)
        try:
            return decode(payload)
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreUnusable(
                f"the event {event_ref} ({name}/{schema}) is damaged: {error}; restore the log from a backup"
            ) from error


CODEC = Codec(ALL_EVENTS, UPCASTERS)


def encode(event: Event) -> bytes:
    """Return the canonical payload of an event."""
    return CODEC.encode(event)[2]


def comparable_payload(event: Event) -> Payload:
    """Return the payload without non-deterministic fields, for comparing runs.

    Builtins only: maps, tuples, strings, numbers.
    """
    fields: Payload = msgspec.to_builtins(event)
    return {name: value for name, value in fields.items() if name not in event.NON_DETERMINISTIC}


def log_digest(events: Iterable[Event]) -> Digest:
    """Return the sha256 over types and payloads in order, without the envelope and non-deterministic fields."""
    digest = hashlib.sha256()
    for event in events:
        digest.update(msgspec.json.encode(comparable_payload(event), order="deterministic"))
        digest.update(b"\n")
    return Digest(digest.hexdigest())


DigestFinder = Callable[[Any], Iterator[Digest]]
"""Maps a field's value to the digests in it."""


def cited_digests(event: Event) -> tuple[Digest, ...]:
    """Return the cited digests in the order of the fields, duplicates included."""
    return tuple(
        digest for name, find_digests in _digest_fields(type(event)) for digest in find_digests(getattr(event, name))
    )


@cache
def _digest_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, DigestFinder], ...]:
    """Return the fields of the struct that may contain digests."""
    hints = get_type_hints(kind)
    finders = ((name, _finder_of(hints[name])) for name in kind.__struct_fields__)
    return tuple((name, finder) for name, finder in finders if finder is not None)


def _finder_of(hint: Any) -> DigestFinder | None:
    """Return a function that finds the digests in values of this type; None if there are none."""
    if hint is Digest:
        return lambda value: iter((value,))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        member = next(filter(None, map(_finder_of, arguments)), None)
        return None if member is None else lambda value: iter(()) if value is None else member(value)
    if origin is tuple:
        item = _finder_of(arguments[0])
        return None if item is None else lambda values: chain.from_iterable(map(item, values))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and (fields := _digest_fields(hint)):
        return lambda value: chain.from_iterable(find(getattr(value, name)) for name, find in fields)
    return None
