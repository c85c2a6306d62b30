"""The installed `mz` at the sample project, with an agent of the tests' own on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from mz_recordings.cassette.repository import create_sample

from tests.cli.drive import Result, fork
from tests.support import fake_claude, preloaded
from tests.support.tree import STATE_SETTINGS

MZ = Path(sys.executable).with_name("mz")
MARK = b"MZ_KEY="
LOADS = "python3 -SEc 'import tally.report'"
"""In place of the sample's tests, which the demo runs."""
TESTS = "python3 -m unittest tests.test_journal tests.test_money tests.test_report"
"""Those that start no process; what the played agent writes first is refused by one of them."""


class Bench:
    """`root` is the user's repository. `start` starts the installed program, `mz` a process that has loaded it."""

    def __init__(self, directory: Path, root: Path | None = None, command: str = LOADS) -> None:
        self.root = root or directory / "tally"
        self.home = directory / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        create_sample(self.root, os.environ)
        self.settings(f"commands: {{test: {command}}}\n")
        identity = ("-c", "user.name=A", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, "commit", "-qam", "settings"], cwd=self.root, check=True)
        self.bin = fake_claude.install(directory / "bin", self.home)
        self.env = {
            "PATH": f"{self.bin}:{MZ.parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            **preloaded.read_at_start(os.environ),
            "ANTHROPIC_API_KEY": "the-tests-need-no-key",
            "NO_COLOR": "1",
        }

    def settings(self, text: str) -> None:
        (self.root / "mz.yaml").write_text(f"{text}{STATE_SETTINGS}")

    def act(self, feature: str, phase: str, code: str) -> None:
        """What the agent does, once, instead of simply answering."""
        (self.bin / "acts" / f"{feature}.{phase}.py").write_text(code)

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [MZ, *arguments],
            cwd=self.root,
            env=self.env | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def mz(self, *arguments: str, code: int | None = 0, seconds: float = 200, **more: str) -> Result:
        """Runs to its end, without the time to load, and checks the exit code (None: any)."""
        done = fork(self.root, arguments, self.env | more, seconds)
        assert code is None or done.exit == code, f"mz {arguments} gave {done.exit}\n{done.out}\n{done.err}"
        return done

    def json(self, *arguments: str, code: int | None = 0) -> Any:
        return json.loads(self.mz(*arguments, "--json", code=code).out)

    def statuses(self) -> dict[str, str]:
        return {feature["id"]: feature["status"] for feature in self.json("status")["features"]}

    def events(self) -> list[dict[str, Any]]:
        """The log of the newest run, as `mz log --json` gives it, with the type in each event."""
        lines = [json.loads(line) for line in self.mz("log", "--json").out.splitlines()]
        return [{**line["event"], "type": line["type"]} for line in lines if "event" in line]

    def of_type(self, type_: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["type"] == type_]

    def calls(self) -> Counter[str]:
        """How often the agent was called under each key."""
        log = self.bin / "calls.log"
        return Counter(log.read_text().split()) if log.exists() else Counter()

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True, env=self.env
        ).stdout

    def keys_of(self, branch: str) -> list[str]:
        """The `Mz-Key` trailers of a branch, newest first."""
        return self.git("log", "--format=%(trailers:key=Mz-Key,valueonly,separator=)", f"main..{branch}").split()

    def processes(self) -> list[int]:
        """Those that carry a key of this repository's runs in their environment."""
        runs = [path.name for path in (self.root / ".mz" / "worktrees").glob("*")]
        numbers = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                data = entry.read_bytes()
            except OSError:
                continue
            if any(MARK + run.encode() + b"/" in data for run in runs):
                numbers.append(int(entry.parent.name))
        return numbers
