"""The sample project that is part of `mz`, as a repository."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

TEMPLATE = "sample"
"""Its name in cassettes."""
BASE = "main"
WHEN = "2026-01-01T00:00:00Z"
"""Fixed time, so that the first commit is the same everywhere."""
WHO = {
    "GIT_AUTHOR_NAME": "Tally",
    "GIT_AUTHOR_EMAIL": "tally@localhost",
    "GIT_AUTHOR_DATE": WHEN,
    "GIT_COMMITTER_NAME": "Tally",
    "GIT_COMMITTER_EMAIL": "tally@localhost",
    "GIT_COMMITTER_DATE": WHEN,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
SECONDS = 60


def make_sample(place: Path, environment: Mapping[str, str]) -> None:
    """Create a repository with the sample project in one commit on `main` at `folder`, which must not exist.

    Raises FileExistsError, OSError, and subprocess.CalledProcessError if git fails.
    """
    with as_file(files("mz_recordings") / "bundled" / TEMPLATE) as source:
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache", ".ruff_cache"))
    own = {name: value for name, value in environment.items() if not name.startswith("GIT_")} | WHO
    for arguments in (
        ("init", "--quiet", f"--initial-branch={BASE}"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=A small tool that adds up what was spent"),
    ):
        subprocess.run(["git", *arguments], cwd=place, env=own, check=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
