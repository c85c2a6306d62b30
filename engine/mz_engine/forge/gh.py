"""Run GitHub's `gh` for one repository: without prompts, with a time limit and bounded output.

Exit codes: `gh help exit-codes`. Raises RemoteRefused with gh's message."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cached_property
from typing import IO, Literal, NamedTuple

from mz_engine.git.process import decode, mask_credentials, safe_environment
from mz_engine.git.repository import run_git_as_user
from mz_engine.ports import RemoteError

TIMEOUT_SECONDS = 120
NOT_LOGGED_IN_EXIT = 4
STDERR_BYTES_MAX = 20_000
STDOUT_BYTES_MAX = 16 << 20
"""Bytes kept from the end of gh's output."""

QUIET_VARIABLES = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GH_SPINNER_DISABLED": "1", "NO_COLOR": "1"}
VERBOSE_VARIABLES = frozenset({"GH_FORCE_TTY", "CLICOLOR_FORCE", "GH_DEBUG", "DEBUG"})
"""Variables that make gh print output for people: `gh help environment`."""
UNSUPPORTED = re.compile(r"unknown flag: |unknown json field|unknown command ", re.IGNORECASE)

REMOTE_URL = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/\s]+@)?(?P<host>[^/:\s]+)(?::\d+)?/|(?:[^@/\s]+@)?(?P<scp>[^/:\s]+):(?!/))"
    r"(?P<owner>[^/\s]+)/(?P<name>[^/\s]+?)(?:\.git)?/?"
)
"""`https://HOST/OWNER/NAME.git`, `ssh://git@HOST/OWNER/NAME` and `git@HOST:OWNER/NAME.git`."""


class ForgeUnavailable(RemoteError):
    """`gh` cannot be used at all; the message names the fix."""

    def __init__(self, code: Literal["gh-missing", "gh-login", "gh-timeout", "gh-too-old"], message: str) -> None:
        super().__init__(message)
        self.code = code


class GhResult(NamedTuple):
    """Result of one call of gh."""

    command: str
    """As in `gh pr view`, for messages."""
    exit_code: int
    stdout: str
    stderr: str
    """With passwords in URLs masked."""


class Gh:
    """Runs gh in one checkout, for the repository behind one remote. Thread-safe."""

    def __init__(self, root: pathlib.Path, remote: str, environment: Mapping[str, str], timeout_seconds: float) -> None:
        self._root, self._remote, self._user_environment, self._timeout = root, remote, environment, timeout_seconds
        self._environment = {
            name: value for name, value in safe_environment(environment).items() if name not in VERBOSE_VARIABLES
        } | QUIET_VARIABLES

    def run_checked(self, *arguments: str, stdin: str = "") -> str:
        """Run gh and return its output. Raises RemoteRefused if it fails."""
        result = self.run(*arguments, stdin=stdin)
        if result.exit_code:
            raise gh_error(result)
        return result.stdout

    def run(self, *arguments: str, stdin: str = "", bytes_max: int = STDOUT_BYTES_MAX) -> GhResult:
        """Run `gh pr ...` or `gh run ...` on the repository. Raises ForgeUnavailable."""
        repository_flags = ("--repo", self._repository) if self._repository else ()
        return self._run(arguments[:2], (*repository_flags, *arguments[2:]), stdin, bytes_max)

    def api(self, path: str, *flags: str, stdin: str = "", bytes_max: int = STDOUT_BYTES_MAX) -> GhResult:
        """Run `gh api` on a path below the repository's own address. Raises ForgeUnavailable."""
        *host, owner, name = (self._repository or "{owner}/{repo}").split("/")
        host_flags = ("--hostname", *host) if host else ()
        return self._run(("api",), (*host_flags, *flags, f"repos/{owner}/{name}/{path}"), stdin, bytes_max)

    def _run(self, verb: tuple[str, ...], arguments: tuple[str, ...], stdin: str, bytes_max: int) -> GhResult:
        command = f"gh {' '.join(verb)}"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            code = self._spawn(
                ("gh", *verb, *arguments), command, stdin.encode("utf-8", "surrogateescape"), out, errors
            )
            result = GhResult(
                command,
                code,
                _read_tail(out, bytes_max),
                mask_credentials(_read_tail(errors, STDERR_BYTES_MAX).strip()),
            )
        if code == NOT_LOGGED_IN_EXIT:
            raise ForgeUnavailable("gh-login", "`gh` is not logged in; run `gh auth login`, or set GH_TOKEN")
        if code and UNSUPPORTED.search(result.stderr):
            raise ForgeUnavailable(
                "gh-too-old", f"`{command}` lacks a feature that mz needs: {result.stderr}; update gh"
            )
        return result

    def _spawn(
        self, command: tuple[str, ...], command_name: str, stdin: bytes, out: IO[bytes], errors: IO[bytes]
    ) -> int:
        try:
            process = subprocess.Popen(
                command,
                cwd=self._root,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            hint = "install it from https://cli.github.com, or set `pull_requests: {strategy: none}` in mz.yaml"
            raise ForgeUnavailable("gh-missing", f"`gh` is not installed, or not on PATH; {hint}") from error
        with process:
            try:
                process.communicate(stdin, timeout=self._timeout)
            except BaseException as error:
                # gh leads its own session, so its child processes end with it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise ForgeUnavailable(
                    "gh-timeout", f"`{command_name}` did not end within {self._timeout} s"
                ) from error
        return process.returncode

    @cached_property
    def _repository(self) -> str | None:
        """`[HOST/]OWNER/NAME` of the remote; None: gh finds it."""
        remote_url = run_git_as_user(
            self._root, self._user_environment, "remote", "get-url", "--push", "--", self._remote
        )
        return forge_name(remote_url.text) if remote_url.exit_code == 0 else None


def gh_error(result: GhResult) -> RemoteError:
    return RemoteError(f"`{result.command}` failed: {result.stderr or f'it ended with exit code {result.exit_code}'}")


def forge_name(url: str) -> str | None:
    """Return `[HOST/]OWNER/NAME` for `gh --repo` from a remote's URL; None if it is no URL of a forge."""
    match = REMOTE_URL.fullmatch(url)
    if match is None:
        return None
    host = match["host"] or match["scp"]
    name = f"{match['owner']}/{match['name']}"
    return name if host == "github.com" else f"{host}/{name}"


def _read_tail(file: IO[bytes], size_bytes: int) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - size_bytes))
    return decode(file.read())
