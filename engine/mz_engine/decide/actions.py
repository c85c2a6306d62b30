"""Actions for one feature: `decide_feature` returns one of these, and `effects` carries it out."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import CommitRequested, PullRequestRequested, PushRequested
from mz_events.catalog.feature import Ask, FeatureStarted
from mz_events.catalog.run import Hold
from mz_events.names import Commit, Digest, Path
from mz_projections.feature import Outcome

Intent = AgentRequested | CommitRequested | PushRequested | PullRequestRequested


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of the actions."""


class Open(Command, frozen=True):
    """Create branch and worktree."""

    started: FeatureStarted


class SetUp(Command, frozen=True):
    """Run one of the set-up commands of the workspace."""

    command: str


class StartPhase(Command, frozen=True):
    phase: str
    iteration: int
    units: tuple[str, ...]


class ClaimFiles(Command, frozen=True):
    phase: str
    paths: tuple[Path, ...]


class StartUnit(Command, frozen=True):
    phase: str
    unit: str
    iteration: int


class Prepare(Command, frozen=True):
    command: str


class CallAgent(Command, frozen=True):
    """Call the builder or the reviewer, as `role` says."""

    role: str
    attempt: int


class SwitchAgent(Command, frozen=True):
    """Failover: switch to the next agent of the settings."""

    to: str
    code: str


class Settle(Command, frozen=True):
    """Reconcile an intent without an outcome: find out what happened, and record it."""

    intent: Intent


class ReadReply(Command, frozen=True):
    outcome: Outcome


class CheckChanges(Command, frozen=True):
    """Revert changes outside the write scope."""


class Validate(Command, frozen=True):
    """Parse the outputs and check them against their rules."""


class RunGate(Command, frozen=True):
    """Run a command of `mz.yaml` as a gate."""

    gate: str
    cause: str


class CheckRule(Command, frozen=True):
    """Check a rule that concerns the whole feature."""

    rule: str
    cause: str


class AskHuman(Command, frozen=True):
    ask: Ask
    code: str = ""
    reports: tuple[Digest, ...] = ()
    """Blobs: JSON arrays of messages."""
    text: Digest | None = None
    """Blob: plain text, where there is no report."""


class Block(Command, frozen=True):
    cause: str
    check: str
    reports: tuple[Digest, ...] = ()
    text: Digest | None = None


class RollBack(Command, frozen=True):
    to: str
    units: tuple[str, ...] = ()
    keeps_tree: bool = False


class Restore(Command, frozen=True):
    """Commit the tree that a rollback restores; once it is committed, record the restore."""

    committed: bool


class MakeCommit(Command, frozen=True):
    """Commit the work of this unit run."""


class Push(Command, frozen=True):
    pass


class OpenPullRequest(Command, frozen=True):
    pass


class MergeBase(Command, frozen=True):
    """Merge new commits of the pull request's target branch."""


class LookAtChecks(Command, frozen=True):
    pass


class RerunChecks(Command, frozen=True):
    """Start failed CI checks again that are known to be flaky."""


class CompleteUnit(Command, frozen=True):
    unit: str


class CompletePhase(Command, frozen=True):
    phase: str


class HoldFeature(Command, frozen=True):
    hold: Hold
    until_us: int | None = None
    code: str | None = None


class FailFeature(Command, frozen=True):
    code: str


class FinishFeature(Command, frozen=True):
    """Every phase is complete."""

    base: Commit


Action = (
    Open
    | SetUp
    | StartPhase
    | ClaimFiles
    | StartUnit
    | Prepare
    | CallAgent
    | SwitchAgent
    | Settle
    | ReadReply
    | CheckChanges
    | Validate
    | RunGate
    | CheckRule
    | AskHuman
    | Block
    | RollBack
    | Restore
    | MakeCommit
    | Push
    | OpenPullRequest
    | MergeBase
    | LookAtChecks
    | RerunChecks
    | CompleteUnit
    | CompletePhase
    | HoldFeature
    | FailFeature
    | FinishFeature
)
