"""The list of runs."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
import pytest
from mz_cli.inspect.status import RunLine, base_cell

from tests.cli.drive import Mz
from tests.cli.stored_run import RUN, StoredRun

SECOND = "20260302-080000-ef01"


def test_every_run_the_newest_first(stored_run: StoredRun, mz: Mz) -> None:
    second = StoredRun(stored_run.home, SECOND)
    second.seconds = count(72_000)
    second.begin("login", "search")
    result = msgspec.json.decode(mz("runs", "--json").out)
    assert [(line["run"], line["status"]) for line in result["runs"]] == [(SECOND, "interrupted"), (RUN, "idle")]
    assert result["runs"][0]["features"] == {"login": "queued", "search": "queued"}
    assert set(result["runs"][1]["features"].values()) == {"delivered", "waiting", "held", "queued"}


def test_a_pipe_gets_a_line_a_run(stored_run: StoredRun, mz: Mz) -> None:
    head, line = mz("runs").out.splitlines()
    assert head.split("\t") == ["run", "started", "status", "pipeline", "base", "features", "integration", "cycle"]
    assert line.split("\t")[0] == RUN
    assert "1 delivered" in line


@pytest.mark.parametrize(("integration", "cycle", "base"), [
    (None, 0, "main"), ("next", 0, "main (next)"), ("next", 2, "main (next, cycle 2)"), (None, 2, "main (cycle 2)"),
])  # fmt: skip
def test_a_terminal_shows_integration_branch_and_cycle_with_the_base(
    integration: str | None, cycle: int, base: str
) -> None:
    line = RunLine(
        run=RUN, status="idle", pipeline="any", base="main", integration=integration, cycle=cycle, started_us=0,
        features={}, fork_of=None,
    )  # fmt: skip
    assert (base_cell(line), base_cell(line).exact) == (base, "main")


def test_nothing_ran(home: Path, mz: Mz) -> None:
    answer = mz("runs")
    assert (answer.exit, answer.out) == (2, "")
    assert "nothing has run" in answer.err
