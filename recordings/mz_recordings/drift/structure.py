"""Structure of an artifact without its text: headings, tables, keys, and ids of list items."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mz_engine.artifacts.document import comparable_heading, read_markdown

TITLE_LEVEL, LEVEL_MAX = 1, 3
"""Levels of headings; the text of the title is not structure, and neither are deeper levels."""


def structure(text: str, name: str) -> tuple[str, ...]:
    """Return a line per part in order: `## scope`, `table: file | why`; for JSON by name, `units[].id: string`, and
    `units[U1]` for each object in a list, or its index if it has no id. Total. The suffix of the file `name` gives the
    type."""
    if name.endswith(".json"):
        try:
            return tuple(dict.fromkeys(sorted(_json_parts(json.loads(text), ""))))
        except (ValueError, RecursionError):
            return ("no JSON",)
    return tuple(_markdown_parts(text))


def _markdown_parts(text: str) -> Iterator[str]:
    document = read_markdown(text)
    parts = [
        (heading.line, f"{'#' * heading.level} {'' if heading.level == TITLE_LEVEL else comparable_heading(heading.text)}".rstrip())
        for heading in document.headings
        if heading.level <= LEVEL_MAX
    ]
    tables: dict[tuple[int, tuple[str, ...]], int] = {}
    for entry in document.entries:
        if entry.header:
            section = max((line for line, _ in parts if line <= entry.line), default=0)
            tables.setdefault((section, entry.header), entry.line)
    parts += [(line, f"table: {' | '.join(header)}") for (_, header), line in tables.items()]
    yield from (part for _, part in sorted(parts))


def _json_parts(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _json_parts(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield f"{path}[]"
        for at, inner in enumerate(value):
            if isinstance(inner, dict):
                yield f"{path}[{_item_id(inner, at)}]"
            yield from _json_parts(inner, f"{path}[]")
    else:
        yield f"{path}: {json_type(value)}"


def _item_id(value: dict[str, object], at: int) -> str:
    name = value.get("id")
    return name if isinstance(name, str) else str(at)


def json_type(value: object) -> str:
    """Return the type's name in JSON Schema."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "number"
