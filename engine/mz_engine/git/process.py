"""Run git so that nothing in a repository acts by itself: no hooks, filters, prompts or inherited variables.

Local work sees neither the user's nor the system's configuration, so trees are the same everywhere; only work in the
user's name (identity, remotes) sees it, with `as_user=True`. Raises RepositoryUnusable."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from io import BufferedReader
from typing import IO, NamedTuple, cast

import msgspec

from mz_engine.ports import RepositoryUnusable, StorageFailed

TIMEOUT_SECONDS = 600.0
STDERR_BYTES_MAX = 20_000
STORAGE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors of a disk that is full, read-only or failing."""
STORAGE_MESSAGES = ("Out of diskspace", *map(os.strerror, STORAGE_ERRORS))
"""How git says so; the first is its own for packs."""

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

USER_VARIABLES = re.compile(
    r"GIT_((SSH|SSL|HTTP|PROXY|CONFIG)_\w+|SSH|ASKPASS|(AUTHOR|COMMITTER)_(NAME|EMAIL))"  # for remotes, and who commits
)


class ProgramResult(NamedTuple):
    """Result of a program that has ended."""

    exit_code: int
    stdout: bytes
    stderr: str
    """Its end, with passwords in URLs masked."""

    @property
    def text(self) -> str:
        return decode(self.stdout).rstrip("\n")


class Repository(msgspec.Struct, frozen=True):
    """Properties that do not change during a run."""

    root: pathlib.Path
    directory: pathlib.Path
    """Shared by all its worktrees; usually `.git`."""
    object_format: str
    """sha1 or sha256."""
    has_file_modes: bool
    """The executable bit is meaningful here."""


class Person(NamedTuple):
    """An author or a committer."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} <{self.address}>"


MZ = Person("mz", "mz@localhost")


class Git:
    """Git in one repository."""

    def __init__(self, repository: Repository, environment: Mapping[str, str]) -> None:
        self.repository, self.directory = repository, repository.directory
        self._safe_environment = {**safe_environment(environment), **NO_USER_CONFIG}
        self.user_environment: Mapping[str, str] = user_environment(environment)
        """For work in the user's name."""
        self._refs, self._refs_lock = self.dialogue("update-ref", "--stdin"), threading.Lock()

    def run(
        self,
        *args: str,
        stdin: bytes | IO[bytes] = b"",
        git_dir: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
        as_user: bool = False,
        check: bool = True,
    ) -> ProgramResult:
        """Run to the end. Raises RepositoryUnusable (`git-failed`) on a non-zero exit if `check` is set."""
        # The work tree is a directory without .gitattributes, so attributes of the user's checkout have no effect. Only
        # relative paths of the user's remotes begin at the checkout.
        work_tree = self.repository.root if as_user else self.directory
        directories = {"GIT_DIR": str(git_dir or self.directory), "GIT_WORK_TREE": str(work_tree)}
        base = self.user_environment if as_user else self._safe_environment
        result = run_git(args, work_tree, {**base, **directories, **(env or {})}, stdin)
        if check and result.exit_code:
            raise git_error(args[0], result)
        return result

    def dialogue(self, *args: str) -> Dialogue:
        return Dialogue(self.directory, {**self._safe_environment, "GIT_DIR": str(self.directory)}, args)

    def update_refs(self, commands: str) -> None:
        """Run the commands of `git update-ref --stdin` as one transaction. Raises RepositoryUnusable."""
        data = commands.encode("utf-8", "surrogateescape")
        with self._refs_lock:
            try:
                reply = self._refs.ask(b"start\n%scommit\n" % data)
                if (reply.readline(), reply.readline()) == (b"start: ok\n", b"commit: ok\n"):
                    return
            except BrokenPipeError:
                pass
            self._refs.end()
        self.run("update-ref", "--stdin", stdin=data)  # It fails with git's own reason.

    @cached_property
    def people(self) -> tuple[Person, Person]:
        """The user as author and as committer; else `mz <mz@localhost>`."""
        author, committer = (
            self.run("-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT", as_user=True, check=False)
            for role in ("AUTHOR", "COMMITTER")
        )
        return parse_ident(author), parse_ident(committer)

    @cached_property
    def ssh_command(self) -> str:
        """The user's setting; empty: none."""
        return self.run("config", "--get", "core.sshCommand", as_user=True, check=False).text


def parse_ident(ident: ProgramResult) -> Person:
    """Return the person that `git var` printed: `NAME <ADDRESS> TIME ZONE`."""
    name, _, address = ("" if ident.exit_code else ident.text).partition(" <")
    return Person(name, address.partition(">")[0]) if name else MZ


class Dialogue:
    """One git process that answers requests over pipes, in its own session, started at the first; it ends with this
    object, which therefore knows no other that knows it."""

    def __init__(self, directory: pathlib.Path, environment: Mapping[str, str], args: Sequence[str]) -> None:
        self._directory, self._environment, self._args = directory, environment, args
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes) -> BufferedReader:
        """Send a request, wait for the first bytes of the reply, and return the pipe with it. Raises BrokenPipeError
        if git has ended, RepositoryUnusable."""
        if self._process is None:
            pipe = subprocess.PIPE
            with explain_missing(self._directory):
                self._process = subprocess.Popen(
                    git_command(self._args),
                    cwd=self._directory,
                    env=self._environment,
                    stdin=pipe,
                    stdout=pipe,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            weakref.finalize(self, end_process, self._process)
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(request)
        self._process.stdin.flush()
        poll = select.poll()  # Unlike select, it takes any number.
        poll.register(self._process.stdout, select.POLLIN)
        if not poll.poll(TIMEOUT_SECONDS * 1000):
            message = f"`git {self._args[0]}` did not answer in {TIMEOUT_SECONDS:.0f} s"
            raise RepositoryUnusable("git-timeout", message)
        return cast(BufferedReader, self._process.stdout)

    def end(self) -> None:
        """End a process with which the dialogue is broken."""
        if self._process is not None:
            end_process(self._process)
        self._process = None


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a git process that holds nothing that can be lost."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            if pipe is not None:
                pipe.close()
    process.wait()


def git_command(args: Sequence[str], settings: Sequence[str] = SAFE_SETTINGS) -> list[str]:
    return ["git", *(part for setting in settings for part in ("-c", setting)), *args]


def run_git(
    args: Sequence[str],
    cwd: pathlib.Path,
    environment: Mapping[str, str],
    stdin: bytes | IO[bytes] = b"",
    settings: Sequence[str] = SAFE_SETTINGS,
) -> ProgramResult:
    """Run git in a directory. Raises RepositoryUnusable."""
    try:
        with explain_missing(cwd):
            return run_program(git_command(args, settings), cwd, environment, TIMEOUT_SECONDS, stdin)
    except subprocess.TimeoutExpired as error:
        message = f"`git {args[0]}` did not end within {TIMEOUT_SECONDS:.0f} s"
        raise RepositoryUnusable("git-timeout", message) from error


@contextlib.contextmanager
def explain_missing(cwd: pathlib.Path) -> Iterator[None]:
    """Turn the error of a missing program or directory into RepositoryUnusable."""
    try:
        yield
    except FileNotFoundError as error:
        if not cwd.is_dir():
            raise RepositoryUnusable("not-a-repository", f"{cwd} does not exist") from error
        message = "`git` is not installed, or not on PATH; install git 2.30 or newer"
        raise RepositoryUnusable("git-missing", message) from error


def run_program(
    command: Sequence[str],
    cwd: pathlib.Path,
    environment: Mapping[str, str],
    timeout_seconds: float,
    stdin: bytes | IO[bytes] = b"",
    stdout: IO[bytes] | None = None,
) -> ProgramResult:
    """Run a program to its end; kill it with its helpers on a timeout or an interrupt. It leads its own session, which
    also detaches it from the user's terminal. Its stderr is a file, since a helper that outlives it may keep it open.

    Raises FileNotFoundError, TimeoutExpired."""
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=pipe if isinstance(stdin, bytes) else stdin,
            stdout=stdout or pipe,
            stderr=errors,
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(stdin if isinstance(stdin, bytes) else None, timeout_seconds)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        stderr = decode(read_tail(errors, STDERR_BYTES_MAX)).strip()
    return ProgramResult(process.returncode, out or b"", mask_credentials(stderr))


def read_tail(file: IO[bytes], bytes_max: int) -> bytes:
    file.seek(max(0, file.seek(0, os.SEEK_END) - bytes_max))
    return file.read()


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with git's variables and password dialogs replaced by mz's."""
    inherited = {
        name: value for name, value in environment.items() if not name.startswith("GIT_") and name != "SSH_ASKPASS"
    }
    return {**inherited, **SAFE_VARIABLES}


def user_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for work in the user's name: with their remote access and identity, never prompting."""
    user_variables = {name: value for name, value in environment.items() if USER_VARIABLES.fullmatch(name)}
    return {**safe_environment(environment), **user_variables}


def git_error(verb: str, result: ProgramResult) -> RepositoryUnusable:
    reason = result.stderr.removeprefix("fatal: ") or f"it ended with exit code {result.exit_code}"
    is_storage = any(message in result.stderr for message in STORAGE_MESSAGES)
    return (StorageFailed if is_storage else RepositoryUnusable)("git-failed", f"`git {verb}` failed: {reason}")


def file_error(code: str, message: str, error: OSError) -> RepositoryUnusable:
    """Return the error of the repository for one of its files or directories."""
    kind = StorageFailed if error.errno in STORAGE_ERRORS else RepositoryUnusable
    return kind(code, f"{message}: {error.strerror or error}")


def mask_credentials(text: str) -> str:
    """Mask user names and passwords in URLs."""
    return re.sub(r"(\w+://)[^/@\s]+@", r"\1***@", text)


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
