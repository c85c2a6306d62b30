"""The installed `claude` CLI, and how tests call it without the engine's own process handling."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mz_engine.agents.contract import Invocation, Spawn
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree

CLIS = Path(__file__).resolve().parents[2] / ".clis" / "node_modules" / ".bin"
"""Where `make clis` puts it."""
COMMON = ("HOME", "LANG", "PATH", "TMPDIR")
"""Variables that every command gets."""


def installed(program: str = "claude") -> bool:
    return (CLIS / program).exists()


def environment(home: Path, url: str) -> dict[str, str]:
    """A fresh HOME and the scripted endpoint: nothing of the caller's login or settings."""
    return {
        "ANTHROPIC_API_KEY": "unused",
        "ANTHROPIC_BASE_URL": url,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{CLIS}:{os.environ['PATH']}",
    }


def spec(prompt: str, session: str | None, **more: object) -> CallSpec:
    """A call of the adapter with everything filled in."""
    fields: dict[str, object] = {
        "key": "r/f/prd/-/1/1/agent.builder",
        "worktree": FeatureWorktree(run="r", feature="f", branch="feat/f"),
        "agent": "claude-code",
        "model": "claude-sonnet-4-6",
        "prompt": prompt,
        "session": session,
        "resumes": False,
        "tools": ("read", "write", "shell"),
        "total_seconds": 60,
        "idle_seconds": 60,
    }
    return CallSpec(**{**fields, **more})  # type: ignore[arg-type]


SETTLE_SECONDS = 1.0
"""Between the agent's request to the model and the signal: it waits then."""


def plain_spawn(
    directory: Path,
    outside: Mapping[str, str],
    number: int | None = None,
    has_requested: Callable[[], bool] = lambda: True,
) -> Spawn:
    """Runs an invocation to its end in a directory; sends the signal `number` once it `has_requested` a reply."""

    def spawn(call: CallSpec, invocation: Invocation) -> CallResult:
        began = time.monotonic()
        process = subprocess.Popen(
            invocation.argv,
            cwd=directory,
            env={name: outside[name] for name in COMMON if name in outside} | dict(invocation.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

        def interrupt() -> None:
            while not has_requested() and process.poll() is None:
                time.sleep(0.05)
            time.sleep(SETTLE_SECONDS)
            process.send_signal(number or 0)

        if number is not None:
            threading.Thread(target=interrupt, daemon=True).start()
        stdout, stderr = process.communicate(invocation.stdin, timeout=call.total_seconds)
        duration = int((time.monotonic() - began) * 1000)
        return CallResult(stdout=stdout, stderr=stderr, exit=process.returncode, duration_ms=duration)

    return spawn
