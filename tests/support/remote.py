"""The installed `mz` at the sample project, with a bare repository as remote and a `gh` that keeps state."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.bench import LOADS, Bench
from tests.support.forge import FakeGh

URL = "https://github.com/acme/tally.git"
SETTINGS = f"""
commands: {{test: {LOADS}}}
pull_requests: {{strategy: draft, checks_poll: 1s, checks_settle: 1s}}
"""


class Forge:
    """A bench whose remote is a bare repository beside it, under the name of one on a forge."""

    def __init__(self, directory: Path, fault: str = "", settings: str = SETTINGS) -> None:
        self.bench, self.gh, self.bare = Bench(directory), FakeGh(directory / "gh"), directory / "bare.git"
        subprocess.run(["git", "init", "-q", "--bare", self.bare], check=True)
        self.bench.settings(settings)
        self.bench.git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "settings")
        self.bench.git("remote", "add", "origin", URL)
        self.bench.git("config", f"url.{self.bare}.insteadOf", URL)
        self.bench.git("push", "-q", "origin", "main")
        self.gh.follow(self.bare)
        gh = self.gh.environment(fault)
        path = f"{gh['PATH'].split(':')[0]}:{self.bench.env['PATH']}"
        state = {name: value for name, value in gh.items() if name.startswith("FAKE_GH")}
        self.bench.env |= {**state, "PATH": path}

    def remote_head(self, branch: str) -> str:
        return subprocess.run(
            ["git", "-C", self.bare, "rev-parse", branch], check=True, capture_output=True, text=True
        ).stdout.strip()

    def somebody_pushes(self, path: str, text: str) -> str:
        """A commit on the remote's main, of which the user's repository does not know; returns it."""
        other = self.bench.root.parent / "other"
        if not other.exists():
            subprocess.run(["git", "clone", "-q", "-b", "main", self.bare, other], check=True)
        (other / path).write_text(text)
        for args in (
            ["add", "-A"],
            ["-c", "user.name=S", "-c", "user.email=s@b", "commit", "-qm", "news"],
            ["push", "-q"],
        ):
            subprocess.run(["git", *args], cwd=other, check=True)
        return self.remote_head("main")

    def file(self, branch: str, path: str) -> str:
        """As the remote has it."""
        return subprocess.run(
            ["git", "-C", self.bare, "show", f"{branch}:{path}"], check=True, capture_output=True, text=True
        ).stdout

    def move(self, branch: str, commit: str) -> None:
        subprocess.run(["git", "-C", self.bare, "update-ref", f"refs/heads/{branch}", commit], check=True)
