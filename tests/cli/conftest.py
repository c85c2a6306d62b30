"""What tests of commands share: a log with a story in it, and the clock's zone."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cli.drive import Mz, run
from tests.cli.stored_run import StoredRun, tell
from tests.support.asking import Shelf
from tests.support.gitrepo import GitRepo


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are shown in the reader's zone, and help as wide as the terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "LINES", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that looks like a repository; commands run in it."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit and nothing of `mz`; commands run in it."""
    GitRepo(tmp_path).commit({"README.md": "x"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mz(capsys: pytest.CaptureFixture[str]) -> Mz:
    """`mz` in this process and the present directory."""
    return lambda *args: run(capsys, *args)


@pytest.fixture(scope="session")
def summary(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """The whole story, told once: appending is durable, and so it is slow. Nobody may change it."""
    log = tell(tmp_path_factory.mktemp("told"))
    log.close()
    return log


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Runs that wait for a person."""
    return Shelf(tmp_path_factory.mktemp("asking"))


@pytest.fixture
def stored_run(home: Path, summary: StoredRun) -> Iterator[StoredRun]:
    """The whole story in the log of `home`."""
    shutil.copytree(summary.home / ".mz", home / ".mz")
    copy = StoredRun(home)
    copy.recorded, copy.seconds = list(summary.recorded), count(len(summary.recorded))
    yield copy
    copy.close()
