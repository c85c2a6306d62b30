"""Detection of a repository's tools, branch and remote, and of installed agents, for its first `mz.yaml`."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.registry import built_in
from mz_engine.config import PullRequests
from mz_engine.stack import WANTED
from mz_engine.stacks import find_stacks
from mz_engine.starter import Detected

GIT_SECONDS = 10


def detect(root: Path) -> Detected:
    """Detect tools, branch and remote of the repository at `root`. Only reads; ignores what cannot be read."""
    stacks = find_stacks(root)
    commands: dict[str, str] = {}
    for stack in stacks:
        commands = {**stack.commands, **commands}
    return Detected(
        stacks=tuple(dict.fromkeys(stack.name for stack in stacks)),
        base=_base(root),
        has_commit=_git(root, "rev-parse", "--quiet", "--verify", "HEAD^{commit}") is not None,
        remote=_remote(root),
        commands={name: commands[name] for name in WANTED if name in commands},
        setup=tuple(dict.fromkeys(command for stack in stacks for command in stack.setup)),
        keep=tuple(dict.fromkeys(path for stack in stacks for path in stack.keep)),
    )


def installed_agents(environment: Mapping[str, str]) -> dict[str, AuthCheck]:
    """Return the login check of every installed agent, by name; bundled agents with a key if no other is installed.

    Starts each agent once for its version; calls no model.
    """
    adapters = built_in()
    bundled = {name for name, adapter in adapters.items() if adapter.capabilities().bundled}
    checks = {name: adapter.check_auth(environment) for name, adapter in adapters.items()}
    installed = {name: check for name, check in checks.items() if name not in bundled and check.code != "tool-missing"}
    return installed or {name: checks[name] for name in bundled if not checks[name].code}


def _base(root: Path) -> str | None:
    """Return the remote's default branch if it exists here too, else the branch that is checked out."""
    head = _git(root, "symbolic-ref", "--quiet", "--short", f"refs/remotes/{_remote(root)}/HEAD")
    default = head.partition("/")[2] if head else ""
    if default and _git(root, "rev-parse", "--quiet", "--verify", f"refs/heads/{default}"):
        return default
    return _git(root, "symbolic-ref", "--quiet", "--short", "HEAD")


def _remote(root: Path) -> str | None:
    names = (_git(root, "remote") or "").split()
    usual = PullRequests().remote
    return usual if usual in names else next(iter(names), None)


def _git(root: Path, *arguments: str) -> str | None:
    """Return git's output; None if it fails or prints nothing."""
    command = ["git", "-C", str(root), *arguments]
    with suppress(OSError, subprocess.TimeoutExpired):
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
        return result.stdout.strip() or None if result.returncode == 0 else None
    return None
