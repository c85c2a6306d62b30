"""Count the sources of a project: lines of code and tests by language, words of prose, and what a change added.

A line is one with more than white space, comments included.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from mz_engine.decoding.yaml import decode_yaml
from mz_engine.model.config import Sources
from mz_engine.path_patterns import matches
from mz_engine.ports import LineChange, SourceChange

NON_BLANK = re.compile(rb"[^\s][^\n]*")
BLANK_LINE = re.compile(rb"\n([+-])[^\S\n]*(?![^\n])")
"""One that a patch adds or removes."""
KINDS = ("code", "tests", "prose")


class SourceGroup(NamedTuple):
    """What files are counted together."""

    kind: str
    """One of KINDS."""
    name: str
    """The language, or the name that `sources.prose` gives."""


SourceCounts = Mapping[SourceGroup, int]
"""Lines, or of prose words."""


class FileChange(NamedTuple):
    """What a patch changes in a file."""

    path: str
    """Empty: no line of text changes."""
    insertions: int = 0
    deletions: int = 0
    added: int = 0
    """Insertions without blank lines."""
    removed: int = 0


class Languages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `languages.yaml`, which explains it."""

    languages: dict[str, tuple[str, ...]]
    tests: tuple[str, ...]
    others: tuple[str, ...]
    prose: dict[str, tuple[str, ...]]


@cache
def _table() -> tuple[Languages, dict[str, str]]:
    table = decode_yaml((files("mz_engine") / "languages.yaml").read_text("utf-8"), "languages.yaml", Languages)
    return table, {end: name for name, ends in table.languages.items() for end in ends}


def source_group(path: str, sources: Sources) -> SourceGroup | None:
    """Return the group of a file; None if it is not counted. Tests come before code, code before prose."""
    (table, by_end), file = _table(), PurePosixPath(path)
    language = by_end.get(file.name) or by_end.get(file.suffix)
    name = language or file.suffix.removeprefix(".") or file.name
    if (language or sources.tests) and matches(sources.tests or table.tests, path):
        return SourceGroup("tests", name)
    if matches(sources.code, path) if sources.code else language and not matches(table.others, path):
        return SourceGroup("code", name)
    names = (name for name, patterns in (sources.prose or table.prose).items() if matches(patterns, path))
    return next((SourceGroup("prose", name) for name in names), None)


def count_source(kind: str, data: bytes) -> int:
    """Return the lines of a file, or the words of prose; 0 for a binary file."""
    if b"\0" in data[:8000]:
        return 0
    return len(data.split()) if kind == "prose" else len(NON_BLANK.findall(data))


def parse_patch(patch: bytes) -> Iterator[FileChange]:
    """Yield the files of a patch of `git diff` without context lines."""
    for file in (b"\n" + patch).split(b"\ndiff --git ")[1:]:
        header, _, body = file.partition(b"\n@@ ")
        names = {line[:4]: line[4:] for line in header.split(b"\n")}
        old, new = names.get(b"--- ", b""), names.get(b"+++ ", b"")
        insertions, deletions = body.count(b"\n+"), body.count(b"\n-")
        blank = Counter(BLANK_LINE.findall(body))
        path = _path(old if new == b"/dev/null" else new)
        yield FileChange(path, insertions, deletions, insertions - blank[b"+"], deletions - blank[b"-"])


def _path(name: bytes) -> str:
    """Return the path of a line `--- a/PATH` or `+++ b/PATH`, in which git quotes control characters; empty for a file
    without such lines: it is binary, empty, or only its mode changed."""
    name = name.removesuffix(b"\t")
    if name.startswith(b'"'):
        name = name[1:-1].decode("unicode_escape").encode("latin-1")
    return name[2:].decode("utf-8", "surrogateescape")


def sum_changes(changes: Iterable[FileChange], sources: Sources) -> SourceChange:
    """Return the sum of changes."""
    lines, files, insertions, deletions = {kind: Counter[str]() for kind in KINDS}, 0, 0, 0
    for change in changes:
        files, insertions, deletions = files + 1, insertions + change.insertions, deletions + change.deletions
        if group := source_group(change.path, sources):
            lines[group.kind].update(added=change.added, removed=change.removed)
    code, tests = (LineChange(**lines[kind]) for kind in ("code", "tests"))
    return SourceChange(code=code, tests=tests, files=files, insertions=insertions, deletions=deletions)
