"""Byte paths: validity in trees and events, and how to display invalid ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from mz_events.names import PATH_BYTES_MAX, InvalidName, Path, parse_path

DOT_GIT = re.compile(rb"(\.git|git~1)[ .]*(:.*)?\Z", re.IGNORECASE | re.DOTALL)
DOT_GITMODULES = re.compile(rb"(\.gitmodules|gitmod~[1-4]|gi7eba~\d)[ .]*(:.*)?\Z", re.IGNORECASE | re.DOTALL)

T = TypeVar("T")


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


def entries_below(listing: Mapping[bytes, T], path: bytes) -> dict[bytes, T]:
    """Return the entries at a path and below it."""
    prefix = path + b"/"
    return {name: entry for name, entry in listing.items() if name == path or name.startswith(prefix)}
