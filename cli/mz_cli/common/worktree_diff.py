"""What git has of a feature, for display: the patch between two captures, the head of a closed branch."""

from __future__ import annotations

import os
from pathlib import Path

from mz_engine.git.process import NO_USER_CONFIG, git_error, run_git, safe_environment
from mz_engine.ports import RepositoryUnusable
from mz_engine.secrets import project_secrets
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets

CAPTURES_MISSING = "(the captures are no longer in the repository)"
PATHS_MAX = 2000
"""More paths than this are only counted, since they would not fit on a command line."""
DIFF_OPTIONS = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


def patch(root: Path, before: Commit, after: Commit, excluded: frozenset[str]) -> str:
    """Return the patch without the excluded paths, secrets redacted; empty if nothing else changed."""
    try:
        names = _git(root, "diff", *DIFF_OPTIONS, "--name-only", "-z", before, after, "--")
        paths = [os.fsdecode(name) for name in names.split(b"\0") if name]
        included = [path for path in paths if path not in excluded]
        if not included:
            return ""
        if len(included) > PATHS_MAX:
            return f"({len(included)} files)"
        text = _git(root, "diff", *DIFF_OPTIONS, before, after, "--", *included)
    except RepositoryUnusable:
        return CAPTURES_MISSING
    return Secrets(project_secrets(root, os.environ)).redact(text.decode("utf-8", "replace"))


def closed_ref(root: Path, run: str, branch: str) -> str | None:
    """Return the ref that keeps the head of a branch that was closed; None: it is there, or `mz clean` ran."""
    patterns = (f"refs/heads/{branch}", f"refs/mz/{run}/closed/heads/{branch}/")
    try:
        refs = _git(root, "for-each-ref", "--sort=creatordate", "--format=%(refname)", *patterns).decode().split()
    except RepositoryUnusable:
        return None
    return refs[-1] if refs and patterns[0] not in refs else None


def _git(root: Path, *args: str) -> bytes:
    """Return stdout of git. Raises RepositoryUnusable if it fails."""
    result = run_git(args, root, {**safe_environment(os.environ), **NO_USER_CONFIG})
    if result.exit_code:
        raise git_error(args[0], result)
    return result.stdout
