"""The sample project that is part of `mz`, as a repository."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

SAMPLE = "sample"
"""Its name in cassettes."""
BASE = "main"
COMMIT_TIME = "2026-01-01T00:00:00Z"
"""Fixed time, so that the first commit is the same everywhere."""
COMMIT_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Tally",
    "GIT_AUTHOR_EMAIL": "tally@localhost",
    "GIT_AUTHOR_DATE": COMMIT_TIME,
    "GIT_COMMITTER_NAME": "Tally",
    "GIT_COMMITTER_EMAIL": "tally@localhost",
    "GIT_COMMITTER_DATE": COMMIT_TIME,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
SECONDS = 60


def create_sample(folder: Path, environment: Mapping[str, str]) -> None:
    """Create a repository with the sample project in one commit on `main` at `folder`, which must not exist.

    Raises FileExistsError, OSError, and subprocess.CalledProcessError if git fails.
    """
    with as_file(files("mz_recordings") / "bundled" / SAMPLE) as source:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache", ".ruff_cache"))
    variables = {name: value for name, value in environment.items() if not name.startswith("GIT_")} | COMMIT_ENVIRONMENT
    for arguments in (
        ("init", "--quiet", f"--initial-branch={BASE}"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=A small tool that adds up what was spent"),
    ):
        subprocess.run(
            ["git", *arguments], cwd=folder, env=variables, check=True, timeout=SECONDS, stdin=subprocess.DEVNULL
        )
