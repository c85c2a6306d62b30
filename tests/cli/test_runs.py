"""The list of runs."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
import pytest

from tests.cli.drive import run
from tests.cli.stored_run import RUN, StoredRun

SECOND = "20260302-080000-ef01"


def test_every_run_the_newest_first(stored_run: StoredRun, capsys: pytest.CaptureFixture[str]) -> None:
    second = StoredRun(stored_run.home, SECOND)
    second.seconds = count(72_000)
    second.begin("login", "search")
    result = msgspec.json.decode(run(capsys, "runs", "--json").out)
    assert [(line["run"], line["status"]) for line in result["runs"]] == [(SECOND, "interrupted"), (RUN, "idle")]
    assert result["runs"][0]["features"] == {"login": "queued", "search": "queued"}
    assert set(result["runs"][1]["features"].values()) == {"delivered", "waiting", "held", "queued"}


def test_a_pipe_gets_a_line_a_run(stored_run: StoredRun, capsys: pytest.CaptureFixture[str]) -> None:
    head, line = run(capsys, "runs").out.splitlines()
    assert head.split("\t") == ["run", "started", "status", "pipeline", "base", "features"]
    assert line.split("\t")[0] == RUN
    assert "1 delivered" in line


def test_nothing_ran(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run(capsys, "runs")
    assert (answer.exit, answer.out) == (2, "")
    assert "nothing has run" in answer.err
