"""What isolation costs: a command in the sandbox against a bare spawn, a worktree with its private repository and a
clean checkout against `git worktree add`."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.supervise import SERVER, CapturedOutput, ProcessLimits
from mz_events.redaction.redactor import Secrets

from tools.bench.changes import git, head, write_files
from tools.bench.clock import alternate
from tools.bench.figure import Figure, compare

CALLS, ROUNDS, SIZES = 100, 3, (100, 20_000)
MILLISECONDS_MAX = 10.0
RATIO_MAX = 2.0
HOME_ENTRIES = 40
WORKTREE = FeatureWorktree(run="r1", feature="f1", branch="feat/f1")


def sandbox(
    folder: Path, *, calls: int = CALLS, sizes: tuple[int, ...] = SIZES, rounds: int = ROUNDS
) -> tuple[Figure, ...]:
    """CPU time, own and of all children; `folder` is an empty directory."""
    figures = [figure for size in sizes for figure in worktrees(folder, size, rounds)]
    return (call(folder / "call", calls, rounds), *figures)


def call(folder: Path, calls: int, rounds: int) -> Figure:
    """CPU milliseconds that a command takes more than a bare spawn of the same program, with its start."""
    home, root = folder / "home", repository(folder, 1)
    for number in range(HOME_ENTRIES):
        (home / f".tool{number}").mkdir(parents=True)
    environment = {**os.environ, "HOME": str(home)}
    GitWorkspace(root, WorkspaceSettings()).open(WORKTREE, (head(root),))
    executor = ProcessExecutor(root, environment, Secrets({}))

    def sandboxed() -> None:
        for _ in range(calls):
            launch = executor.launch(("true",), WORKTREE, "r1/f1/key")
            executor.supervise(launch, ProcessLimits(total_seconds=60), CapturedOutput())
        SERVER.stop()  # Only then the system tells what guards used.

    def bare() -> None:
        for _ in range(calls):
            subprocess.run(("true",), check=True)

    seconds = alternate(rounds, {"mz": lambda: used_by(sandboxed), "bare": lambda: used_by(bare)})
    milliseconds = (seconds["mz"] - seconds["bare"]) / calls * 1000
    name = "limit, above a bare spawn"
    return compare("sandbox.call", milliseconds, "CPU ms", name, MILLISECONDS_MAX, at_most=1.0)


def worktrees(folder: Path, files: int, rounds: int) -> tuple[Figure, ...]:
    """CPU seconds of a worktree with its private repository, and of a checkout in which tests run."""
    root = repository(folder / str(files), files)
    base, names = head(root), iter(range(10_000))

    def opened() -> None:
        GitWorkspace(root, WorkspaceSettings()).open(fresh(next(names)), (base,))

    def checkout() -> None:
        GitWorkspace(root, WorkspaceSettings()).checkout(fresh(next(names)), base, base)

    def reference() -> None:
        git(root, "worktree", "add", "--quiet", "-b", f"b{next(names)}", str(root.parent / f"worktree{next(names)}"))

    candidates = {"worktree": opened, "checkout": checkout, "git": reference}
    values = alternate(rounds, {name: partial(used_by, work) for name, work in candidates.items()})
    git_seconds = values.pop("git")
    return tuple(
        compare(f"sandbox.{name}-{files}", seconds, "CPU s", "git worktree add", git_seconds, at_most=RATIO_MAX)
        for name, seconds in values.items()
    )


def repository(folder: Path, files: int) -> Path:
    root = folder / "repository"
    root.mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    write_files(root, files)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-mBegin")
    return root


def fresh(number: int) -> FeatureWorktree:
    return FeatureWorktree(run=f"r{number}", feature="f1", branch=f"feat/f{number}")


def used_by(work: Callable[[], object]) -> float:
    """CPU seconds of this process and of children that have ended."""
    before = time.process_time() + children()
    work()
    return time.process_time() + children() - before


def children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
