"""Run git so that nothing in a repository acts by itself: no hooks, filters, prompts or inherited variables.

Local work sees neither the user's nor the system's configuration, so trees are the same everywhere; only work in the
user's name (identity, remotes) sees it, with `as_user=True`. Raises RepositoryUnusable."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import IO, NamedTuple

from mz_engine.ports import RepositoryUnusable

TIMEOUT_SECONDS = 600.0

SAFE_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.sparseCheckout=false",
    "core.autocrlf=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.fsync=all",
    "core.filesRefLockTimeout=2000",
    "core.packedRefsTimeout=10000",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "diff.suppressBlankEmpty=false",
    "advice.graftFileDeprecated=false",
)
"""Settings that override every configuration file, including one that an agent may have edited."""

SAFE_VARIABLES = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": "/dev/null",
}
NO_USER_CONFIG = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}

REMOTE_VARIABLES = re.compile(r"GIT_((SSH|SSL|HTTP|PROXY|CONFIG)_\w+|SSH|ASKPASS)")
"""The user's variables that say how to reach a remote."""
IDENTITY_VARIABLES = re.compile(r"GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL)")


class GitResult(NamedTuple):
    """Result of a git process."""

    exit_code: int
    stdout: bytes
    stderr: str
    """With passwords in URLs masked."""

    @property
    def text(self) -> str:
        return decode(self.stdout).rstrip("\n")


class Git:
    """Git in one repository. `directory` is the directory that all its worktrees share."""

    def __init__(self, directory: pathlib.Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self._safe_environment = safe_environment(environment)
        self.user_environment: Mapping[str, str] = user_environment(environment)
        """For work in the user's name."""

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        git_dir: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
        as_user: bool = False,
        check: bool = True,
    ) -> GitResult:
        """Run to the end. Raises RepositoryUnusable (`git-failed`) on a non-zero exit if `check` is set."""
        with self.open_process(*args, git_dir=git_dir, env=env, as_user=as_user) as process:
            out, _ = process.communicate(stdin)
        result = GitResult(process.returncode, out, process.read_stderr())
        if check and result.exit_code:
            raise git_error(args, result)
        return result

    @contextlib.contextmanager
    def open_process(
        self,
        *args: str,
        git_dir: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
        as_user: bool = False,
    ) -> Iterator[GitProcess]:
        """Open a process to write to and read from; it has ended or been killed when the block is left."""
        directory = git_dir or self.directory
        # The work tree is a directory without .gitattributes, so attributes of the user's checkout have no effect.
        directories = {"GIT_DIR": str(directory), "GIT_WORK_TREE": str(self.directory)}
        base = self.user_environment if as_user else {**self._safe_environment, **NO_USER_CONFIG}
        with spawn_git(args, self.directory, {**base, **directories, **(env or {})}) as process:
            yield process


class GitProcess(subprocess.Popen[bytes]):
    """A git process with both pipes; its stderr goes to a file so that it never blocks."""

    stderr_file: IO[bytes]
    stderr_read = b""

    def read_stderr(self) -> str:
        """Return stderr so far; all of it once the process has ended."""
        if not self.stderr_file.closed:
            self.stderr_file.seek(0)
            self.stderr_read = self.stderr_file.read(20_000)
        return mask_credentials(decode(self.stderr_read).strip())

    @property
    def stdin_pipe(self) -> IO[bytes]:
        assert self.stdin is not None
        return self.stdin

    @property
    def stdout_pipe(self) -> IO[bytes]:
        assert self.stdout is not None
        return self.stdout

    def kill_all(self) -> None:
        """Kill the process and its helpers: it leads its own session, which also detaches it from the user's
        terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def spawn_git(
    args: tuple[str, ...], cwd: pathlib.Path, environment: Mapping[str, str], settings: tuple[str, ...] = SAFE_SETTINGS
) -> Iterator[GitProcess]:
    """Spawn git; kill it on timeout or when the block is left early. Raises RepositoryUnusable."""
    flags = [part for setting in settings for part in ("-c", setting)]
    timed_out = threading.Event()

    def end() -> None:
        timed_out.set()
        process.kill_all()

    with tempfile.TemporaryFile() as errors:
        try:
            process = GitProcess(
                ["git", *flags, *args],
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except FileNotFoundError as absent:
            raise spawn_error(cwd) from absent
        process.stderr_file = errors
        timer = threading.Timer(TIMEOUT_SECONDS, end)
        timer.daemon = True
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            _terminate(process)
            process.read_stderr()
        if timed_out.is_set():
            raise RepositoryUnusable("git-timeout", f"`git {args[0]}` did not end within {TIMEOUT_SECONDS:.0f} s")


def _terminate(process: GitProcess) -> None:
    for pipe in (process.stdin_pipe, process.stdout_pipe):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill_all()
        process.wait()


def spawn_error(cwd: pathlib.Path) -> RepositoryUnusable:
    if not cwd.is_dir():
        return RepositoryUnusable("not-a-repository", f"{cwd} does not exist")
    return RepositoryUnusable("git-missing", "`git` is not installed, or not on PATH; install git 2.30 or newer")


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with git's variables and password dialogs replaced by mz's."""
    inherited = {
        name: value for name, value in environment.items() if not name.startswith("GIT_") and name != "SSH_ASKPASS"
    }
    return {**inherited, **SAFE_VARIABLES}


def user_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for work in the user's name: with their remote access and identity, never prompting."""
    user_variables = {
        name: value
        for name, value in environment.items()
        if REMOTE_VARIABLES.fullmatch(name) or IDENTITY_VARIABLES.fullmatch(name)
    }
    return {**safe_environment(environment), **user_variables}


def git_error(args: tuple[str, ...], result: GitResult) -> RepositoryUnusable:
    reason = result.stderr.removeprefix("fatal: ") or f"it ended with exit code {result.exit_code}"
    return RepositoryUnusable("git-failed", f"`git {args[0]}` failed: {reason}")


def mask_credentials(text: str) -> str:
    """Mask user names and passwords in URLs."""
    return re.sub(r"(\w+://)[^/@\s]+@", r"\1***@", text)


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


__all__ = [
    "Git",
    "GitProcess",
    "GitResult",
    "decode",
    "git_error",
    "mask_credentials",
    "safe_environment",
    "spawn_git",
    "user_environment",
]
