"""Facts: what lies where below `.mz` of a repository."""

from __future__ import annotations

HOME = ".mz"
LOG = "mz.db"
VIEWS = "views.sqlite"
"""Read models: made again where they are missing."""
BLOBS = "blobs"
SPOOL = "spool"
"""Output of agent calls, as it grows."""
WORKTREES = "worktrees"
NOTES = "worktree-notes"
PULL_REQUESTS = "pull-requests"
"""Texts of pull requests that people are to open."""
LOCK = "run.lock"
"""Held by the process that works on a run."""
