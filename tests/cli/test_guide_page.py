"""docs/replay-in-ci.md can be followed to the letter: its files are written, its commands run, its output compared."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_engine.version import VERSION
from mz_recordings.cassette.repository import create_sample
from mz_recordings.findings.model import KIND_PROPERTIES

from tests.cli.drive import run_line
from tests.support.gitrepo import IDENTITY
from tests.support.package_index import package_index
from tests.support.played_agent import install_agent
from tests.support.preloaded import read_at_start
from tests.support.tree import ROOT

PAGE = (ROOT / "docs" / "replay-in-ci.md").read_text("utf-8")
PARTS = re.compile(
    r"^(?:<!-- (?P<remark>[^\n]*) -->\n\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
EXIT = re.compile(r"  # exit (\d+)$")


class Part(NamedTuple):
    remark: str
    language: str
    text: str


def parts(page: str = PAGE) -> Iterator[Part]:
    for match in PARTS.finditer(page):
        yield Part(match["remark"] or "", match["language"], match["text"])


class Team:
    """A repository with tests and nothing else, a home, and `mz`, `python3` and an agent on PATH."""

    def __init__(self, folder: Path, index: dict[str, str]) -> None:
        self.root, programs = folder / "tally", folder / "bin"
        create_sample(self.root, os.environ)
        for name in ("mz.yaml", "features.md"):
            (self.root / name).unlink()
        shutil.rmtree(self.root / ".git")
        (folder / "home").mkdir()
        install_agent(programs, "month-filter")
        (programs / "mz").write_text(
            f"#!/bin/sh\nexec '{sys.executable}' -c 'from mz_cli.main import main; main()' \"$@\"\n"
        )
        (programs / "mz").chmod(0o755)
        (programs / "python3").symlink_to(Path(sys.executable).resolve())  # What is on PATH may be a slow script.
        kept = {name: value for name, value in os.environ.items() if INHERITED_VARIABLES.fullmatch(name)}
        path = os.pathsep.join((str(programs), os.environ["PATH"]))
        own = {"PATH": path, "HOME": str(folder / "home"), "ANTHROPIC_API_KEY": "nobody-is-called"}
        self.environment = {**kept, **read_at_start(os.environ), **IDENTITY, **own, **index}
        for args in ("git init --quiet --initial-branch=main", "git add --all", "git commit --quiet --message Begin"):
            self.run(args)

    def run(self, line: str) -> str:
        """What a line of the page writes; it must end as the page says."""
        expected = int(match[1]) if (match := EXIT.search(line)) else 0
        done = run_line(self.root, line, self.environment)
        assert done.exit == expected, f"{line}\n{done.out}{done.err}"
        return done.out + done.err


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    with package_index(tmp_path / "index", ("mz-engine", VERSION)) as variables:
        follow(Team(tmp_path, variables))


def follow(team: Team) -> None:
    output, compared = "", 0
    for part in parts():
        if part.remark.startswith("file: "):
            path = team.root / part.remark.removeprefix("file: ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(part.text)
        elif part.remark == "prints":
            assert part.text in output
            compared += 1
        elif part.language == "sh":
            output = "".join(team.run(line) for line in part.text.splitlines())
    assert compared == 5
    assert team.run("git status --porcelain") == ""


def test_the_guide_knows_the_kinds_of_findings() -> None:
    named = re.findall(r"^\| `([A-Z]+)` \|", PAGE, flags=re.MULTILINE)
    assert set(named) <= set(KIND_PROPERTIES)
    assert {"UNUSED", "MISSING", "NETWORK"} <= set(named)
