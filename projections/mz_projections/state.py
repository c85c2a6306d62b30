"""Facts: the states that one feature can be in: a union of shapes, folded from its stream by `feature.evolve`."""

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
    """Calls of one role in one cell and iteration."""

    attempt: int = 0
    """Requests so far, failed and lost ones too."""
    refused: int = 0
    """Replies that rules or gates refused since a person last answered."""
    failures: int = 0
    """Calls that failed or were lost since a person last answered."""


class Spent(Shape, frozen=True):
    """What a cell has used so far; goes into the trailers of its commit."""

    input_tokens: int = 0
    output_tokens: int = 0
    nanousd: int = 0
    """The worst of what is known, summed over calls."""
    duration_ms: int = 0


class Conversation(Shape, frozen=True):
    """The session of a feature's builder, which later calls may continue."""

    agent: str
    model: str
    id: str
    """As the agent itself says it, else as it was asked for."""
    key: str
    """Of the newest call in it."""
    shown: frozenset[str] = frozenset()
    """Marks of what it has seen, and of what it wrote itself."""
    before: tuple[Usage, ...] = ()
    """What its earlier calls used, a sum for each model."""
    used: tuple[Usage, ...] = ()
    """The same with the newest call."""
    estimated_tokens: int = 0
    """Of the newest call, its reply included: so much the session was estimated to hold after it."""
    broken: SessionEnd | None = None
    """Why no call may go on in it."""


class Book(Shape, frozen=True):
    """What a feature carries from phase to phase."""

    started: FeatureStarted
    base: Commit
    """Commit that the feature began with; several starting commits are merged in it."""
    head: Commit
    """Head of the branch by our own commits."""
    tree: Commit
    """Capture that the next cell starts from."""
    heard: int
    """Version of the run's stream that was cited last."""
    done: tuple[str, ...] = ()
    """Phases completed, in order."""
    artifacts: dict[str, ArtifactParsed] = {}
    """By name, and by `name/unit` where a phase has units."""
    starts: dict[str, Commit] = {}
    """Tree that each phase began with, in the order in which they began."""
    superseded: dict[str, int] = {}
    """Rollbacks that superseded a phase (`code`) or a unit (`code/u1`)."""
    kept: dict[str, tuple[str, ...]] = {}
    """Units that a rollback to other units of the phase left finished."""
    notes: dict[str, tuple[Digest, ...]] = {}
    """By phase or `phase/unit`: why the work came back."""
    issues: dict[str, int] = {}
    """How often each issue blocked: `phase|check|unit|path`."""
    blocks: dict[str, int] = {}
    """How often each cause blocked."""
    rollbacks: int = 0
    restores: int = 0
    """Trees restored, by rollbacks and by people; each is a commit with a key of its own."""
    pushed: Commit | None = None
    """What we pushed last: the remote's branch holds this, or somebody else's work."""
    joined: Commit | None = None
    """What was merged in last, of the pull request's target."""
    conflicted: tuple[Path, ...] = ()
    """Files into which the last merge of the target wrote conflict markers."""
    conversation: Conversation | None = None
    agent: str = ""
    """The agent that took over from the one of the settings; empty: none did."""


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
    """One unit of one phase, from its start to its completion."""

    unit: str
    iteration: int
    base: Commit
    """Capture that the cell began with; what it changes counts from here."""
    tree: Commit
    """Capture that the next call starts from: the tree before a first or failed call, the one handed over after a
    refused reply."""
    role: str = "builder"
    """Whose call is owed or was made last."""
    tries: dict[str, Tries] = {}
    prepared: tuple[CommandRan, ...] = ()
    checked: dict[str, bool] = {}
    """Gates and rules that were run on the present reply."""
    approved: tuple[str, ...] = ()
    """Questions that a person approved, for the present reply."""
    reports: tuple[Digest, ...] = ()
    """What the next call is to mend."""
    signature: str = ""
    """Of the failed command behind `reports`."""
    notes: tuple[Digest, ...] = ()
    parsed: dict[str, ArtifactParsed] = {}
    """Outputs of the present reply, by artifact."""
    replied: AgentReplied | None = None
    """The present reply, at the boundary."""
    reply: Digest | None = None
    """Its final text."""
    block: Blocked | None = None
    asked: HumanRequested | None = None
    """The question that a person answered last."""
    pardoned: bool = False
    """A person allowed one more rollback."""
    moved: bool = False
    """A ref, `.git/config` or a hook changed during the last call, and no person has said that this is right."""
    ended_at_us: int = 0
    """When the last call ended, by the raw clock; waits and prices count from it."""
    request: AgentRequested | None = None
    """The newest call, as it was asked for."""
    spent: Spent = Spent()
    delivered: tuple[str, ...] = ()
    """Delivery steps made."""
    merged: BaseMerged | None = None
    pull: int | None = None
    """Number of the pull request."""
    checks: ChecksSeen | None = None
    """The last look at its checks; None when the next one is due."""
    checks_at_us: int = 0
    """When that was, by the raw clock."""
    pushed_at_us: int = 0
    """When the checks began: the push, or the last time they were started again."""
    reruns: int = 0
    commit: Commit | None = None
    last: CellFact | None = None
    """The newest fact that moves the cell on: an intent there means that its outcome is owed."""


class Unborn(Shape, frozen=True):
    """Admitted or not, nothing is in its stream."""


class Opening(Shape, frozen=True):
    """Branch and worktree are owed."""

    started: FeatureStarted
    heard: int
    last: WorkspaceConflicted | HumanAnswered | None = None


class Setting(Shape, frozen=True):
    """The workspace's own set-up commands are owed."""

    book: Book
    ran: tuple[CommandRan, ...] = ()
    last: HumanAnswered | None = None


class Between(Shape, frozen=True):
    """Between phases."""

    book: Book


class Working(Shape, frozen=True):
    """Inside a phase. `cell` is None between units."""

    book: Book
    phase: str
    units: tuple[str, ...]
    finished: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Those that an earlier start of the phase had finished."""
    claimed: bool = False
    contended: bool = False
    """The last claim was refused."""
    cell: Cell | None = None


class Restoring(Shape, frozen=True):
    """After a rollback: the tree before phase `to` is to stand on the branch again, in a new commit."""

    book: Book
    to: str
    last: CommitRequested | Committed | None = None


class Held(Shape, frozen=True):
    """For a time, a file, money, or the end of a fatal problem."""

    hold: Hold
    until_us: int | None
    code: str | None
    then: Active


class Waiting(Shape, frozen=True):
    """For a person."""

    asked: HumanRequested
    then: Active


class Ended(Shape, frozen=True):
    """`before` is where a failed or cancelled feature stood: a person may have it done once more from there."""

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
    """The book, wherever the state keeps it; None before the workspace is open."""
    match state:
        case Held() | Waiting():
            return book_of(state.then)
        case Setting() | Between() | Working() | Restoring() | Ended():
            return state.book
    return None


def heard_of(state: State) -> int:
    """Version of the run's stream that this feature cited last; 0: none."""
    match state:
        case Held() | Waiting():
            return heard_of(state.then)
        case Opening() | Ended():
            return state.heard
    book = book_of(state)
    return book.heard if book else 0
