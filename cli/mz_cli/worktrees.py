"""Paths of features' files, and the run context for display."""

from __future__ import annotations

from pathlib import Path

from mz_engine.home import HOME, PULL_REQUESTS, WORKTREES
from mz_projections.queue import Letter

from mz_cli.advice import Around, Place


def around(home: Path, letters: tuple[Letter, ...] = ()) -> Around:
    """Return the context of the project's runs; `messages`: the run's inbox."""
    return Around(tree=worktrees(home), text=pull_request_texts(home), letters=letters, near=near)


def worktrees(home: Path) -> Place:
    """Return a function from run and feature to the worktree; None if it does not exist."""

    def worktree_path(run: str, feature: str) -> str | None:
        folder = home / HOME / WORKTREES / run / feature
        return str(folder) if folder.is_dir() else None

    return worktree_path


def pull_request_texts(home: Path) -> Place:
    """Return a function from run and feature to the text of a pull request that a person has to open; None if it does
    not exist."""

    def text_path(run: str, feature: str) -> str | None:
        file = home / HOME / PULL_REQUESTS / run / f"{feature}.md"
        return str(file) if file.is_file() else None

    return text_path


def near(place: str) -> str:
    """Return the path relative to the current directory if it is below it, else unchanged."""
    path, here = Path(place), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else place
