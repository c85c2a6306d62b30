"""The project of the trial as a repository of its own: `tests/cases/trial/project`, with our own pipelines."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from mz_recordings.cassette.repository import COMMIT_ENVIRONMENT

from tests.support.script_trial import CASES
from tests.support.tree import ROOT


def make_project(folder: Path) -> None:
    """A repository at `place`, which must not exist, with everything in one commit that is the same every time."""
    shutil.copytree(CASES / "project", folder)
    shutil.copytree(ROOT / "pipelines", folder / "pipelines")
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | COMMIT_ENVIRONMENT
    for args in (("init", "--quiet", "--initial-branch=main"), ("add", "--all"), ("commit", "--quiet", "-mA cookbook")):
        subprocess.run(["git", *args], cwd=folder, env=own, check=True)
