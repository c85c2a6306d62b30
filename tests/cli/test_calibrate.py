"""`mz calibrate`: how good estimates are, and a file that makes them better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mz_engine.run.settings import load_config
from mz_events.catalog.call import AgentReplied, CallPriced, ReplyParsed, Usage
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, decoded, on_terminal
from tests.cli.stored_run import TREE, StoredRun

TOOK = {"prd": (4000, 4100, 4200, 3900, 3800, 90_000), "code": (40_000, 42_000, 38_000, 41_000, 39_000)}


def calls(stored_run: StoredRun, phase: str, took: tuple[int, ...], terminal: str = "success") -> None:
    empty = stored_run.blob("")
    for attempt, tokens in enumerate(took, 1):
        ref = stored_run.ref("login", phase, attempt=attempt)
        stored_run.ask("login", ref)
        usage = Usage(model="claude-sonnet-4-5", input=tokens, output=tokens // 10, cache_read=tokens // 2)
        stored_run.to_feature(
            "login",
            AgentReplied(ref=ref, stdout=empty, stderr=empty, exit=0, duration_ms=1, tree=TREE),
            ReplyParsed(ref=ref, parser="claude-code/1", ending=terminal, session="s1", text=empty,
                      usage=(usage,)),
            CallPriced(key=ref.key, computed_nanousd=1),
        )  # fmt: skip


@pytest.fixture
def stored_run(home: Path) -> StoredRun:
    log = StoredRun(home).begin("login").admit("login")
    for phase, took in TOOK.items():
        calls(log, phase, took)
    calls(log, "tests", (9, 9))
    calls(log, "failed", (9, 9, 9, 9, 9, 9), "error")
    log.close()
    return log


def requested(mz: Mz, *args: str) -> Any:
    answer = mz("calibrate", *args, "--json")
    assert answer.err == ""
    return decoded(answer)


def test_by_agent_model_and_phase(stored_run: StoredRun, mz: Mz) -> None:
    """Calls that failed say nothing of what the work takes; the call that ran wild moves nothing."""
    result = requested(mz)
    assert (result["calls"], result["written"]) == (13, None)
    cells = {(item["model"], item["phase"]): item for item in result["fitted"]}
    assert list(cells) == [(None, None), ("claude-sonnet-4-5", None), ("claude-sonnet-4-5", "code"),
                           ("claude-sonnet-4-5", "prd")]  # fmt: skip
    code = cells["claude-sonnet-4-5", "code"]
    assert (code["calls"], code["input"], code["output"], code["input_tokens"]) == (5, 40.0, 2.0, 40_000)
    assert (code["estimates"], code["improves"]) == ("low", True)
    assert code["error_after"] < 0.06 < code["error_before"]
    assert cells["claude-sonnet-4-5", "prd"]["input_tokens"] == 4050
    assert result["too_few"] == [
        {"agent": "claude-code", "model": "claude-sonnet-4-5", "phase": "tests", "calls": 2}]  # fmt: skip


@pytest.mark.slow
def test_as_a_table(stored_run: StoredRun, mz: Mz, snapshot: SnapshotAssertion) -> None:
    assert mz("calibrate").out == snapshot
    shown = on_terminal(stored_run.home, "calibrate", columns=100, env={"NO_COLOR": "1"})
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


def test_what_cost_says_of_estimates(stored_run: StoredRun, mz: Mz) -> None:
    """Money there, tokens here; and with too few calls nothing is advised that would not help."""
    output = mz("cost").err
    assert "error of estimated money:" in output
    assert "; `mz calibrate` improves token estimates" in output
    assert (
        max(map(len, on_terminal(stored_run.home, "calibrate", columns=60, env={"NO_COLOR": "1"}).splitlines())) <= 60
    )


def test_nothing_is_written_unasked(stored_run: StoredRun, mz: Mz) -> None:
    assert mz("calibrate").exit == 0
    assert not (stored_run.home / "calibration.yaml").exists()


def test_what_helps_is_written_and_read_by_runs(stored_run: StoredRun, mz: Mz) -> None:
    result = requested(mz, "--write")
    assert result["written"] == str(stored_run.home / "calibration.yaml")
    coefficients = load_config(stored_run.home, {}, {}).config.calibration
    assert {entry.phase for entry in coefficients} >= {"code", "prd"}
    assert len(coefficients) == sum(item["improves"] for item in result["fitted"])


def test_too_little_is_no_calibration(home: Path, mz: Mz) -> None:
    log = StoredRun(home).begin("login").admit("login")
    calls(log, "prd", (1, 2, 3, 4))
    log.close()
    assert mz("calibrate").exit == 0
    answer = mz("calibrate", "--write")
    assert answer.exit == 125
    assert "nothing written: 5 successful calls of one agent are needed, there are 4 of all agents" in answer.err
    assert not (home / "calibration.yaml").exists()


def test_what_helps_nothing_is_not_written(home: Path, mz: Mz) -> None:
    """The estimate of 1,000 and 2,000 tokens was right most of the time; a median of such others is not."""
    log = StoredRun(home).begin("login").admit("login")
    calls(log, "prd", (2730, 2720, 90_000, 80_000, 270, 280))
    log.close()
    answer = mz("calibrate", "--write")
    assert answer.exit == 125
    assert "nothing written: 6 successful calls would not improve the estimates" in answer.err


def test_only_calls_of_a_time(stored_run: StoredRun, mz: Mz) -> None:
    assert requested(mz, "--until", "2026-02-28")["calls"] == 0
    assert requested(mz, "--since", "2026-02-28")["calls"] == 13
    assert "is not a time" in mz("calibrate", "--since", "then").err
