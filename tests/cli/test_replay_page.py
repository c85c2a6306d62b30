"""The commands of docs/recordings.md do what the page says, in the order in which they stand there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.drive import run_line
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
    environment = {**os.environ, **workshop.environment}
    played = 0
    for commands, remark in PARTS.findall(PAGE):
        if remark:
            Copy(workshop.root).edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
        for line in commands.splitlines():
            args, _, output = line.partition("  # ")
            if args.strip() in ELSEWHERE:
                continue
            match = re.search(r"exit (\d+)", output)
            done = run_line(workshop.root, args, environment)
            expected = int(match[1]) if match else WAITS.get(args.strip(), 0)
            assert done.exit == expected, f"{line}\n{done.out}{done.err}"
            played += 1
    assert played == 16
