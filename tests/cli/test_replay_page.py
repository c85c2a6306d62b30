"""The commands of docs/recordings.md do what the page says, in the order in which they stand there."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.programs import finished
from tests.support.tree import ROOT
from tests.support.workshop import Copy, Workshop

PAGE = (ROOT / "docs" / "recordings.md").read_text("utf-8")
PARTS = re.compile(r"^```sh\n(.*?)^```$|^<!-- (.*) -->$", re.MULTILINE | re.DOTALL)
WAITS = {"mz run --record": 21}
"""The run of the workshop asks a person."""
ELSEWHERE = ("mz replay --bundled",)
"""Played whole by `tests/recordings/test_faults.py` and `test_demo.py`."""


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    program = tmp_path / "bin" / "mz"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c 'from mz_cli.main import main; main()' \"$@\"\n")
    program.chmod(0o755)
    played = 0
    for commands, remark in PARTS.findall(PAGE):
        if remark:
            Copy(workshop.root).edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
        for line in commands.splitlines():
            args, _, output = line.partition("  # ")
            if args.strip() in ELSEWHERE:
                continue
            match = re.search(r"exit (\d+)", output)
            done = finished(
                "sh", "-c", args, cwd=workshop.root, environment={**os.environ, **workshop.environment}, seconds=120
            )
            expected = int(match[1]) if match else WAITS.get(args.strip(), 0)
            assert done.returncode == expected, f"{line}\n{done.stdout}{done.stderr}"
            played += 1
    assert played == 16
