"""A real repository with a workspace port over it and one feature opened, for tests of the port."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree, WorkspaceCreated
from mz_engine.processes.environment import private_repository
from mz_events.names import Commit

from tests.support.gitrepo import GitRepo

WORKTREE = FeatureWorktree(run="r1", feature="f1", branch="feat/f1")

FILES: Mapping[str, str | bytes] = {
    "README.md": "# Engine\n",
    "src/app.py": "print('hello')\n",
    "src/lib/deep.py": "x = 1\n",
    ".gitignore": "*.log\nbuild/\nnode_modules/\n.env\n",
}


class Desk:
    """`repo` is the user's; `port` the engine's; `worktree` where the agent would work."""

    def __init__(
        self,
        directory: pathlib.Path,
        settings: WorkspaceSettings | None = None,
        files: Mapping[str, str | bytes] = FILES,
    ) -> None:
        self.repo = GitRepo(directory / "repo")
        self.base = self.repo.commit(files, "base")
        self.settings = settings or WorkspaceSettings()
        self.port = self.another()
        self.feature_worktree = WORKTREE
        self.worktree = self.repo.root / ".mz" / "worktrees" / WORKTREE.run / WORKTREE.feature
        self.private = private_repository(self.repo.root, WORKTREE)

    def another(self, environment: Mapping[str, str] = os.environ) -> GitWorkspace:
        """The port as the next process would have it: with an empty memory."""
        return GitWorkspace(self.repo.root, self.settings, environment)

    def open(self) -> WorkspaceCreated:
        opened = self.port.open(self.feature_worktree, (self.base,))
        assert isinstance(opened, WorkspaceCreated)
        return opened

    def git(self, *args: str) -> str:
        """As the agent: in the worktree, with the repository that it has there."""
        return self.repo.git(f"--git-dir={self.private}", "--work-tree=.", *args, cwd=self.worktree)

    def commit_by_hand(self) -> Commit:
        """As a person on the feature's branch, from elsewhere; return the commit."""
        branch = f"refs/heads/{WORKTREE.branch}"
        commit = self.repo.git("commit-tree", f"{branch}^{{tree}}", "-p", branch, "-m", "by hand")
        self.repo.git("update-ref", branch, commit)
        return Commit(commit)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        self.repo.write(files, cwd=self.worktree)

    def state(self) -> str:
        """What git says of the worktree; a clean one on its branch says `## feat/f1`."""
        return self.git("status", "--short", "--branch", "--ignored", "--untracked-files=all")

    def tree(self, commit: Commit) -> dict[str, str]:
        """Content of a tree by path, with the mode in front: `100644 text`."""
        texts = {}
        for line in self.repo.git("ls-tree", "-r", "-z", commit).split("\0")[:-1]:
            head, path = line.split("\t", 1)
            mode, kind, oid = head.split(" ")
            texts[path] = f"{mode} {self.repo.git('cat-file', kind, oid) if kind == 'blob' else oid}"
        return texts
