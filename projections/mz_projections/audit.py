"""Statements of an audit for and against a run, each with the event refs (`stream@version`) that prove it."""

from __future__ import annotations

from typing import Literal

import msgspec
from mz_events.names import Commit, Digest, Path

from mz_projections.queue import Decision
from mz_projections.spending import Judged, Spending
from mz_projections.views import FeatureStatus, RunStatus

GapKind = Literal[
    "not-delivered", "past-gate", "ref-moved", "not-validated", "checks-red",
    "untested", "left-out", "unchecked", "reverted", "failed", "lost", "salvaged", "unpriced", "quarantined", "refused",
]  # fmt: skip
FAULTS: frozenset[GapKind] = frozenset({"not-delivered", "past-gate", "ref-moved", "not-validated", "checks-red"})
"""Gaps that make the verdict negative unless a person allowed them; the others are remarks."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of an audit's statements."""


class Gap(Fact, frozen=True, kw_only=True):
    """Something missing, or something that should not have happened."""

    kind: GapKind
    feature: str
    """Empty: it concerns the run."""
    what: str
    """Names and numbers only."""
    places: tuple[str, ...]
    allowed: str = ""
    """Event ref of the person's decision that allows it; empty: none."""

    @property
    def fault(self) -> bool:
        return self.kind in FAULTS and not self.allowed


class AskedFor(Fact, frozen=True, kw_only=True):
    """One item of the backlog."""

    source: str
    title: Digest | None
    body: Digest | None
    place: str
    skipped: str = ""
    """Event ref of the earlier delivery for which it was skipped; empty: not skipped."""


class CommitMade(Fact, frozen=True, kw_only=True):
    phase: str
    unit: str
    purpose: str
    commit: Commit
    files: int
    insertions: int
    deletions: int
    place: str


class CommandRun(Fact, frozen=True, kw_only=True):
    """A process started by `mz`: the evidence of a gate."""

    name: str
    exit: int | None
    """None: killed at its time limit."""
    passed: int | None
    failed: int | None
    output: Digest
    duration_ms: int
    place: str


class GateDecision(Fact, frozen=True, kw_only=True):
    phase: str
    unit: str
    gate: str
    passed: bool
    rules: tuple[str, ...]
    """Broken ones."""
    report: Digest | None
    command: CommandRun | None
    """None: a rule over artifacts and tree decided."""
    place: str


class ReplyDecision(Fact, frozen=True, kw_only=True):
    """Decision of the rules on an agent's artifacts."""

    phase: str
    unit: str
    iteration: int
    attempt: int
    role: str
    rules: tuple[str, ...]
    """Broken ones; empty: valid."""
    report: Digest | None
    place: str


class ArtifactMade(Fact, frozen=True, kw_only=True):
    """The latest artifact of its name and unit that is not superseded."""

    artifact: str
    phase: str
    unit: str
    path: Path | None
    digest: Digest
    place: str
    call: Judged | None
    """The call that made it; None if no call of that unit is known."""
    prompt: Digest | None
    template: str
    asked: str
    """Event ref of the call's request; empty without one."""


class Tests(Fact, frozen=True, kw_only=True):
    """Test counts of one command."""

    name: str
    passed: int
    failed: int
    place: str


class FeatureAudit(Fact, frozen=True, kw_only=True):
    feature: str
    asked: AskedFor | None
    status: FeatureStatus
    code: str
    settled: str
    """Event ref of its last event."""
    branch: str
    target: str
    pull_request: str
    touched: tuple[Path, ...]
    commits: tuple[CommitMade, ...] = ()
    before: tuple[Tests, ...] = ()
    """Before any agent change: the first preparation of each command that counted tests."""
    after: tuple[Tests, ...] = ()
    """The last gate of each command that counted tests."""
    replies: tuple[ReplyDecision, ...] = ()
    gates: tuple[GateDecision, ...] = ()
    artifacts: tuple[ArtifactMade, ...] = ()
    decisions: tuple[Decision, ...] = ()
    spent: Spending
    gaps: tuple[Gap, ...] = ()


class RunAudit(Fact, frozen=True, kw_only=True):
    run: str
    status: RunStatus
    pipeline: str
    base: str
    base_commit: str
    core: str
    begun: str
    """Event ref of its start."""
    settled: str
    """Event ref of its last event."""
    features: tuple[FeatureAudit, ...]
    decisions: tuple[Decision, ...]
    """People's decisions about the run itself."""
    spent: Spending
    gaps: tuple[Gap, ...]
    """Gaps of the run; each feature has its own."""

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        return (*self.gaps, *(gap for feature in self.features for gap in feature.gaps))

    @property
    def faults(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.all_gaps if gap.fault)

    @property
    def delivered(self) -> tuple[str, ...]:
        """Features that are done, by this run or by an earlier one."""
        return tuple(feature.feature for feature in self.features if feature.status in DONE)


DONE: frozenset[FeatureStatus] = frozenset({"delivered", "merged", "tagged", "skipped"})
