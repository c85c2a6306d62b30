"""Path patterns as in .gitignore: the last one that matches decides, `!` excludes again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from pathspec import GitIgnoreSpec

P = TypeVar("P", bound=str)


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(patterns)


def matches(patterns: Sequence[str], path: str) -> bool:
    return _compiled(tuple(patterns)).match_file(path)


def select(patterns: Sequence[str], paths: Iterable[P]) -> tuple[P, ...]:
    """Return the paths that match, in their order."""
    compiled = _compiled(tuple(patterns))
    return tuple(path for path in paths if compiled.match_file(path))
