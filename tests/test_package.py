"""What users install is what stands here."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.tree import PACKAGES, ROOT

pytestmark = pytest.mark.slow


def run(*command: str, **more: str) -> str:
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def link_requirements(package: Distribution, site: Path) -> None:
    """Link there what is installed here of what it requires, and nothing else."""
    for requirement in map(Requirement, package.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            installed = distribution(requirement.name)
            for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(str(installed.locate_file(top)))
                    link_requirements(installed, site)


def test_the_wheel_holds_every_file_of_the_packages_installs_and_runs(tmp_path: Path) -> None:
    """Built from the source distribution, as an index would serve it. The build leaves out what git ignores, and says
    nothing."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--no-compile", "--target", str(tmp_path / "backend"), "hatchling")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT))
    run(*build, PYTHONPATH=str(tmp_path / "backend"))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    here = {
        path.relative_to(ROOT / package).as_posix()
        for package in PACKAGES
        for path in (ROOT / package / f"mz_{package}").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == here

    venv.create(tmp_path / "fresh", symlinks=True)
    program = tmp_path / "fresh" / "bin"
    (site,) = (tmp_path / "fresh").glob("lib/*/site-packages")
    (package,) = distributions(path=[str(wheel)])
    link_requirements(package, site)
    run(*pip, "--python", str(program / "python"), "install", "--no-compile", "--no-index", str(wheel))
    assert run(str(program / "mz"), "--version").startswith("mz ")
    assert "Usage" in run(str(program / "mz"), "--help")
    assert run(str(program / "mz-anthropic"), "--version").endswith(" (anthropic)\n")
