"""Pure: what a patch changes, file by file, as git writes patches with full ids and without renames."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

HEADER = re.compile(rb"^diff --git (.+)$", re.MULTILINE)
Kind = Literal["added", "modified", "deleted"]


class Changed(NamedTuple):
    """What a patch does to one file."""

    kind: Kind
    mode: str
    """The new mode, where it is named."""
    content: bytes
    """The part of the patch without what only names it."""


def changed_files(patch: bytes) -> dict[str, Changed]:
    """By path, as the patch writes it. Total: what is no patch changes nothing. (Within a hunk every line begins with a
    sign, so a line that begins with `diff` is a header.)"""
    found: dict[str, Changed] = {}
    heads = list(HEADER.finditer(patch))
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(patch)
        body = patch[head.end() + 1 : end]
        found[_path(head[1])] = Changed(_kind(body), _mode(body), body)
    return found


def _path(names: bytes) -> str:
    """`a/x b/x`, or both in quotes: half of it is the name."""
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
