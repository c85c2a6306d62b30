"""Adapter: the user's remotes, reached in their name and never interactively. Raises RemoteRefused with git's words."""

from __future__ import annotations

import pathlib
import time

from mz_events.names import Commit

from mz_engine.adapters.git_process import Done, Git
from mz_engine.ports import RemoteRefused, RepositoryUnusable

TARGETS = "refs/mz/targets/"
"""What was fetched, by remote and branch. Names of runs begin with `r` and a digest: none is called so."""
NO_SUCH_BRANCH = "couldn't find remote ref"
STALE_SECONDS = 2.0
"""Nothing holds a lock on a ref for that long."""


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


def fetch(git: Git, remote: str, branch: str) -> Commit | None:
    """The branch as the remote has it, with its history, kept under TARGETS; no other ref is moved. None: it
    does not exist there. Not to be called twice at a time."""
    ref = f"{TARGETS}{one_part(remote)}/{one_part(branch)}"
    never = f"remote.{remote}.followRemoteHEAD=never"
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
    words = ("-c", never, "fetch", *flags, "--", remote, f"+refs/heads/{branch}:{ref}")
    _unlock(git, ref)
    done = _run(git, *words)
    if done.code and _unlock(git, ref):
        done = _run(git, *words)
    if done.code and NO_SUCH_BRANCH in done.words:
        return None
    if done.code:
        raise _refusal("fetch", done)
    return Commit(git.run("rev-parse", "--verify", f"{ref}^{{commit}}").text)


def local_head(git: Git, branch: str) -> Commit | None:
    """Where the user's own branch stands; None: there is none of that name."""
    told = git.run("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}^{{commit}}", check=False)
    return Commit(told.text) if told.code == 0 else None


def one_part(name: str) -> str:
    """One part of a ref's name, so that no name is a directory of another."""
    return name.replace("%", "%25").replace("/", "%2F")


def _unlock(git: Git, ref: str) -> bool:
    """Whether a lock that a killed git had left on this ref of ours was removed."""
    lock = git.directory / f"{ref}.lock"
    try:
        stale = time.time() - lock.stat().st_mtime > STALE_SECONDS
    except FileNotFoundError:
        return False
    if stale:
        lock.unlink(missing_ok=True)
    return stale


def push(git: Git, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
    """Put the branch at `commit`, if the remote still has it at `old` (None: still has it not)."""
    ref = f"refs/heads/{branch}"
    flags = ("--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no")
    _ask(git, "push", *flags, f"--force-with-lease={ref}:{old or ''}", "--", remote, f"{commit}:{ref}")


def _ask(git: Git, *args: str) -> Done:
    done = _run(git, *args)
    if done.code:
        raise _refusal(args[0], done)
    return done


def _run(git: Git, *args: str) -> Done:
    try:
        return git.run(*args, as_user=True, check=False, env=_ssh(git))
    except RepositoryUnusable as late:
        if late.code != "git-timeout":
            raise
        raise RemoteRefused(f"the remote did not answer: {late}") from late


def _refusal(verb: str, done: Done) -> RemoteRefused:
    return RemoteRefused(f"`git {verb}` was refused: {done.words or f'it ended with exit code {done.code}'}")


def _ssh(git: Git) -> dict[str, str]:
    """ssh that fails rather than asks. One that the user has chosen keeps its place when it is OpenSSH."""
    if git.theirs.get("GIT_SSH") and not git.theirs.get("GIT_SSH_COMMAND"):
        return {}
    configured = git.run("config", "--get", "core.sshCommand", as_user=True, check=False).text
    command = git.theirs.get("GIT_SSH_COMMAND") or configured or "ssh"
    return (
        {"GIT_SSH_COMMAND": f"{command} -o BatchMode=yes"} if pathlib.PurePath(command.split()[0]).name == "ssh" else {}
    )
