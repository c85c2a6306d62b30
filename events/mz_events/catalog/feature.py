"""Events of one feature, in the stream `run/<run>/<feature>`: phases, units, blocks, rollbacks, holds, endings."""

from __future__ import annotations

from enum import Enum

from mz_events.catalog.base import DerivedEvent, EventPart, ExternalEvent, OutcomeEvent
from mz_events.catalog.run import FeatureOutcome, Hold, PersonCommits, Verdict
from mz_events.names import Commit, Digest, FeatureId, Path


class QuestionKind(Enum):
    """Reason for a question to a person."""

    EXHAUSTED = "exhausted"
    """The maximum number of rejected replies was reached."""
    RETRIES = "retries"
    """Too many failed or lost calls."""
    BLOCKER = "blocker"
    """The agent reported that it needs a person."""
    APPROVAL = "approval"
    """The pipeline requires a person's approval here."""
    UNROUTED = "unrouted"
    """A block whose cause has no `on_block` entry."""
    ROLLBACKS = "rollbacks"
    """The same issue three times, or `rollbacks_max` reached."""
    CONFLICT = "conflict"
    """Commits that must be merged have conflicts."""
    SECRET = "secret"
    """An artifact or a patch contained a secret."""
    LIMIT = "limit"
    """A wait longer than the run may wait."""
    CHECKS = "checks"
    """The checks of the pull request did not pass."""
    WITHHELD = "withheld"
    """The feature's text may be a prompt injection; no agent gets it before a person approves."""


class ItemStatus(EventPart, frozen=True, kw_only=True):
    """What became of an item so far."""

    feature: FeatureId
    kind: str
    title: Digest
    status: FeatureOutcome | None
    """None: it is open: it was not worked on yet, or failed and is begun again in a later cycle."""
    attempts: int
    """How often it was begun."""
    code: str = ""
    """Why it failed."""
    branch: str = ""
    head: Commit | None = None
    """Head of its branch, or the merge of it."""
    depends_on: tuple[FeatureId, ...] = ()
    files: tuple[Path, ...] = ()
    """As in `ItemAdded`."""


class FeatureStarted(ExternalEvent, frozen=True, kw_only=True, tag="feature.started"):
    SCHEMA = 5
    NON_DETERMINISTIC = frozenset({"run_version", "starts_from", "base_results", "items"})
    feature: FeatureId
    run_version: int
    """Version of the run's stream that admitted it."""
    branch: str
    target: str
    """Branch that the pull request targets."""
    starts_from: tuple[Commit, ...]
    """One or more commits; several are merged first."""
    title: Digest
    body: Digest
    known_failures: Digest | None = None
    """Blob: the base's failed tests, as in `BaseTested`. None: gates are strict."""
    suspicions: Digest | None = None
    """As in `ItemAdded`."""
    base_results: Digest | None = None
    """Blob: results of the commands on the base, as in `BaseTested`, for the pull request."""
    issue: str = ""
    """The issue that it is about, as `[HOST/]OWNER/NAME#NUMBER`."""
    items: tuple[ItemStatus, ...] = ()
    """Items of the run at that time, where a phase has them as an input."""


class WorkspaceReady(OutcomeEvent, frozen=True, kw_only=True, tag="workspace.ready"):
    """The branch and its worktree exist; several starting commits have been merged."""

    NON_DETERMINISTIC = frozenset({"head", "tree", "environment"})
    head: Commit
    tree: Commit
    """Capture of the worktree."""
    environment: str | None = None
    """Digest of the set-up of a checkout, as in `CommandRan`, whose results were copied; null: the set-up must run."""


class WorkspaceConflicted(OutcomeEvent, frozen=True, kw_only=True, tag="workspace.conflicted"):
    """The starting commits cannot be merged without conflicts."""

    paths: tuple[Path, ...]


class PhaseStarted(DerivedEvent, frozen=True, kw_only=True, tag="phase.started"):
    phase: str
    iteration: int
    """1 + the rollbacks that superseded this phase."""
    units: tuple[str, ...] = ("",)
    """In the order of work; one empty name if the phase has no `for_each`."""


class UnitStarted(DerivedEvent, frozen=True, kw_only=True, tag="unit.started"):
    """Work on one unit of a phase begins; a phase without `for_each` has one unit with an empty name."""

    phase: str
    unit: str
    iteration: int


class Blocked(DerivedEvent, frozen=True, kw_only=True, tag="phase.blocked"):
    """The phase cannot continue by itself."""

    SCHEMA = 2
    phase: str
    unit: str
    cause: str
    """From the verdict, the gate or the agent; `inputs` for missing inputs, `person` for a rejection."""
    check: str
    """Rule or gate, or `raised.CAUSE`; with phase, unit and path it identifies the issue."""
    path: str = ""
    units: tuple[str, ...] = ()
    """Units that the agent named as concerned."""
    note: Digest | None = None
    """Blob: text for the prompt of the phase that must fix the issue."""


class RolledBack(DerivedEvent, frozen=True, kw_only=True, tag="phase.rolled-back"):
    source: str
    """The phase that blocked."""
    to: str
    units: tuple[str, ...] = ()
    """`scope: unit`: these units of the phase start a new iteration and nothing is restored. Empty: the phase and all
    later ones are superseded."""
    keeps_tree: bool = False
    """`scope: tree`: the work continues from the present tree. Otherwise, without units, the tree from before the phase
    is restored in a new commit."""


class TreeRestored(OutcomeEvent, frozen=True, kw_only=True, tag="tree.restored"):
    """The worktree is again as it was before the phase that the rollback leads to."""

    NON_DETERMINISTIC = frozenset({"tree"})
    tree: Commit


class EditMade(OutcomeEvent, frozen=True, kw_only=True, tag="edit.made"):
    """The engine changed files, before an agent is called. Repeatable: the same tree gives the same one."""

    NON_DETERMINISTIC = frozenset({"tree"})
    edit: str
    """Its name in `mz.yaml`."""
    written: tuple[Path, ...] = ()
    deleted: tuple[Path, ...] = ()
    tree: Commit
    """Capture, afterwards."""


class UnitCompleted(DerivedEvent, frozen=True, kw_only=True, tag="unit.completed"):
    phase: str
    unit: str


class PhaseSkipped(DerivedEvent, frozen=True, kw_only=True, tag="phase.skipped"):
    """A phase that is not required could not be completed: its present unit and those that follow are left out."""

    phase: str
    unit: str
    code: str
    """Code of the question or problem."""


class PhaseCompleted(DerivedEvent, frozen=True, kw_only=True, tag="phase.completed"):
    phase: str


class FeatureHeld(DerivedEvent, frozen=True, kw_only=True, tag="feature.held"):
    """The feature waits without a person; its slot is released."""

    NON_DETERMINISTIC = frozenset({"until_us"})
    hold: Hold
    until_us: int | None = None
    code: str | None = None
    template: Path | None = None
    """Path of the template that failed to render, below the templates folder."""
    line: int | None = None
    """Line in that template."""
    detail: Digest | None = None
    """Blob: the error."""


class HoldReleased(ExternalEvent, frozen=True, kw_only=True, tag="feature.hold-released"):
    NON_DETERMINISTIC = frozenset({"run_version"})
    run_version: int
    """Version of the run's stream that this cites."""
    hold: Hold


class HumanRequested(DerivedEvent, frozen=True, kw_only=True, tag="human.requested"):
    SCHEMA = 2
    phase: str
    unit: str
    question_kind: QuestionKind
    code: str = ""
    """Subject of the question: a rule, a gate, a problem's code, a check."""
    codes: tuple[str, ...] = ()
    """All subjects of an approval, if there are several; `code` is the first."""
    detail: Digest | None = None
    """Blob: the text for the person."""

    @property
    def subjects(self) -> tuple[str, ...]:
        return self.codes or (self.code,)

    @property
    def subject(self) -> str:
        """Return all subjects as text."""
        return ", ".join(self.subjects)


class HumanAnswered(ExternalEvent, frozen=True, kw_only=True, tag="human.answered"):
    """The feature acknowledges an answer that the run accepted, by its version in the run's stream: see
    `AnswerPosted`."""

    NON_DETERMINISTIC = frozenset({"run_version"})
    run_version: int
    verdict: Verdict
    note: Digest | None = None
    actor: Digest


class FeatureRetried(ExternalEvent, frozen=True, kw_only=True, tag="feature.retried"):
    """A person requested a retry or a revision: counters are reset, and the phase and all later ones are superseded.
    A retry restores the tree from before the phase."""

    SCHEMA = 3
    NON_DETERMINISTIC = frozenset({"run_version", "commits"})
    run_version: int
    to: str
    """Empty if no phase was started."""
    note: Digest | None = None
    actor: Digest | None
    """None: the run begins a failed item again."""
    keeps_tree: bool = False
    """True for a revision: delivered work is taken up again as it is, and no tree is restored."""
    commits: PersonCommits | None = None
    """With a revision: commits of people that the branch had by then."""


class FeatureDelivered(DerivedEvent, frozen=True, kw_only=True, tag="feature.delivered"):
    NON_DETERMINISTIC = frozenset({"head"})
    ending: str
    """delivered, merged, tagged or done."""
    head: Commit
    changed_paths: tuple[Path, ...] = ()


class FeatureFailed(DerivedEvent, frozen=True, kw_only=True, tag="feature.failed"):
    code: str
    detail: Digest | None = None


class FeatureCancelled(ExternalEvent, frozen=True, kw_only=True, tag="feature.cancelled"):
    NON_DETERMINISTIC = frozenset({"run_version"})
    run_version: int
