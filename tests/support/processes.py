"""Programs that tests run as if they were agents, and what is left of them afterwards."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from mz_engine.agents.contract import Invocation
from mz_engine.ports import CallSpec, FeatureWorktree
from mz_engine.processes import guard
from mz_engine.processes.supervise import CapturedOutput, Launch, ProcessLimits, best_level, supervise

from tests.support import claude_cli

WORKTREE = FeatureWorktree(run="r1", feature="login", branch="feat/login")

DAEMON = """
import os, sys, time
if os.fork(): sys.exit()
os.setsid()
if os.fork(): sys.exit()
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2): os.dup2(null, stream)
time.sleep(600)
"""
"""Leaves its parent, session and streams, as a daemon does."""

STUBBORN = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
while True: time.sleep(1)
"""

BOMB = """
import os, sys, time
for generation in range(50):
    if os.fork(): time.sleep(600)
    os.setsid()
time.sleep(600)
"""
"""Fifty generations, each in a session of its own."""


@functools.cache
def levels() -> tuple[str, ...]:
    """The ways of holding a tree that this machine offers."""
    launch = Launch(argv=("true",), env={"PATH": os.environ["PATH"]}, cwd=Path("/"), read_only=True)
    limits, below = ProcessLimits(total_seconds=20), guard.LEVELS[guard.LEVELS.index(best_level()) :]
    return tuple(level for level in below if supervise(launch, limits, CapturedOutput(), level=level).exit == 0)


def fresh_key() -> str:
    """A key that no other test has, in the engine's form."""
    return f"{uuid.uuid4().hex}/login/code/-/1/1/agent.builder"


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", program)


def shell(script: str, stdin: bytes = b"", **env: str) -> Invocation:
    return Invocation(argv=("sh", "-c", script), stdin=stdin, env=env)


def call(key: str, total_seconds: int = 20, idle_seconds: int = 20) -> CallSpec:
    seconds = {"total_seconds": total_seconds, "idle_seconds": idle_seconds}
    return claude_cli.spec("", None, key=key, worktree=WORKTREE, model="m", tools=("read",), **seconds)


def repository(root: Path) -> Path:
    """A new git repository; returns the directory where the call of `call` runs."""
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    path = root / ".mz" / "worktrees" / WORKTREE.run / WORKTREE.feature
    path.mkdir(parents=True)
    return path


def left(key: str, within_seconds: float = 2.0) -> list[int]:
    """Processes under the key that are still there after so long; the wait ends when there are none."""
    until = time.monotonic() + within_seconds
    while (pids := guard.pids_with_key(key)) and time.monotonic() < until:
        time.sleep(0.02)
    return pids


def eventually(is_true: Callable[[], object], within_seconds: float = 60.0) -> bool:
    """Wait until it is true; always True."""
    until = time.monotonic() + within_seconds
    while not is_true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    """True if the process exists and is no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_until_marked(key: str, count: int, within_seconds: float = 10.0) -> list[int]:
    """Processes under the key, once there are so many."""
    until = time.monotonic() + within_seconds
    while len(pids := guard.pids_with_key(key)) < count:
        assert time.monotonic() < until, f"{len(pids)} of {count} processes"
        time.sleep(0.02)
    return pids


def wait_for(path: Path, text: str = "", within_seconds: float = 10.0) -> str:
    """The file's text once it is there and holds `text`."""
    until = time.monotonic() + within_seconds
    while time.monotonic() < until:
        if path.exists() and text in (value := path.read_text()):
            return value
        time.sleep(0.01)
    raise AssertionError(f"{path.name} never held {text!r}")


class ReceivedOutput:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()

    def out(self, data: bytes) -> None:
        self.stdout += data

    def err(self, data: bytes) -> None:
        self.stderr += data
