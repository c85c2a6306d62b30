"""Dicts that report which fields a parser reads; the parser cannot tell them from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mz_recordings.drift.structure import json_type
from mz_recordings.wire.dialects import StreamDialect

ReportAccess = Callable[[str, str, object], None]
"""Called with the event's name, the field's path and its value, or ABSENT for a missing field."""
ABSENT = object()


class TrackedObject(dict[str, Any]):
    """An object within an event, at a path."""

    def __init__(self, content: dict[str, Any], field_path: tuple[str, str], dialect: StreamDialect, report: ReportAccess) -> None:
        self._field_path, self._report = field_path, report
        self._is_map = matches_path(dialect.maps, *field_path)
        self._dialect = dialect
        super().__init__({key: self._track(value, self._child_path(key)) for key, value in content.items()})

    def get(self, key: str, default: Any = None) -> Any:
        self._report_key(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._report_key(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._report_key(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._report_all()
        return super().__iter__()

    def items(self) -> Any:
        self._report_all()
        return super().items()

    def keys(self) -> Any:
        self._report_all()
        return super().keys()

    def values(self) -> Any:
        self._report_all()
        return super().values()

    def _report_all(self) -> None:
        for key in super().__iter__():
            self._report_key(key)

    def _report_key(self, key: str) -> None:
        self._report(self._field_path[0], self._child_path(key), super().get(key, ABSENT))

    def _child_path(self, key: str) -> str:
        return child_path(self._field_path[1], "*" if self._is_map else key)

    def _track(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return TrackedObject(value, (self._field_path[0], path), self._dialect, self._report)
        if isinstance(value, list):
            return [self._track(item, path + item_suffix(item)) for item in value]
        return value


def event_name(event: dict[str, Any], dialect: StreamDialect) -> str:
    """Return the event's name, such as `system/init`; `?` for an event without one."""
    parts = [_value_at(event, field) for field in dialect.name_fields]
    return "/".join(part for part in parts if isinstance(part, str) and part) or "?"


def _value_at(event: dict[str, Any], path: str) -> object:
    value: object = event
    for key in path.split("."):
        value = dict.get(value, key) if isinstance(value, dict) else None
    return value


def child_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def item_suffix(item: object) -> str:
    """Return the path element of an item of an array, with its type if it has one."""
    kind = dict.get(item, "type") if isinstance(item, dict) else None
    return f"[{kind}]" if isinstance(kind, str) else "[]"


def matches_path(paths: frozenset[str], event: str, path: str) -> bool:
    return f"{event}:{path}" in paths or f"*:{path}" in paths


def walk_fields(event: dict[str, Any], name: str, dialect: StreamDialect) -> Iterator[tuple[str, str]]:
    """Yield path and JSON type of every value, parents first, without opaque content."""
    yield from _walk(event, name, "", dialect)


def _walk(value: object, name: str, path: str, dialect: StreamDialect) -> Iterator[tuple[str, str]]:
    yield path, json_type(value)
    if matches_path(dialect.opaque, name, path):
        return
    if isinstance(value, dict):
        is_map = matches_path(dialect.maps, name, path)
        for key, inner in value.items():
            yield from _walk(inner, name, child_path(path, "*" if is_map else key), dialect)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, name, path + item_suffix(item), dialect)
