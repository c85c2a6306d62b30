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

DigestFinder = Callable[[Any], Iterator[Digest]]
"""Maps a field's value to the digests in it."""


def cited_digests(event: Event) -> tuple[Digest, ...]:
    """Return the cited digests in the order of the fields, duplicates included."""
    return tuple(digest for name, find_digests in _digest_fields(type(event)) for digest in find_digests(getattr(event, name)))


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
        return _union_finder([finder for argument in arguments if (finder := _finder_of(argument)) is not None])
    if origin is tuple:
        return _tuple_finder(_finder_of(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct_finder(_digest_fields(hint))
    return None


def _union_finder(finders: Sequence[DigestFinder]) -> DigestFinder | None:
    """Handle a union, of which one member contains digests."""
    return None if not finders else lambda value: iter(()) if value is None else finders[0](value)


def _tuple_finder(finder: DigestFinder | None) -> DigestFinder | None:
    return None if finder is None else lambda values: chain.from_iterable(map(finder, values))


def _struct_finder(fields: tuple[tuple[str, DigestFinder], ...]) -> DigestFinder | None:
    if not fields:
        return None
    return lambda value: chain.from_iterable(finder(getattr(value, name)) for name, finder in fields)
