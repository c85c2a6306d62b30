"""Names say what a thing is: words that say nothing, or speak in metaphors, are no names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.tree import PACKAGES, modules, parsed

BANNED = frozenset(
    (
        "found", "told", "said", "each", "one", "known", "words", "place", "rest",
        "news", "owed", "heard", "asked", "given", "taken", "seen", "mend", "story",
        "wish", "whole", "upto", "carry", "lacks", "around", "alone",
    )
)  # fmt: skip
ALLOWED = {
    ("engine/mz_engine/prompts/render.py", "known")  # Templates of users name it.
}
"""Names that stored files or users' templates hold. The list may only shrink."""


CODE = tuple(path for path in modules(*PACKAGES, "tools", "tests") if "bundled" not in path.parts)


def test_no_name_is_a_banned_word() -> None:
    used = {(path.as_posix(), name) for path in CODE for name in banned_names(path)}
    assert sorted(used - ALLOWED) == []
    assert sorted(ALLOWED - used) == [], "remove what is no longer needed"


def banned_names(path: Path) -> Iterator[str]:
    """Yield each banned name that a module defines, and its own name."""
    for name in (path.stem, *defined_names(parsed(path))):
        if name.strip("_").lower() in BANNED:
            yield name


def defined_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
