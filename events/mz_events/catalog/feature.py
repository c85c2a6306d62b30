"""Facts of the life of one feature, in the stream `run/<run>/<feature>`: phases, units, blocks, rollbacks, rests."""

from __future__ import annotations

from enum import Enum

from mz_events.catalog.base import Event, Role
from mz_events.catalog.run import Hold, Verdict
from mz_events.names import Commit, Digest, FeatureId, Path


class Ask(Enum):
    """Why a person is asked."""

    EXHAUSTED = "exhausted"
    """Every reply that the rules or gates may refuse was refused."""
    RETRIES = "retries"
    """Too many failed or lost calls."""
    BLOCKER = "blocker"
    """The agent said that it needs a person."""
    APPROVAL = "approval"
    """The pipeline wants a person's word here."""
    UNROUTED = "unrouted"
    """A block whose cause has no `on_block` entry."""
    ROLLBACKS = "rollbacks"
    """Three times the same issue, or `rollbacks_max`."""
    REPOSITORY = "repository"
    """A ref, `.git/config` or a hook changed and no event of ours explains it."""
    CONFLICT = "conflict"
    """Commits that must be merged do not merge."""
    SECRET = "secret"
    """A secret stood in an artifact or a patch."""
    LIMIT = "limit"
    """A wait longer than the run may wait."""
    CHECKS = "checks"
    """The checks of the pull request did not become green."""


class FeatureStarted(Event, frozen=True, kw_only=True, tag="feature.started"):
    ROLE = Role.FACT
    MEASURED = frozenset({"heard", "starts_from"})
    feature: FeatureId
    heard: int
    """Version of the run's stream that admitted it."""
    branch: str
    target: str
    """Branch that the pull request targets."""
    starts_from: tuple[Commit, ...]
    """One or more commits; several are merged first."""
    title: Digest
    body: Digest


class WorkspaceReady(Event, frozen=True, kw_only=True, tag="workspace.ready"):
    """The branch and its worktree exist; several starting commits have been merged."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"head", "tree"})
    head: Commit
    tree: Commit
    """Capture of the worktree."""


class WorkspaceConflicted(Event, frozen=True, kw_only=True, tag="workspace.conflicted"):
    """The starting commits do not merge."""

    ROLE = Role.OUTCOME
    paths: tuple[Path, ...]


class PhaseStarted(Event, frozen=True, kw_only=True, tag="phase.started"):
    ROLE = Role.DERIVED
    phase: str
    iteration: int
    """1 + the rollbacks that superseded this phase."""
    units: tuple[str, ...] = ("",)
    """In the order of work; one empty name where the phase has no `for_each`."""


class UnitStarted(Event, frozen=True, kw_only=True, tag="unit.started"):
    """Work on one cell (phase and unit) begins; a phase without `for_each` has one cell, with an empty unit."""

    ROLE = Role.DERIVED
    phase: str
    unit: str
    iteration: int


class Blocked(Event, frozen=True, kw_only=True, tag="phase.blocked"):
    """The phase cannot go on by itself."""

    ROLE = Role.DERIVED
    phase: str
    unit: str
    cause: str
    """From the verdict or the gate; `inputs` for missing inputs, `person` for a rejection."""
    check: str
    """Rule or gate; with phase, unit and path it is the identity of the issue."""
    path: str = ""
    note: Digest | None = None
    """Blob: what goes into the prompt of the phase that must mend it."""


class RolledBack(Event, frozen=True, kw_only=True, tag="phase.rolled-back"):
    ROLE = Role.DERIVED
    source: str
    """The phase that blocked."""
    to: str
    units: tuple[str, ...] = ()
    """`scope: unit`: these units of the phase start a new iteration and nothing is restored. Empty: the whole
    phase and all after it."""
    keeps_tree: bool = False
    """`scope: tree`: the work goes on from the present tree. Otherwise, without units, the tree from before the phase
    is restored in a new commit."""


class TreeRestored(Event, frozen=True, kw_only=True, tag="tree.restored"):
    """The worktree is again what it was before the phase that the rollback leads to."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"tree"})
    tree: Commit


class UnitCompleted(Event, frozen=True, kw_only=True, tag="unit.completed"):
    ROLE = Role.DERIVED
    phase: str
    unit: str


class PhaseCompleted(Event, frozen=True, kw_only=True, tag="phase.completed"):
    ROLE = Role.DERIVED
    phase: str


class FeatureHeld(Event, frozen=True, kw_only=True, tag="feature.held"):
    """Waiting is an action: the slot is given back."""

    ROLE = Role.DERIVED
    MEASURED = frozenset({"until_us"})
    hold: Hold
    until_us: int | None = None
    code: str | None = None
    template: Path | None = None
    """The one that no prompt could be made of, below the folder of templates."""
    line: int | None = None
    """Of that template."""
    detail: Digest | None = None
    """Blob: what is wrong there."""


class HoldReleased(Event, frozen=True, kw_only=True, tag="feature.hold-released"):
    ROLE = Role.FACT
    MEASURED = frozenset({"heard"})
    heard: int
    """Version of the run's stream that this cites."""
    hold: Hold


class HumanRequested(Event, frozen=True, kw_only=True, tag="human.requested"):
    ROLE = Role.DERIVED
    phase: str
    unit: str
    ask: Ask
    code: str = ""
    """What it is about: a rule, a gate, a problem's code, a check."""
    detail: Digest | None = None
    """Blob: the text that the person reads."""


class HumanAnswered(Event, frozen=True, kw_only=True, tag="human.answered"):
    ROLE = Role.FACT
    MEASURED = frozenset({"heard"})
    heard: int
    verdict: Verdict
    note: Digest | None = None
    who: Digest


class FeatureRetried(Event, frozen=True, kw_only=True, tag="feature.retried"):
    """A person wants it done once more: the tree from before the phase is restored, and counts begin anew."""

    ROLE = Role.FACT
    MEASURED = frozenset({"heard"})
    heard: int
    to: str
    """Empty where no phase was begun."""
    note: Digest | None = None
    who: Digest


class FeatureDelivered(Event, frozen=True, kw_only=True, tag="feature.delivered"):
    ROLE = Role.DERIVED
    MEASURED = frozenset({"head"})
    terminal: str
    """delivered, merged or tagged."""
    head: Commit
    touched: tuple[Path, ...] = ()


class FeatureFailed(Event, frozen=True, kw_only=True, tag="feature.failed"):
    ROLE = Role.DERIVED
    code: str
    detail: Digest | None = None


class FeatureCancelled(Event, frozen=True, kw_only=True, tag="feature.cancelled"):
    ROLE = Role.FACT
    MEASURED = frozenset({"heard"})
    heard: int
