"""Adapter: what changed between two captures of a worktree, as a patch for people."""

from __future__ import annotations

import os
from pathlib import Path

from mz_engine.adapters.git_process import OURS, clean, start
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.ports import RepositoryUnusable
from mz_events.names import Commit
from mz_events.redact import Secrets

GONE = "(the captures are not in the repository any more)"
PATHS_MAX = 2000
"""More paths than this are only counted: a command line has its limits, and so have people."""
PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


def patch(home: Path, before: Commit, after: Commit, without: frozenset[str]) -> str:
    """The patch, without those paths and without secrets; empty where nothing else changed."""
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
    """None where git cannot say."""
    try:
        with start(args, home, {**clean(os.environ), **OURS}) as process:
            out, _ = process.communicate()
    except RepositoryUnusable:
        return None
    return out if process.returncode == 0 else None
