"""Adapter: what the finders of stacks share: the words for what was found, and looks at files that never fail."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from mz_engine.errors import MzError
from mz_engine.textfile import read_text

WANTED = ("test", "lint", "build")


class Stack(msgspec.Struct, frozen=True):
    """What the files of one language or tool say."""

    name: str
    commands: dict[str, str] = {}
    """By what they are for: `test`, `lint`, `build`."""
    setup: tuple[str, ...] = ()
    """What a fresh worktree needs before these work."""
    keep: tuple[str, ...] = ()
    """Ignored directories that are dear to make again."""


def has(root: Path, name: str) -> bool:
    with suppress(OSError):
        return (root / name).is_file()
    return False


def has_glob(root: Path, pattern: str) -> bool:
    with suppress(OSError):
        return any(path.is_file() for path in root.glob(pattern))
    return False


def text_of(root: Path, name: str) -> str:
    """Empty where there is no such text file."""
    with suppress(MzError, OSError):
        return read_text(root / name, name) if (root / name).is_file() else ""
    return ""
