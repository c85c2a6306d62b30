"""Fixtures: a small project, run and recorded once, and copies of it for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workshop import Copy, clone, recorded_in


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, recorded; only to be read."""
    return recorded_in(tmp_path_factory.mktemp("workshop"))


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Copy:
    return clone(recorded, tmp_path / "clone")
