"""The user's remotes, reached with the user's credentials and never interactively. Raises RemoteRefused with git's
message."""

from __future__ import annotations

import pathlib
import time

from mz_events.names import Commit

from mz_engine.adapters.git_process import Done, Git
from mz_engine.ports import RemoteRefused, RepositoryUnusable

TARGETS = "refs/mz/targets/"
"""Fetched branches, by remote and branch. Run names begin with `r` and a digest, so none equals `targets`."""
NO_SUCH_BRANCH = "couldn't find remote ref"
STALE_SECONDS = 2.0
"""A lock on a ref older than this was left by a killed process."""


def has_remote(git: Git, remote: str) -> bool:
    return remote_url(git, remote) is not None


def remote_url(git: Git, remote: str) -> str | None:
    """Return the push URL of a remote; None if it does not exist."""
    told = git.run("remote", "get-url", "--push", "--", remote, as_user=True, check=False)
    return told.text if told.code == 0 else None


def remote_head(git: Git, remote: str, branch: str) -> Commit | None:
    """Return the remote's current commit of the branch; None if it does not exist there."""
    told = _ask(git, "ls-remote", "--quiet", "--", remote, f"refs/heads/{branch}")
    for line in told.text.splitlines():
        oid, _, name = line.partition("\t")
        if name == f"refs/heads/{branch}":
            return Commit(oid)
    return None


def fetch(git: Git, remote: str, branch: str) -> Commit | None:
    """Fetch the remote's branch with its history to a ref under FETCHED_TARGETS; no other ref is moved. None if it does
    not exist there. Not reentrant."""
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
    """Return the commit of the user's own branch; None without such a branch."""
    told = git.run("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}^{{commit}}", check=False)
    return Commit(told.text) if told.code == 0 else None


def one_part(name: str) -> str:
    """Escape a name to one part of a ref's name, so that no name is a directory of another."""
    return name.replace("%", "%25").replace("/", "%2F")


def _unlock(git: Git, ref: str) -> bool:
    """Remove a stale lock on this ref of mz's; return True if there was one."""
    lock = git.directory / f"{ref}.lock"
    try:
        stale = time.time() - lock.stat().st_mtime > STALE_SECONDS
    except FileNotFoundError:
        return False
    if stale:
        lock.unlink(missing_ok=True)
    return stale


def push(git: Git, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
    """Set the branch to `commit` if the remote still has it at `old` (None: does not have it)."""
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
    except RepositoryUnusable as error:
        if error.code != "git-timeout":
            raise
        raise RemoteRefused(f"the remote did not answer: {error}") from error


def _refusal(verb: str, done: Done) -> RemoteRefused:
    return RemoteRefused(f"`git {verb}` failed: {done.words or f'it ended with exit code {done.code}'}")


def _ssh(git: Git) -> dict[str, str]:
    """Return variables that make ssh fail instead of asking. The user's own ssh command is kept if it is OpenSSH."""
    if git.theirs.get("GIT_SSH") and not git.theirs.get("GIT_SSH_COMMAND"):
        return {}
    configured = git.run("config", "--get", "core.sshCommand", as_user=True, check=False).text
    command = git.theirs.get("GIT_SSH_COMMAND") or configured or "ssh"
    return (
        {"GIT_SSH_COMMAND": f"{command} -o BatchMode=yes"} if pathlib.PurePath(command.split()[0]).name == "ssh" else {}
    )
