"""What it costs: how many git processes a call starts, and how that stays the same in a large repository."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from tests.support.desk import WORKTREE, Desk


class Counted:
    """An environment whose `git` leaves a line for each process."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._seen = directory / "seen"
        self._seen.touch()
        commands = directory / "counted"
        commands.mkdir()
        git = commands / "git"
        git.write_text(f'#!/bin/sh\necho "$*" >> "{self._seen}"\nexec "{shutil.which("git")}" "$@"\n')
        git.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}

    def since(self) -> list[str]:
        lines = self._seen.read_text().splitlines()
        self._seen.write_text("")
        return lines


@pytest.fixture
def counted(tmp_path: pathlib.Path) -> Counted:
    return Counted(tmp_path)


@pytest.mark.slow
def test_few_processes_for_a_call_of_an_agent(tmp_path: pathlib.Path, counted: Counted) -> None:
    desk = Desk(tmp_path)
    port = desk.another(counted.environment)
    port.open(WORKTREE, (desk.base,))
    port.capture(WORKTREE, desk.base)
    counted.since()

    port.ensure(WORKTREE, desk.base, desk.base)
    assert len(counted.since()) <= 1, "nothing to do but to list the user's refs"
    desk.write({"src/app.py": "changed", "new": "n"})
    tree = port.capture(WORKTREE, desk.base).tree
    assert len(counted.since()) <= 2, "a capture"
    port.changes(desk.base, tree)
    port.ensure(WORKTREE, desk.base, tree)
    assert len(counted.since()) <= 2, "the check after it"
    port.ensure(WORKTREE, desk.base, desk.base)
    assert len(counted.since()) <= 2, "a restore"
    port.commit(WORKTREE, tree, desk.base, b"m\n")
    assert len(counted.since()) <= 6, "a commit"
