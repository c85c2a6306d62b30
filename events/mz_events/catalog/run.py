"""Events of the stream `run/<run>`, which concern several features. Only the coordinator appends here."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from mz_events.catalog.base import DerivedEvent, EventPart, ExternalEvent, OutcomeEvent
from mz_events.names import Commit, Digest, FeatureId, Path, RunId


class FeatureOutcome(Enum):
    """State in which a feature's worker stopped."""

    DELIVERED = "delivered"
    MERGED = "merged"
    TAGGED = "tagged"
    DONE = "done"
    FAILED = "failed"
    WAITING = "waiting"
    """For a person."""
    HELD = "held"
    """For a time, another feature, money, or the end of a fatal problem."""
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """By the user or by a fatal problem elsewhere; the feature continues with the next resume."""


class Hold(Enum):
    """Condition that a held feature waits for."""

    TIMER = "timer"
    CLAIM = "claim"
    BUDGET = "budget"
    FATAL = "fatal"
    CHECKS = "checks"
    """The checks of its pull request."""


class Verdict(Enum):
    """A person's answer."""

    APPROVE = "approve"
    """Continue with the work as it is; or retry with the note if there is nothing valid to continue with."""
    RETRY = "retry"
    """Retry with the note."""
    REJECT = "reject"
    ACCEPT = "accept"
    """Continue with the work as it is, although a gate failed; what failed is known from here on."""


class RunStarted(ExternalEvent, frozen=True, kw_only=True, tag="run.started"):
    SCHEMA = 2
    NON_DETERMINISTIC = frozenset({"run", "base_commit", "pins", "mz_version", "provenance", "isolation"})
    run: RunId
    pipeline: str
    base: str
    """Name of the base branch."""
    base_commit: Commit
    pins: Digest
    """Blob: canonical JSON of the engine's `Pins`: pipeline, rules, templates and config of this run."""
    mz_version: str
    """Version of `mz` that started the run."""
    provenance: str = ""
    """Origin of the agents' replies, as in a cassette; empty: unknown."""
    isolation: str = ""
    """Level of isolation of agents and commands, as `mz doctor` names it, or `container` and that; empty: unknown."""
    integration: str = ""
    """Name of the integration branch, into which items of the run are merged; empty: the run has none."""


class RunForked(ExternalEvent, frozen=True, kw_only=True, tag="run.forked"):
    """The run continues from an event of another one. Earlier events are copied into the feature's stream, each citing
    its original as its cause; they happened once, and were paid once."""

    NON_DETERMINISTIC = frozenset({"source", "version"})
    source: RunId
    feature: FeatureId
    version: int
    """Version, in that run's stream of the feature, of the last copied event."""


class RunResumed(ExternalEvent, frozen=True, kw_only=True, tag="run.resumed"):
    """A process continued the run; a fatal halt, if any, is lifted."""

    NON_DETERMINISTIC = frozenset({"mz_version", "provenance", "isolation"})
    mz_version: str
    provenance: str = ""
    """Origin of the replies from here on; empty: as before."""
    isolation: str = ""
    """Level of isolation from here on; empty: as before."""


class ItemAdded(ExternalEvent, frozen=True, kw_only=True, tag="item.added"):
    SCHEMA = 2
    feature: FeatureId
    source: str
    """Location: `file#id`."""
    priority: int
    """0 high, 1 medium, 2 low, 3 none."""
    order: int
    """Position in the source, from 0."""
    depends_on: tuple[FeatureId, ...] = ()
    title: Digest
    body: Digest
    """Sanitised; as written if the item is quarantined."""
    score: int = 0
    """Score of the injection screen."""
    quarantined: bool = False
    """The text may be a prompt injection: a person must approve it before the first call."""
    suspicions: Digest | None = None
    """Blob: suspicious lines with their places; if the item is not quarantined, they or tricks in them are removed."""
    kind: str = ""
    """As the pipeline defines it; empty: it defines none."""
    cycle: int = 0
    """The cycle in which it was added; 0: before the first."""
    made_by: FeatureId | None = None
    """The item whose output it was in."""
    files: tuple[Path, ...] = ()
    """Files that its entry there lists."""


class CreatedItem(EventPart, frozen=True, kw_only=True):
    """An entry of an artifact that became an item."""

    id: str
    """Its id in the artifact."""
    feature: FeatureId


class ItemsAdded(DerivedEvent, frozen=True, kw_only=True, tag="items.added"):
    """What became of the entries of an artifact that creates items; also in the feature's own stream, in the same
    transaction as the `ItemAdded` events."""

    feature: FeatureId
    added: tuple[CreatedItem, ...]
    duplicates: tuple[str, ...] = ()
    """Ids of entries whose title an open or delivered item has."""


class CycleStarted(DerivedEvent, frozen=True, kw_only=True, tag="cycle.started"):
    """Nothing was left to do: what failed is begun again, then the next work is planned."""

    cycle: int


class CycleEnded(DerivedEvent, frozen=True, kw_only=True, tag="cycle.ended"):
    """Nothing of the cycle is left to do."""

    cycle: int
    added: int
    """Items that it planned."""
    delivered: int
    failed: int
    over: str = ""
    """Why no cycle follows: `planned-nothing`, `cycles` (their limit) or `unchanged`; empty: one may follow."""


class CyclesAllowed(ExternalEvent, frozen=True, kw_only=True, tag="cycles.allowed"):
    """A person said up to which cycle the run may go, instead of the limit of the settings."""

    until: int


class ItemRequeued(DerivedEvent, frozen=True, kw_only=True, tag="item.requeued"):
    """An item that failed is begun again in a later cycle."""

    feature: FeatureId
    cycle: int
    attempt: int


class BranchAdopted(ExternalEvent, frozen=True, kw_only=True, tag="branch.adopted"):
    """When the run was resumed, its integration branch had commits of people on top: items start from them."""

    NON_DETERMINISTIC = frozenset({"branch", "commit"})
    branch: str
    commit: Commit


class RunClosing(ExternalEvent, frozen=True, kw_only=True, tag="run.closing"):
    """A person ends the run: what is open is cancelled, then the last item of the run follows."""

    how: Literal["finish", "cancel"]
    note: Digest | None = None
    actor: Digest


class ItemSkipped(ExternalEvent, frozen=True, kw_only=True, tag="item.skipped"):
    """Its source id was delivered by an earlier run."""

    NON_DETERMINISTIC = frozenset({"delivered_by", "head"})
    feature: FeatureId
    delivered_by: str
    """Event ref, `stream@version`."""
    changed: bool
    """The text differs from the delivered one."""
    head: Commit | None = None
    """The delivered commit; dependents start from it."""


class BaseTested(DerivedEvent, frozen=True, kw_only=True, tag="base.tested"):
    """Set-up and commands ran on the base commit, before anything was paid; each is a `CommandRan` before this one."""

    red: tuple[str, ...] = ()
    """Commands that failed."""
    unusable: tuple[str, ...] = ()
    """Commands that could not start, and set-up commands that failed: the run stops until they are mended."""
    known_failures: Digest | None = None
    """Blob: JSON object from red commands to the ids of the tests that failed; only commands that name them all."""
    results: Digest | None = None
    """Blob: JSON object from commands to how they ended: exit, tests that passed and failed, passed by each count."""
    outside: Digest | None = None
    """Blob: lines of text that say how the unusable command uses code outside its worktree."""


class CommandsChanged(ExternalEvent, frozen=True, kw_only=True, tag="commands.changed"):
    """The settings had other commands when the run was resumed; they apply from here on."""

    commands: Digest
    """Blob: canonical JSON of the engine's `Commands`: commands by name, those of the set-up, what they need."""
    changes: Digest | None = None
    """Blob: lines of a diff with the old and the new text of each setting."""


class FeatureAdmitted(DerivedEvent, frozen=True, kw_only=True, tag="feature.admitted"):
    """The feature has a slot and may start."""

    NON_DETERMINISTIC = frozenset({"starts_from"})
    feature: FeatureId
    starts_from: tuple[Commit, ...] = ()
    """Heads of the delivered dependencies, in the order of `depends_on`; empty: the base commit."""
    stacked_on: FeatureId | None = None
    """The dependency whose branch the pull request targets."""


class FeatureStopped(ExternalEvent, frozen=True, kw_only=True, tag="feature.stopped"):
    """The feature's worker ended; cites the version that its stream had."""

    SCHEMA = 2
    NON_DETERMINISTIC = frozenset({"head", "until_us"})
    feature: FeatureId
    version: int
    status: FeatureOutcome
    hold: Hold | None = None
    until_us: int | None = None
    """For `hold: timer`: microseconds since the epoch, UTC."""
    code: str | None = None
    """Code of a failure or of a fatal problem."""
    head: Commit | None = None
    """Head of the feature's branch; of a merged one the merge."""
    changed_paths: tuple[Path, ...] = ()
    """Paths that the feature changed since its start; set when it is delivered."""


class FeatureReleased(DerivedEvent, frozen=True, kw_only=True, tag="feature.released"):
    """A held feature may continue."""

    feature: FeatureId
    hold: Hold


class TimerFired(ExternalEvent, frozen=True, kw_only=True, tag="timer.fired"):
    feature: FeatureId


class ItemHeld(DerivedEvent, frozen=True, kw_only=True, tag="item.held"):
    """A dependency failed or was cancelled: the item cannot start unless a person decides."""

    feature: FeatureId
    blocked_by: FeatureId


class FilesClaimed(DerivedEvent, frozen=True, kw_only=True, tag="files.claimed"):
    """Also in the feature's own stream, in the same transaction."""

    feature: FeatureId
    phase: str
    paths: tuple[Path, ...]


class ClaimRejected(DerivedEvent, frozen=True, kw_only=True, tag="claim.rejected"):
    """Also in the feature's own stream, in the same transaction."""

    feature: FeatureId
    phase: str
    paths: tuple[Path, ...]
    """The claim; the conflicting paths are those that `holder` has claimed too."""
    holder: FeatureId


class ClaimCompared(DerivedEvent, frozen=True, kw_only=True, tag="claim.compared"):
    """Comparison of claimed and changed paths, after the feature was delivered."""

    feature: FeatureId
    confirmed: tuple[Path, ...]
    unused: tuple[Path, ...]
    """Claimed, not changed."""
    missed: tuple[Path, ...]
    """Changed, not claimed."""


class AnswerAccepted(ExternalEvent, frozen=True, kw_only=True, tag="answer.accepted"):
    """A person's answer to a feature, read from the inbox: see `AnswerPosted`."""

    feature: FeatureId
    verdict: Verdict
    note: Digest | None = None
    actor: Digest
    """Blob: the person's name."""


class CancelAccepted(ExternalEvent, frozen=True, kw_only=True, tag="cancel.accepted"):
    """A person cancelled the feature."""

    feature: FeatureId
    note: Digest | None = None
    actor: Digest


class PersonCommits(EventPart, frozen=True, kw_only=True):
    """Commits that are not from mz, on top of its own."""

    head: Commit
    """The last of them."""
    tree: Commit
    """Content of the worktree with them."""


class RetryRequest(ExternalEvent, frozen=True, kw_only=True):
    """Base of what a person posts, and of what a run accepts."""

    SCHEMA = 2
    feature: FeatureId
    phase: str | None
    """None: the current phase; of a revision, the one that the pipeline chooses."""
    note: Digest | None = None
    actor: Digest
    keeps_tree: bool = False
    """True for a revision: delivered work is taken up again as it is, and no tree is restored."""
    commits: PersonCommits | None = None
    """With a revision: commits of people that the branch had by then."""


class RetryAccepted(RetryRequest, frozen=True, kw_only=True, tag="retry.accepted"):
    """A person requested a retry of a stopped feature, or a revision of a delivered one, from a phase on."""


class ChecksChanged(ExternalEvent, frozen=True, kw_only=True, tag="checks.changed"):
    """The checks of the feature's pull request are no longer pending; the feature polls them itself."""

    feature: FeatureId


class FeatureMerged(ExternalEvent, frozen=True, kw_only=True, tag="feature.merged"):
    """The pull request of a delivered feature was merged; features waiting for the merge start from `head`."""

    NON_DETERMINISTIC = frozenset({"head"})
    feature: FeatureId
    head: Commit
    """Head of the base branch, merge included."""


class RunPaused(ExternalEvent, frozen=True, kw_only=True, tag="run.paused"):
    """Nothing more is started and current calls finish, until the run is resumed; the process stays."""

    actor: Digest | None
    """Blob: the person's name; None: a signal."""


class BudgetChanged(ExternalEvent, frozen=True, kw_only=True, tag="budget.changed"):
    """The settings had other limits when the run was resumed; they apply from here on. None: no limit."""

    SCHEMA = 2
    run_nanousd: int | None
    feature_nanousd: int | None
    call_nanousd: int | None = None
    day_nanousd: int | None = None
    call_tokens: int | None = None
    feature_tokens: int | None = None
    run_tokens: int | None = None
    day_tokens: int | None = None


class InboxRead(OutcomeEvent, frozen=True, kw_only=True, tag="inbox.read"):
    """The cursor of the inbox: everything up to `version` was processed."""

    version: int
    accepted: bool
    rejection_code: str = ""
    """Error code; empty if accepted."""


class RunHalted(DerivedEvent, frozen=True, kw_only=True, tag="run.halted"):
    """A fatal problem (no key, no CLI, disk full): nothing more is started until the run is resumed."""

    feature: FeatureId
    code: str


class RunStopRequested(ExternalEvent, frozen=True, kw_only=True, tag="run.stop-requested"):
    """The user asked the process to stop."""


class RunIdle(DerivedEvent, frozen=True, kw_only=True, tag="run.idle"):
    """Nothing can continue without a person, money or a resume."""


class RunFinished(DerivedEvent, frozen=True, kw_only=True, tag="run.finished"):
    """Every item is delivered, failed or cancelled."""
