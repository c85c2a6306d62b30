"""Changes of a patch by file; the patch is written by git with full ids and without renames."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

HEADER = re.compile(rb"^diff --git (.+)$", re.MULTILINE)
Kind = Literal["added", "modified", "deleted"]


class Changed(NamedTuple):
    """Change of one file."""

    kind: Kind
    mode: str
    """The new mode, if the patch names it."""
    content: bytes
    """The part of the patch for this file, without its header line."""


def changed_files(patch: bytes) -> dict[str, Changed]:
    """Return the changes by path, as the patch spells it. Text that is not a patch has no changes.

    Lines of a hunk begin with a sign, so a line that begins with `diff` is a header.
    """
    found: dict[str, Changed] = {}
    heads = list(HEADER.finditer(patch))
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(patch)
        body = patch[head.end() + 1 : end]
        found[_path(head[1])] = Changed(_kind(body), _mode(body), body)
    return found


def _path(names: bytes) -> str:
    """Return the path from `a/x b/x`, or from both in quotes: each is half of the text."""
    half = names[: (len(names) - 1) // 2].decode("utf-8", "replace")
    return half.strip('"').removeprefix("a/")


def _kind(body: bytes) -> Kind:
    first = body.split(b"\n", 1)[0]
    if first.startswith(b"new file"):
        return "added"
    return "deleted" if first.startswith(b"deleted file") else "modified"


def _mode(body: bytes) -> str:
    found = re.match(rb"(?:old mode \d+\n)?new (?:file )?mode (\d+)", body)
    return found[1].decode() if found else ""
