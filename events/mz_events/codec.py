"""Encoding and decoding of every event type ever released, and the blobs that an event cites.

A payload is JSON of the event's Struct, its tag included. Payloads of an older `mz` are converted, schema by schema, by
the upcasters; an event of a newer one is an error that names it, never silently skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from types import ModuleType
from typing import Any, Union, get_args, get_type_hints

import msgspec

from mz_events.catalog import call, delivery, feature, imported, inbox, memory, run, validation
from mz_events.catalog.base import Event
from mz_events.names import Digest
from mz_events.store import StoreUnusable, UnknownEvent

Payload = dict[str, Any]
Upcast = Callable[[Payload], Payload]

FAMILIES: tuple[ModuleType, ...] = (run, feature, call, validation, delivery, inbox, imported, memory)
"""The catalog's modules; add new ones here."""


def type_of(event: Event | type[Event]) -> str:
    """Return the tag that names an event's type in the log, such as `phase.started`."""
    return str(event.__struct_config__.tag)


ALL_EVENTS: tuple[type[Event], ...] = tuple(
    dict.fromkeys(
        kind
        for family in FAMILIES
        for kind in vars(family).values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind.__struct_config__.tag is not None
    )
)
"""The concrete event types, in the order of their definition."""


def _unchanged(payload: Payload) -> Payload:
    return payload


UPCASTERS: Mapping[tuple[str, int], Upcast] = {
    (type_of(kind), schema): _unchanged for kind in ALL_EVENTS for schema in range(1, kind.SCHEMA)
} | {
    ("imported.file-read", schema): lambda payload: {
        key: payload[key] for key in payload if key not in ("end_line_sha256", "ends")
    }
    for schema in (1, 2)
}
"""By (type, schema): maps a payload of that schema to one of the next. A schema that only adds optional fields needs
none of its own. Never removed once released."""


class Codec:
    """Encoders and decoders of event types.

    `events` are the current types, `upcasters` convert every earlier schema to them.
    """

    def __init__(self, events: Iterable[type[Event]], upcasters: Mapping[tuple[str, int], Upcast]) -> None:
        self.types = {type_of(kind): kind for kind in events}
        self._keys = {kind: (name, kind.SCHEMA) for name, kind in self.types.items()}
        self._upcasts: dict[tuple[str, int], list[Upcast]] = {key: [] for key in self._keys.values()}
        """By type and schema: what converts a payload, in this order."""
        for name, schema in upcasters:
            steps = [upcasters[name, earlier] for earlier in range(schema, self.types[name].SCHEMA)]
            self._upcasts[name, schema] = [step for step in steps if step is not _unchanged]
        self._unconverted = {(self.types[name], schema) for (name, schema), steps in self._upcasts.items() if not steps}
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        self.decoder: msgspec.json.Decoder[Event] | None = None
        """Of all types, told by their tags; made for the first event: making it takes longer than a short command."""
        self._lock = threading.Lock()

    def _made_decoder(self) -> msgspec.json.Decoder[Event]:
        """Return the decoder, which one thread makes: msgspec crashes if two prepare the same Struct."""
        with self._lock:
            types = tuple(self.types.values())
            self.decoder = self.decoder or msgspec.json.Decoder(Union[types])  # noqa: UP007  # made at run time
        return self.decoder

    def encode(self, event: Event) -> tuple[str, int, bytes]:
        """Return type, schema and canonical payload: fields in the order of the Struct, map keys sorted."""
        name, schema = self._keys[type(event)]
        return name, schema, self._encode(event)

    def decode(self, name: str, schema: int, payload: bytes, event_ref: str) -> Event:
        """Return the event of a stored payload; `event_ref` (`stream@version`) is for error messages.

        Raises: UnknownEvent for a type or schema of a newer `mz`, StoreUnusable for a damaged payload.
        """
        steps = self._upcasts.get((name, schema))
        if steps is None:
            raise UnknownEvent(event_ref, name, schema)
        try:
            if steps:
                fields = msgspec.json.decode(payload, type=dict)
                payload = msgspec.json.encode(reduce(lambda fields, step: step(fields), steps, fields))
            event = (self.decoder or self._made_decoder()).decode(payload)
            if type_of(event) != name:
                raise ValueError(f"its payload is one of {type_of(event)}")
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreUnusable(
                f"the event {event_ref} ({name}/{schema}) is damaged: {error}; restore the log from a backup"
            ) from error
        return event

    def decode_unconverted(self, payloads: Sequence[bytes], schemas: Sequence[int]) -> list[Event] | None:
        """Return the events of stored payloads, decoded at once; None unless each is intact, of a known schema, and
        needs no conversion. Then `decode` has to take them one by one."""
        try:
            events = self._made_decoder().decode_lines(b"\n".join(payloads))
            is_usable = self._unconverted.issuperset(zip(map(type, events), schemas, strict=True))
        except (msgspec.MsgspecError, ValueError, TypeError):
            return None
        return events if is_usable else None


CODEC = Codec(ALL_EVENTS, UPCASTERS)


def comparable_payload(event: Event) -> Payload:
    """Return the payload without non-deterministic fields, for comparing runs.

    Builtins only: maps, tuples, strings, numbers.
    """
    fields: Payload = msgspec.to_builtins(event)
    return {name: value for name, value in fields.items() if name not in event.NON_DETERMINISTIC}


def cited_digests(event: Event) -> tuple[Digest, ...]:
    """Return the digests in fields declared as such, nested ones too, in the order of the fields, duplicates
    included."""
    return tuple(_digests_in(event, type(event)))


def _digests_in(value: Any, hint: Any) -> Iterator[Digest]:
    """Yield the digests in a value that was declared with this type."""
    if isinstance(value, msgspec.Struct):
        for name, field_hint in _field_types(type(value)).items():
            yield from _digests_in(getattr(value, name), field_hint)
    elif isinstance(value, tuple):
        for item in value:
            yield from _digests_in(item, get_args(hint)[0])
    elif isinstance(value, str) and (hint is Digest or Digest in get_args(hint)):
        yield Digest(value)


@cache
def _field_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of the struct's fields, in order, without plain ones such as `int`."""
    hints = get_type_hints(kind)
    types = ((name, hints[name]) for name in kind.__struct_fields__)
    return {name: hint for name, hint in types if not isinstance(hint, type) or issubclass(hint, msgspec.Struct)}
