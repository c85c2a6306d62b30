"""Adapter: puts the stand-in for `gh` on the PATH of what a test runs, and looks at what it was asked."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

FAKE_GH = pathlib.Path(__file__).with_name("fake_gh")


class FakeGh:
    """A directory with `gh` in it, and the pull requests that it keeps."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._state = directory / "pulls.json"
        self._commands = directory / "commands"
        self._commands.mkdir(parents=True)
        gh = self._commands / "gh"
        gh.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{FAKE_GH}" "$@"\n')
        gh.chmod(0o755)

    def environment(self, fault: str = "") -> dict[str, str]:
        """For the process that is to find this `gh`."""
        own = {"FAKE_GH_STATE": str(self._state), "FAKE_GH_FAULT": fault}
        return {**os.environ, **own, "PATH": f"{self._commands}{os.pathsep}{os.environ['PATH']}"}

    @property
    def pulls(self) -> list[dict[str, Any]]:
        return self._read("pulls")

    @property
    def calls(self) -> list[list[str]]:
        return self._read("calls")

    def close_all(self) -> None:
        """As a person on the site would."""
        pulls = [{**pull, "state": "CLOSED"} for pull in self.pulls]
        self._state.write_text(json.dumps({"pulls": pulls, "calls": self.calls}))

    def _read(self, what: str) -> list[Any]:
        found: list[Any] = json.loads(self._state.read_text())[what] if self._state.exists() else []
        return found
