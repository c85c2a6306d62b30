"""Pull requests and their CI checks through GitHub's `gh`: implements `ports.Forge`.

A pull request is found again by its head branch and the `Mz-Key` line in its body, so a lost reply does no harm. Flags,
fields and replies: the manual pages of `gh pr create`, `list`, `view` and `checks`, `gh run view` and `rerun`, and `gh
api`. Exit codes: `gh help exit-codes`. States of checks: `CheckStatusState`, `CheckConclusionState` and `StatusState`
of GitHub's GraphQL schema. Raises RemoteError with gh's message, or one that names the fix."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import Literal, Self, TypeVar
from urllib.parse import urlencode

import msgspec
from mz_events.names import Commit
from mz_events.seal import TRAILER

from mz_engine.artifacts.command_output import ESCAPE_SEQUENCE
from mz_engine.backlog.listed import Issue
from mz_engine.git.files import write_bytes
from mz_engine.git.process import ProgramResult, decode, read_tail, run_program, safe_environment
from mz_engine.git.repository import run_git_as_user
from mz_engine.model.config import Config
from mz_engine.paths import MZ_FOLDER, PULL_REQUESTS_FOLDER
from mz_engine.ports import CiCheck, FeatureWorktree, PullRequest, RemoteError

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

LISTED_PULL_REQUESTS_MAX = 100
"""Pull requests of one branch that are listed."""
PAGE_COMMENTS = 100
"""GitHub's largest page."""
NONE_REQUIRED = "no required checks reported"
NO_CHECKS = "no checks reported"
"""Error messages of `gh pr checks` when there is nothing to list."""
NO_LOG = re.compile(r"still in progress|log not found|HTTP 404|HTTP 410|admin rights", re.IGNORECASE)
"""Error messages when there is no log: not yet, no longer, or no permission."""
KEY_LINE = re.compile(r"^Mz-Key:[ \t]*(\S+)[ \t]*\r?$", re.MULTILINE)

PASSED_STATES = frozenset({"SUCCESS", "NEUTRAL", "SKIPPED"})
FAILED_STATES = frozenset({"FAILURE", "ERROR", "CANCELLED", "TIMED_OUT", "ACTION_REQUIRED", "STARTUP_FAILURE", "STALE"})

RUN_ID = re.compile(r"/actions/runs/(\d+)")
JOB_ID = re.compile(r"/actions/runs/\d+/job/(\d+)")
"""In the link of a check that GitHub Actions ran."""

LOG_LINES_MAX = 200
LOG_BYTES_MAX = 32_000
LOG_COLUMNS = re.compile(r"^[^\t]*\t[^\t]*\t(?=\ufeff?\d{4}-\d\d-\d\dT)")
LOG_TIME = re.compile(r"^\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ?")
CARET_ESCAPE = re.compile(r"\^\[\[[0-9;]*[A-Za-z]")
"""An escape sequence as newer versions of gh print it."""
ERROR_MARK = "##[error]"
"""Start of the line that ends a failed step."""


ACTIVE_TEXT = re.compile(
    r"(@(?=\w)|#(?=\d)|\bGH\\?-(?=\d)|/(?:issues|pull|discussions)/(?=\d)|<(?=!--)|&(?=#|commat;|num;))", re.IGNORECASE
)
"""Mentions, references to issues, and comments in Markdown of GitHub, which sees through entities and backslashes."""
GONE = re.compile(r"HTTP 404|HTTP 410")


class MergeCommit(msgspec.Struct, frozen=True):
    oid: Commit


class ListedPullRequest(msgspec.Struct, frozen=True, rename="camel"):
    """One pull request as `gh pr list --json` prints it."""

    number: int
    url: str
    state: str
    head_ref_name: str
    is_cross_repository: bool
    body: str
    merge_commit: MergeCommit | None


class PullRequestHead(msgspec.Struct, frozen=True, rename="camel"):
    """Output of `gh pr view --json headRefOid`."""

    head_ref_oid: Commit


class ListedCheck(msgspec.Struct, frozen=True):
    """One check as `gh pr checks --json` prints it."""

    name: str
    state: str
    link: str = ""
    workflow: str = ""


class WorkflowRun(msgspec.Struct, frozen=True):
    """Output of `gh run view --json status,conclusion`."""

    status: str
    conclusion: str | None


class Account(msgspec.Struct, frozen=True):
    login: str


class IssueComment(msgspec.Struct, frozen=True):
    id: int
    body: str | None = None


class ReviewComment(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wrote about a pull request: a review, a comment on a line or a comment on the whole, as GitHub's
    REST API lists them."""

    user: Account | None
    author_association: str = "NONE"
    """GitHub's `CommentAuthorAssociation`: OWNER, MEMBER, COLLABORATOR, ..."""
    body: str | None = None
    created_at: str | None = None
    submitted_at: str | None = None
    """Of a review; None while it is pending."""
    path: str = ""
    """Empty: about the whole."""
    line: int | None = None

    @property
    def author(self) -> str:
        return self.user.login if self.user else ""

    @property
    def text(self) -> str:
        return (self.body or "").strip()

    @property
    def time(self) -> str:
        """ISO 8601, UTC; empty for a review that is pending."""
        return self.submitted_at or self.created_at or ""


T = TypeVar("T")
PULL_REQUEST_STATES: Mapping[str, Literal["open", "closed", "merged"]] = {"CLOSED": "closed", "MERGED": "merged"}


def gh_error(verb: str, result: ProgramResult) -> RemoteError:
    return RemoteError(f"`gh {verb}` failed: {result.stderr or f'it ended with exit code {result.exit_code}'}")


def inert(text: str) -> str:
    """Return the text as Markdown of GitHub that notifies nobody, refers to no other issue, so closes none, and has no
    comment that is hidden."""
    return ACTIVE_TEXT.sub("\\1\u200b", text)


def forge_name(url: str) -> str | None:
    """Return `[HOST/]OWNER/NAME` for `gh --repo` from a remote's URL; None if it is no URL of a forge."""
    match = REMOTE_URL.fullmatch(url)
    if match is None:
        return None
    return f"{match['host'] or match['scp']}/{match['owner']}/{match['name']}".removeprefix("github.com/")


def description_file(worktree: FeatureWorktree) -> str:
    """Return the path, relative to the repository, of the description that a person opens a pull request with."""
    return str(pathlib.PurePosixPath(MZ_FOLDER, PULL_REQUESTS_FOLDER, worktree.run, f"{worktree.feature}.md"))


class GhForge:
    """The forge behind one remote of one repository. Thread-safe."""

    timeout_seconds = 120.0
    """Of each call of gh."""
    seal: Callable[[str], str | None] | None = None
    """Maps the `Mz-Key` of a pull request to the root of a seal of the log, which its text then names."""

    def __init__(
        self, root: pathlib.Path, remote: str, environment: Mapping[str, str] = os.environ, repository: str = ""
    ) -> None:
        """`repository`, as `[HOST/]OWNER/NAME`, is another one than that of the remote."""
        self._root, self._remote, self._user_environment = root, remote, environment
        self._named_repository = repository
        safe = safe_environment(environment).items()
        self._environment = {name: value for name, value in safe if name not in VERBOSE_VARIABLES} | QUIET_VARIABLES

    @classmethod
    def of_tracker(cls, root: pathlib.Path, config: Config, environment: Mapping[str, str]) -> Self:
        """Return the forge with the issues of `tracker`. Raises RemoteError if no repository is named."""
        remote, repository = config.pull_requests.remote, (config.tracker or "").partition(":")[2]
        forge = cls(root, remote, environment, repository)
        if not forge.repository:
            raise RemoteError(f"the remote {remote} is no repository of GitHub")
        return forge

    # pull requests ----------------------------------------------------------------------------------------------------
    def find(self, branch: str, key: str) -> PullRequest | None:
        for pull in self._pull_requests(branch):
            full_key = next((candidate for candidate in find_keys(pull.body) if candidate.startswith(key)), None)
            if full_key is not None:
                state = PULL_REQUEST_STATES.get(pull.state, "open")
                return PullRequest(url=pull.url, number=pull.number, key=full_key, state=state)
        return None

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest:
        """Open a pull request. The caller calls `find` before, and again if this fails."""
        flags, body = ("--base", target, "--head", branch, "--title", title, "--body-file", "-"), self._sealed(body)
        output = self._run("pr", "create", *flags, *(("--draft",) if draft else ()), stdin=body).text
        urls = re.findall(r"https?://\S+/pull/\d+", output)
        if not urls:
            raise RemoteError(f"`gh pr create` printed no URL of a pull request: {output.strip()[:500]}")
        keys = find_keys(body)
        return PullRequest(url=urls[-1], number=int(urls[-1].rpartition("/")[2]), key=keys[0] if keys else "")

    def update(self, number: int, target: str, title: str, body: str) -> None:
        # `gh pr edit` reads the projects too, which fails in versions before 2.82.1 (cli/cli issue 11983).
        fields = {"base": target, "title": title, "body": self._sealed(body)}
        self._call_api(f"pulls/{number}", "PATCH", fields)

    def merged(self, branch: str) -> Commit | None:
        newest = next(iter(self._pull_requests(branch)), None)
        if newest is None or newest.state != "MERGED":
            return None
        if newest.merge_commit is None:
            raise RemoteError(f"{newest.url} was merged, but the forge does not say in which commit")
        return newest.merge_commit.oid

    def review(self, number: int) -> tuple[ReviewComment, ...]:
        """Return reviews and comments of a pull request that have a text, oldest first."""
        paths = (f"pulls/{number}/reviews", f"pulls/{number}/comments", f"issues/{number}/comments")
        comments = [comment for path in paths for comment in self._list(list[ReviewComment], path)]
        written = [comment for comment in comments if comment.time and comment.author and comment.text]
        return tuple(sorted(written, key=attrgetter("time")))

    def write_description(self, worktree: FeatureWorktree, target: str, title: str, body: str) -> str:
        """Write the pull request to `.mz/pull-requests/<run>/<feature>.md`, for a person to open it."""
        name, body = description_file(worktree), self._sealed(body)
        command = f"gh pr create --base {target} --head {worktree.branch} --title TITLE --body-file FILE"
        head = f"<!-- {worktree.branch} into {target}; to open it: git push, then {command} -->\n"
        write_bytes(self._root / name, f"{head}# {title}\n\n{body.rstrip()}\n".encode("utf-8", "surrogateescape"))
        return name

    def _sealed(self, body: str) -> str:
        """Return the body with the root of a seal as its last line, which a squashed commit takes over as a trailer."""
        root = self.seal(find_keys(body)[0]) if self.seal and find_keys(body) else None
        return f"{body.rstrip()}\n\n{TRAILER}: {root}\n" if root else body

    def _pull_requests(self, branch: str) -> list[ListedPullRequest]:
        """List the pull requests of our own branch, newest first, without those of forks with the same branch name."""
        flags = ("--head", branch, "--state", "all", "--limit", str(LISTED_PULL_REQUESTS_MAX))
        pulls = self._read(list[ListedPullRequest], "pr", "list", *flags, "--json", json_fields(ListedPullRequest))
        own = (pull for pull in pulls if pull.head_ref_name == branch and not pull.is_cross_repository)
        return sorted(own, key=lambda pull: -pull.number)

    # issues -----------------------------------------------------------------------------------------------------------
    def issues(self, label: str) -> tuple[Issue, ...]:
        """Return the issues with a label, open and closed, oldest first; each once, even if pages change meanwhile."""
        listed = self._list(list[Issue], "issues", labels=label, state="all", sort="created", direction="asc")
        return tuple({issue.number: issue for issue in listed if issue.pull_request is None}.values())

    def report(self, number: int, mark: str, text: str) -> None:
        """Comment on an issue, or change the comment that has this line, if it has another text."""
        path, body = f"issues/{number}/comments", f"{text}\n\n{mark}"
        written = (
            comment for comment in self._list(list[IssueComment], path) if mark in (comment.body or "").splitlines()
        )
        first = next(written, None)
        if first is None or first.body != body:
            target = (path, "POST") if first is None else (f"issues/comments/{first.id}", "PATCH")
            self._call_api(*target, {"body": body})

    def find_issue(self, mark: str, since: datetime) -> Issue | None:
        """Return the issue with this line that was opened since then (UTC). Neither search nor labels are used: both
        may show it later, and it has no label if its author may set none."""
        order = {"sort": "created", "direction": "desc"}
        listed = self._list(list[Issue], "issues", state="all", since=f"{since:%FT%TZ}", **order)
        return next((issue for issue in listed if mark in (issue.body or "").splitlines()), None)

    def open_issue(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Open an issue. The caller calls `find_issue` if this fails."""
        reply = self._call_api("issues", "POST", {"title": title, "body": body, "labels": labels})
        return decode_reply(Issue, "gh api", reply.stdout)

    def change_issue(self, number: int, changes: Mapping[str, object] = {}) -> Issue | None:
        """Return an issue, changed if anything is to change; None: it was deleted or moved."""
        result = self._call_api(f"issues/{number}", "PATCH" if changes else "GET", changes, check=False)
        if result.exit_code and not GONE.search(result.stderr):
            raise gh_error("api", result)
        issue = None if result.exit_code else decode_reply(Issue, "gh api", result.stdout)
        return issue if issue and issue.number == number else None

    # checks -----------------------------------------------------------------------------------------------------------
    def checks(self, number: int, head: Commit) -> tuple[CiCheck, ...] | None:
        """Return the checks of `head`. Gh does not report the commit of the checks, so the head is read before, and
        again after a decisive result."""
        if self._head(number) != head:
            return None
        required = self._checks(number, "--required")
        checks = (self._checks(number) or ()) if required is None else required
        states = {check.state for check in checks}
        waiting_may_help = "pending" in states and "red" not in states
        return checks if waiting_may_help or self._head(number) == head else None

    def _head(self, number: int) -> Commit:
        return self._read(PullRequestHead, "pr", "view", str(number), "--json", "headRefOid").head_ref_oid

    def _checks(self, number: int, *flags: str) -> tuple[CiCheck, ...] | None:
        """List checks; None: there are some, but none of this kind. The exit code reports their state (1: red, 8:
        pending) or a failure; versions differ in whether they set it with `--json`."""
        command = ("pr", "checks", str(number), *flags, "--json", json_fields(ListedCheck))
        result = self._run(*command, check=False)
        if result.stdout.strip():
            listed = decode_reply(list[ListedCheck], "gh pr checks", result.stdout)
            return tuple(map(ci_check, listed)) or None
        if NONE_REQUIRED in result.stderr:
            return None
        if NO_CHECKS in result.stderr:
            return ()
        raise gh_error("pr checks", result)

    def failed_log(self, check: CiCheck) -> str:
        job = JOB_ID.search(check.url)
        if job is None and check.run is None:
            return ""
        selector = ("--job", job[1]) if job else (check.run or "",)
        result = self._run("run", "view", *selector, "--log-failed", check=False)
        if job and not result.stdout.strip() and (result.exit_code == 0 or NO_LOG.search(result.stderr)):
            # gh waits for the end of the run; the job's own log exists as soon as the job has ended.
            result = self._call_api(f"actions/jobs/{job[1]}/logs", check=False)
        if result.exit_code and not NO_LOG.search(result.stderr):
            raise gh_error("run view", result)
        return "" if result.exit_code else failure_log(decode(result.stdout))

    def rerun(self, run: str) -> None:
        """Rerun failed jobs. Gh reports many causes with the same error, so the state of the run decides."""
        result = self._run("run", "rerun", run, "--failed", check=False)
        if result.exit_code:
            state = self._read(WorkflowRun, "run", "view", run, "--json", json_fields(WorkflowRun))
            if state.status == "completed" and state.conclusion != "success":
                raise gh_error("run rerun", result)

    # gh ---------------------------------------------------------------------------------------------------------------
    def _read(self, kind: type[T], *command: str) -> T:
        return decode_reply(kind, f"gh {' '.join(command[:2])}", self._run(*command).stdout)

    def _list(self, kind: type[list[T]], path: str, **filters: str) -> Iterator[T]:
        for page in count(1):  # `--paginate` of older versions of gh prints an array per page, one after the other.
            query = urlencode({**filters, "per_page": PAGE_COMMENTS, "page": page})
            listed = decode_reply(kind, "gh api", self._call_api(f"{path}?{query}").stdout)
            yield from listed
            if len(listed) < PAGE_COMMENTS:
                return

    def _run(self, *arguments: str, stdin: str = "", check: bool = True) -> ProgramResult:
        """Run `gh pr ...` or `gh run ...` on the repository; a failure is an error if `check` is set."""
        repository_flags = ("--repo", self.repository) if self.repository else ()
        return self._run_gh(arguments[:2], (*repository_flags, *arguments[2:]), stdin, check)

    def _call_api(
        self, path: str, method: str = "GET", fields: Mapping[str, object] = {}, check: bool = True
    ) -> ProgramResult:
        """Run `gh api` on a path below the repository's own address, which gets the fields as JSON unless it is only
        read; a failure is an error if `check` is set."""
        *host, owner, name = (self.repository or "{owner}/{repo}").split("/")
        flags = ("--hostname", *host) if host else ()
        flags += ("--method", method, "--input", "-") if method != "GET" else ()
        stdin = json.dumps(fields, ensure_ascii=False) if method != "GET" else ""
        return self._run_gh(("api",), (*flags, f"repos/{owner}/{name}/{path}"), stdin, check)

    def _run_gh(self, verb: tuple[str, ...], arguments: tuple[str, ...], stdin: str, check: bool) -> ProgramResult:
        command, data = ("gh", *verb, *arguments), stdin.encode("utf-8", "surrogateescape")
        with tempfile.TemporaryFile() as out:
            try:
                result = run_program(command, self._root, self._environment, self.timeout_seconds, data, out)
            except FileNotFoundError as error:
                hint = "install it from https://cli.github.com, or leave out `tracker` and `pull_requests` in mz.yaml"
                raise RemoteError(f"`gh` is not installed, or not on PATH; {hint}") from error
            except subprocess.TimeoutExpired as error:
                raise RemoteError(f"`gh {' '.join(verb)}` did not end within {self.timeout_seconds:g} s") from error
            result = result._replace(stdout=read_tail(out, STDOUT_BYTES_MAX))
        if result.exit_code == NOT_LOGGED_IN_EXIT:
            raise RemoteError("`gh` is not logged in; run `gh auth login`, or set GH_TOKEN")
        if result.exit_code and UNSUPPORTED.search(result.stderr):
            raise RemoteError(f"`gh {' '.join(verb)}` lacks a feature that mz needs: {result.stderr}; update gh")
        if result.exit_code and check:
            raise gh_error(" ".join(verb), result)
        return result

    @cached_property
    def repository(self) -> str | None:
        """`[HOST/]OWNER/NAME`; None: gh finds it."""
        if self._named_repository:
            return self._named_repository
        command = ("remote", "get-url", "--push", "--", self._remote)
        remote_url = run_git_as_user(self._root, self._user_environment, *command)
        return forge_name(remote_url.text) if remote_url.exit_code == 0 else None


def find_keys(body: str) -> list[str]:
    """Return the values of the `Mz-Key` lines, the last one first."""
    return KEY_LINE.findall(body)[::-1]


def json_fields(kind: type[msgspec.Struct]) -> str:
    """Return the fields of a reply, as `gh ... --json` expects them."""
    return ",".join(kind.__struct_encode_fields__)


def decode_reply(kind: type[T], verb: str, reply: bytes) -> T:
    """Decode a reply of gh. Raises RemoteError if it has another form."""
    try:
        return msgspec.json.decode(reply, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteError(f"`{verb}` printed an unexpected reply: {error}") from error


def ci_check(listed: ListedCheck) -> CiCheck:
    run = RUN_ID.search(listed.link)
    name = f"{listed.workflow} / {listed.name}" if listed.workflow else listed.name
    return CiCheck(name=name, state=check_state(listed.state), url=listed.link, run=run[1] if run else None)


def check_state(state: str) -> Literal["pending", "green", "red"]:
    """Map a state of gh; unknown states are pending."""
    state = state.upper()
    return "green" if state in PASSED_STATES else "red" if state in FAILED_STATES else "pending"


def failure_log(log: str) -> str:
    """Return the last lines up to the error that ended the failing step, without the clean-up after it."""
    lines = []
    for line in log.split("\n"):  # Without job, step, time, colours and text that a progress bar overwrote.
        text = LOG_TIME.sub("", LOG_COLUMNS.sub("", line))
        text = CARET_ESCAPE.sub("", ESCAPE_SEQUENCE.sub("", text)).rstrip("\r ")
        lines.append(text.rpartition("\r")[2])
    last = max((number for number, line in enumerate(lines) if line.startswith(ERROR_MARK)), default=len(lines))
    text = "\n".join(lines[: last + 1][-LOG_LINES_MAX:]).strip("\n")
    return text.encode()[-LOG_BYTES_MAX:].decode("utf-8", "ignore")
