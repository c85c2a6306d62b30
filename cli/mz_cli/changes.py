"""Patch between two captures of a worktree, for display."""

from __future__ import annotations

import os
from pathlib import Path

from mz_engine.adapters.git_process import OURS, clean, start
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.ports import RepositoryUnusable
from mz_events.names import Commit
from mz_events.redact import Secrets

GONE = "(the captures are no longer in the repository)"
PATHS_MAX = 2000
"""More paths than this are only counted, since they would not fit on a command line."""
PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


def patch(home: Path, before: Commit, after: Commit, without: frozenset[str]) -> str:
    """Return the patch without the excluded paths, secrets redacted; empty if nothing else changed."""
    names = _git(home, "diff", *PLAIN, "--name-only", "-z", before, after, "--")
    if names is None:
        return GONE
    paths = [os.fsdecode(name) for name in names.split(b"\0") if name]
    wanted = [path for path in paths if path not in without]
    if not wanted:
        return ""
    if len(wanted) > PATHS_MAX:
        return f"({len(wanted)} files)"
    text = _git(home, "diff", *PLAIN, before, after, "--", *wanted)
    return GONE if text is None else Secrets(known_secrets(home, os.environ)).redact(text.decode("utf-8", "replace"))


def _git(home: Path, *args: str) -> bytes | None:
    """Return stdout of git; None if it fails."""
    try:
        with start(args, home, {**clean(os.environ), **OURS}) as process:
            out, _ = process.communicate()
    except RepositoryUnusable:
        return None
    return out if process.returncode == 0 else None
