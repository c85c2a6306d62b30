"""The states of one feature: a union of structs, folded from its stream by `feature.evolve`."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    AgentSwitched,
    CallHeld,
    ReplyRead,
    SessionEnd,
    Usage,
)
from mz_events.catalog.check import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked
from mz_events.catalog.delivery import (
    BaseMerged,
    ChecksRerun,
    ChecksSeen,
    CommitRequested,
    Committed,
    DeliveryFailed,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import (
    Blocked,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    WorkspaceConflicted,
)
from mz_events.catalog.run import Hold, Rest
from mz_events.names import Commit, Digest, Path


class Shape(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of the states and their parts."""


class Tries(Shape, frozen=True):
    """Calls of one role in one unit run."""

    attempt: int = 0
    """Requests so far, failed and lost ones too."""
    refused: int = 0
    """Replies rejected by rules or gates since a person last answered."""
    failures: int = 0
    """Calls that failed or were lost since a person last answered."""


class Spent(Shape, frozen=True):
    """Usage of a unit run so far; written to the trailers of its commit."""

    input_tokens: int = 0
    output_tokens: int = 0
    nanousd: int = 0
    """Charged cost, summed over calls."""
    duration_ms: int = 0


class Conversation(Shape, frozen=True):
    """The session of a feature's builder, which later calls may continue."""

    agent: str
    model: str
    id: str
    """As reported by the agent, else as requested."""
    key: str
    """Key of its latest call."""
    shown: frozenset[str] = frozenset()
    """Marks of the texts that it was shown or has written."""
    before: tuple[Usage, ...] = ()
    """Usage of its earlier calls, one sum per model."""
    used: tuple[Usage, ...] = ()
    """The same including the latest call."""
    estimated_tokens: int = 0
    """Estimated size of the session after the latest call, reply included."""
    broken: SessionEnd | None = None
    """Reason that no call may continue it."""


class Book(Shape, frozen=True):
    """Progress of one feature across its phases."""

    started: FeatureStarted
    base: Commit
    """Commit that the feature began with; several starting commits are merged in it."""
    head: Commit
    """Head of the branch by our own commits."""
    tree: Commit
    """Capture that the next unit run starts from."""
    heard: int
    """Version of the run's stream that was cited last."""
    done: tuple[str, ...] = ()
    """Phases completed, in order."""
    artifacts: dict[str, ArtifactParsed] = {}
    """By name, and by `name/unit` if a phase has units."""
    starts: dict[str, Commit] = {}
    """Tree that each phase began with, in the order of their start."""
    superseded: dict[str, int] = {}
    """Number of rollbacks that superseded a phase (`code`) or a unit (`code/u1`)."""
    kept: dict[str, tuple[str, ...]] = {}
    """Finished units of a phase that a rollback of other units left intact."""
    notes: dict[str, tuple[Digest, ...]] = {}
    """Reasons for rollbacks and retries, by phase or `phase/unit`."""
    issues: dict[str, int] = {}
    """Number of blocks by issue: `phase|check|unit|path`."""
    blocks: dict[str, int] = {}
    """Number of blocks by cause."""
    rollbacks: int = 0
    restores: int = 0
    """Trees restored, by rollbacks and by people; each is a commit with its own key."""
    pushed: Commit | None = None
    """Last pushed commit: if the remote's branch differs, someone else has pushed to it."""
    joined: Commit | None = None
    """Last merged commit of the pull request's target."""
    conflicted: tuple[Path, ...] = ()
    """Files into which the last merge of the target wrote conflict markers."""
    conversation: Conversation | None = None
    agent: str = ""
    """The agent that took over from the configured one; empty: none did."""


CellFact = (
    AgentRequested
    | AgentReplied
    | AgentFailed
    | AgentLost
    | AgentSwitched
    | CallHeld
    | ReplyRead
    | ChangesChecked
    | ArtifactValidated
    | CommandRan
    | GateChecked
    | HumanAnswered
    | HoldReleased
    | Blocked
    | CommitRequested
    | Committed
    | PushRequested
    | Pushed
    | PullRequestRequested
    | PullRequestOpened
    | DeliveryFailed
    | BaseMerged
    | ChecksSeen
    | ChecksRerun
)


class Cell(Shape, frozen=True):
    """One unit of one phase in one iteration, from its start to its completion."""

    unit: str
    iteration: int
    base: Commit
    """Capture at the start; changes count from here."""
    tree: Commit
    """Capture that the next call starts from: the tree before a first or failed call, the reply's tree after a rejected
    reply."""
    role: str = "builder"
    """Role of the pending or last call."""
    tries: dict[str, Tries] = {}
    prepared: tuple[CommandRan, ...] = ()
    checked: dict[str, bool] = {}
    """Results of gates and rules on the current reply."""
    approved: tuple[str, ...] = ()
    """Questions that a person approved for the current reply."""
    reports: tuple[Digest, ...] = ()
    """Reports for the next call to fix."""
    signature: str = ""
    """Signature of the failed command behind `reports`."""
    notes: tuple[Digest, ...] = ()
    parsed: dict[str, ArtifactParsed] = {}
    """Outputs of the current reply, by artifact."""
    replied: AgentReplied | None = None
    """The current reply, at the boundary."""
    reply: Digest | None = None
    """Its final text."""
    block: Blocked | None = None
    asked: HumanRequested | None = None
    """The question that a person answered last."""
    pardoned: bool = False
    """A person allowed one more rollback."""
    moved: bool = False
    """A ref, `.git/config` or a hook changed during the last call, and no person has approved it."""
    ended_at_us: int = 0
    """End of the last call by the raw clock; waits and prices count from it."""
    request: AgentRequested | None = None
    """The latest call."""
    spent: Spent = Spent()
    delivered: tuple[str, ...] = ()
    """Delivery steps done."""
    merged: BaseMerged | None = None
    pull: int | None = None
    """Number of the pull request."""
    checks: ChecksSeen | None = None
    """The last poll of its checks; None if the next one is due."""
    checks_at_us: int = 0
    """Time of that poll, by the raw clock."""
    pushed_at_us: int = 0
    """Start of the checks: the push, or the last rerun."""
    reruns: int = 0
    commit: Commit | None = None
    last: CellFact | None = None
    """The latest event that advances the unit run; an intent here has a pending outcome."""


class Unborn(Shape, frozen=True):
    """The feature's stream is empty; it may be admitted already."""


class Opening(Shape, frozen=True):
    """Branch and worktree are pending."""

    started: FeatureStarted
    heard: int
    last: WorkspaceConflicted | HumanAnswered | None = None


class Setting(Shape, frozen=True):
    """The set-up commands of the workspace are pending."""

    book: Book
    ran: tuple[CommandRan, ...] = ()
    last: HumanAnswered | None = None


class Between(Shape, frozen=True):
    book: Book


class Working(Shape, frozen=True):
    """Inside a phase. `unit_run` is None between units."""

    book: Book
    phase: str
    units: tuple[str, ...]
    finished: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Units finished by an earlier start of the phase."""
    claimed: bool = False
    contended: bool = False
    """The last claim was rejected."""
    cell: Cell | None = None


class Restoring(Shape, frozen=True):
    """After a rollback: the tree before phase `to` is to be restored on the branch, in a new commit."""

    book: Book
    to: str
    last: CommitRequested | Committed | None = None


class Held(Shape, frozen=True):
    """Waiting without a person: for a time, a claim, money, or the end of a fatal problem."""

    hold: Hold
    until_us: int | None
    code: str | None
    then: Active


class Waiting(Shape, frozen=True):
    """Waiting for a person."""

    asked: HumanRequested
    then: Active


class Ended(Shape, frozen=True):
    """`state_before` is the state in which a feature failed or was cancelled: a person may retry from there."""

    status: Rest
    heard: int
    head: Commit | None
    code: str | None = None
    touched: tuple[Path, ...] = ()
    book: Book | None = None
    before: Active | None = None


Active = Opening | Setting | Between | Working | Restoring
State = Unborn | Active | Held | Waiting | Ended


def book_of(state: State) -> Book | None:
    """Return the feature's progress; None before the workspace exists."""
    match state:
        case Held() | Waiting():
            return book_of(state.then)
        case Setting() | Between() | Working() | Restoring() | Ended():
            return state.book
    return None


def heard_of(state: State) -> int:
    """Return the version of the run's stream that this feature cited last; 0: none."""
    match state:
        case Held() | Waiting():
            return heard_of(state.then)
        case Opening() | Ended():
            return state.heard
    book = book_of(state)
    return book.heard if book else 0
