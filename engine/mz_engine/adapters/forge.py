"""Adapter: pull requests through GitHub's `gh`: implements `ports.Forge`. Raises RemoteRefused with gh's words.

What it opens is found again by its head branch and the `Mz-Key` line in its body, so that a reply that was lost on the
way does no harm. Flags and exit codes: `gh help pr create`, `gh help pr list`, `gh help exit-codes`.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from collections.abc import Mapping
from typing import Literal

import msgspec

from mz_engine.adapters.git_notes import write_bytes
from mz_engine.adapters.git_process import clean, decode, masked
from mz_engine.adapters.git_repository import ask
from mz_engine.ports import Place, PullRequest, RemoteRefused

TIMEOUT_SECONDS = 120
NOT_LOGGED_IN = 4
FOUND_MAX = 100
"""Pull requests of one branch that are looked through."""

GITHUB = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/\s]+@)?(?P<host>[^/:\s]+)(?::\d+)?/|(?:[^@/\s]+@)?(?P<scp>[^/:\s]+):(?!/))"
    r"(?P<owner>[^/\s]+)/(?P<name>[^/\s]+?)(?:\.git)?/?"
)
"""`https://HOST/OWNER/NAME.git`, `ssh://git@HOST/OWNER/NAME` and `git@HOST:OWNER/NAME.git`."""


class ForgeUnavailable(RemoteRefused):
    """`gh` cannot be used at all. `code` is `gh-missing`, `gh-login` or `gh-timeout`; the message says what to do."""

    def __init__(self, code: Literal["gh-missing", "gh-login", "gh-timeout"], message: str) -> None:
        super().__init__(message)
        self.code = code


class Listed(msgspec.Struct, frozen=True):
    """One pull request as `gh pr list --json` gives it."""

    number: int
    url: str
    body: str
    head: str = msgspec.field(name="headRefName")


LISTED = msgspec.json.Decoder(list[Listed])


class GhForge:
    """The forge behind one remote of one repository. Thread-safe."""

    def __init__(
        self,
        root: pathlib.Path,
        remote: str,
        environment: Mapping[str, str] = os.environ,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._root, self._remote, self._user, self._timeout = root, remote, environment, timeout_seconds
        quiet = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
        self._environment = {**clean(environment), **quiet}

    def find(self, branch: str, key: str) -> PullRequest | None:
        """The newest pull request from `branch`, open or not, with the line `Mz-Key: <key>` in its body."""
        asked = ("--head", branch, "--state", "all", "--limit", str(FOUND_MAX), "--json", "number,url,body,headRefName")
        try:
            found = LISTED.decode(self._gh("list", *asked))
        except msgspec.DecodeError as error:
            raise RemoteRefused(f"`gh pr list` answered something that is not understood: {error}") from error
        ours = [each for each in found if each.head == branch and holds_key(each.body, key)]
        newest = max(ours, key=lambda each: each.number, default=None)
        return PullRequest(url=newest.url, number=newest.number) if newest else None

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest:
        """Ask for a new one. The caller has looked with `find` before, and looks again when this fails."""
        flags = ("--base", target, "--head", branch, "--title", title, "--body-file", "-")
        said = self._gh("create", *flags, *(("--draft",) if draft else ()), stdin=body)
        urls = re.findall(r"https?://\S+/pull/\d+", said)
        if not urls:
            raise RemoteRefused(f"`gh pr create` did not say where the pull request is: {said.strip()[:500]}")
        return PullRequest(url=urls[-1], number=int(urls[-1].rpartition("/")[2]))

    def hand_over(self, place: Place, target: str, title: str, body: str) -> str:
        """Write the whole pull request to `.mz/pull-requests/<run>/<feature>.md`, for a person to open it."""
        name = pathlib.PurePosixPath(".mz", "pull-requests", place.run, f"{place.feature}.md")
        command = f"gh pr create --base {target} --head {place.branch} --title TITLE --body-file FILE"
        head = f"<!-- {place.branch} into {target}; to open it: git push, then {command} -->\n"
        write_bytes(self._root / name, f"{head}# {title}\n\n{body.rstrip()}\n".encode("utf-8", "surrogateescape"))
        return str(name)

    def _gh(self, verb: str, *flags: str, stdin: str = "") -> str:
        repository = self._repository()
        where = ("--repo", repository) if repository else ()
        try:
            done = subprocess.run(
                ["gh", "pr", verb, *where, *flags],
                cwd=self._root,
                env=self._environment,
                input=stdin.encode("utf-8", "surrogateescape"),
                capture_output=True,
                timeout=self._timeout,
                check=False,
                start_new_session=True,
            )
        except FileNotFoundError as absent:
            hint = "install it from https://cli.github.com, or set `pull_requests: {strategy: none}` in mz.yaml"
            raise ForgeUnavailable("gh-missing", f"`gh` is not installed, or not on PATH; {hint}") from absent
        except subprocess.TimeoutExpired as late:
            message = f"`gh pr {verb}` did not end within {self._timeout} s"
            raise ForgeUnavailable("gh-timeout", message) from late
        if done.returncode == NOT_LOGGED_IN:
            raise ForgeUnavailable("gh-login", "`gh` is not logged in; run `gh auth login`, or set GH_TOKEN")
        if done.returncode:
            words = masked(decode(done.stderr).strip()) or f"it ended with exit code {done.returncode}"
            raise RemoteRefused(f"`gh pr {verb}` was refused: {words}")
        return decode(done.stdout)

    def _repository(self) -> str | None:
        """`[HOST/]OWNER/NAME` of the remote; None: let gh find out."""
        told = ask(self._root, self._user, "remote", "get-url", "--push", "--", self._remote)
        return forge_name(told.text) if told.code == 0 else None


def forge_name(url: str) -> str | None:
    """`[HOST/]OWNER/NAME` for `gh --repo`, out of a remote's URL; None when it is no URL of a forge."""
    match = GITHUB.fullmatch(url)
    if match is None:
        return None
    host = match["host"] or match["scp"]
    name = f"{match['owner']}/{match['name']}"
    return name if host == "github.com" else f"{host}/{name}"


def holds_key(body: str, key: str) -> bool:
    return any(line.strip() == f"Mz-Key: {key}" for line in body.splitlines())


__all__ = ["ForgeUnavailable", "GhForge", "forge_name", "holds_key"]
