"""The states of one feature: a union of structs, folded from its stream by `feature.evolve`."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied, AgentRequested, SessionDropReason, Usage
from mz_events.catalog.delivery import BaseMerged, BranchLanded, ChecksPolled, CommitRequested, Committed
from mz_events.catalog.feature import (
    Blocked,
    FeatureRetried,
    FeatureStarted,
    HumanAnswered,
    HumanRequested,
    PhaseStarted,
    RolledBack,
    WorkspaceConflicted,
)
from mz_events.catalog.run import FeatureOutcome, Hold
from mz_events.catalog.validation import ArtifactParsed, CommandRan
from mz_events.names import BUILDER, Commit, Digest, Path


class StateStruct(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of the states and their parts."""


class Attempts(StateStruct, frozen=True):
    """Calls of one role in one unit run."""

    attempt: int = 0
    """Requests so far, failed and lost ones too."""
    rejected: int = 0
    """Replies rejected by rules or gates since a person last answered."""
    failures: dict[str, int] = {}
    """Calls that failed or were lost since a person last answered, by problem code."""
    waits: int = 0
    """Number of these that were followed by a pause: the call after it is no retry."""
    waited_seconds: int = 0
    """Length of the pauses since the last reply."""


class UnitUsage(StateStruct, frozen=True):
    """Usage of calls; that of a unit run is written to the trailers of its commit."""

    input_tokens: int = 0
    output_tokens: int = 0
    nanousd: int = 0
    """Cost, summed over calls: computed, else reported, else nothing."""
    duration_ms: int = 0

    def since(self, before: UnitUsage) -> UnitUsage:
        names = self.__struct_fields__
        return UnitUsage(**{name: getattr(self, name) - getattr(before, name) for name in names})


class AgentSession(StateStruct, frozen=True):
    """The session of a feature's builder, which later calls may continue."""

    agent: str
    model: str
    id: str
    """As reported by the agent, else as requested."""
    key: str
    """Key of its latest call."""
    seen_marks: frozenset[str] = frozenset()
    """Marks of the texts that it was shown or has written."""
    usage_before: tuple[Usage, ...] = ()
    """Usage of its earlier calls, one sum per model."""
    usage: tuple[Usage, ...] = ()
    """The same including the latest call."""
    estimated_tokens: int = 0
    """Estimated size of the session after the latest call, reply included."""
    drop_reason: SessionDropReason | None = None
    """Reason that no call may continue it."""


class AcceptedGate(StateStruct, frozen=True):
    """A gate that failed, accepted by a person as it is."""

    gate: str
    answer: HumanAnswered
    ran: CommandRan | None
    """Its command, whose failure is known from then on; None: a rule."""


class FeatureProgress(StateStruct, frozen=True):
    """Progress of one feature across its phases."""

    started: FeatureStarted
    base: Commit
    """Commit that the feature began with; several starting commits are merged in it."""
    head: Commit
    """Head of the branch by our own commits."""
    tree: Commit
    """Capture that the next unit run starts from."""
    run_version: int
    """Version of the run's stream that was cited last."""
    completed_phases: tuple[str, ...] = ()
    """Phases completed, in order."""
    artifacts: dict[str, ArtifactParsed] = {}
    """By name, and by `name/unit` if a phase has units."""
    start_trees: dict[str, Commit] = {}
    """Tree that each phase began with, in the order of their start."""
    superseded_counts: dict[str, int] = {}
    """Number of rollbacks that superseded a phase (`code`) or a unit (`code/u1`)."""
    kept_units: dict[str, tuple[str, ...]] = {}
    """Finished units of a phase that a rollback of other units left intact."""
    unit_trees: dict[str, tuple[tuple[Commit, Commit], ...]] = {}
    """Trees before and after the work on each unit, by `phase/unit`: of each iteration whose changes were kept, also
    where it was blocked and the unit started again on its tree."""
    unit_results: dict[str, tuple[CommandRan, ...]] = {}
    """The commands run for each completed unit, preparations first, by `phase/unit`."""
    judged_by: dict[str, str] = {}
    """Key, without the run, of the call that judged each completed unit, by `phase/unit`."""
    finished_units: dict[str, tuple[str, ...]] = {}
    """Units of each completed phase that has some."""
    history: tuple[Event, ...] = ()
    """What records tell of: phases, blocks, rollbacks, questions and answers, and changes with secrets."""
    notes: dict[str, tuple[Digest, ...]] = {}
    """Reasons for rollbacks and retries, by phase or `phase/unit`."""
    issue_counts: dict[str, int] = {}
    """Number of blocks by issue: `phase|check|unit|path`."""
    block_counts: dict[str, int] = {}
    """Number of blocks by cause."""
    rollback_count: int = 0
    restore_count: int = 0
    """Trees restored, by rollbacks and by people; each is a commit with its own key."""
    pushed_commit: Commit | None = None
    """Last pushed commit: if the remote's branch differs, someone else has pushed to it."""
    merged_target: Commit | None = None
    """Last merged commit of the pull request's target."""
    conflicted_files: tuple[Path, ...] = ()
    """Files into which the last merge of the target wrote conflict markers."""
    landed: BranchLanded | None = None
    """The last merge of the branch into its target."""
    agent_session: AgentSession | None = None
    accepted_gates: tuple[AcceptedGate, ...] = ()
    gate_runs: dict[str, CommandRan] = {}
    """The last run of each command that is a gate, in completed units."""
    calls: dict[str, int] = {}
    """Number of calls by phase, in all iterations."""
    usage: UnitUsage = UnitUsage()
    """Usage of all unit runs."""
    builder_agents: dict[str, tuple[str, ...]] = {}
    """Agents whose replies as builder counted, by phase."""
    replaced_agents: dict[str, str] = {}
    """Agents that cannot continue, each with the one that took over."""

    def artifacts_by_unit(self, name: str) -> dict[str, ArtifactParsed]:
        """Return the artifact of each unit; of a phase without units, the only one under an empty name."""
        start, artifacts = f"{name}/", self.artifacts
        of_units = {key.removeprefix(start): artifacts[key] for key in artifacts if key.startswith(start)}
        return of_units or ({"": self.artifacts[name]} if name in self.artifacts else {})


class UnitRun(StateStruct, frozen=True):
    """One unit of one phase in one iteration, from its start to its completion."""

    unit: str
    iteration: int
    base: Commit
    """Capture at the start; changes count from here."""
    tree: Commit
    """Capture that the next call starts from: the tree before a first or failed call, the reply's tree after a rejected
    reply."""
    is_edited: bool = False
    """The edit of the phase is made."""
    role: str = BUILDER
    """Role of the pending or last call."""
    attempts: dict[str, Attempts] = {}
    preparation_runs: tuple[CommandRan, ...] = ()
    gate_runs: dict[str, CommandRan] = {}
    """The last run of each command that is a gate; if the set-up failed before it, that of the set-up."""
    failed_setup: CommandRan | None = None
    """The set-up that failed before the next gate."""
    check_results: dict[str, bool] = {}
    """Results of gates and rules on the current reply."""
    conditions: dict[str, tuple[str, ...]] = {}
    """The conditions that hold of the phase and, for the current reply, of its review."""
    approved_questions: tuple[str, ...] = ()
    """Questions that a person approved for the current reply."""
    reports: tuple[Digest, ...] = ()
    """Reports for the next call to fix."""
    signature: str = ""
    """Signature of the failed command behind `reports`."""
    notes: tuple[Digest, ...] = ()
    parsed_artifacts: dict[str, ArtifactParsed] = {}
    """Outputs of the current reply, by artifact."""
    judged_by: str = ""
    """Key, without the run, of the call that judged the rules which only a reviewer can."""
    review_artifacts: tuple[str, ...] = ()
    """Those of them that the reviewer made."""
    reply_event: AgentReplied | None = None
    """The current reply, uninterpreted, as the process wrote it."""
    reply_text: Digest | None = None
    """Its final text."""
    block: Blocked | None = None
    answered_question: HumanRequested | None = None
    """The question that a person answered last."""
    rollback_allowed: bool = False
    """A person allowed one more rollback."""
    ended_at_us: int = 0
    """End of the last call by `observed_at`; waits and prices count from it."""
    request: AgentRequested | None = None
    """The latest call."""
    usage_before: UnitUsage = UnitUsage()
    """Usage of all earlier unit runs."""
    items_added: bool = False
    """Its outputs created their items."""
    delivery_steps: tuple[str, ...] = ()
    """Delivery steps done."""
    target_merge: BaseMerged | None = None
    target_moves: int = 0
    """How often the target moved before the branch could be merged into it."""
    pull_request_number: int | None = None
    """Number of the pull request."""
    last_poll: ChecksPolled | None = None
    """The last poll of its checks; None if the next one is due."""
    polled_at_us: int = 0
    """Time of that poll, by `observed_at`."""
    checks_began_at_us: int = 0
    """Start of the checks: the push, or the last rerun."""
    reruns: int = 0
    commit: Commit | None = None
    last_event: Event | None = None
    """The latest event that advances the unit run; an intent here has a pending outcome."""


class NotStarted(StateStruct, frozen=True):
    """The feature's stream is empty; it may be admitted already."""


class CreatingWorkspace(StateStruct, frozen=True):
    """Branch and worktree are pending."""

    started: FeatureStarted
    run_version: int
    last_event: WorkspaceConflicted | HumanAnswered | None = None
    text_approved: bool = False
    """A person approved a suspicious text of the feature."""


class RunningSetup(StateStruct, frozen=True):
    """The set-up commands of the workspace are pending."""

    progress: FeatureProgress
    command_runs: tuple[CommandRan, ...] = ()
    last_event: HumanAnswered | None = None


class BetweenPhases(StateStruct, frozen=True):
    progress: FeatureProgress


class InPhase(StateStruct, frozen=True):
    """Inside a phase. `unit_run` is None between units."""

    progress: FeatureProgress
    phase: str
    units: tuple[str, ...]
    finished_units: tuple[str, ...] = ()
    kept_units: tuple[str, ...] = ()
    """Units finished by an earlier start of the phase."""
    claimed: bool = False
    claim_rejected: bool = False
    """The last claim was rejected."""
    unit_run: UnitRun | None = None


class Restoring(StateStruct, frozen=True):
    """After a rollback: the tree before phase `to` is to be restored on the branch, in a new commit."""

    progress: FeatureProgress
    to: str
    last_event: CommitRequested | Committed | None = None


class Held(StateStruct, frozen=True):
    """Waiting without a person: for a time, a claim, money, or the end of a fatal problem."""

    hold: Hold
    until_us: int | None
    code: str | None
    suspended: Active


class Waiting(StateStruct, frozen=True):
    """Waiting for a person."""

    question: HumanRequested
    suspended: Active


class Ended(StateStruct, frozen=True):
    """`state_before` is the state in which a feature failed or was cancelled: a person may retry from there."""

    status: FeatureOutcome
    run_version: int
    head: Commit | None
    code: str | None = None
    detail: Digest | None = None
    """Blob: why it failed."""
    changed_paths: tuple[Path, ...] = ()
    progress: FeatureProgress | None = None
    state_before: Active | None = None


Active = CreatingWorkspace | RunningSetup | BetweenPhases | InPhase | Restoring
State = NotStarted | Active | Held | Waiting | Ended


def has_passed(ran: CommandRan) -> bool:
    """Return True if a command succeeded, or failed only as it is known to fail."""
    return ran.exit == 0 or ran.new_failures == 0


def progress_of(state: State) -> FeatureProgress | None:
    """Return the feature's progress; None before the workspace exists."""
    match state:
        case Held() | Waiting():
            return progress_of(state.suspended)
        case RunningSetup() | BetweenPhases() | InPhase() | Restoring() | Ended():
            return state.progress
    return None


def run_version_of(state: State) -> int:
    """Return the version of the run's stream that this feature cited last; 0: none."""
    match state:
        case Held() | Waiting():
            return run_version_of(state.suspended)
        case CreatingWorkspace() | Ended():
            return state.run_version
    progress = progress_of(state)
    return progress.run_version if progress else 0


# what a rollback supersedes, for all projections ----------------------------------------------------------------------
def superseded_phases(started_phases: tuple[str, ...], target: str, units: Collection[str] = ()) -> tuple[str, ...]:
    """Return the phases, of these in the order of their start, that going back to `target` supersedes.

    Superseded are phases started at or after the target; if only units of it go back, the target phase itself stays.
    """
    if target not in started_phases:
        return ()
    return started_phases[started_phases.index(target) + bool(units) :]


def track_phases(current_phases: tuple[str, ...], event: Event) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the current phases after the event, in the order of their start, and the phases that it supersedes."""
    if type(event) is PhaseStarted:
        return (current_phases if event.phase in current_phases else (*current_phases, event.phase)), ()
    if type(event) is RolledBack:
        superseded = superseded_phases(current_phases, event.to, event.units)
    elif type(event) is FeatureRetried:
        superseded = superseded_phases(current_phases, event.to)
    else:
        return current_phases, ()
    return tuple(phase for phase in current_phases if phase not in superseded), superseded
