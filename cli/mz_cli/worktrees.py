"""Adapter: where the files of features are, and what was left for their run."""

from __future__ import annotations

from pathlib import Path

from mz_engine.home import HOME, PULL_REQUESTS, WORKTREES
from mz_projections.queue import Letter

from mz_cli.advice import Around, Place


def around(home: Path, letters: tuple[Letter, ...] = ()) -> Around:
    """What people want to know of a run beside its events; `letters`: what was left in its inbox."""
    return Around(tree=worktrees(home), text=pull_request_texts(home), letters=letters, near=near)


def worktrees(home: Path) -> Place:
    """Run and feature -> the worktree's place; None where there is none, or none any more."""

    def place(run: str, feature: str) -> str | None:
        folder = home / HOME / WORKTREES / run / feature
        return str(folder) if folder.is_dir() else None

    return place


def pull_request_texts(home: Path) -> Place:
    """Run and feature -> the text of a pull request that a person is to open; None where there is none."""

    def place(run: str, feature: str) -> str | None:
        file = home / HOME / PULL_REQUESTS / run / f"{feature}.md"
        return str(file) if file.is_file() else None

    return place


def near(place: str) -> str:
    """Relative to the current directory where the place is below it, else as it is."""
    path, here = Path(place), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else place
