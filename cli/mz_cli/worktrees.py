"""Adapter: where the worktrees of features are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mz_cli.context import HOME


def worktrees(home: Path) -> Callable[[str, str], str | None]:
    """Run and feature -> the worktree's place; None where there is none, or none any more."""

    def place(run: str, feature: str) -> str | None:
        folder = home / HOME / "worktrees" / run / feature
        return str(folder) if folder.is_dir() else None

    return place
