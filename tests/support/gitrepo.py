"""Small real repositories for tests, away from the configuration of whoever runs them."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Mapping

from mz_events.names import Commit

IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
"""Before a command: root then has no more rights on files than their owner has."""


class GitRepo:
    """A repository whose first branch is `main`; `git` runs in its checkout as a person or an agent would run it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *args: str, cwd: pathlib.Path | None = None, check: bool = True) -> str:
        """stdout without its last newline."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", *args],
            cwd=cwd or self.root,
            env={**environment, **IDENTITY},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr.decode()
        return os.fsdecode(done.stdout).removesuffix("\n")

    def write(self, files: Mapping[str, str | bytes], cwd: pathlib.Path | None = None) -> None:
        for name, content in files.items():
            file = (cwd or self.root) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: Mapping[str, str | bytes] | None = None, message: str = "work") -> Commit:
        """Write files and commit everything that is there."""
        self.write(files or {})
        self.git("add", "--all", "--force", ".", ":!.mz")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.head()

    def head(self, name: str = "HEAD") -> Commit:
        return Commit(self.git("rev-parse", "--verify", f"{name}^{{commit}}"))

    def tree(self, name: str) -> str:
        """Id of the tree of a commit."""
        return self.git("rev-parse", "--verify", f"{name}^{{tree}}")
