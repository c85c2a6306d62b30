"""Paths of features' files, and the run context for display."""

from __future__ import annotations

from pathlib import Path

from mz_engine.home import MZ_FOLDER, PULL_REQUESTS_FOLDER, WORKTREES_FOLDER
from mz_projections.queue import InboxMessage

from mz_cli.advice import PathFinder, RunContext


def run_context(home: Path, messages: tuple[InboxMessage, ...] = ()) -> RunContext:
    """Return the context of the project's runs; `messages`: the run's inbox."""
    return RunContext(worktree_path=worktree_finder(home), pull_request_text_path=pull_request_text_finder(home), messages=messages, display_path=relative_path)


def worktree_finder(home: Path) -> PathFinder:
    """Return a function from run and feature to the worktree; None if it does not exist."""

    def worktree_path(run: str, feature: str) -> str | None:
        folder = home / MZ_FOLDER / WORKTREES_FOLDER / run / feature
        return str(folder) if folder.is_dir() else None

    return worktree_path


def pull_request_text_finder(home: Path) -> PathFinder:
    """Return a function from run and feature to the text of a pull request that a person has to open; None if it does
    not exist."""

    def text_path(run: str, feature: str) -> str | None:
        file = home / MZ_FOLDER / PULL_REQUESTS_FOLDER / run / f"{feature}.md"
        return str(file) if file.is_file() else None

    return text_path


def relative_path(location: str) -> str:
    """Return the path relative to the current directory if it is below it, else unchanged."""
    path, here = Path(location), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else location
