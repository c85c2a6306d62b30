"""`mz diff`: two runs, and only what differs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from mz_events.catalog.run import RunStarted
from mz_events.names import Commit, RunId
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, on_terminal
from tests.cli.stored_run import RUN, StoredRun

NEWER = "20260302-080000-ffff"
PINS = '{"config": {"agent": "codex", "budget": {"run_nanousd": 5000000000}}}'


@pytest.fixture
def newer(stored_run: StoredRun) -> StoredRun:
    """A second run, of which `login` came to a question, and which was started otherwise."""
    stored_run.close()
    log = StoredRun(stored_run.home, run=NEWER)
    log.to_run(
        RunStarted(run=RunId(NEWER), pipeline="monozukuri", base="main", base_commit=Commit("b" * 40),
                   pins=log.blob(PINS), mz_version="0.2.0")
    )  # fmt: skip
    log.wait("login")
    log.close()
    return log


def compared(mz: Mz, *args: str) -> Any:
    answer = mz("diff", *args, "--json")
    assert answer.err == ""
    return msgspec.json.decode(answer.out)


def test_in_a_pipe(newer: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("diff", "20260301", NEWER)
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot
    assert {line.count("\t") for line in answer.out.splitlines()} == {3}


def test_on_a_terminal(newer: StoredRun, snapshot: SnapshotAssertion) -> None:
    shown = on_terminal(newer.home, "diff", RUN, NEWER, columns=80, env={"NO_COLOR": "1"})
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


def test_as_json(newer: StoredRun, mz: Mz) -> None:
    result = compared(mz, RUN, NEWER)
    start = {element["path"]: (element["left"], element["right"]) for element in result["start_differences"]}
    assert start["mz_version"] == ("0.1.0", "0.2.0")
    assert (start["config.agent"], start["config.budget.run_usd"]) == ((None, "codex"), (None, "5.00"))
    login = next(item for item in result["features"] if item["id"] == "login")
    differences = {entry["path"]: (entry["left"], entry["right"]) for entry in login["differences"]}
    assert differences["status"] == ("delivered", "waiting")
    assert differences["computed_usd"] == ("0.04938", None)
    assert [feature["in_left"] for feature in result["features"]] == [True] * 4
    assert [feature["in_right"] for feature in result["features"]] == [True, False, False, False]


def test_exit_codes(newer: StoredRun, mz: Mz) -> None:
    assert mz("diff", RUN, NEWER).exit == 0
    assert mz("diff", RUN, NEWER, "--exit-code").exit == 1
    assert mz("diff", RUN, RUN, "--exit-code").exit == 0
    same = compared(mz, RUN, RUN)
    assert (same["differs"], same["start_differences"], same["features"]) == (False, [], [])


def test_what_is_not_there(newer: StoredRun, mz: Mz) -> None:
    for args, exit_code, message in (((RUN, "nope"), 10, "there is no run or feature 'nope'"),
                                     (("2026", RUN), 2, "2 run ids begin"),
                                     ((RUN,), 2, "missing argument 'RIGHT'")):  # fmt: skip
        answer = mz("diff", *args)
        assert (answer.exit, answer.out) == (exit_code, "")
        assert message in answer.err
