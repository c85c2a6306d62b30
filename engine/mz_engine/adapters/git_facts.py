"""Facts: what a tree or a worktree holds, by byte path: names on a disk need not be text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

FILE, EXECUTABLE, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000
"""The modes that trees know."""


class Entry(NamedTuple):
    """What a tree says of one path."""

    mode: int
    oid: str


Listing = Mapping[bytes, Entry]
"""All files, symbolic links and submodules of a tree."""

Signature = tuple[int, int, int, int, int]
"""mtime and ctime in ns, size, inode, mode: when none differs, neither does the content."""


class Known(msgspec.Struct, frozen=True, array_like=True):
    """What a file was when it was hashed last."""

    signature: Signature
    hashed_ns: int
    oid: str


class Stray(msgspec.Struct, frozen=True):
    """Something that never belongs in a tree, with all that is below it."""

    path: bytes
    kind: Literal["special", "nested-git", "too-big"]
    size_bytes: int | None = None


class Scan(msgspec.Struct, frozen=True):
    """What a directory holds."""

    files: dict[bytes, Entry]
    """Tracked or not ignored; submodules as the reference tree has them."""
    ignored: set[bytes]
    """Ignored files, and ignored directories with a `/` at the end; without what is kept."""
    directories: set[bytes]
    """Those that are not ignored; without the top."""
    strays: list[Stray]
    known: dict[bytes, Known]
    """For the next walk."""
