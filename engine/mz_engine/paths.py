"""Names of the files and folders in a repository's `.mz` folder."""

from __future__ import annotations

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
PULL_REQUESTS_FOLDER = "pull-requests"
"""Descriptions of pull requests for people to open."""
LOCK_FILE = "run.lock"
"""Locked by the process that drives a run."""
