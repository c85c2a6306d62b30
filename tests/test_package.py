"""What users install is what stands here."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.tree import PACKAGES, ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as an index would serve it."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(target), str(ROOT))
    return next(target.glob("*.whl"))


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """The build leaves out what git ignores, and says nothing."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    here = {
        path.relative_to(ROOT / package).as_posix()
        for package in PACKAGES
        for path in (ROOT / package / f"mz_{package}").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == here


def test_the_wheel_carries_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_the_wheel_installs_and_runs(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=True)
    program = tmp_path / "fresh" / "bin"
    run(str(program / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    assert run(str(program / "mz"), "--version").startswith("mz ")
    assert "Usage" in run(str(program / "mz"), "--help")
    assert run(str(program / "mz-anthropic"), "--version").endswith(" (anthropic)\n")
