"""What tests of the engine share: a repository with a feature opened in it."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.desk import Desk


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    """The user's repository, with the worktree where an agent would work."""
    desk = Desk(tmp_path)
    desk.open()
    return desk
