"""What `mz` costs by itself: features taken through all phases by an agent that does no work, in CPU seconds,
against a bare loop that makes the very same git, agent and command calls."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.names import run_stream
from mz_projections.views.run import run_view

from tools.bench import loop, shim
from tools.bench.answers import PHASES, feature_names, repository
from tools.bench.clock import alternate, cpu_seconds
from tools.bench.figure import Figure, compare
from tools.bench.noop import find_compiler, install

FEATURES = 20
ROUNDS = 3
RATIO_MAX = 3.0
SECONDS_MAX = 0.6
"""CPU seconds per feature that were aimed at, whatever the loop takes."""
MOVED = re.compile(rb"^update \S+ (?!0+ )(\S+) (?!0+$)(\S+)$", re.MULTILINE)
"""A ref that was moved to objects that `mz` may have written itself."""
STAND_INS = ("git unpack-objects", "git update-ref")
"""What the loop starts for the `git update-ref` that stays, and for objects that `mz` writes itself."""
DATE = "1767225600 +0000"
RECORDED = ("git", "claude", "sh")
"""Everything that `mz` starts in such a run, but for its own guard and the linker of processes."""


class Replayed(msgspec.Struct, frozen=True):
    """What the bare loop reported."""

    calls: dict[str, int]
    seconds: dict[str, float]
    """CPU, by kind of call."""
    different: tuple[str, ...]
    """Calls that ended otherwise than under `mz`."""


class Bench:
    """A place for one measurement: the repository, the agent, the tape."""

    def __init__(self, folder: Path, mz: Path, features: int, compiler: str | None) -> None:
        self.folder, self.mz = folder, mz
        self.features = feature_names(features)
        self.root, self.template = folder / "project", folder / "template"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.agent = install(folder / "agent", self.features, compiler)
        for path, text in repository(self.features).items():
            (self.template / path).parent.mkdir(parents=True, exist_ok=True)
            (self.template / path).write_text(text)

    def environment(self, *first: Path) -> dict[str, str]:
        """Nothing of the caller's but where programs are; `first` goes before them on PATH."""
        path = (*map(str, first), str(self.folder / "agent"), str(self.mz.parent), os.environ.get("PATH", os.defpath))
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "ANTHROPIC_API_KEY": "nobody-is-called",
        }

    def renew(self) -> None:
        """The repository as it was before any run. The last one is moved away: ext4 is slow to find an inode after many
        were deleted."""
        if self.root.exists():
            self.root.rename(self.folder / f"used-{time.time_ns()}")
        shutil.copytree(self.template, self.root)
        who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        dates = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
        for args in (("init", "--quiet", "--initial-branch=main"), ("add", "--all"), ("commit", "--quiet", "-mBegin")):
            subprocess.run(["git", *who, *args], cwd=self.root, env=self.environment() | dates, check=True)

    def run(self, argv: tuple[str | Path, ...], *first: Path) -> float:
        """CPU seconds of a run of `mz` in a new repository. Raises RuntimeError unless everything is delivered."""
        self.renew()
        seconds = cpu_seconds(argv, self.root, self.environment(*first), self.folder / "mz.log")
        self.check_delivered()
        return seconds

    def check_delivered(self) -> None:
        with SqliteStore(self.root / MZ_FOLDER / LOG_FILE, read_only=True) as store:
            (run,) = (name.removeprefix("run/") for name, _ in store.streams("run/") if name.count("/") == 1)
            view = run_view(run, store.read_all())
        calls = [len(feature.calls) for feature in view.features if feature.status == "delivered"]
        if calls != [len(PHASES)] * len(self.features) or view.find_feature(run_stream(run)):
            log = (self.folder / "mz.log").read_text("utf-8", "replace")
            raise RuntimeError(f"the agent was called {calls} times for features that were delivered: {log[-2000:]}")

    def record(self) -> None:
        """Runs once under the shim, and keeps what was called as the tape."""
        shims, entries = self.folder / "shims", self.home / "entries"
        shim.install(shims, entries, RECORDED)
        self.run((self.mz, "run"), shims)
        calls = [json.loads(file.read_bytes()) for file in sorted(entries.iterdir())]
        tape = [part for call in calls for part in replayable(call)]
        (self.folder / "tape.json").write_text(json.dumps(tape))

    def loop(self) -> float:
        """CPU seconds of the bare loop in a new repository."""
        self.renew()
        argv = (sys.executable, "-I", "-S", loop.__file__, self.folder / "tape.json", self.template, self.report)
        return cpu_seconds(argv, self.root, self.environment(), self.folder / "loop.log")

    @property
    def report(self) -> Path:
        return self.folder / "loop.json"

    def replayed(self) -> Replayed:
        """Of the last loop. Raises RuntimeError where it did not do what `mz` did: it would be no reference."""
        result = msgspec.json.decode(self.report.read_bytes(), type=Replayed)
        if result.different:
            raise RuntimeError(
                f"{len(result.different)} calls of the bare loop ended otherwise: {result.different[:3]}"
            )
        return result


def replayable(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the bare loop does for a recorded call: for a transaction of the `git update-ref` that stays, a
    process of its own, after one that brings in new objects, which `mz` writes itself."""
    commands = base64.b64decode(call["stdin"]).removeprefix(b"start\n").removesuffix(b"commit\n")
    git = call["argv"][:-2]
    for new, old in MOVED.findall(commands) if "update-ref" in call["argv"] else ():
        pack = subprocess.run(
            [*git, "pack-objects", "--quiet", "--revs", "--stdout"], cwd=call["cwd"], env=call["env"],
            input=b"%s\n^%s\n" % (new, old), stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        yield call | {"argv": [*git, "unpack-objects", "-q"], "stdin": base64.b64encode(pack.stdout).decode()}
    yield call | {"stdin": base64.b64encode(commands).decode()}


def overhead(
    path: Path, mz: Path, *, features: int = FEATURES, rounds: int = ROUNDS, compiler: str | None = None
) -> tuple[Figure, ...]:
    """CPU seconds per feature, own and of all children; `path` is an empty directory, `mz` the program."""
    bench = Bench(path, mz, features, compiler or find_compiler())
    bench.record()
    values = alternate(rounds, {"mz": lambda: bench.run((mz, "run")), "loop": bench.loop})
    bench.replayed()
    return figures(values, features, bench.agent)


def figures(seconds: Mapping[str, float], features: int, agent: str) -> tuple[Figure, ...]:
    """From the CPU seconds of `mz` and of the `loop` over so many features."""
    value, reference = seconds["mz"] / features, seconds["loop"] / features
    unit = "CPU s/feature"
    return (
        compare("overhead.run", value, unit, f"bare loop, agent in {agent}", reference, at_most=RATIO_MAX),
        compare("overhead.limit", value, unit, "what was aimed at", SECONDS_MAX, at_most=1.0),
    )
