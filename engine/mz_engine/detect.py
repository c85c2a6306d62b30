"""Adapter: looks at a repository for what its first `mz.yaml` should say: its tools, its branch and remote, and which
agents this machine has."""

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
    """What the files and the git of the repository at `root` say. Reads only; what cannot be read says nothing."""
    stacks = find_stacks(root)
    found: dict[str, str] = {}
    for stack in stacks:
        found = {**stack.commands, **found}
    return Detected(
        stacks=tuple(dict.fromkeys(stack.name for stack in stacks)),
        base=_base(root),
        has_commit=_git(root, "rev-parse", "--quiet", "--verify", "HEAD^{commit}") is not None,
        remote=_remote(root),
        commands={name: found[name] for name in WANTED if name in found},
        setup=tuple(dict.fromkeys(command for stack in stacks for command in stack.setup)),
        keep=tuple(dict.fromkeys(path for stack in stacks for path in stack.keep)),
    )


def installed_agents(environment: Mapping[str, str]) -> dict[str, AuthCheck]:
    """Every agent that mz knows and that is installed here, by name, with what is said of its login. One that comes
    with mz counts where there is no other, and it has a key. Starts each once for its version; calls no model."""
    known = built_in()
    ours = {name for name, adapter in known.items() if adapter.capabilities().bundled}
    checks = {name: adapter.check_auth(environment) for name, adapter in known.items()}
    installed = {name: check for name, check in checks.items() if name not in ours and check.code != "tool-missing"}
    return installed or {name: checks[name] for name in ours if not checks[name].code}


def _base(root: Path) -> str | None:
    """What the remote calls its default, where it is a branch here too; else the branch that is checked out."""
    head = _git(root, "symbolic-ref", "--quiet", "--short", f"refs/remotes/{_remote(root)}/HEAD")
    default = head.partition("/")[2] if head else ""
    if default and _git(root, "rev-parse", "--quiet", "--verify", f"refs/heads/{default}"):
        return default
    return _git(root, "symbolic-ref", "--quiet", "--short", "HEAD")


def _remote(root: Path) -> str | None:
    names = (_git(root, "remote") or "").split()
    usual = PullRequests().remote
    return usual if usual in names else next(iter(names), None)


def _git(root: Path, *words: str) -> str | None:
    """What git says; None where it says no, or nothing."""
    command = ["git", "-C", str(root), *words]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
        return done.stdout.strip() or None if done.returncode == 0 else None
    return None
