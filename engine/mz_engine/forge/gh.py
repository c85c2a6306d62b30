"""Run GitHub's `gh` for one repository: without prompts, with a time limit and bounded output.

Exit codes: `gh help exit-codes`. Raises RemoteError with gh's message, or one that names the fix."""

from __future__ import annotations

import pathlib
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cached_property

from mz_engine.git.process import ProgramResult, read_tail, run_program, safe_environment
from mz_engine.git.repository import run_git_as_user
from mz_engine.ports import RemoteError

TIMEOUT_SECONDS = 120
NOT_LOGGED_IN_EXIT = 4
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


class Gh:
    """Runs gh in one checkout, for the repository behind one remote. Thread-safe."""

    def __init__(self, root: pathlib.Path, remote: str, environment: Mapping[str, str], timeout_seconds: float) -> None:
        self._root, self._remote, self._user_environment, self._timeout = root, remote, environment, timeout_seconds
        self._environment = {
            name: value for name, value in safe_environment(environment).items() if name not in VERBOSE_VARIABLES
        } | QUIET_VARIABLES

    def run(self, *arguments: str, stdin: str = "", check: bool = True) -> ProgramResult:
        """Run `gh pr ...` or `gh run ...` on the repository; a failure is an error if `check` is set."""
        repository_flags = ("--repo", self._repository) if self._repository else ()
        return self._run(arguments[:2], (*repository_flags, *arguments[2:]), stdin, check)

    def api(self, path: str, *flags: str, stdin: str = "", check: bool = True) -> ProgramResult:
        """Run `gh api` on a path below the repository's own address; a failure is an error if `check` is set."""
        *host, owner, name = (self._repository or "{owner}/{repo}").split("/")
        host_flags = ("--hostname", *host) if host else ()
        return self._run(("api",), (*host_flags, *flags, f"repos/{owner}/{name}/{path}"), stdin, check)

    def _run(self, verb: tuple[str, ...], arguments: tuple[str, ...], stdin: str, check: bool) -> ProgramResult:
        command = ("gh", *verb, *arguments)
        data = stdin.encode("utf-8", "surrogateescape")
        with tempfile.TemporaryFile() as out:
            try:
                result = run_program(command, self._root, self._environment, self._timeout, data, out)
            except FileNotFoundError as error:
                hint = "install it from https://cli.github.com, or set `pull_requests: {strategy: none}` in mz.yaml"
                raise RemoteError(f"`gh` is not installed, or not on PATH; {hint}") from error
            except subprocess.TimeoutExpired as error:
                raise RemoteError(f"`gh {' '.join(verb)}` did not end within {self._timeout} s") from error
            result = result._replace(stdout=read_tail(out, STDOUT_BYTES_MAX))
        if result.exit_code == NOT_LOGGED_IN_EXIT:
            raise RemoteError("`gh` is not logged in; run `gh auth login`, or set GH_TOKEN")
        if result.exit_code and UNSUPPORTED.search(result.stderr):
            raise RemoteError(f"`gh {' '.join(verb)}` lacks a feature that mz needs: {result.stderr}; update gh")
        if result.exit_code and check:
            raise gh_error(" ".join(verb), result)
        return result

    @cached_property
    def _repository(self) -> str | None:
        """`[HOST/]OWNER/NAME` of the remote; None: gh finds it."""
        command = ("remote", "get-url", "--push", "--", self._remote)
        remote_url = run_git_as_user(self._root, self._user_environment, *command)
        return forge_name(remote_url.text) if remote_url.exit_code == 0 else None


def gh_error(verb: str, result: ProgramResult) -> RemoteError:
    return RemoteError(f"`gh {verb}` failed: {result.stderr or f'it ended with exit code {result.exit_code}'}")


def forge_name(url: str) -> str | None:
    """Return `[HOST/]OWNER/NAME` for `gh --repo` from a remote's URL; None if it is no URL of a forge."""
    match = REMOTE_URL.fullmatch(url)
    if match is None:
        return None
    host = match["host"] or match["scp"]
    name = f"{match['owner']}/{match['name']}"
    return name if host == "github.com" else f"{host}/{name}"
