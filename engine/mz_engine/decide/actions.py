"""Actions for one feature: `decide_feature` returns one of these, and `effects` carries it out."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import CommitRequested, PullRequestRequested, PushRequested
from mz_events.catalog.feature import FeatureStarted, QuestionKind
from mz_events.catalog.run import Hold
from mz_events.names import Commit, Digest, Path
from mz_projections.feature.fold import AgentOutcome

Intent = AgentRequested | CommitRequested | PushRequested | PullRequestRequested


class BaseAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of the actions."""


class CreateWorkspace(BaseAction, frozen=True):
    """Create branch and worktree."""

    started: FeatureStarted


class RunSetup(BaseAction, frozen=True):
    """Run one of the set-up commands of the workspace."""

    command: str


class StartPhase(BaseAction, frozen=True):
    phase: str
    iteration: int
    units: tuple[str, ...]


class ClaimFiles(BaseAction, frozen=True):
    phase: str
    paths: tuple[Path, ...]


class StartUnit(BaseAction, frozen=True):
    phase: str
    unit: str
    iteration: int


class RunPreparation(BaseAction, frozen=True):
    command: str


class CallAgent(BaseAction, frozen=True):
    """Call the builder or the reviewer, as `role` says."""

    role: str
    attempt: int


class SwitchAgent(BaseAction, frozen=True):
    """Failover: switch to the next agent of the settings."""

    to: str
    code: str


class ReconcileIntent(BaseAction, frozen=True):
    """Reconcile an intent without an outcome: find out what happened, and record it."""

    intent: Intent


class ParseReply(BaseAction, frozen=True):
    outcome: AgentOutcome


class CheckChanges(BaseAction, frozen=True):
    """Revert changes outside the write scope."""


class ValidateOutputs(BaseAction, frozen=True):
    """Parse the outputs and check them against their rules."""


class RunGate(BaseAction, frozen=True):
    """Run a command of `mz.yaml` as a gate."""

    gate: str
    cause: str


class CheckRule(BaseAction, frozen=True):
    """Check a rule that concerns the whole feature."""

    rule: str
    cause: str


class AskPerson(BaseAction, frozen=True):
    question_kind: QuestionKind
    code: str = ""
    reports: tuple[Digest, ...] = ()
    """Blobs: JSON arrays of messages."""
    text: Digest | None = None
    """Blob: plain text, where there is no report."""


class BlockPhase(BaseAction, frozen=True):
    cause: str
    check: str
    reports: tuple[Digest, ...] = ()
    text: Digest | None = None


class RollBack(BaseAction, frozen=True):
    to: str
    units: tuple[str, ...] = ()
    keeps_tree: bool = False


class RestoreTree(BaseAction, frozen=True):
    """Commit the tree that a rollback restores; once it is committed, record the restore."""

    committed: bool


class MakeCommit(BaseAction, frozen=True):
    """Commit the work of this unit run."""


class PushBranch(BaseAction, frozen=True):
    pass


class OpenPullRequest(BaseAction, frozen=True):
    pass


class MergeBase(BaseAction, frozen=True):
    """Merge new commits of the pull request's target branch."""


class PollChecks(BaseAction, frozen=True):
    pass


class RerunChecks(BaseAction, frozen=True):
    """Start failed CI checks again that are known to be flaky."""


class CompleteUnit(BaseAction, frozen=True):
    unit: str


class CompletePhase(BaseAction, frozen=True):
    phase: str


class HoldFeature(BaseAction, frozen=True):
    hold: Hold
    until_us: int | None = None
    code: str | None = None


class FailFeature(BaseAction, frozen=True):
    code: str


class FinishFeature(BaseAction, frozen=True):
    """Every phase is complete."""

    base: Commit


Action = (
    CreateWorkspace
    | RunSetup
    | StartPhase
    | ClaimFiles
    | StartUnit
    | RunPreparation
    | CallAgent
    | SwitchAgent
    | ReconcileIntent
    | ParseReply
    | CheckChanges
    | ValidateOutputs
    | RunGate
    | CheckRule
    | AskPerson
    | BlockPhase
    | RollBack
    | RestoreTree
    | MakeCommit
    | PushBranch
    | OpenPullRequest
    | MergeBase
    | PollChecks
    | RerunChecks
    | CompleteUnit
    | CompletePhase
    | HoldFeature
    | FailFeature
    | FinishFeature
)
