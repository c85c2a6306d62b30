"""Find the user's repository, and name the fix if it cannot be used; move its branches; reach its remotes, with the
user's credentials and never interactively. Everything raises RepositoryUnusable, what reaches a remote RemoteError with
git's message.

Codes: `git-missing`, `not-a-repository`, `not-trusted`, `bare`, `no-commit`, `read-only`, `detached`, `no-base`.
"""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar
from urllib.parse import quote

from mz_events.names import Commit

from mz_engine.git.process import Git, ProgramResult, Repository, git_error, run_git, user_environment
from mz_engine.paths import MZ_FOLDER, WORKTREES_FOLDER
from mz_engine.ports import DeliveryRefused, RemoteError, RepositoryUnusable, StorageFailed

STALE_LOCK_SECONDS = 2.0
"""A lock on a ref older than this was left by a killed process."""
FETCHED_TARGETS = "refs/mz/targets/"
"""Fetched branches, by remote and branch. Run names begin with `r` and a digest, so none equals `targets`."""
NO_SUCH_BRANCH = "couldn't find remote ref"

T = TypeVar("T")


def find_root(cwd: pathlib.Path, environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return the top of the working tree that contains `cwd`; within a worktree of mz, that of the user's checkout."""
    result = run_git_as_user(cwd, environment, "rev-parse", "--is-bare-repository", "--show-toplevel")
    if result.text.startswith("true") or "must be run in a work tree" in result.stderr:
        raise RepositoryUnusable("bare", f"{cwd} is in a bare repository; run mz in a clone with files")
    if result.exit_code:
        raise repository_error(cwd, result)
    top = pathlib.Path(os.fsdecode(result.stdout).rstrip("\n").split("\n", 1)[1])
    inside = top.parts[-4:-2] == (MZ_FOLDER, WORKTREES_FOLDER)
    return top.parents[3] if inside else top


def current_branch(root: pathlib.Path, environment: Mapping[str, str] = os.environ) -> str:
    result = run_git_as_user(root, environment, "symbolic-ref", "--quiet", "HEAD")
    if result.exit_code == 1 and not result.stderr:
        raise RepositoryUnusable("detached", "HEAD is at a commit, not on a branch; name the base branch: `base: main`")
    if result.exit_code:
        raise repository_error(root, result)
    branch = result.text.removeprefix("refs/heads/")
    if run_git_as_user(root, environment, "rev-parse", "--quiet", "--verify", "HEAD^{commit}").exit_code:
        hint = "commit something first: worktrees start from a commit"
        raise RepositoryUnusable("no-commit", f"the branch `{branch}` has no commit yet; {hint}")
    return branch


def branch_commit(root: pathlib.Path, name: str, environment: Mapping[str, str] = os.environ) -> Commit:
    """Return the commit of a local branch, else of a remote's (`origin/main`), else of any other revision name."""
    command = ("rev-parse", "--quiet", "--verify", "--end-of-options")
    for ref in (f"refs/heads/{name}", f"refs/remotes/{name}", name):
        result = run_git_as_user(root, environment, *command, f"{ref}^{{commit}}")
        if result.exit_code == 0:
            return Commit(result.text)
        if result.exit_code != 1 and "Needed a single revision" not in result.stderr:
            raise repository_error(root, result)
    if run_git_as_user(root, environment, "rev-parse", "--quiet", "--verify", "HEAD").exit_code:
        raise RepositoryUnusable("no-commit", "the repository has no commit yet; worktrees start from one: commit once")
    hint = "see `git branch --all`, then set `base:` in mz.yaml"
    raise RepositoryUnusable("no-base", f"there is no branch or commit `{name}`; {hint}")


def ref_exists(root: pathlib.Path, name: str, environment: Mapping[str, str]) -> bool:
    """Return True if there is a ref of this name, such as `heads/main`."""
    return run_git_as_user(root, environment, "rev-parse", "--quiet", "--verify", f"refs/{name}").exit_code == 0


def is_ancestor(git: Git, old: str, new: str) -> bool:
    """Return True if `old` is `new` or one of its ancestors. Raises RepositoryUnusable."""
    result = git.run("merge-base", "--is-ancestor", old, new, check=False)
    if result.exit_code > 1:
        raise git_error("merge-base", result)
    return result.exit_code == 0


def base_commit(root: pathlib.Path, base: str | None, environment: Mapping[str, str]) -> tuple[str, Commit]:
    """Return the base, by default the current branch, and its commit. Raises RepositoryUnusable."""
    name = base or current_branch(root, environment)
    return name, branch_commit(root, name, environment)


def reject_tracked_folder(root: pathlib.Path, commit: Commit, environment: Mapping[str, str] = os.environ) -> None:
    """Raise RepositoryUnusable if the commit has files in mz's own folder, which belongs to one checkout."""
    listed = run_git_as_user(root, environment, "ls-tree", "-r", "-z", "--name-only", commit, "--", f"{MZ_FOLDER}/")
    paths = os.fsdecode(listed.stdout).split("\0")[:-1]
    if paths:
        remedy = f"`git rm -r --cached {MZ_FOLDER}`, add `{MZ_FOLDER}/` to .gitignore, and commit"
        message = f"{commit[:12]} tracks {len(paths)} files in {MZ_FOLDER}/, such as {paths[0]!r}; {remedy}"
        raise RepositoryUnusable("tracked-folder", message)


def uncommitted_files(root: pathlib.Path, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return files and new folders of the checkout that differ from its last commit; ignored ones do not count."""
    flags = ("--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames", "--ignore-submodules=dirty")
    listed = run_git_as_user(root, environment, "--no-optional-locks", "status", *flags)
    return tuple(entry[3:] for entry in os.fsdecode(listed.stdout).split("\0") if entry)


def submodules(root: pathlib.Path, commit: Commit, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the paths of the commit's submodules."""
    command = ("config", "--blob", f"{commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    lines = run_git_as_user(root, environment, *command).text.splitlines()
    return tuple(line.partition(" ")[2] for line in lines)


def lfs_files(root: pathlib.Path, commit: Commit, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the files of the commit that are pointers to contents in Git LFS."""
    command = ("--no-literal-pathspecs", "grep", "--name-only", "--fixed-strings", "-z", "-e")
    attributes = (commit, "--", ".gitattributes", ":(glob)**/.gitattributes")
    if run_git_as_user(root, environment, *command, "filter=lfs", *attributes).exit_code:
        return ()
    matches = run_git_as_user(root, environment, *command, "version https://git-lfs.github.com/spec/v1", commit)
    return tuple(name.partition(":")[2] for name in os.fsdecode(matches.stdout).split("\0") if name)


def open_repository(root: pathlib.Path, environment: Mapping[str, str] = os.environ, is_written: bool = True) -> Git:
    """Return git for a repository. Raises RepositoryUnusable, also if it is to be written and cannot."""
    command = ("rev-parse", "--show-object-format", "--git-common-dir")
    result = run_git_as_user(root, environment, *command)
    if result.exit_code:
        raise repository_error(root, result)
    object_format, common_directory = os.fsdecode(result.stdout).rstrip("\n").split("\n")
    directory = (root / common_directory).resolve()
    for path in (directory, directory / "objects", root) if is_written else ():
        if not os.access(path, os.W_OK | os.X_OK):
            hint = "mz keeps captures and worktrees there; make it writable"
            raise RepositoryUnusable("read-only", f"{path} is not writable; {hint}")
    modes = run_git_as_user(root, environment, "config", "--type=bool", "--get", "core.fileMode").text
    return Git(Repository(root.resolve(), directory, object_format, modes != "false"), environment)


def repository_error(path: pathlib.Path, result: ProgramResult) -> RepositoryUnusable:
    if "dubious ownership" in result.stderr:
        hint = f"git config --global --add safe.directory {path}"
        message = f"{path} belongs to another user, so git refuses it; if you trust it: {hint}"
        return RepositoryUnusable("not-trusted", message)
    if "not a git repository" in result.stderr:
        message = f"{path} is not in a git repository; run `git init` and commit, or go to a repository"
        return RepositoryUnusable("not-a-repository", message)
    reason = result.stderr or f"exit code {result.exit_code}"
    return RepositoryUnusable("git-failed", f"git cannot use {path}: {reason}")


def run_git_as_user(directory: pathlib.Path, environment: Mapping[str, str], *args: str) -> ProgramResult:
    """Run git as the user would in that directory, with their hooks path; the commands used here run no hooks."""
    return run_git(args, directory, user_environment(environment), settings=())


def output_as_user(directory: pathlib.Path, environment: Mapping[str, str], *args: str) -> str:
    """Return what git prints, run as by `run_git_as_user`; empty if it fails."""
    result = run_git_as_user(directory, environment, *args)
    return "" if result.exit_code else result.text


def remove_stale_lock(directory: pathlib.Path, ref: str) -> bool:
    """Remove a stale lock on this ref of mz's; return True if there was one."""
    lock = directory / f"{ref}.lock"
    try:
        is_stale = time.time() - lock.stat().st_mtime > STALE_LOCK_SECONDS
    except (FileNotFoundError, NotADirectoryError):
        return False
    if is_stale:
        lock.unlink(missing_ok=True)
    return is_stale


def retry_without_locks(git: Git, refs: Iterable[str], act: Callable[[], T]) -> T:
    """Run `act`; if it fails although git waited, and locks on these refs are stale, remove them and run it again."""
    try:
        return act()
    except (RemoteError, RepositoryUnusable):
        if True not in {remove_stale_lock(git.directory, ref) for ref in refs}:
            raise
        return act()


# remotes --------------------------------------------------------------------------------------------------------------
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
    """Fetch the remote's branch (or full ref name) with its history to a ref under FETCHED_TARGETS; no other ref is
    moved. None if it does not exist there. Not reentrant."""
    # Escaped, so that no name is a directory of another.
    ref = f"{FETCHED_TARGETS}{quote(remote, safe='')}/{quote(branch, safe='')}"
    follow_setting = f"remote.{remote}.followRemoteHEAD=never"
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
    source = branch if branch.startswith("refs/") else f"refs/heads/{branch}"
    command = ("fetch", *flags, "--", remote, f"+{source}:{ref}")
    try:
        retry_without_locks(git, [ref], lambda: _run(git, *command, settings=("-c", follow_setting)))
    except RemoteError as error:
        if NO_SUCH_BRANCH in str(error):
            return None
        raise
    return Commit(git.run("rev-parse", "--verify", f"{ref}^{{commit}}").text)


def push(git: Git, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
    """Set the branch to `commit` if the remote still has it at `old` (None: does not have it)."""
    ref = f"refs/heads/{branch}"
    push_ref(git, remote, commit, ref, f"--force-with-lease={ref}:{old or ''}")


def push_ref(git: Git, remote: str, source: str, ref: str, *more_flags: str) -> None:
    flags = ("--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no")
    _run(git, "push", *flags, *more_flags, "--", remote, f"{source}:{ref}")


def _run(git: Git, verb: str, *args: str, settings: tuple[str, ...] = ()) -> ProgramResult:
    try:
        result = git.run(*settings, verb, *args, as_user=True, check=False, env=_ssh_variables(git))
    except RepositoryUnusable as error:
        if error.code != "git-timeout":
            raise
        raise RemoteError(f"the remote did not answer: {error}") from error
    if result.exit_code:
        reason = result.stderr or f"it ended with exit code {result.exit_code}"
        raise RemoteError(f"`git {verb}` failed: {reason}", "push-refused" if verb == "push" else "remote-unreachable")
    return result


def _ssh_variables(git: Git) -> dict[str, str]:
    """Return variables that make ssh fail instead of asking. The user's own ssh command is kept if it is OpenSSH."""
    if git.user_environment.get("GIT_SSH") and not git.user_environment.get("GIT_SSH_COMMAND"):
        return {}
    command = git.user_environment.get("GIT_SSH_COMMAND") or git.ssh_command or "ssh"
    is_openssh = pathlib.PurePath(command.split()[0]).name == "ssh"
    return {"GIT_SSH_COMMAND": f"{command} -o BatchMode=yes"} if is_openssh else {}


# branches and tags of the user ----------------------------------------------------------------------------------------
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
