"""Actions for one feature: `decide_feature` returns one of these, and `effects` carries it out.

An event is an action too: it is appended as it is.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import (
    CommitRequested,
    MergeRequested,
    PullRequestRequested,
    PushRequested,
    TagRequested,
)
from mz_events.catalog.feature import QuestionKind
from mz_events.names import Digest, Path
from mz_projections.feature.fold import AgentOutcome

Intent = AgentRequested | CommitRequested | PushRequested | PullRequestRequested | MergeRequested | TagRequested


class Work(Enum):
    """Actions for which the state says everything."""

    CREATE_WORKSPACE = "create workspace"
    MAKE_EDIT = "make edit"
    CHECK_CHANGES = "check changes"
    """Revert changes outside the write scope."""
    VALIDATE_OUTPUTS = "validate outputs"
    """Parse the outputs and check them against their rules."""
    CHECK_JUDGED_RULES = "check judged rules"
    """Record how a reviewer judges the rules that only it can."""
    MAKE_COMMIT = "make commit"
    POLL_CHECKS = "poll checks"
    RERUN_CHECKS = "rerun checks"
    """Start failed CI checks again that are known to be flaky."""
    FINISH_FEATURE = "finish feature"
    """Every phase is complete."""


class BaseAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of the actions."""


class RunSetup(BaseAction, frozen=True):
    """Run one of the set-up commands of the workspace."""

    command: str


class ClaimFiles(BaseAction, frozen=True):
    """Request to claim files. Appends `FilesClaimed` or `ClaimRejected` to both streams."""

    phase: str
    paths: tuple[Path, ...]


class CreateItems(BaseAction, frozen=True):
    """Create items from an output, one of each entry."""

    artifact: str
    rules: str
    kind: str


class RunPreparation(BaseAction, frozen=True):
    command: str


class CallAgent(BaseAction, frozen=True):
    """Call the builder or the reviewer, as `role` says."""

    role: str
    attempt: int


class ReconcileIntent(BaseAction, frozen=True):
    """Reconcile an intent without an outcome: find out what happened, and record it."""

    intent: Intent


class ParseReply(BaseAction, frozen=True):
    outcome: AgentOutcome


class RunGate(BaseAction, frozen=True):
    """Run a command of `mz.yaml` as a gate."""

    gate: str
    cause: str


class CheckRule(BaseAction, frozen=True):
    """Check a rule that concerns the whole feature."""

    rule: str
    cause: str


class CheckConditions(BaseAction, frozen=True):
    """Check the conditions of the phase, or of its agent review."""

    of: Literal["phase", "review"]


class Deliver(BaseAction, frozen=True):
    """Take a step of delivery, which `Phase.steps` names."""

    step: str


class ReportingAction(BaseAction, frozen=True, kw_only=True):
    """Base of the actions that end the work on a unit for now, with the reason."""

    reports: tuple[Digest, ...] = ()
    """Blobs: JSON arrays of messages."""
    text: Digest | None = None
    """Blob: plain text, where there is no report."""


class AskPerson(ReportingAction, frozen=True, kw_only=True):
    question_kind: QuestionKind
    code: str = ""
    codes: tuple[str, ...] = ()


class Fail(ReportingAction, frozen=True, kw_only=True):
    """End the feature where a person would be asked, since its kind says so."""

    code: str


class BlockPhase(ReportingAction, frozen=True, kw_only=True):
    cause: str
    check: str
    units: tuple[str, ...] = ()


class RestoreTree(BaseAction, frozen=True):
    """Commit the tree that a rollback restores; once it is committed, record the restore."""

    committed: bool


CommandAction = RunSetup | RunPreparation | RunGate | CheckRule | CheckConditions
AgentAction = CallAgent | ReconcileIntent | ParseReply
Action = (
    Event
    | Work
    | CommandAction
    | AgentAction
    | ClaimFiles
    | CreateItems
    | Deliver
    | AskPerson
    | Fail
    | BlockPhase
    | RestoreTree
)
