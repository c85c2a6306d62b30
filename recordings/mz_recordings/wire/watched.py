"""Dicts that report which fields a parser reads; the parser cannot tell them from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mz_recordings.drift.structure import json_type
from mz_recordings.wire.dialects import Dialect

Note = Callable[[str, str, object], None]
"""Called with the event's name, the field's path and its value, or ABSENT for a missing field."""
ABSENT = object()


class Watched(dict[str, Any]):
    """An object within an event, at a path."""

    def __init__(self, content: dict[str, Any], place: tuple[str, str], dialect: Dialect, note: Note) -> None:
        self._place, self._note = place, note
        self._map = is_in(dialect.maps, *place)
        self._dialect = dialect
        super().__init__({key: self._inner(value, self._below(key)) for key, value in content.items()})

    def get(self, key: str, default: Any = None) -> Any:
        self._tell(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._tell(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._tell(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._tell_all()
        return super().__iter__()

    def items(self) -> Any:
        self._tell_all()
        return super().items()

    def keys(self) -> Any:
        self._tell_all()
        return super().keys()

    def values(self) -> Any:
        self._tell_all()
        return super().values()

    def _tell_all(self) -> None:
        for key in super().__iter__():
            self._tell(key)

    def _tell(self, key: str) -> None:
        self._note(self._place[0], self._below(key), super().get(key, ABSENT))

    def _below(self, key: str) -> str:
        return below(self._place[1], "*" if self._map else key)

    def _inner(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return Watched(value, (self._place[0], path), self._dialect, self._note)
        if isinstance(value, list):
            return [self._inner(item, path + item_of(item)) for item in value]
        return value


def name_of(event: dict[str, Any], dialect: Dialect) -> str:
    """Return the event's name, such as `system/init`; `?` for an event without one."""
    parts = [_at(event, field) for field in dialect.kind]
    return "/".join(part for part in parts if isinstance(part, str) and part) or "?"


def _at(event: dict[str, Any], path: str) -> object:
    value: object = event
    for key in path.split("."):
        value = dict.get(value, key) if isinstance(value, dict) else None
    return value


def below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def item_of(item: object) -> str:
    """Return the path element of an item of an array, with its type if it has one."""
    kind = dict.get(item, "type") if isinstance(item, dict) else None
    return f"[{kind}]" if isinstance(kind, str) else "[]"


def is_in(paths: frozenset[str], event: str, path: str) -> bool:
    return f"{event}:{path}" in paths or f"*:{path}" in paths


def walk(event: dict[str, Any], name: str, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Yield path and JSON type of every value, parents first, without opaque content."""
    yield from _walk(event, name, "", dialect)


def _walk(value: object, name: str, path: str, dialect: Dialect) -> Iterator[tuple[str, str]]:
    yield path, json_type(value)
    if is_in(dialect.opaque, name, path):
        return
    if isinstance(value, dict):
        is_map = is_in(dialect.maps, name, path)
        for key, inner in value.items():
            yield from _walk(inner, name, below(path, "*" if is_map else key), dialect)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, name, path + item_of(item), dialect)
