"""Adapter: runs git so that nothing in a repository can act by itself: no hooks, filters, prompts or stray variables.

Local work sees neither the user's nor the machine's configuration, so that a tree is the same everywhere; only what
is done in the user's name (identity, remotes) sees it, with `theirs=True`. Raises RepositoryUnusable.
"""

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
"""Settings that win over every configuration file, the one that an agent may have edited included."""

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
"""Variables of the user's that say how to reach a remote."""
IDENTITY = re.compile(r"GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL)")


class Done(NamedTuple):
    """What a git process answered."""

    code: int
    out: bytes
    words: str
    """stderr, with passwords in URLs masked."""

    @property
    def text(self) -> str:
        return decode(self.out).rstrip("\n")


class Git:
    """One repository's git. `directory` is the directory that all its worktrees share."""

    def __init__(self, directory: pathlib.Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self._base = clean(environment)
        self.theirs: Mapping[str, str] = theirs(environment)
        """What is set for work in the user's name."""

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        git_dir: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
        as_user: bool = False,
        check: bool = True,
    ) -> Done:
        """Run to the end. Raises RepositoryUnusable (`git-failed`) on a non-zero exit unless `check` is off."""
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
        """A process to write to and read from; it has ended, by itself or killed, when the block is left."""
        directory = git_dir or self.directory
        # The work tree is a directory without any .gitattributes: attributes of the user's checkout stay out.
        places = {"GIT_DIR": str(directory), "GIT_WORK_TREE": str(self.directory)}
        base = self.theirs if as_user else {**self._base, **OURS}
        with start(args, self.directory, {**base, **places, **(env or {})}) as process:
            yield process


class Process(subprocess.Popen[bytes]):
    """A git process with both pipes, whose stderr goes to a file so that it never blocks."""

    errors: IO[bytes]
    said = b""

    def words(self) -> str:
        """stderr so far, or all of it once the process has ended."""
        if not self.errors.closed:
            self.errors.seek(0)
            self.said = self.errors.read(20_000)
        return masked(decode(self.said).strip())

    @property
    def into(self) -> IO[bytes]:
        assert self.stdin is not None
        return self.stdin

    @property
    def out(self) -> IO[bytes]:
        assert self.stdout is not None
        return self.stdout

    def kill_all(self) -> None:
        """Its helpers too: it leads a session of its own, which also keeps it from the user's terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def start(
    args: tuple[str, ...], cwd: pathlib.Path, environment: Mapping[str, str], settings: tuple[str, ...] = QUIET
) -> Iterator[Process]:
    """Spawn git; kill it when its time is up or when the block is left early. Raises RepositoryUnusable."""
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
        process.errors = errors
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
    """The environment without git's variables and password windows, and with ours."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") and name != "SSH_ASKPASS"}
    return {**kept, **ALWAYS}


def theirs(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for what is done in the user's name: their way to a remote and their identity, never a prompt."""
    known = {name: value for name, value in environment.items() if THEIRS.fullmatch(name) or IDENTITY.fullmatch(name)}
    return {**clean(environment), **known}


def failed(args: tuple[str, ...], done: Done) -> RepositoryUnusable:
    words = done.words.removeprefix("fatal: ") or f"it ended with exit code {done.code}"
    return RepositoryUnusable("git-failed", f"`git {args[0]}` failed: {words}")


def masked(text: str) -> str:
    """Without user names and passwords in URLs."""
    return re.sub(r"(\w+://)[^/@\s]+@", r"\1***@", text)


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


__all__ = ["Done", "Git", "Process", "clean", "decode", "failed", "masked", "start", "theirs"]
