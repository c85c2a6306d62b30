"""What tests of commands share: a log with a story in it, and the clock's zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.story import Story, tell


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are shown in the reader's zone, and help as wide as the terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "LINES"):
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
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def story(home: Path) -> Iterator[Story]:
    """The whole story in the log of `home`."""
    told = tell(home)
    yield told
    told.close()
