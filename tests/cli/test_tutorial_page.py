"""Pages that can be followed to the letter from an empty repository on, with a program in the place of an agent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.drive import run_line
from tests.cli.test_guide_page import EXIT, parts
from tests.support.gitrepo import IDENTITY
from tests.support.tree import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(("page", "outputs", "commands"), [("tutorial-pipeline", 3, 15), ("generation", 2, 9)])
def test_the_page_can_be_followed(page: str, outputs: int, commands: int, tmp_path: Path) -> None:
    root, programs = tmp_path / "project", tmp_path / "home" / ".local" / "bin"
    programs.mkdir(parents=True)
    root.mkdir()
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **IDENTITY, "HOME": str(tmp_path / "home"), "PATH": path}

    def run(line: str) -> str:
        done = run_line(root, line, environment)
        assert done.exit == (int(match[1]) if (match := EXIT.search(line)) else 0), f"{line}\n{done.out}{done.err}"
        return done.out + done.err

    run("git init --quiet --initial-branch=main")
    output, compared, lines = "", 0, list[str]()
    for part in parts((ROOT / "docs" / f"{page}.md").read_text("utf-8")):
        kind, _, name = part.remark.partition(": ")
        if kind in ("file", "program"):
            file = (root if kind == "file" else programs) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(part.text)
            file.chmod(0o755 if kind == "program" else 0o644)
        elif kind == "example":
            continue
        elif kind == "prints":
            assert part.text.strip() in output
            compared += 1
        else:
            assert part.language == "sh"
            output = "".join(run(line) for line in part.text.splitlines())
            lines += part.text.splitlines()
    assert (compared, len(lines)) == (outputs, commands)
