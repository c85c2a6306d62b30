"""What an agent's reply that changes many files costs: the capture of the worktree, the search for secrets in every
changed file, and the comparison of the worktree with the capture, against git adding and showing the same files.

    changes.py ROOT FILES

As a script it does in the repository ROOT what `mz` does after the reply."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets

from tools.bench.clock import alternate, cpu_seconds
from tools.bench.figure import Figure, compare

FILES, ROUNDS = 20_000, 3
RATIO_MAX = 2.0
FILES_PER_DIRECTORY = 100
WORKTREE = FeatureWorktree(run="r1", feature="f1", branch="feat/f1")
SECRETS = {"TOKEN": "a-secret-of-the-benchmark"}


def changes(folder: Path, *, files: int = FILES, rounds: int = ROUNDS) -> tuple[Figure, ...]:
    """CPU seconds, own and of all children; `folder` is an empty directory."""
    template, root, log = folder / "template", folder / "repository", folder / "log"
    template.mkdir()
    git(template, "init", "--quiet", "--initial-branch=main")
    (template / "README.md").write_text("# Before\n")
    git(template, "add", "--all")
    git(template, "commit", "--quiet", "-mBegin")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def renew() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)

    def mz() -> float:
        renew()
        workspace = GitWorkspace(root, WorkspaceSettings())
        workspace.open(WORKTREE, (head(root),))
        write_files(root / ".mz" / "worktrees" / WORKTREE.run / WORKTREE.feature, files)
        return cpu_seconds((sys.executable, __file__, root, str(files)), root, environment, log)

    def reference() -> float:
        renew()
        write_files(root, files)
        commands = (("git", "add", "--all"), ("git", "diff-index", "--cached", "-p", "HEAD"))
        return sum(cpu_seconds(command, root, environment, log) for command in commands)

    values = alternate(rounds, {"mz": mz, "git": reference})
    unit, name = f"CPU s/{files} files", "git add, git diff-index -p"
    return (compare("changes.checked", values["mz"], unit, name, values["git"], at_most=RATIO_MAX),)


def git(root: Path, *args: str) -> str:
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    return subprocess.run(("git", *who, *args), cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def write_files(top: Path, count: int) -> None:
    """Write Python files of 1.2 kB, each with its own content."""
    for number in range(count):
        path = top / f"package{number // FILES_PER_DIRECTORY}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"def function{line}(): return compute({number}, {line})\n" for line in range(24)))


def head(root: Path) -> Commit:
    return Commit(git(root, "rev-parse", "HEAD"))


def check(root: Path, count: int) -> None:
    """Do what `mz` does after a reply."""
    workspace = GitWorkspace(root, WorkspaceSettings())
    base, secrets = head(root), Secrets(SECRETS)
    tree = workspace.capture(WORKTREE, base).tree
    changed = workspace.changes(base, tree)
    assert len(changed) == count
    for change in changed:
        data = workspace.read(tree, change.path)
        assert data is not None
        assert not secrets.names_in(data)
    workspace.ensure(WORKTREE, base, tree)


if __name__ == "__main__":
    check(Path(sys.argv[1]), int(sys.argv[2]))
