"""The blobs that an event cites: every field of its payload declared as a digest in the catalog, nested ones too."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from mz_events.catalog.base import Event
from mz_events.names import Digest

Walk = Callable[[Any], Iterator[Digest]]
"""Maps a field's value to the digests in it."""


def cited(event: Event) -> tuple[Digest, ...]:
    """Return the cited digests in the order of the fields, duplicates included."""
    return tuple(digest for name, walk in _fields(type(event)) for digest in walk(getattr(event, name)))


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Walk], ...]:
    """Return the fields of the struct that may contain digests."""
    hints = get_type_hints(kind)
    walks = ((name, _walk(hints[name])) for name in kind.__struct_fields__)
    return tuple((name, walk) for name, walk in walks if walk is not None)


def _walk(hint: Any) -> Walk | None:
    """Return a function that finds the digests in values of this type; None if there are none."""
    if hint is Digest:
        return lambda value: iter((value,))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional([walk for argument in arguments if (walk := _walk(argument)) is not None])
    if origin is tuple:
        return _each(_walk(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _inside(_fields(hint))
    return None


def _optional(walks: Sequence[Walk]) -> Walk | None:
    """Handle a union, of which one member contains digests."""
    return None if not walks else lambda value: iter(()) if value is None else walks[0](value)


def _each(walk: Walk | None) -> Walk | None:
    return None if walk is None else lambda values: chain.from_iterable(map(walk, values))


def _inside(fields: tuple[tuple[str, Walk], ...]) -> Walk | None:
    if not fields:
        return None
    return lambda value: chain.from_iterable(walk(getattr(value, name)) for name, walk in fields)
