"""Changes of a patch by file; the patch is written by git with full ids and without renames."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

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
