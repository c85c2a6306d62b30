"""Adapter: the user's remotes, reached in their name and never interactively. Raises RemoteRefused with git's words."""

from __future__ import annotations

import pathlib

from mz_events.names import Commit

from mz_engine.adapters.git_process import Done, Git
from mz_engine.ports import RemoteRefused


def has_remote(git: Git, remote: str) -> bool:
    return remote_url(git, remote) is not None


def remote_url(git: Git, remote: str) -> str | None:
    """Where pushes go."""
    told = git.run("remote", "get-url", "--push", "--", remote, as_user=True, check=False)
    return told.text if told.code == 0 else None


def remote_head(git: Git, remote: str, branch: str) -> Commit | None:
    """Where the branch stands at the remote now; None: it does not exist there."""
    told = _ask(git, "ls-remote", "--quiet", "--", remote, f"refs/heads/{branch}")
    for line in told.text.splitlines():
        oid, _, name = line.partition("\t")
        if name == f"refs/heads/{branch}":
            return Commit(oid)
    return None


def push(git: Git, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
    """Put the branch at `commit`, if the remote still has it at `old` (None: still has it not)."""
    ref = f"refs/heads/{branch}"
    flags = ("--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no")
    _ask(git, "push", *flags, f"--force-with-lease={ref}:{old or ''}", "--", remote, f"{commit}:{ref}")


def _ask(git: Git, *args: str) -> Done:
    done = git.run(*args, as_user=True, check=False, env=_ssh(git))
    if done.code:
        words = done.words or f"it ended with exit code {done.code}"
        raise RemoteRefused(f"`git {args[0]}` was refused: {words}")
    return done


def _ssh(git: Git) -> dict[str, str]:
    """ssh that fails rather than asks. One that the user has chosen keeps its place when it is OpenSSH."""
    if git.theirs.get("GIT_SSH") and not git.theirs.get("GIT_SSH_COMMAND"):
        return {}
    configured = git.run("config", "--get", "core.sshCommand", as_user=True, check=False).text
    command = git.theirs.get("GIT_SSH_COMMAND") or configured or "ssh"
    return (
        {"GIT_SSH_COMMAND": f"{command} -o BatchMode=yes"} if pathlib.PurePath(command.split()[0]).name == "ssh" else {}
    )
