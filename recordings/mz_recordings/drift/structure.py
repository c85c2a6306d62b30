"""Pure: how an artifact is built, whatever its words are: headings, tables, keys, and which things it lists."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mz_engine.artifacts.document import plain, read_markdown

TITLE, DEEPEST = 1, 3
"""Levels of headings: the title is prose, and so is what lies deeper than this."""


def structure(text: str, name: str) -> tuple[str, ...]:
    """A line a part, in the order in which they stand: `## scope`, `table: file | why`; of JSON, by name, `units[].id:
    string`, and for each object in a list `units[U1]`, or its number where it has no id. Total; `name` is the file's,
    whose ending says what it is."""
    if name.endswith(".json"):
        try:
            return tuple(dict.fromkeys(sorted(_keys(json.loads(text), ""))))
        except (ValueError, RecursionError):
            return ("no JSON",)
    return tuple(_markdown(text))


def _markdown(text: str) -> Iterator[str]:
    document = read_markdown(text)
    parts = [
        (heading.line, f"{'#' * heading.level} {'' if heading.level == TITLE else plain(heading.text)}".rstrip())
        for heading in document.headings
        if heading.level <= DEEPEST
    ]
    tables: dict[tuple[int, tuple[str, ...]], int] = {}
    for entry in document.entries:
        if entry.header:
            section = max((line for line, _ in parts if line <= entry.line), default=0)
            tables.setdefault((section, entry.header), entry.line)
    parts += [(line, f"table: {' | '.join(header)}") for (_, header), line in tables.items()]
    yield from (part for _, part in sorted(parts))


def _keys(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _keys(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield f"{path}[]"
        for at, inner in enumerate(value):
            if isinstance(inner, dict):
                yield f"{path}[{_id(inner, at)}]"
            yield from _keys(inner, f"{path}[]")
    else:
        yield f"{path}: {json_type(value)}"


def _id(value: dict[str, object], at: int) -> str:
    name = value.get("id")
    return name if isinstance(name, str) else str(at)


def json_type(value: object) -> str:
    """As JSON Schema names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "number"
