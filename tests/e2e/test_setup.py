"""What the set-up makes is there for every command, also in a worktree that had to be built again."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.support.bench import LOADS, Bench

pytestmark = pytest.mark.slow

SETTINGS = f"""
commands:
  test: test -f built/ready && {LOADS}
workspace:
  setup: ["mkdir -p built && touch built/ready", "echo once >> built/log"]
"""


def prepared(directory: Path) -> Bench:
    bench = Bench(directory)
    bench.settings(SETTINGS)
    (bench.root / ".gitignore").write_text((bench.root / ".gitignore").read_text() + "\nbuilt/\n")
    bench.git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "build something")
    return bench


def test_set_up_runs_once_and_again_for_a_vanished_worktree(tmp_path: Path) -> None:
    bench = prepared(tmp_path)
    bench.act("group-thousands", "tasks", "import time; time.sleep(60)")
    process = bench.start("run", "--feature", "group-thousands")
    begun = bench.bin / "acts" / "group-thousands.tasks.done"
    while not begun.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert [event["name"] for event in bench.of_type("command.ran") if event["stage"] == "setup"] == [
        *("mkdir -p built && touch built/ready", "echo once >> built/log")  # On the base; the feature gets the result.
    ]
    shutil.rmtree(bench.root / ".mz" / "worktrees")
    bench.mz("resume")
    assert bench.statuses()["group-thousands"] == "delivered"
    assert len([event for event in bench.of_type("command.ran") if event["stage"] == "setup"]) == 6


def test_a_set_up_that_fails_asks_a_person(tmp_path: Path) -> None:
    bench = prepared(tmp_path)
    only_base = "case $PWD in */_checkout1) true;; *) false;; esac"
    program = "(pwd; printf '\\\\000') > built/program"  # It contains its path, so it cannot be copied.
    begin = f"{only_base} && mkdir -p built && {program}"
    bench.settings(SETTINGS.replace("mkdir -p built", begin))
    bench.mz("run", "--feature", "group-thousands", code=21)
    (document,) = bench.of_type("human.requested")
    assert document["code"] == "setup-failed"
    assert bench.calls() == {}, "no agent is paid in a worktree that is not ready"
