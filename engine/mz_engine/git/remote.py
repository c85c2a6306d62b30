"""The user's remotes, reached with the user's credentials and never interactively. Raises RemoteError with git's
message."""

from __future__ import annotations

import pathlib
from urllib.parse import quote

from mz_events.names import Commit

from mz_engine.git.process import Git, ProgramResult
from mz_engine.git.repository import remove_stale_lock
from mz_engine.ports import RemoteError, RepositoryUnusable

FETCHED_TARGETS = "refs/mz/targets/"
"""Fetched branches, by remote and branch. Run names begin with `r` and a digest, so none equals `targets`."""
NO_SUCH_BRANCH = "couldn't find remote ref"


def has_remote(git: Git, remote: str) -> bool:
    return git.run("remote", "get-url", "--push", "--", remote, as_user=True, check=False).exit_code == 0


def remote_head(git: Git, remote: str, branch: str) -> Commit | None:
    """Return the remote's current commit of the branch; None if it does not exist there."""
    listing = _run(git, "ls-remote", "--quiet", "--", remote, f"refs/heads/{branch}")
    for line in listing.text.splitlines():
        oid, _, name = line.partition("\t")
        if name == f"refs/heads/{branch}":
            return Commit(oid)
    return None


def fetch(git: Git, remote: str, branch: str) -> Commit | None:
    """Fetch the remote's branch with its history to a ref under FETCHED_TARGETS; no other ref is moved. None if it does
    not exist there. Not reentrant."""
    # Escaped, so that no name is a directory of another.
    ref = f"{FETCHED_TARGETS}{quote(remote, safe='')}/{quote(branch, safe='')}"
    follow_setting = f"remote.{remote}.followRemoteHEAD=never"
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
    command = ("fetch", *flags, "--", remote, f"+refs/heads/{branch}:{ref}")
    remove_stale_lock(git.directory, ref)
    try:
        _run(git, *command, settings=("-c", follow_setting))
    except RemoteError as error:
        if NO_SUCH_BRANCH in str(error):
            return None
        if not remove_stale_lock(git.directory, ref):
            raise
        _run(git, *command, settings=("-c", follow_setting))
    return Commit(git.run("rev-parse", "--verify", f"{ref}^{{commit}}").text)


def local_head(git: Git, branch: str) -> Commit | None:
    """Return the commit of the user's own branch; None without such a branch."""
    result = git.run("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}^{{commit}}", check=False)
    return Commit(result.text) if result.exit_code == 0 else None


def push(git: Git, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
    """Set the branch to `commit` if the remote still has it at `old` (None: does not have it)."""
    ref = f"refs/heads/{branch}"
    flags = ("--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no")
    _run(git, "push", *flags, f"--force-with-lease={ref}:{old or ''}", "--", remote, f"{commit}:{ref}")


def _run(git: Git, verb: str, *args: str, settings: tuple[str, ...] = ()) -> ProgramResult:
    try:
        result = git.run(*settings, verb, *args, as_user=True, check=False, env=_ssh_variables(git))
    except RepositoryUnusable as error:
        if error.code != "git-timeout":
            raise
        raise RemoteError(f"the remote did not answer: {error}") from error
    if result.exit_code:
        reason = result.stderr or f"it ended with exit code {result.exit_code}"
        raise RemoteError(f"`git {verb}` failed: {reason}")
    return result


def _ssh_variables(git: Git) -> dict[str, str]:
    """Return variables that make ssh fail instead of asking. The user's own ssh command is kept if it is OpenSSH."""
    if git.user_environment.get("GIT_SSH") and not git.user_environment.get("GIT_SSH_COMMAND"):
        return {}
    configured = git.run("config", "--get", "core.sshCommand", as_user=True, check=False).text
    command = git.user_environment.get("GIT_SSH_COMMAND") or configured or "ssh"
    is_openssh = pathlib.PurePath(command.split()[0]).name == "ssh"
    return {"GIT_SSH_COMMAND": f"{command} -o BatchMode=yes"} if is_openssh else {}
