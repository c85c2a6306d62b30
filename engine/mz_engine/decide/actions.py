"""Facts: what can be done next for one feature. `decide` returns one of these; `effects` carries it out."""

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
    """Make branch and worktree."""

    started: FeatureStarted


class SetUp(Command, frozen=True):
    """Run one of the workspace's set-up commands."""

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
    """The builder's call, or the reviewer's: `role` says which."""

    role: str
    attempt: int


class SwitchAgent(Command, frozen=True):
    """Failover: the next agent of the settings takes over."""

    to: str
    code: str


class Settle(Command, frozen=True):
    """An intent without an outcome: look at the world first, then say what became of it."""

    intent: Intent


class ReadReply(Command, frozen=True):
    outcome: Outcome


class CheckChanges(Command, frozen=True):
    """Put back what was changed outside the contract."""


class Validate(Command, frozen=True):
    """Parse the outputs and check their rules."""


class RunGate(Command, frozen=True):
    """A command of `mz.yaml`."""

    gate: str
    cause: str


class CheckRule(Command, frozen=True):
    """A rule over the feature as a whole."""

    rule: str
    cause: str


class AskHuman(Command, frozen=True):
    ask: Ask
    code: str = ""
    reports: tuple[Digest, ...] = ()
    """Blobs: JSON arrays of messages."""
    text: Digest | None = None
    """Blob: plain words, where there is no report."""


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
    """Commit the tree that a rollback leads back to, or, where that is done, say so."""

    committed: bool


class MakeCommit(Command, frozen=True):
    """The engine's commit for this cell."""


class Push(Command, frozen=True):
    pass


class OpenPullRequest(Command, frozen=True):
    pass


class MergeBase(Command, frozen=True):
    """Take in what the pull request's target has gained meanwhile."""


class LookAtChecks(Command, frozen=True):
    pass


class RerunChecks(Command, frozen=True):
    """The red ones, which are known to be flaky."""


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
