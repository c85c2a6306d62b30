"""Ports: everything that the engine asks of the world. Effects name these; drivers carry them out.

Paths in arguments are relative to the repository; a worktree is named by its feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec
from mz_events.catalog.call import Offence, Problem, Usage
from mz_events.catalog.check import Change
from mz_events.names import Commit, Path
from mz_events.store import Blobs

from mz_engine.pipelines.definition import Tool


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what ports take and answer."""


# workspace ------------------------------------------------------------------------------------------------------------
class Place(Fact, frozen=True, kw_only=True):
    """One feature's worktree, and what its stream says that it should be."""

    run: str
    feature: str
    branch: str


class Opened(Fact, frozen=True, kw_only=True):
    head: Commit
    tree: Commit


class Conflicted(Fact, frozen=True, kw_only=True):
    paths: tuple[Path, ...]


class Capture(Fact, frozen=True, kw_only=True):
    tree: Commit
    """A commit that holds the worktree's content; its parent is the previous capture."""
    offences: tuple[Offence, ...] = ()
    """Special files, nested repositories, files too big: recorded, never in the tree."""


class MadeCommit(Fact, frozen=True, kw_only=True):
    commit: Commit
    files: int
    insertions: int
    deletions: int


class Merged(Fact, frozen=True, kw_only=True):
    """A branch with another commit merged into it."""

    commit: Commit
    tree: Commit
    """A capture with its content."""
    changed: bool
    """False: the other commit was in it already."""
    conflicts: tuple[Path, ...] = ()
    """These files hold conflict markers."""


class Moved(Fact, frozen=True, kw_only=True):
    """A ref, `config` or `hooks/<name>` whose value changed; an absent value is empty."""

    name: str
    old: str
    new: str


class Workspace(Protocol):
    """The user's repository: worktrees, captures, commits. Adapter: git. Every method may raise RepositoryUnusable."""

    def open(self, place: Place, starts_from: tuple[Commit, ...]) -> Opened | Conflicted:
        """Make branch and worktree, or find them as an earlier call left them; several commits are merged first.
        Raises RepositoryUnusable (`branch-exists`) when the branch stands elsewhere and no capture of this run does."""

    def ensure(self, place: Place, head: Commit, tree: Commit) -> bool:
        """Make the worktree so: branch and HEAD at `head`, the index too, content as in `tree`. Rebuilt when it has
        vanished. Removes ignored files outside `workspace.keep` that the capture's manifest does not know.
        True: nobody has adopted it since it was built, so nothing that the set-up makes is in it."""

    def capture(self, place: Place, before: Commit) -> Capture:
        """The content of the worktree by walking it. Ignore rules come from the tree `before`."""

    def adopt(self, place: Place, tree: Commit) -> None:
        """The set-up is done: the ignored files that are in the worktree belong to this capture, and `ensure` leaves
        them."""

    def keep(self, place: Place, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        """A new capture: `tree` with these paths put back as they are in `before`. Touches no worktree."""

    def provide(self, place: Place, files: Mapping[Path, bytes]) -> None:
        """Lay files of the engine's own into the worktree, below `.mz/`, where captures do not look."""

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]: ...

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """A file's bytes as captured; None when it is not there."""

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        """All files of a tree, sorted."""

    def patch(self, old: Commit, new: Commit) -> bytes:
        """Binary-safe unified diff."""

    def snapshot(self) -> Mapping[str, str]:
        """All refs but `refs/mz/`, `.git/config` and the hooks, by name, as values or digests."""

    def rescue(self, place: Place, moved: tuple[Moved, ...]) -> None:
        """Keep the old values under `refs/mz/<run>/rescue/`."""

    def find_commit(self, place: Place, key: str) -> MadeCommit | None:
        """The commit on the feature's branch whose `Mz-Key` trailer is `key`."""

    def commit(self, place: Place, tree: Commit, parent: Commit, message: bytes) -> MadeCommit:
        """Commit a capture's content on the branch; moves branch, HEAD and index. Empty commits are allowed."""

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        """The newest commit of the branch that a pull request targets: the remote's where one is given and has it, else
        the local one; None: no such branch. Moves none of the user's refs. Raises RemoteRefused."""

    def merge(self, place: Place, head: Commit, other: Commit, message: bytes) -> Merged:
        """Merge `other` into the branch, which stands at `head`: a commit with both parents, conflict markers and all;
        moves branch, HEAD, index and worktree. Never rebases."""

    def contains(self, head: Commit, commit: Commit) -> bool:
        """Whether `commit` is `head` or one of its ancestors."""

    def remote_head(self, remote: str, branch: str) -> Commit | None: ...

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        """With a lease on `old`. Raises RemoteRefused."""

    def touched(self, base: Commit, head: Commit) -> tuple[Path, ...]: ...

    def close(self, place: Place) -> None:
        """Remove the worktree; branch and captures stay."""


TEMPLATE_BROKEN = "template-broken"
"""Code of the hold where a prompt cannot be made: a run has pinned its templates, so only a new one has another."""


class RepositoryUnusable(Exception):
    """The repository or a worktree cannot be used; `code` is stable, the message says why and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RemoteRefused(Exception):
    """A push or a forge call was refused; says in the tool's words why."""


# processes ------------------------------------------------------------------------------------------------------------
class CommandResult(Fact, frozen=True, kw_only=True):
    exit: int | None
    """None: killed at its time limit. Negative: signal."""
    output: bytes
    """stdout and stderr as they came, redacted."""
    duration_ms: int
    root: str = ""
    """Absolute path of the worktree, as it may stand in the output."""


class Executor(Protocol):
    """Runs the user's own commands in a worktree: own process tree, bounded, stdin empty, killed whole."""

    def run(self, place: Place, command: str, timeout_seconds: int, key: str) -> CommandResult: ...


class Interrupted(Exception):
    """The user ended `mz` in the middle of a repeatable effect: it says nothing, and is begun again at the resume."""


# agents ---------------------------------------------------------------------------------------------------------------
class CallSpec(Fact, frozen=True, kw_only=True):
    """One agent call, complete."""

    key: str
    place: Place
    agent: str
    model: str
    prompt: str
    session: str | None
    resumes: bool
    tools: tuple[Tool, ...]
    total_seconds: int
    idle_seconds: int
    version: str = ""
    """Of the agent, where its command was asked before the call; for a call whose end only its spool tells."""


class CallResult(Fact, frozen=True, kw_only=True):
    """The boundary of one call: redacted bytes, nothing interpreted."""

    stdout: bytes
    stderr: bytes
    exit: int | None
    """None: salvaged, so unknown. Negative: signal."""
    duration_ms: int
    problem: Problem | None = None
    """Set when we ended it (timeout, idle, secret-found, output-limit) or could not begin (tool-missing)."""
    version: str = ""
    model: str = ""
    """The model that was asked for: what parsers fall back on where an agent does not say which one answered."""
    earlier: tuple[Usage, ...] = ()
    """Where the call continued a session: what that session had used before, of agents whose counts go on."""


class Reading(Fact, frozen=True, kw_only=True):
    """What an adapter's parser made of the bytes."""

    parser: str
    terminal: str
    """success, error or no-terminal."""
    text: str
    session: str | None = None
    usage: tuple[Usage, ...] = ()
    reported_nanousd: int | None = None
    problem: Problem | None = None
    problem_detail: str = ""
    """The agent's own words on the problem."""
    bad_lines: int = 0
    version: str = ""
    untold: bool = False
    """It worked, and more than `usage` says: it broke off before it told of all its tokens."""


COUNT_MAX = 10**8
"""Tokens that an agent may have counted; no model reads as many at once."""


class Agents(Protocol):
    """All adapters behind one door."""

    def call(self, spec: CallSpec) -> CallResult:
        """Spawn, stream, time out, kill the tree. The spool is on the disk as it grows."""

    def salvage(self, key: str) -> CallResult | None:
        """After a crash: kill what still runs under the key, and return what its spool holds; None: no spool."""

    def read(self, agent: str, result: CallResult) -> Reading:
        """Pure and total over the bytes."""

    def estimate_tokens(self, agent: str, prompt: str) -> int: ...

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Of the call's first request, as the agent itself counts, with the conversation that it goes on in; more than
        0. None: it does not say. Nothing is changed by it, and nothing kept. Raises Interrupted."""

    def format_prompt(self, agent: str, prompt: str) -> str: ...

    def model(self, agent: str, tier: str) -> str:
        """The adapter's default for a tier."""

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Whether the call under `key` can go on in this session; without one: whether the agent has sessions."""


# the rest -------------------------------------------------------------------------------------------------------------
class Price(Fact, frozen=True, kw_only=True):
    nanousd: int | None
    unpriced: tuple[str, ...]
    prices: str
    """Name, version and digest of the table."""
    may_be_more: bool = False
    """A sum of requests is priced as if none was long enough for a higher price, and some may have been."""


class Prices(Protocol):
    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price: ...

    def estimate(
        self, model: str, input_tokens: int, output_tokens: int, at_us: int, cache_read: int = 0, cache_write: int = 0
    ) -> int | None:
        """Nano-dollars; cache reads and writes are part of the input. None: the model has no price."""


class PullRequest(Fact, frozen=True, kw_only=True):
    url: str
    number: int | None
    key: str = ""
    """Of its `Mz-Key` line."""
    state: Literal["open", "closed", "merged"] = "open"


class Check(Fact, frozen=True, kw_only=True):
    """One required check of a pull request, at the commit that was asked for."""

    name: str
    """Workflow and job, as the forge shows them."""
    state: Literal["pending", "green", "red"]
    url: str = ""
    run: str | None = None
    """Id of the run that can be started again; None: the forge cannot."""


class Forge(Protocol):
    """Pull requests. Raises RemoteRefused."""

    def find(self, branch: str, key: str) -> PullRequest | None:
        """The newest one from `branch`, open or not, whose `Mz-Key` begins with `key`."""

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest: ...

    def update(self, number: int, target: str, title: str, body: str) -> None:
        """Put other words on it, and have it target this branch."""

    def checks(self, number: int, head: Commit) -> tuple[Check, ...] | None:
        """The required checks, or all where none is required; None: the forge does not know `head` yet. Empty: there
        are none."""

    def failed_log(self, check: Check) -> str:
        """What a red check printed at its end; empty where the forge does not keep it."""

    def rerun(self, run: str) -> None:
        """Start the failed parts of a run again; one that is under way is left alone."""

    def merged(self, branch: str) -> Commit | None:
        """The commit in which the newest pull request from `branch` was merged; None: it was not."""

    def hand_over(self, place: Place, target: str, title: str, body: str) -> str:
        """Strategy `none`: write the body to a file for a person; returns its path relative to the repository."""


class Secrets(Protocol):
    def redact(self, text: str) -> str:
        """The text without any known secret value or key shape."""

    def scan(self, data: bytes) -> tuple[str, ...]:
        """Names of the secrets that stand in the data; empty: none."""


class Learnings(Protocol):
    def hint(self, signature: str) -> str | None:
        """What mended the same failure before, in words; None: nothing is known."""


class Clock(Protocol):
    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""


class Ports(Protocol):
    """What a driver hands to effects."""

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
    def learnings(self) -> Learnings: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def clock(self) -> Clock: ...
