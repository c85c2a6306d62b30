"""`kill -9` at random instants of the real program, with real git and real processes: nothing is lost or done twice."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.bench import TESTS, Bench

pytestmark = pytest.mark.slow

BRANCHES = ("feat/month-filter", "feat/group-thousands")
KILLS = 9
DONE, ANSWERED, WAITING = 0, 2, 21


def killed_run(bench: Bench, calls: int, seconds: float, *arguments: str) -> int | None:
    """The exit code, or None when it was killed, so many seconds after it began so many more calls."""
    process, goal = bench.start(*arguments), bench.calls().total() + calls
    while process.poll() is None and bench.calls().total() < goal:
        time.sleep(0.02)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    return process.returncode


def following(bench: Bench) -> list[str] | None:
    """Go on; where calls were lost too often in a row, a person has to say so. None when the run has ended: it may have
    been killed between the last event and its exit."""
    shown = bench.mz("status", "--json", code=None)
    if shown.exit != 0:
        return ["run"]
    document = json.loads(shown.out)
    waiting = [feature["id"] for feature in document["features"] if feature["status"] == "waiting"]
    answer = [word for feature in waiting for word in ("--feature", feature)]
    if document["status"] == "finished":
        return None
    return ["resume", *answer, "--answer", "retry"] if waiting else ["run"]


def two_features(folder: Path) -> Bench:
    """One of which has its code refused once; nothing else is in the backlog."""
    bench = Bench(folder, command=TESTS)
    backlog = bench.root / "features.md"
    backlog.write_text(backlog.read_text().replace("## [FEAT] month-compare", "## [BLOCKED] month-compare"))
    return bench


def trees(bench: Bench) -> dict[str, str]:
    return {branch: bench.git("rev-parse", f"{branch}^{{tree}}").strip() for branch in BRANCHES}


def gone(bench: Bench) -> bool:
    """No process of the run is left, two seconds after its `mz` died."""
    for _ in range(40):
        if not bench.processes():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.timeout(900)
def test_a_killed_run_is_resumed_to_the_same_end(tmp_path: Path) -> None:
    undisturbed = two_features(tmp_path / "undisturbed")
    undisturbed.mz("run")
    dice, bench = random.Random(1), two_features(tmp_path / "killed")
    code = killed_run(bench, 1, dice.uniform(0, 0.5), "run")
    kills = int(code is None)
    while code is None:
        assert gone(bench), "a process outlived its mz"
        if (command := following(bench)) is None:
            break
        calls, seconds = (dice.randint(0, 3), dice.uniform(0, 1)) if kills < KILLS else (0, 300)
        code = killed_run(bench, calls, seconds, *command)
        if code == ANSWERED:  # It was killed after the answer was stored, and before the run read it.
            code = killed_run(bench, calls, seconds, "resume")
        kills += code is None
        if code == WAITING:
            code = None
        assert code in (None, DONE), bench.mz("status", code=None).out
    assert kills >= 3
    assert set(bench.statuses().values()) == {"delivered"}
    assert trees(bench) == trees(undisturbed)
    assert set(bench.calls().values()) == {1}, "an agent was called twice under one key"
    for branch in BRANCHES:
        keys = bench.keys_of(branch)
        assert len(keys) == len(set(keys)), "a commit was made twice"
    requested = [event["ref"]["key"] for event in bench.of_type("agent.requested")]
    assert len(requested) == len(set(requested))
    assert set(bench.calls()) <= set(requested), "an agent was called without an intent in the log"


def test_two_runs_at_once_and_a_clean_stop(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.act("month-filter", "prd", "import time; time.sleep(3); answer()")
    first = bench.start("run", "--feature", "month-filter")
    deadline = time.monotonic() + 60
    while not bench.calls() and time.monotonic() < deadline:
        time.sleep(0.1)
    second = bench.mz("run", code=16)
    assert "MZ5002" in second.err
    first.send_signal(2)
    out, err = first.communicate(timeout=120)
    assert first.returncode == 20, out + err
    assert "mz resume" in out + err
    assert gone(bench)
    bench.mz("resume")
    assert set(bench.statuses().values()) == {"delivered"}
    assert set(bench.calls().values()) == {1}, "a clean stop pays nothing twice"
