"""Content of a tree or a worktree by byte path: names on disk need not be text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

FILE, EXECUTABLE, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000
"""The file modes in trees."""


class TreeEntry(NamedTuple):
    """Mode and object id of one path of a tree."""

    mode: int
    oid: str


TreeListing = Mapping[bytes, TreeEntry]
"""All files, symbolic links and submodules of a tree."""

FileSignature = tuple[int, int, int, int, int]
"""mtime and ctime in ns, size, inode, mode: if none differs, neither does the content."""


class FileHash(msgspec.Struct, frozen=True, array_like=True):
    """Object id and signature of a file when it was last hashed."""

    signature: FileSignature
    hashed_ns: int
    oid: str


class ExcludedPath(msgspec.Struct, frozen=True):
    """A path that never belongs in a tree, with everything below it."""

    path: bytes
    kind: Literal["special", "nested-git", "too-big"]
    size_bytes: int | None = None


class WorktreeScan(msgspec.Struct, frozen=True):
    """Content of a directory."""

    files: dict[bytes, TreeEntry]
    """Tracked or not ignored; submodules as in the reference tree."""
    ignored: set[bytes]
    """Ignored files, and ignored directories with a `/` at the end, without those that settings keep."""
    directories: set[bytes]
    """Directories that are not ignored, without the top."""
    excluded: list[ExcludedPath]
    hash_cache: dict[bytes, FileHash]
    """For the next walk."""
