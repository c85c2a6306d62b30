"""Move a branch of the user's forward, and the files of its checkouts with it; make tags."""

from __future__ import annotations

import pathlib

from mz_events.names import Commit

from mz_engine.git.process import Git
from mz_engine.git.repository import run_git_as_user
from mz_engine.ports import DeliveryRefused, RepositoryUnusable, StorageFailed


def commit_of(git: Git, ref: str) -> Commit | None:
    """Return the commit of a ref; None if there is no such ref."""
    result = git.run("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}", check=False)
    return Commit(result.text) if result.exit_code == 0 else None


def move_forward(git: Git, branch: str, old: Commit, commit: Commit) -> Commit | None:
    """Move the branch from `old` to `commit`, if it is at `old`. Return where it is then. Repeatable: files of a
    checkout that did not follow before a crash do now. Raises DeliveryRefused, RepositoryUnusable."""
    ref = f"refs/heads/{branch}"
    if commit_of(git, ref) == old:
        for checkout in checkouts(git, ref):
            if reason := _follow(git, checkout, old, commit, "-n"):
                hint = "commit, stash or remove it, then approve"
                message = f"{branch} is checked out in {checkout}, and something there is in the way of the merge"
                raise DeliveryRefused(f"{message}: {reason}; {hint}", "checkout-in-the-way")
        try:
            git.update_refs(f"update {ref} {commit} {old}\n")
        except RepositoryUnusable:
            if commit_of(git, ref) == old:
                raise
    now = commit_of(git, ref)
    for checkout in checkouts(git, ref) if now == commit else ():
        if reason := _follow(git, checkout, old, commit):
            message = f"{branch} was moved to {commit[:12]}, but the files in {checkout} did not follow: {reason}"
            raise RepositoryUnusable("git-failed", message)
    return now


def checkouts(git: Git, ref: str) -> tuple[pathlib.Path, ...]:
    """Return the directory in which a person has the branch checked out; none, if nobody has."""
    path = pathlib.Path(git.run("for-each-ref", "--format=%(worktreepath)", ref).text or "/dev/null")
    return (path,) if path.is_dir() else ()  # A worktree whose directory is gone is known to git still.


def _follow(git: Git, checkout: pathlib.Path, old: Commit, commit: Commit, *flags: str) -> str:
    """Let index and files go from `old` to `commit`, as a merge by hand does; `-n`: only try. Return why they cannot;
    empty: they can."""
    command = ("-c", "advice.graftFileDeprecated=false", "read-tree", "-m", "-u", *flags)
    result = run_git_as_user(checkout, git.user_environment, *command, old, commit)
    return (result.stderr or f"exit code {result.exit_code}") if result.exit_code else ""


def make_tag(git: Git, name: str, commit: Commit) -> None:
    """Make a tag. Raises DeliveryRefused (`tag-refused`) if git does not."""
    try:
        git.update_refs(f"create refs/tags/{name} {commit}\n")
    except StorageFailed:
        raise
    except RepositoryUnusable as error:
        raise DeliveryRefused(f"the tag {name} cannot be made: {error}", "tag-refused") from error
