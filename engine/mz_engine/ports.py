"""The interfaces through which effects reach git, processes, agents, prices, the forge and the clock.

Paths in arguments are relative to the repository; a worktree is identified by its feature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec
from mz_events.catalog.call import ForbiddenChange, LearningLeftOut, Problem, Usage
from mz_events.catalog.validation import Change
from mz_events.names import Commit, Path
from mz_events.store import Blobs
from mz_projections.memory.learnings import MemoryRules

from mz_engine.model.config import Sources
from mz_engine.model.pipeline import Tool


class PortValue(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the values that ports take and return."""


SCOPED_PREFIX = "_scoped."
"""No feature's name begins so."""


# workspace ------------------------------------------------------------------------------------------------------------
class FeatureWorktree(PortValue, frozen=True, kw_only=True):
    """The worktree of one feature."""

    run: str
    feature: str
    branch: str
    is_scoped: bool = False
    """Not the worktree itself, but a directory beside it with only those of its files that an agent sees."""

    @property
    def folder(self) -> str:
        """Return the name of its directory."""
        return f"{SCOPED_PREFIX}{self.feature}" if self.is_scoped else self.feature


class WorkspaceCreated(PortValue, frozen=True, kw_only=True):
    head: Commit
    tree: Commit
    environment: str | None = None
    """Digest of the set-up of a checkout whose results it got; None: its own set-up must run."""


class Checkout(PortValue, frozen=True, kw_only=True):
    """A directory in which commands run, with nothing that an agent left."""

    worktree: FeatureWorktree
    """Its place: `feature` names the checkout, `branch` the feature's branch."""
    environment: str | None
    """Digest of the set-up and of the files that it reads; empty without a set-up. None: it is not recorded."""
    needs_setup: bool
    """The set-up has still to run there, and then `adopt`."""


class MergeConflict(PortValue, frozen=True, kw_only=True):
    paths: tuple[Path, ...]


FILE_BYTES_MAX = 50_000_000
"""A capture includes no new or changed file that is larger."""


class Capture(PortValue, frozen=True, kw_only=True):
    tree: Commit
    """A commit that holds the worktree's content; its parent is the previous capture."""
    forbidden_changes: tuple[ForbiddenChange, ...] = ()
    """Special files, nested repositories and too big files: recorded, never in the tree."""


class CreatedCommit(PortValue, frozen=True, kw_only=True):
    commit: Commit
    files: int
    insertions: int
    deletions: int


class MergeResult(PortValue, frozen=True, kw_only=True):
    """Result of merging a commit into a branch."""

    commit: Commit
    tree: Commit
    """A capture with its content."""
    changed: bool
    """False: the branch already contained the commit."""
    conflicts: tuple[Path, ...] = ()
    """Files with conflict markers."""


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    added: int = 0
    removed: int = 0


class SourceChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a change does to the sources."""

    code: LineChange
    tests: LineChange
    files: int
    """All files that differ; so are the lines below, as git counts them."""
    insertions: int
    deletions: int


class Workspace(Protocol):
    """The user's repository: worktrees, captures, commits. Adapter: git. Every method may raise RepositoryUnusable."""

    def open(self, worktree: FeatureWorktree, starts_from: tuple[Commit, ...]) -> WorkspaceCreated | MergeConflict:
        """Create branch and worktree, or find them as an earlier call left them; several commits are merged first.

        Raises RepositoryUnusable (`branch-exists`) if the branch is at a commit that does not come from this run.
        """

    def ensure(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> bool:
        """Set branch, HEAD and index to `head` and the content to `tree`; rebuild a worktree that has vanished.

        Removes ignored files outside `workspace.keep_ignored` that the capture's manifest does not list. Returns True
        if the worktree has not been adopted since it was built, so that the set-up has still to run.
        """

    def checkout(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> Checkout:
        """Return a checkout that holds `tree` and what its set-up made, for a feature's commands; the same one until it
        is released. If another feature runs the same set-up, wait for its end."""

    def release(self, worktree: FeatureWorktree) -> None:
        """Let other features have the feature's checkout, if it has one."""

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        """Capture the content of the worktree by walking it. Ignore rules are those of the worktree as
        it is."""

    def lay_out(self, worktree: FeatureWorktree, tree: Commit, paths: tuple[Path, ...]) -> Commit:
        """Make the worktree's scoped directory anew: with these files of `tree`, and a repository without history or
        objects of other files. Return a capture of what is in it."""

    def collect(self, worktree: FeatureWorktree, tree: Commit, laid_out: Commit) -> Capture:
        """Capture `tree` with what was changed in the scoped directory since it was laid out. What is in the place of
        another file of `tree` is a forbidden change, and left out. Ignore rules are those of `tree`."""

    def adopt(self, worktree: FeatureWorktree, tree: Commit) -> None:
        """Record the ignored files of the worktree in this capture's manifest after the set-up: `ensure` keeps them. Of
        a checkout, record everything besides `tree`."""

    def revert_paths(self, worktree: FeatureWorktree, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        """Return a new capture: `tree` with these paths reverted to their content in `before`. Touches no worktree."""

    def edit(
        self, worktree: FeatureWorktree, tree: Commit, deleted: tuple[Path, ...], files: Mapping[Path, bytes]
    ) -> Commit:
        """Return a new capture: `tree` without the deleted files, and with these. Touches no worktree."""

    def provide(self, worktree: FeatureWorktree, files: Mapping[Path, bytes]) -> None:
        """Write files of the engine into the worktree, which captures skip: below `.mz/`, or in folders that ignore
        themselves, which are gone before the next call or command."""

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]: ...

    def source_change(self, old: Commit, new: Commit, sources: Sources) -> SourceChange:
        """Count the lines of code and tests that differ between two commits."""

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes as captured; None if it does not exist."""

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        """Return all files of a tree, sorted."""

    def find_commit(self, worktree: FeatureWorktree, key: str) -> CreatedCommit | None:
        """Return the commit on the feature's branch whose `Mz-Key` trailer is `key`."""

    def commit(self, worktree: FeatureWorktree, tree: Commit, parent: Commit, message: bytes) -> CreatedCommit:
        """Commit a capture's content on the branch. Empty commits are allowed."""

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        """Return the newest commit of the branch that a pull request targets; None if there is no such branch.

        The remote's branch comes before the local one. Moves none of the user's refs. Raises RemoteError.
        """

    def merge(self, worktree: FeatureWorktree, head: Commit, other: Commit, message: bytes) -> MergeResult:
        """Merge `other` into the branch at `head`: a commit with both parents, conflict markers included.

        Moves branch, HEAD, index and worktree. Never rebases.
        """

    def join(self, target: Commit, head: Commit, message: bytes) -> CreatedCommit:
        """Make a merge commit with the tree of `head` and the parents `target` and `head`, on no ref. The same again
        gives the same commit."""

    def advance(self, branch: str, old: Commit, commit: Commit) -> Commit | None:
        """Move a branch of the user's from `old` to `commit`, which contains it, unless it contains `commit` already;
        files of a checkout of it follow. Return None, or where the branch is if it is elsewhere.

        Raises DeliveryRefused (`checkout-in-the-way`), and nothing has moved, if files in a checkout hinder that.
        """

    def tagged(self, name: str) -> Commit | None:
        """Return the commit of a tag; None if there is no such tag."""

    def tag(self, name: str, commit: Commit) -> None:
        """Make a tag, which must not exist."""

    def close_branch(self, worktree: FeatureWorktree, head: Commit) -> None:
        """Delete the feature's branch, whose commits must all be in `head`, and keep that under `refs/mz/`; a branch
        that is gone is closed. Raises DeliveryRefused (`branch-moved`, `checkout-in-the-way`)."""

    def contains(self, head: Commit, commit: Commit) -> bool:
        """Return True if `commit` is `head` or one of its ancestors."""

    def is_newest(self, head: Commit, path: Path, request: Path, inputs: tuple[Path, ...]) -> bool:
        """Return True if the last commit that changed `path`, up to `head`, follows that of the request, and is or
        follows those of all inputs. The first commit of a cut history counts as the last of all before it."""

    def remote_head(self, remote: str, branch: str) -> Commit | None: ...

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        """Push with a lease on `old`. Raises RemoteError."""

    def changed_paths(self, base: Commit, head: Commit) -> tuple[Path, ...]: ...

    def close(self, worktree: FeatureWorktree) -> None:
        """Remove the worktree; branch and captures stay."""


TEMPLATE_BROKEN = "template-broken"
"""Code of the hold for a template error. A run pins its templates, so only a new run can have a fixed one."""
OWN_PROBLEMS = frozenset({"branch-checked-out"})
"""Codes of fatal holds that concern only their feature: the run goes on with the others."""


class RepositoryUnusable(Exception):
    """The repository or a worktree cannot be used. `code` is stable; the message says why and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StorageFailed(RepositoryUnusable):
    """The disk of the repository is full, read-only or failing, or git is broken behind an open intent: the process has
    to end. The log stays as it is, so a resume continues."""


class EnvironmentOutside(RepositoryUnusable):
    """Commands of a worktree would use other code of the project; `links` say where that is set."""

    def __init__(self, links: tuple[str, ...]) -> None:
        super().__init__("environment-outside", f"a command does not test its worktree: {'; '.join(links)}")
        self.links = links


TRANSIENT = re.compile(
    r"\b(?:HTTP 5\d\d|returned error: 5\d\d|rate limit|no such host|name resolution|time(?:d |-)?out|unreachable|"
    r"could not resolve host|connection (?:refused|reset|closed)|(?:failed to|error) connect|not (?:answer|end))",
    re.IGNORECASE,
)
"""Messages of git and forges after which it helps to try again."""


class RemoteError(Exception):
    """A push or a forge call failed; the message is the tool's own."""

    def __init__(self, message: str, code: str = "pull-request-refused") -> None:
        super().__init__(message)
        self.code = "connection" if TRANSIENT.search(message) else code


class DeliveryRefused(RemoteError):
    """What the repository holds does not allow a step of delivery; a person has to look."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


# processes ------------------------------------------------------------------------------------------------------------
class OutsideLink(PortValue, frozen=True, kw_only=True):
    """Something in the environment of a command that leads out of its worktree, to other code of the project."""

    text: str
    is_hidden: bool
    """The command could not follow it."""


class CommandResult(PortValue, frozen=True, kw_only=True):
    exit: int | None
    """None: killed at its time limit. Negative: signal."""
    output: bytes
    """stdout and stderr, interleaved as they came; redacted."""
    duration_ms: int
    root: str = ""
    """Absolute path of the worktree, which the output may contain."""
    passed_tests: tuple[str, ...] = ()
    failed_tests: tuple[str, ...] = ()
    """Ids of the tests that passed and failed, sorted, from reports that the command wrote."""
    coverage: tuple[int, ...] = ()
    """Lines that are covered, and all that could be, by reports that the command wrote; empty: there are none."""
    outside_links: tuple[OutsideLink, ...] = ()


SETUP_KEY = re.compile(r"[^/]+/[^/]+/setup/(?![^/]+/\d+/\d+/)")
"""Matches the key of a set-up command, not that of a feature, phase or unit named `setup`."""


class Executor(Protocol):
    """Runs the user's commands in a worktree: own process tree, bounded, empty stdin, killed as a whole."""

    def run(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult: ...


class Interrupted(Exception):
    """The user ended `mz` during a repeatable effect, which records nothing and starts again after a resume."""


# agents ---------------------------------------------------------------------------------------------------------------
class CallSpec(PortValue, frozen=True, kw_only=True):
    """All inputs of one agent call."""

    key: str
    worktree: FeatureWorktree
    agent: str
    model: str
    prompt: str
    session: str | None
    resumes: bool
    tools: tuple[Tool, ...]
    skills: str = ""
    """Folder of the skills that its program loads, named by their content; empty: none."""
    total_seconds: int
    idle_seconds: int
    nanousd_max: int | None = None
    """Budget of the call; None: no limit, as for tokens."""
    tokens_max: int | None = None
    session_usage_before: tuple[Usage, ...] = ()
    """As in `CallResult`."""
    version: str = ""
    """The agent's version, if it was queried before the call; kept in the spool for recovery after a crash."""


class CallResult(PortValue, frozen=True, kw_only=True):
    """Result of one call: redacted bytes, uninterpreted."""

    stdout: bytes
    stderr: bytes
    exit: int | None
    """None: unknown, after a crash. Negative: signal."""
    duration_ms: int
    problem: Problem | None = None
    """Set when mz ended the call (timeout, idle, secret-found, output-limit) or could not start it (tool-missing)."""
    version: str = ""
    model: str = ""
    """The requested model, for agents that do not report which model replied."""
    session_usage_before: tuple[Usage, ...] = ()
    """In a continued session: its usage before the call, for agents whose counts are cumulative."""


class ParsedReply(PortValue, frozen=True, kw_only=True):
    """A reply as an adapter's parser read it."""

    parser: str
    ending: str
    """success, error or no-terminal."""
    text: str
    session: str | None = None
    usage: tuple[Usage, ...] = ()
    reported_nanousd: int | None = None
    problem: Problem | None = None
    problem_detail: str = ""
    """The agent's own message on the problem."""
    undecodable_lines: int = 0
    version: str = ""
    usage_incomplete: bool = False
    """The call used more than `usage` says: it ended before it reported all its tokens."""


COUNT_MAX = 10**8
"""Upper bound for a count that an agent reports, in tokens; more than any model reads at once."""


class AgentAbilities(Protocol):
    @property
    def sessions(self) -> bool: ...
    @property
    def models(self) -> Mapping[str, str]:
        """Return the default model of each tier."""

    @property
    def skills(self) -> str:
        """Return the folder in which it expects skills; `{call}` stands for `CallSpec.skills`; empty: none."""


class AgentAdapter(Protocol):
    """The part of an agent's adapter that starts nothing and reads only its arguments."""

    def capabilities(self) -> AgentAbilities: ...

    def estimate_tokens(self, prompt: str) -> int: ...

    def format_prompt(self, prompt: str) -> str: ...

    def parse_output(self, result: CallResult) -> ParsedReply:
        """Parse the output of a call; never raises, whatever the bytes."""


class Agents(Protocol):
    """All agents, by name."""

    def adapter(self, agent: str) -> AgentAdapter: ...

    def call(self, spec: CallSpec) -> CallResult:
        """Run the call to its end or time limit and kill its process tree. Output goes to the spool as it comes."""

    def salvage(self, key: str) -> CallResult | None:
        """After a crash: kill what still runs under the key, and return the content of its spool; None: no spool."""

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the input tokens of the call's first request, its continued session included, as the agent counts.

        More than 0; None: the agent cannot count. Changes and stores nothing. Raises Interrupted.
        """

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return True if the call `key` can continue this session; without a session, if the agent has sessions."""


# prices, forge, secrets, clock ----------------------------------------------------------------------------------------
class Price(PortValue, frozen=True, kw_only=True):
    nanousd: int | None
    unpriced: tuple[str, ...]
    prices: str
    """Name, version and digest of the table."""
    may_be_higher: bool = False
    """A sum of requests is priced as if none was long enough for a higher price, but some may have been."""


class Prices(Protocol):
    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price: ...

    def price_entry(self, usage: Usage, at_us: int) -> int | None:
        """Return the nano-dollars of one entry; None: it has no price."""


class PullRequest(PortValue, frozen=True, kw_only=True):
    url: str
    number: int | None
    key: str = ""
    """From its `Mz-Key` line."""
    state: Literal["open", "closed", "merged"] = "open"


class CiCheck(PortValue, frozen=True, kw_only=True):
    """One required CI check of a pull request, at one commit."""

    name: str
    """Workflow and job, as the forge shows them."""
    state: Literal["pending", "green", "red"]
    url: str = ""
    run: str | None = None
    """Id of the CI run that can be started again; None: the forge cannot."""


class Forge(Protocol):
    """Pull requests. Every method may raise RemoteError."""

    def find(self, branch: str, key: str) -> PullRequest | None:
        """Return the newest pull request from `branch`, open or not, whose `Mz-Key` begins with `key`."""

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest: ...

    def update(self, number: int, target: str, title: str, body: str) -> None:
        """Change title, body and target branch."""

    def checks(self, number: int, head: Commit) -> tuple[CiCheck, ...] | None:
        """Return the required CI checks, or all if none is required; None: the forge does not know `head` yet."""

    def failed_log(self, check: CiCheck) -> str:
        """Return the end of a failed CI check's log; empty if the forge does not keep it."""

    def rerun(self, run: str) -> None:
        """Start the failed jobs of a CI run again, unless it is in progress."""

    def merged(self, branch: str) -> Commit | None:
        """Return the merge commit of the newest pull request from `branch`; None if it was not merged."""

    def write_description(self, worktree: FeatureWorktree, target: str, title: str, body: str) -> str:
        """Write the body to a file for a person (strategy `none`); return its path relative to the repository."""


class Secrets(Protocol):
    def redact(self, text: str) -> str:
        """Return the text without known secrets and without matches of key patterns."""

    def names_in(self, data: bytes) -> tuple[str, ...]:
        """Return the names of the secrets in the data."""


class MemoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a call is about, and which learnings it may get."""

    call: str
    """Key of the call."""
    feature: str
    phase: str
    failure: str = ""
    """Signature of the failure that the call has to fix."""
    paths: tuple[Path, ...] = ()
    """Files of its unit."""
    tags: tuple[str, ...] = ()
    tokens_max: int = 0
    rules: MemoryRules = MemoryRules()
    holdout: float = 0.0
    """Share of the learnings that are left out to measure their effect."""
    without: tuple[str, ...] = ()
    """Ids of learnings that are left out to measure their effect."""
    shared: bool = False
    """Learnings that people shared from other projects count too."""


class SelectedLearning(msgspec.Struct, frozen=True, kw_only=True):
    """A learning for a prompt."""

    id: str = ""
    """Empty: from a recording that did not know ids; the log does not name it."""
    kind: str = ""
    text: str
    is_repeated: bool = False
    """It is about the very failure that the call has to fix."""


class Selection(msgspec.Struct, frozen=True):
    """Learnings for a prompt, the most important first, and those that concern the call and are left out."""

    learnings: tuple[SelectedLearning, ...] = ()
    left_out: tuple[LearningLeftOut, ...] = ()


class Memory(Protocol):
    def select(self, query: MemoryQuery) -> Selection:
        """Return what the log teaches about a call."""

    def delivered_ids(self, artifact: str) -> frozenset[str]:
        """Return the ids that this artifact has in delivered features; those of forks do not count."""


class Clock(Protocol):
    def now_us(self) -> int:
        """Return microseconds since the epoch, UTC."""


class Ports(Protocol):
    """All ports of a driver."""

    @property
    def workspace(self) -> Workspace: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def prices(self) -> Prices: ...
    @property
    def forge(self) -> Forge: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def clock(self) -> Clock: ...
