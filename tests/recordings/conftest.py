"""Fixtures: copies of a small project that was run and recorded, one for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workshop import Copy, clone


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Copy:
    return clone(recorded, tmp_path / "clone")
