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

from mz_engine.adapters.git_process import clean, decode, masked
from mz_engine.adapters.git_repository import ask
from mz_engine.ports import RemoteRefused

TIMEOUT_SECONDS = 120
NOT_LOGGED_IN = 4
WORDS_BYTES_MAX = 20_000
ANSWER_BYTES_MAX = 16 << 20
"""Bytes kept from the end of gh's output."""

QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GH_SPINNER_DISABLED": "1", "NO_COLOR": "1"}
LOUD = frozenset({"GH_FORCE_TTY", "CLICOLOR_FORCE", "GH_DEBUG", "DEBUG"})
"""Variables that make gh print output for people: `gh help environment`."""
OLD = re.compile(r"unknown flag: |unknown json field|unknown command ", re.IGNORECASE)

GITHUB = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/\s]+@)?(?P<host>[^/:\s]+)(?::\d+)?/|(?:[^@/\s]+@)?(?P<scp>[^/:\s]+):(?!/))"
    r"(?P<owner>[^/\s]+)/(?P<name>[^/\s]+?)(?:\.git)?/?"
)
"""`https://HOST/OWNER/NAME.git`, `ssh://git@HOST/OWNER/NAME` and `git@HOST:OWNER/NAME.git`."""


class ForgeUnavailable(RemoteRefused):
    """`gh` cannot be used at all; the message names the fix."""

    def __init__(self, code: Literal["gh-missing", "gh-login", "gh-timeout", "gh-too-old"], message: str) -> None:
        super().__init__(message)
        self.code = code


class Answer(NamedTuple):
    """Result of one call of gh."""

    verb: str
    """As in `gh pr view`, for messages."""
    code: int
    text: str
    words: str
    """With passwords in URLs masked."""


class Gh:
    """Runs gh in one checkout, for the repository behind one remote. Thread-safe."""

    def __init__(self, root: pathlib.Path, remote: str, environment: Mapping[str, str], timeout_seconds: float) -> None:
        self._root, self._remote, self._user, self._timeout = root, remote, environment, timeout_seconds
        self._environment = {name: value for name, value in clean(environment).items() if name not in LOUD} | QUIET

    def ask(self, *words: str, stdin: str = "") -> str:
        """Run gh and return its output. Raises RemoteRefused if it fails."""
        answer = self.run(*words, stdin=stdin)
        if answer.code:
            raise refusal(answer)
        return answer.text

    def run(self, *words: str, stdin: str = "", bytes_max: int = ANSWER_BYTES_MAX) -> Answer:
        """Run `gh pr ...` or `gh run ...` on the repository. Raises ForgeUnavailable."""
        where = ("--repo", self._repository) if self._repository else ()
        return self._run(words[:2], (*where, *words[2:]), stdin, bytes_max)

    def api(self, path: str, *flags: str, stdin: str = "", bytes_max: int = ANSWER_BYTES_MAX) -> Answer:
        """Run `gh api` on a path below the repository's own address. Raises ForgeUnavailable."""
        *host, owner, name = (self._repository or "{owner}/{repo}").split("/")
        there = ("--hostname", *host) if host else ()
        return self._run(("api",), (*there, *flags, f"repos/{owner}/{name}/{path}"), stdin, bytes_max)

    def _run(self, verb: tuple[str, ...], words: tuple[str, ...], stdin: str, bytes_max: int) -> Answer:
        said = f"gh {' '.join(verb)}"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            code = self._spawn(("gh", *verb, *words), said, stdin.encode("utf-8", "surrogateescape"), out, errors)
            answer = Answer(said, code, _end(out, bytes_max), masked(_end(errors, WORDS_BYTES_MAX).strip()))
        if code == NOT_LOGGED_IN:
            raise ForgeUnavailable("gh-login", "`gh` is not logged in; run `gh auth login`, or set GH_TOKEN")
        if code and OLD.search(answer.words):
            raise ForgeUnavailable("gh-too-old", f"`{said}` lacks a feature that mz needs: {answer.words}; update gh")
        return answer

    def _spawn(self, command: tuple[str, ...], said: str, stdin: bytes, out: IO[bytes], errors: IO[bytes]) -> int:
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
                raise ForgeUnavailable("gh-timeout", f"`{said}` did not end within {self._timeout} s") from error
        return process.returncode

    @cached_property
    def _repository(self) -> str | None:
        """`[HOST/]OWNER/NAME` of the remote; None: gh finds it."""
        told = ask(self._root, self._user, "remote", "get-url", "--push", "--", self._remote)
        return forge_name(told.text) if told.code == 0 else None


def refusal(answer: Answer) -> RemoteRefused:
    return RemoteRefused(f"`{answer.verb}` failed: {answer.words or f'it ended with exit code {answer.code}'}")


def forge_name(url: str) -> str | None:
    """Return `[HOST/]OWNER/NAME` for `gh --repo` from a remote's URL; None if it is no URL of a forge."""
    match = GITHUB.fullmatch(url)
    if match is None:
        return None
    host = match["host"] or match["scp"]
    name = f"{match['owner']}/{match['name']}"
    return name if host == "github.com" else f"{host}/{name}"


def _end(file: IO[bytes], size: int) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - size))
    return decode(file.read())
