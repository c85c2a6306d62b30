"""Names of the files and folders in a repository's `.mz` folder, and the folder of what concerns all repositories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MZ_FOLDER = ".mz"
LOG_FILE = "mz.db"
READ_MODELS_FILE = "views.sqlite"
"""Read models; rebuilt if missing."""
BLOBS_FOLDER = "blobs"
SPOOL_FOLDER = "spool"
"""Output of agent calls, as it grows."""
WORKTREES_FOLDER = "worktrees"
PRIVATE_FOLDER = "private"
"""The repositories that git sees in worktrees."""
WORKTREE_NOTES_FOLDER = "worktree-notes"
WORKTREE_FOLDERS = (WORKTREES_FOLDER, PRIVATE_FOLDER, WORKTREE_NOTES_FOLDER)
SCRATCH_FOLDER = "scratch"
"""What running commands change in overlays."""
PULL_REQUESTS_FOLDER = "pull-requests"
"""Descriptions of pull requests for people to open."""
LOCK_FILE = "run.lock"
"""Locked by the process that drives a run."""


def worktree_folder(root: Path, run: str, feature: str) -> Path:
    """Return the path of a feature's worktree; it need not exist."""
    return root / MZ_FOLDER / WORKTREES_FOLDER / run / feature


def user_data_directory(environment: Mapping[str, str]) -> Path:
    """Return the user's data folder, which may not exist."""
    from platformdirs import user_data_path

    chosen = environment.get("MZ_DATA")
    return Path(chosen).expanduser().absolute() if chosen else user_data_path("mz", appauthor=False)


def spending_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the record of what all runs of the user spent, which no agent sees."""
    return user_data_directory(environment) / "spending"
