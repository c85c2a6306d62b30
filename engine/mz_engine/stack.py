"""The type of a detected stack, and file checks that never fail."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from mz_engine.errors import MzError
from mz_engine.textfile import read_text

COMMAND_NAMES = ("test", "lint", "build")


class Stack(msgspec.Struct, frozen=True):
    """Commands of one language or tool, as its files define them."""

    name: str
    commands: dict[str, str] = {}
    """By purpose: `test`, `lint`, `build`."""
    setup: tuple[str, ...] = ()
    """Commands that a new worktree needs before these work."""
    keep: tuple[str, ...] = ()
    """Ignored directories that are slow to rebuild."""


def has_file(root: Path, name: str) -> bool:
    with suppress(OSError):
        return (root / name).is_file()
    return False


def has_matching_file(root: Path, pattern: str) -> bool:
    with suppress(OSError):
        return any(path.is_file() for path in root.glob(pattern))
    return False


def read_text_or_empty(root: Path, name: str) -> str:
    """Return the text of a file; empty if there is no such text file."""
    with suppress(MzError, OSError):
        return read_text(root / name, name) if (root / name).is_file() else ""
    return ""
