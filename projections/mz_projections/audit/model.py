"""Statements of an audit for and against a run, each with the event refs (`stream@version`) that prove it."""

from __future__ import annotations

from typing import Literal

import msgspec
from mz_events.names import Commit, Digest, Path

from mz_projections.cost.totals import PricedCall, Spending
from mz_projections.views.messages import Decision
from mz_projections.views.model import FeatureStatus, RunStatus

GapKind = Literal[
    "not-delivered", "past-gate", "ref-moved", "not-validated", "checks-red",
    "untested", "left-out", "unchecked", "reverted", "failed", "lost", "salvaged", "unpriced", "quarantined", "refused",
]  # fmt: skip
FAULT_KINDS: frozenset[GapKind] = frozenset({"not-delivered", "past-gate", "ref-moved", "not-validated", "checks-red"})
"""Gaps that make the verdict negative unless a person allowed them; the others are remarks."""


class AuditStatement(msgspec.Struct, frozen=True, kw_only=True):
    """Base of an audit's statements."""


class Gap(AuditStatement, frozen=True, kw_only=True):
    """Something missing, or something that should not have happened."""

    kind: GapKind
    feature: str
    """Empty: it concerns the run."""
    message: str
    """Names and numbers only."""
    event_refs: tuple[str, ...]
    allowed_by: str = ""
    """Event ref of the person's decision that allows it; empty: none."""

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULT_KINDS and not self.allowed_by


class RequestedItem(AuditStatement, frozen=True, kw_only=True):
    """One item of the backlog."""

    source: str
    title: Digest | None
    body: Digest | None
    event_ref: str
    skipped_for: str = ""
    """Event ref of the earlier delivery for which it was skipped; empty: not skipped."""


class CommitMade(AuditStatement, frozen=True, kw_only=True):
    phase: str
    unit: str
    purpose: str
    commit: Commit
    files: int
    insertions: int
    deletions: int
    event_ref: str


class CommandRun(AuditStatement, frozen=True, kw_only=True):
    """A process started by `mz`: the evidence of a gate."""

    name: str
    exit: int | None
    """None: killed at its time limit."""
    passed: int | None
    failed: int | None
    output: Digest
    duration_ms: int
    event_ref: str


class GateDecision(AuditStatement, frozen=True, kw_only=True):
    phase: str
    unit: str
    gate: str
    passed: bool
    broken_rules: tuple[str, ...]
    """Broken ones."""
    report: Digest | None
    command: CommandRun | None
    """None: a rule over artifacts and tree decided."""
    event_ref: str


class ReplyDecision(AuditStatement, frozen=True, kw_only=True):
    """Decision of the rules on an agent's artifacts."""

    phase: str
    unit: str
    iteration: int
    attempt: int
    role: str
    broken_rules: tuple[str, ...]
    """Broken ones; empty: valid."""
    report: Digest | None
    event_ref: str


class ArtifactMade(AuditStatement, frozen=True, kw_only=True):
    """The latest artifact of its name and unit that is not superseded."""

    artifact: str
    phase: str
    unit: str
    path: Path | None
    digest: Digest
    event_ref: str
    call: PricedCall | None
    """The call that made it; None if no call of that unit is known."""
    prompt: Digest | None
    template: str
    request_ref: str
    """Event ref of the call's request; empty without one."""


class TestCounts(AuditStatement, frozen=True, kw_only=True):
    """Test counts of one command."""

    name: str
    passed: int
    failed: int
    event_ref: str


class FeatureAudit(AuditStatement, frozen=True, kw_only=True):
    feature: str
    requested: RequestedItem | None
    status: FeatureStatus
    code: str
    last_ref: str
    """Event ref of its last event."""
    branch: str
    target: str
    pull_request: str
    changed_paths: tuple[Path, ...]
    commits: tuple[CommitMade, ...] = ()
    tests_before: tuple[TestCounts, ...] = ()
    """Before any agent change: the first preparation of each command that counted tests."""
    tests_after: tuple[TestCounts, ...] = ()
    """The last gate of each command that counted tests."""
    replies: tuple[ReplyDecision, ...] = ()
    gates: tuple[GateDecision, ...] = ()
    artifacts: tuple[ArtifactMade, ...] = ()
    decisions: tuple[Decision, ...] = ()
    spending: Spending
    gaps: tuple[Gap, ...] = ()


class RunAudit(AuditStatement, frozen=True, kw_only=True):
    run: str
    status: RunStatus
    pipeline: str
    base: str
    base_commit: str
    mz_version: str
    started_ref: str
    """Event ref of its start."""
    last_ref: str
    """Event ref of its last event."""
    features: tuple[FeatureAudit, ...]
    decisions: tuple[Decision, ...]
    """People's decisions about the run itself."""
    spending: Spending
    gaps: tuple[Gap, ...]
    """Gaps of the run; each feature has its own."""

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        return (*self.gaps, *(gap for feature in self.features for gap in feature.gaps))

    @property
    def faults(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.all_gaps if gap.is_fault)

    @property
    def delivered(self) -> tuple[str, ...]:
        """Features that are done, by this run or by an earlier one."""
        return tuple(feature.feature for feature in self.features if feature.status in DONE_STATUSES)


DONE_STATUSES: frozenset[FeatureStatus] = frozenset({"delivered", "merged", "tagged", "skipped"})
