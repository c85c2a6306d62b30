"""Names of the files and folders in a repository's `.mz` folder."""

from __future__ import annotations

HOME = ".mz"
LOG = "mz.db"
VIEWS = "views.sqlite"
"""Read models; rebuilt if missing."""
BLOBS = "blobs"
SPOOL = "spool"
"""Output of agent calls, as it grows."""
WORKTREES = "worktrees"
NOTES = "worktree-notes"
PULL_REQUESTS = "pull-requests"
"""Descriptions of pull requests for people to open."""
LOCK = "run.lock"
"""Locked by the process that drives a run."""
