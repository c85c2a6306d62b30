"""Detection of a repository's tools, branch and remote, and of installed agents, for its first `mz.yaml`."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.registry import built_in_adapters
from mz_engine.config import PullRequests
from mz_engine.stack import COMMAND_NAMES
from mz_engine.stacks import find_stacks
from mz_engine.starter import DetectedProject

GIT_SECONDS = 10


def detect(root: Path) -> DetectedProject:
    """Detect tools, branch and remote of the repository at `root`. Only reads; ignores what cannot be read."""
    stacks = find_stacks(root)
    commands: dict[str, str] = {}
    for stack in stacks:
        commands = {**stack.commands, **commands}
    return DetectedProject(
        stacks=tuple(dict.fromkeys(stack.name for stack in stacks)),
        base=_base_branch(root),
        has_commit=_git(root, "rev-parse", "--quiet", "--verify", "HEAD^{commit}") is not None,
        remote=_remote_name(root),
        commands={name: commands[name] for name in COMMAND_NAMES if name in commands},
        setup=tuple(dict.fromkeys(command for stack in stacks for command in stack.setup)),
        keep=tuple(dict.fromkeys(path for stack in stacks for path in stack.keep)),
    )


def installed_agents(environment: Mapping[str, str]) -> dict[str, AuthCheck]:
    """Return the login check of every installed agent, by name; bundled agents with a key if no other is installed.

    Starts each agent once for its version; calls no model.
    """
    adapters = built_in_adapters()
    bundled = {name for name, adapter in adapters.items() if adapter.capabilities().bundled}
    checks = {name: adapter.check_auth(environment) for name, adapter in adapters.items()}
    installed = {name: check for name, check in checks.items() if name not in bundled and check.code != "tool-missing"}
    return installed or {name: checks[name] for name in bundled if not checks[name].code}


def _base_branch(root: Path) -> str | None:
    """Return the remote's default branch if it exists here too, else the branch that is checked out."""
    head = _git(root, "symbolic-ref", "--quiet", "--short", f"refs/remotes/{_remote_name(root)}/HEAD")
    default = head.partition("/")[2] if head else ""
    if default and _git(root, "rev-parse", "--quiet", "--verify", f"refs/heads/{default}"):
        return default
    return _git(root, "symbolic-ref", "--quiet", "--short", "HEAD")


def _remote_name(root: Path) -> str | None:
    names = (_git(root, "remote") or "").split()
    default = PullRequests().remote
    return default if default in names else next(iter(names), None)


def _git(root: Path, *arguments: str) -> str | None:
    """Return git's output; None if it fails or prints nothing."""
    command = ["git", "-C", str(root), *arguments]
    with suppress(OSError, subprocess.TimeoutExpired):
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
        return result.stdout.strip() or None if result.returncode == 0 else None
    return None
