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

QUIET = (
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

ALWAYS = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": "/dev/null",
}
OURS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}

THEIRS = re.compile(r"GIT_((SSH|SSL|HTTP|PROXY|CONFIG)_\w+|SSH|ASKPASS)")
"""The user's variables that say how to reach a remote."""
IDENTITY = re.compile(r"GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL)")


class Done(NamedTuple):
    """Result of a git process."""

    code: int
    out: bytes
    words: str
    """With passwords in URLs masked."""

    @property
    def text(self) -> str:
        return decode(self.out).rstrip("\n")


class Git:
    """Git in one repository. `directory` is the directory that all its worktrees share."""

    def __init__(self, directory: pathlib.Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self._base = clean(environment)
        self.theirs: Mapping[str, str] = theirs(environment)
        """For work in the user's name."""

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        git_dir: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
        as_user: bool = False,
        check: bool = True,
    ) -> Done:
        """Run to the end. Raises RepositoryUnusable (`git-failed`) on a non-zero exit if `check` is set."""
        with self.talk(*args, git_dir=git_dir, env=env, as_user=as_user) as process:
            out, _ = process.communicate(stdin)
        done = Done(process.returncode, out, process.words())
        if check and done.code:
            raise failed(args, done)
        return done

    @contextlib.contextmanager
    def talk(
        self,
        *args: str,
        git_dir: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
        as_user: bool = False,
    ) -> Iterator[Process]:
        """Open a process to write to and read from; it has ended or been killed when the block is left."""
        directory = git_dir or self.directory
        # The work tree is a directory without .gitattributes, so attributes of the user's checkout have no effect.
        directories = {"GIT_DIR": str(directory), "GIT_WORK_TREE": str(self.directory)}
        base = self.theirs if as_user else {**self._base, **OURS}
        with start(args, self.directory, {**base, **directories, **(env or {})}) as process:
            yield process


class Process(subprocess.Popen[bytes]):
    """A git process with both pipes; its stderr goes to a file so that it never blocks."""

    stderr_file: IO[bytes]
    stderr_read = b""

    def words(self) -> str:
        """Return stderr so far; all of it once the process has ended."""
        if not self.stderr_file.closed:
            self.stderr_file.seek(0)
            self.stderr_read = self.stderr_file.read(20_000)
        return masked(decode(self.stderr_read).strip())

    @property
    def into(self) -> IO[bytes]:
        assert self.stdin is not None
        return self.stdin

    @property
    def out(self) -> IO[bytes]:
        assert self.stdout is not None
        return self.stdout

    def kill_all(self) -> None:
        """Kill the process and its helpers: it leads its own session, which also detaches it from the user's
        terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def start(
    args: tuple[str, ...], cwd: pathlib.Path, environment: Mapping[str, str], settings: tuple[str, ...] = QUIET
) -> Iterator[Process]:
    """Spawn git; kill it on timeout or when the block is left early. Raises RepositoryUnusable."""
    flags = [part for setting in settings for part in ("-c", setting)]
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill_all()

    with tempfile.TemporaryFile() as errors:
        try:
            process = Process(
                ["git", *flags, *args],
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except FileNotFoundError as absent:
            raise not_startable(cwd) from absent
        process.stderr_file = errors
        timer = threading.Timer(TIMEOUT_SECONDS, end)
        timer.daemon = True
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            _end(process)
            process.words()
        if late.is_set():
            raise RepositoryUnusable("git-timeout", f"`git {args[0]}` did not end within {TIMEOUT_SECONDS:.0f} s")


def _end(process: Process) -> None:
    for pipe in (process.into, process.out):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill_all()
        process.wait()


def not_startable(cwd: pathlib.Path) -> RepositoryUnusable:
    if not cwd.is_dir():
        return RepositoryUnusable("not-a-repository", f"{cwd} does not exist")
    return RepositoryUnusable("git-missing", "`git` is not installed, or not on PATH; install git 2.30 or newer")


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with git's variables and password dialogs replaced by mz's."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") and name != "SSH_ASKPASS"}
    return {**kept, **ALWAYS}


def theirs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for work in the user's name: with their remote access and identity, never prompting."""
    known = {name: value for name, value in environment.items() if THEIRS.fullmatch(name) or IDENTITY.fullmatch(name)}
    return {**clean(environment), **known}


def failed(args: tuple[str, ...], done: Done) -> RepositoryUnusable:
    reason = done.words.removeprefix("fatal: ") or f"it ended with exit code {done.code}"
    return RepositoryUnusable("git-failed", f"`git {args[0]}` failed: {reason}")


def masked(text: str) -> str:
    """Mask user names and passwords in URLs."""
    return re.sub(r"(\w+://)[^/@\s]+@", r"\1***@", text)


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


__all__ = ["Done", "Git", "Process", "clean", "decode", "failed", "masked", "start", "theirs"]
