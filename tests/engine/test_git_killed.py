"""Killed at any instant: what is left is mended by the next call, and what was answered is there."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from mz_engine.ports import WorkspaceCreated

from tests.support.desk import FILES, WORKTREE, Desk

WORKER = """
import pathlib, sys
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree

root, base, turn = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
port = GitWorkspace(root, WorkspaceSettings())
place = FeatureWorktree(run="r1", feature="f1", branch="feat/f1")
top = root / ".mz/worktrees/r1/f1"


def say(*words):
    print(*words, flush=True)


say("loaded")
opened = port.open(place, (base,))
head, tree = opened.head, opened.tree
step = 0
while True:
    step += 1
    key = f"{turn}.{step}"
    port.ensure(place, head, tree)
    for number in range(12):
        file = top / f"dir{number % 3}" / f"file{number}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{key} {number}")
    captured = port.capture(place, tree).tree
    say("captured", captured)
    tree = port.revert_paths(place, captured, base, ("dir0/file0",))
    say("captured", tree)
    port.ensure(place, head, tree)
    say("asked", key)
    head = port.commit(place, tree, head, f"work\\n\\nMz-Key: {key}\\n".encode()).commit
    say("committed", key, head)
    if step % 4 == 0:
        port.close(place)
        head, tree = base, base
"""


def descendants(pid: int) -> list[int]:
    """Processes below a process, itself last."""
    below = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                below += descendants(int(status.parent.name))
    return [*below, pid]


def killed_after(desk: Desk, seconds: float, turn: str, full: bool) -> list[list[str]]:
    """Let the worker work for a while, kill it (`full`: with its gits), and return what it had said."""
    command = [sys.executable, "-c", WORKER, str(desk.repo.root), desk.base, turn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "loaded\n"
        time.sleep(seconds)
        assert worker.poll() is None
        for pid in descendants(worker.pid) if full else [worker.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        out = worker.stdout.read()
    return [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["mz-alone", "with-its-gits"])
def test_any_instant_will_do(tmp_path: pathlib.Path, full: bool) -> None:
    desk = Desk(tmp_path)
    dice = random.Random(7)
    for turn in range(12):
        rows = killed_after(desk, dice.random() * 0.7, f"turn{turn}", full)
        port = desk.another()
        strings = [arguments[1] for arguments in rows if arguments[0] == "asked"]
        for key in strings[-1:]:
            port.find_commit(WORKTREE, key)
        opened = port.open(WORKTREE, (desk.base,))
        assert isinstance(opened, WorkspaceCreated)
        captures = desk.repo.git("rev-list", "refs/mz/r1/f1").split()
        assert {texts[1] for texts in rows if texts[0] == "captured"} <= set(captures)
        done = [args for args in rows if args[0] == "committed"]
        for _, _, commit in done:
            assert desk.repo.git("cat-file", "-t", commit) == "commit"
        tree = port.capture(WORKTREE, opened.tree).tree
        port.ensure(WORKTREE, desk.base, desk.base)
        assert desk.state() == "## feat/f1"
        port.ensure(WORKTREE, desk.base, tree)
        assert desk.repo.tree(port.capture(WORKTREE, tree).tree) == desk.repo.tree(tree)
        port.ensure(WORKTREE, desk.base, desk.base)
    desk.repo.git("fsck", "--strict", "--no-dangling")
    desk.another()


# between any two steps of git -----------------------------------------------------------------------------------------
GIT = """#!/bin/sh
case " $* " in *" cat-file "*|*" diff-tree "*) exec "{git}" "$@";; esac  # They change nothing, and one stays for all.

step() {{
    input=$1
    shift
    read count fatal when < "{plan}"
    count=$((count + 1))
    echo $count $fatal $when > "{plan}"
    [ $count = $fatal ] && [ $when = before ] && kill -9 $PPID && exit 1
    if [ "$input" ]; then answer=$(printf '%s\n' "$input" | "{git}" "$@"); else "{git}" "$@"; fi
    code=$?
    [ $count = $fatal ] && kill -9 $PPID
    [ "$input" ] && printf '%s\n' "$answer"  # Not before: who reads it goes on, and may be done before the kill.
    return $code
}}

case " $* " in *" update-ref --stdin ") ;; *) step "" "$@"; exit;; esac
while read -r line; do  # One stays for all transactions, each of which is a step.
    lines="$lines
$line"
    [ "$line" = commit ] || continue
    step "${{lines#?}}" "$@" || exit
    lines=
done
"""

PROGRAM = """\
import os, pathlib, sys
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree


def work(root, base):
    port = GitWorkspace(root, WorkspaceSettings())
    place = FeatureWorktree(run="r1", feature="f1", branch="feat/f1")
{feature}

for line in sys.stdin:
    if not (child := os.fork()):
        root, base = line.split()
        work(pathlib.Path(root), base)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Works on the repository and commit in each line that it reads."""
FEATURE = """\
    port.open(place, (base,))
    made = port.find_commit(place, "one")
    if made is None:
        port.ensure(place, base, base)
        (root / ".mz/worktrees/r1/f1/one").write_text("one")
        (root / ".mz/worktrees/r1/f1/outside").write_text("one")
        tree = port.capture(place, base).tree
        tree = port.revert_paths(place, tree, base, ("outside",))
        port.ensure(place, base, tree)
        made = port.commit(place, tree, base, b"one\\n\\nMz-Key: one\\n")
    port.ensure(place, made.commit, made.commit)
"""


class Cutter:
    """Runs one small feature again and again, each time in a process of its own that may be killed at the nth step."""

    def __init__(self, directory: pathlib.Path, feature: str = FEATURE) -> None:
        directory.mkdir()
        self._plan, git = directory / "plan", directory / "git"
        git.write_text(GIT.format(plan=self._plan, git=shutil.which("git")))
        git.chmod(0o755)
        environment = {**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}
        command = [sys.executable, "-c", PROGRAM.format(feature=feature)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def run(self, desk: Desk, fatal: int = 0, when: str = "after") -> tuple[int, int]:
        """How it ended (0, or the signal) and how many steps of git it took."""
        self._plan.write_text(f"0 {fatal} {when}\n")
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{desk.repo.root} {desk.base}\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        return status, int(self._plan.read_text().split()[0])

    def kill(self, desk: Desk, fatal: int, when: str) -> None:
        """Kill it at that step, unless it took fewer: git reads an index that was written in this second twice."""
        status, steps = self.run(desk, fatal, when)
        assert status == signal.SIGKILL or (status == 0 and steps < fatal)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_between_any_two_steps_nothing_is_lost_or_done_twice(tmp_path: pathlib.Path, when: str) -> None:
    cutter = Cutter(tmp_path / "commands")
    with cutter.process:
        desk = Desk(tmp_path / "clean")
        ended, steps = cutter.run(desk)
        assert ended == 0
        wanted = desk.tree(desk.repo.head("feat/f1"))
        assert wanted.keys() == {*FILES, "one"}
        for fatal in range(1, steps + 1):
            desk = Desk(tmp_path / f"cut{fatal}")
            cutter.kill(desk, fatal, when)
            assert cutter.run(desk)[0] == 0
            assert desk.tree(desk.repo.head("feat/f1")) == wanted
            assert desk.repo.git("log", "--format=%s", "feat/f1").split() == ["one", "base"]
            assert desk.state() == "## feat/f1"
