"""Structure of an artifact without its text: headings, tables, keys, and ids of list items.

Changes of a patch by file; the patch is written by git with full ids and without renames.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from mz_engine.artifacts.markdown import comparable_heading, read_markdown

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
        (heading.line, f"{'#' * heading.level} {comparable_heading(heading.text)}".rstrip())
        if heading.level > TITLE_LEVEL
        else (heading.line, "#")
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


JSON_TYPES = {bool: "boolean", str: "string", list: "array", dict: "object"}


def json_type(value: object) -> str:
    """Return the type's name in JSON Schema."""
    if value is None:
        return "null"
    return JSON_TYPES.get(type(value), "number")


HEADER = re.compile(rb"^diff --git (.+)$", re.MULTILINE)
FileChangeKind = Literal["added", "modified", "deleted"]


class FileChange(NamedTuple):
    """Change of one file."""

    kind: FileChangeKind
    mode: str
    """The new mode, if the patch names it."""
    content: bytes
    """The part of the patch for this file, without its header line."""


def changed_files(patch: bytes) -> dict[str, FileChange]:
    """Return the changes by path, as the patch spells it. Text that is not a patch has no changes.

    Lines of a hunk begin with a sign, so a line that begins with `diff` is a header.
    """
    changes: dict[str, FileChange] = {}
    heads = list(HEADER.finditer(patch))
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(patch)
        body = patch[head.end() + 1 : end]
        changes[_path(head[1])] = FileChange(_kind(body), _mode(body), body)
    return changes


def _path(names: bytes) -> str:
    """Return the path from `a/x b/x`, or from both in quotes: each is half of the text."""
    half = names[: (len(names) - 1) // 2].decode("utf-8", "replace")
    return half.strip('"').removeprefix("a/")


def _kind(body: bytes) -> FileChangeKind:
    first = body.split(b"\n", 1)[0]
    if first.startswith(b"new file"):
        return "added"
    return "deleted" if first.startswith(b"deleted file") else "modified"


def _mode(body: bytes) -> str:
    match = re.match(rb"(?:old mode \d+\n)?new (?:file )?mode (\d+)", body)
    return match[1].decode() if match else ""
