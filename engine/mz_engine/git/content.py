"""Content of trees, worktrees and captures by byte path, since names on disk need not be text; which paths trees and
events may hold, and how others are displayed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec
from mz_events.catalog.call import ForbiddenChange
from mz_events.catalog.validation import Change
from mz_events.names import PATH_BYTES_MAX, InvalidName, Path, parse_path

FILE, EXECUTABLE, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000
"""The file modes in trees."""


class TreeEntry(NamedTuple):
    """Mode and object id of one path of a tree."""

    mode: int
    oid: str


TreeListing = Mapping[bytes, TreeEntry]
"""All files, symbolic links and submodules of a tree."""

FileSignature = tuple[int, int, int, int, int, int, int, int]
"""mtime and ctime in ns, size, inode, mode, device, user, group: if none differs, neither does the content."""


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
    self_ignored: set[bytes]
    """Ignored directories, with a `/` at the end, that no rule ignores but their own untracked `.gitignore`."""


ChangeKind = Literal["added", "modified", "deleted", "mode"]
DOT_GIT = re.compile(rb"(\.git|git~1)[ .]*(:.*)?\Z", re.IGNORECASE | re.DOTALL)
DOT_GITMODULES = re.compile(rb"(\.gitmodules|gitmod~[1-4]|gi7eba~\d)[ .]*(:.*)?\Z", re.IGNORECASE | re.DOTALL)


def is_valid_tree_name(name: bytes, is_link: bool) -> bool:
    """Return True if git accepts this part of a path in a tree on every system: nothing that some system reads as
    `.git`, no linked `.gitmodules`. Source: `verify_path` in git's `read-cache.c`."""
    if any(DOT_GIT.match(part) for part in name.split(b"\\")):
        return False
    return not is_link or not DOT_GITMODULES.match(name)


def event_path(path: bytes) -> Path | None:
    """Return the path as events may hold it; None if its name is not allowed there."""
    try:
        text = path.decode()
        return Path(text) if parse_path(text) == text else None
    except (UnicodeDecodeError, InvalidName):
        return None


def display_path(path: bytes) -> Path:
    """Return the path unchanged if events may hold it, else escaped and cut."""
    text = path.decode("utf-8", "backslashreplace")
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return event_path(path) or Path(safe.encode()[:PATH_BYTES_MAX].decode("utf-8", "ignore"))


def parent_directories(paths: Iterable[bytes]) -> set[bytes]:
    """Return every directory above these paths, without the top."""
    directories: set[bytes] = set()
    for path in paths:
        directory = path.rpartition(b"/")[0]
        while directory and directory not in directories:
            directories.add(directory)
            directory = directory.rpartition(b"/")[0]
    return directories


def entries_below(listing: TreeListing, path: bytes) -> dict[bytes, TreeEntry]:
    """Return the entries at a path and below it."""
    prefix = path + b"/"
    return {name: entry for name, entry in listing.items() if name == path or name.startswith(prefix)}


def capture_content(
    scan: WorktreeScan, before: TreeListing
) -> tuple[dict[bytes, TreeEntry], tuple[ForbiddenChange, ...]]:
    """Return the content to capture, and the forbidden changes left out of it; old entries at their paths stay."""
    content = dict(scan.files)
    forbidden_changes = [
        ForbiddenChange(kind=stray.kind, path=display_path(stray.path), size_bytes=stray.size_bytes)
        for stray in scan.excluded
    ]
    for stray in scan.excluded:
        if stray.kind != "nested-git":
            _overlay(content, entries_below(before, stray.path))
    changed = [path for path in scan.files.keys() | before.keys() if content.get(path) != before.get(path)]
    for path in changed:
        if event_path(path) is None:
            forbidden_changes.append(ForbiddenChange(kind="special", path=display_path(path)))
            content.pop(path, None)
            _overlay(content, {path: before[path]} if path in before else {})
    return content, tuple(sorted(forbidden_changes, key=lambda offence: (offence.path, offence.kind)))


def revert_paths(tree: TreeListing, before: TreeListing, paths: Iterable[Path]) -> dict[bytes, TreeEntry]:
    """Return `tree` with these paths as they are in `before`, absent ones absent."""
    content = dict(tree)
    keys = [path.encode("utf-8", "surrogateescape") for path in paths]
    for key in keys:
        content.pop(key, None)
    _overlay(content, {key: before[key] for key in keys if key in before})
    return content


def with_files(tree: TreeListing, deleted: Collection[bytes], files: TreeListing) -> dict[bytes, TreeEntry]:
    """Return `tree` without the deleted files, and with these; one that was executable still is."""
    content = {path: entry for path, entry in tree.items() if path not in deleted}
    modes = {path: tree[path].mode for path in files if path in tree and tree[path].mode == EXECUTABLE}
    _overlay(content, {path: entry._replace(mode=modes.get(path, entry.mode)) for path, entry in files.items()})
    return content


def with_changes(
    tree: TreeListing, laid_out: TreeListing, now: TreeListing
) -> tuple[dict[bytes, TreeEntry], tuple[ForbiddenChange, ...]]:
    """Return `tree` with the files of `now` in place of those that were `laid_out`, and the files left out, because
    they are in the place of another file of the tree."""
    others = tree.keys() - laid_out.keys()
    folders = parent_directories(others)
    hidden = {
        path
        for path in now.keys() - laid_out.keys()
        if path in others or path in folders or not parent_directories((path,)).isdisjoint(others)
    }
    content = {path: entry for path, entry in tree.items() if path in others}
    content |= {path: entry for path, entry in now.items() if path not in hidden}
    return content, tuple(ForbiddenChange(kind="hidden", path=display_path(path)) for path in sorted(hidden))


def _overlay(content: dict[bytes, TreeEntry], entries: TreeListing) -> None:
    """Add entries, removing conflicting ones: a file where a directory is needed, or the other way round."""
    for directory in parent_directories(entries):
        content.pop(directory, None)
    if not entries.keys().isdisjoint(parent_directories(content)):
        for path in [path for path in content if not parent_directories((path,)).isdisjoint(entries)]:
            del content[path]
    content.update(entries)


def changes(before: TreeListing, after: TreeListing) -> Iterator[Change]:
    """Yield the differences as events hold them, sorted by path, without paths that no event may hold. A rename is a
    deletion and an addition."""
    for key in sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
        path, old, new = event_path(key), before.get(key), after.get(key)
        if path:
            is_same = old and new and old.oid == new.oid and not {old.mode, new.mode} & {LINK, SUBMODULE}
            kind: ChangeKind = "added" if not old else "deleted" if not new else "mode" if is_same else "modified"
            yield Change(path=path, kind=kind)
