"""What is read of captured trees is what git says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_events.names import Commit, parse_path

from tests.support.tapes import git

BEFORE = {"a": "1", "a.txt": "2", "d/e/f": "3", "d/g": "4", "gone/x": "5", "swap/y": "6", "mode": "7", "same/z": "8"}
AFTER = {"a/b": "1", "a.txt": "2!", "d/e/f": "3", "d/g!": "4", "swap": "6", "mode": "7", "same/z": "8", "new/p/q": "9"}


def captured(root: Path, files: dict[str, str], *lines: str) -> Commit:
    """A commit of these files, and of these lines of the index."""
    git(root, "read-tree", "--empty")
    for path, text in files.items():
        (root / "content").write_text(text)
        oid = git(root, "hash-object", "-w", "content").strip()
        git(root, "update-index", "--add", "--cacheinfo", f"100644,{oid},{path}")
    for line in lines:
        git(root, "update-index", "--add", "--cacheinfo", line)
    tree = git(root, "write-tree").strip()
    return Commit(git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", "x", tree).strip())


def git_changes(root: Path, old: Commit, new: Commit) -> list[tuple[str, str]]:
    """What git itself finds: paths, and A, D or M."""
    fields = git(root, "diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new).split("\0")[:-1]
    return [(path, status.replace("T", "M")) for status, path in zip(fields[::2], fields[1::2], strict=True)]


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.slow
def test_differences_and_paths_are_those_that_git_itself_finds(tmp_path: Path, object_format: str) -> None:
    git(tmp_path, "init", "--quiet", f"--object-format={object_format}")
    (tmp_path / "content").write_text("7")
    oid = git(tmp_path, "hash-object", "-w", "content").strip()
    module = "1" * len(oid)
    old = captured(tmp_path, BEFORE, f"120000,{oid},link")
    new = captured(tmp_path, AFTER, f"100755,{oid},mode", f"100644,{oid},link", f"160000,{module},module")
    trees = GitWorkspace(tmp_path, WorkspaceSettings())
    for commit, other in ((old, new), (new, old), (old, old)):
        changes = [(change.path, change.kind[0].upper()) for change in trees.changes(commit, other)]
        assert changes == git_changes(tmp_path, commit, other)
    assert len(trees.changes(old, new)) > 10
    assert trees.paths(old) == tuple(sorted((*BEFORE, "link")))
    assert trees.paths(new) == tuple(sorted((*AFTER, "link"))), "a submodule is no file"
    assert trees.read(new, parse_path("d/g!")) == b"4"
    assert trees.read(new, parse_path("module")) is None
