"""Find the user's repository, and name the fix if it cannot be used. Everything raises RepositoryUnusable.

Codes: `git-missing`, `not-a-repository`, `not-trusted`, `bare`, `no-commit`, `read-only`, `detached`, `no-base`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import msgspec
from mz_events.names import Commit

from mz_engine.adapters.git_process import Done, start, theirs
from mz_engine.home import HOME, WORKTREES
from mz_engine.ports import RepositoryUnusable


class Repository(msgspec.Struct, frozen=True):
    """Properties that do not change during a run."""

    root: pathlib.Path
    directory: pathlib.Path
    """Shared by all its worktrees; usually `.git`."""
    object_format: str
    """sha1 or sha256."""
    file_modes: bool
    """The executable bit is meaningful here."""
    hooks: tuple[pathlib.Path, ...]
    """Possible hook directories."""


def find_root(cwd: pathlib.Path, environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return the top of the working tree that contains `cwd`; within a worktree of mz, that of the user's checkout."""
    done = ask(cwd, environment, "rev-parse", "--is-bare-repository", "--show-toplevel")
    if done.text.startswith("true") or "must be run in a work tree" in done.words:
        raise RepositoryUnusable("bare", f"{cwd} is in a bare repository; run mz in a clone with files")
    if done.code:
        raise unusable(cwd, done)
    top = pathlib.Path(os.fsdecode(done.out).rstrip("\n").split("\n", 1)[1])
    inside = top.parts[-4:-2] == (HOME, WORKTREES)
    return top.parents[3] if inside else top


def current_branch(root: pathlib.Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the branch that is checked out."""
    done = ask(root, environment, "symbolic-ref", "--quiet", "HEAD")
    if done.code == 1 and not done.words:
        raise RepositoryUnusable("detached", "HEAD is at a commit, not on a branch; name the base branch: `base: main`")
    if done.code:
        raise unusable(root, done)
    branch = done.text.removeprefix("refs/heads/")
    if ask(root, environment, "rev-parse", "--quiet", "--verify", "HEAD^{commit}").code:
        hint = "commit something first: worktrees start from a commit"
        raise RepositoryUnusable("no-commit", f"the branch `{branch}` has no commit yet; {hint}")
    return branch


def branch_commit(root: pathlib.Path, name: str, environment: Mapping[str, str] = os.environ) -> Commit:
    """Return the commit of a local branch, else of a remote's (`origin/main`), else of any other revision name."""
    for ref in (f"refs/heads/{name}", f"refs/remotes/{name}", name):
        done = ask(root, environment, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{ref}^{{commit}}")
        if done.code == 0:
            return Commit(done.text)
        if done.words and "Needed a single revision" not in done.words:
            raise unusable(root, done)
    if ask(root, environment, "rev-parse", "--quiet", "--verify", "HEAD").code:
        raise RepositoryUnusable("no-commit", "the repository has no commit yet; worktrees start from one: commit once")
    raise RepositoryUnusable(
        "no-base", f"there is no branch or commit `{name}`; see `git branch --all`, then set `base:` in mz.yaml"
    )


def describe(root: pathlib.Path, environment: Mapping[str, str] = os.environ) -> Repository:
    """Describe a repository. Raises RepositoryUnusable if it is not writable."""
    done = ask(root, environment, "rev-parse", "--show-object-format", "--git-path", "hooks", "--git-common-dir")
    if done.code:
        raise unusable(root, done)
    object_format, hooks, shared = os.fsdecode(done.out).rstrip("\n").split("\n")
    directory = (root / shared).resolve()
    for path in (directory, directory / "objects", root):
        if not os.access(path, os.W_OK | os.X_OK):
            hint = "mz keeps captures and worktrees there; make it writable"
            raise RepositoryUnusable("read-only", f"{path} is not writable; {hint}")
    modes = ask(root, environment, "config", "--type=bool", "--get", "core.fileMode").text
    hook_directories = dict.fromkeys((directory / "hooks", (root / hooks).resolve()))
    return Repository(root.resolve(), directory, object_format, modes != "false", tuple(hook_directories))


def unusable(place: pathlib.Path, done: Done) -> RepositoryUnusable:
    """Convert git's error."""
    if "dubious ownership" in done.words:
        hint = f"git config --global --add safe.directory {place}"
        message = f"{place} belongs to another user, so git refuses it; if you trust it: {hint}"
        return RepositoryUnusable("not-trusted", message)
    if "not a git repository" in done.words:
        message = f"{place} is not in a git repository; run `git init` and commit, or go to a repository"
        return RepositoryUnusable("not-a-repository", message)
    return RepositoryUnusable("git-failed", f"git cannot use {place}: {done.words or f'exit code {done.code}'}")


def ask(place: pathlib.Path, environment: Mapping[str, str], *args: str) -> Done:
    """Run git as the user would in that directory, with their hooks path; the commands used here run no hooks."""
    with start(args, place, theirs(environment), settings=()) as process:
        out, _ = process.communicate()
    return Done(process.returncode, out, process.words())
